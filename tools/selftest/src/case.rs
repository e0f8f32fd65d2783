//! Test cases: buffers, launches, and expected outputs.

use bespoke_kernels::spec::KernelSpec;

/// Byte with which outputs are filled before a launch: as f32 or f16 a NaN, as u32 a token that no vocabulary has.
pub(super) const POISON: u8 = 0xFF;

/// Initial content of a buffer.
pub(super) enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// This number of [`POISON`] bytes.
    Poison(usize),
}

impl Content {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Poison(bytes) => *bytes,
        }
    }
}

/// A buffer of a case.
pub(super) struct Buffer {
    /// Name in findings and in the report.
    pub name: String,
    /// Initial content.
    pub content: Content,
}

/// An argument of a launch.
#[derive(Clone, Copy)]
pub(super) enum Arg {
    /// The address of the case's buffer with this index.
    Buffer(usize),
    /// A 32-bit number.
    Word(u32),
}

/// Element type of an output.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Element {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// Unsigned words.
    U32,
}

impl Element {
    /// Size in bytes.
    pub fn bytes(self) -> usize {
        if self == Element::F16 { 2 } else { 4 }
    }
}

/// Largest error that an output may have.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// Largest normalised mean squared error (NMSE). No single error may exceed ten times the root of the limit.
    pub nmse: f64,
    /// Reason for the limit.
    pub reason: &'static str,
}

/// Expected values in double precision.
pub(super) struct Close {
    /// Indices of the elements to compare; all other elements must be written, with any value.
    pub at: Vec<usize>,
    /// Expected values of the elements in `at`; NaN marks an element that must not be written.
    pub values: Vec<f64>,
    /// Unit of the errors, if not the root mean square of the values.
    pub scale: Option<f64>,
    /// The limit.
    pub limit: Limit,
}

impl Close {
    /// Expects values for all elements of an output.
    pub fn all(values: Vec<f64>, limit: Limit) -> Close {
        Close { at: (0..values.len()).collect(), values, scale: None, limit }
    }
}

/// Expected content of an output.
pub(super) enum Want {
    /// Exactly these bytes.
    Exactly(Element, Vec<u8>),
    /// f32 values close to these values.
    Close(Close),
    /// The content of the buffer with this index, an output of another launch.
    Same(usize),
}

/// Shape of an output, to describe an element in messages.
pub(super) enum Coordinates {
    /// Axes with their sizes, outermost first.
    Axes(Vec<(&'static str, usize)>),
    /// Consecutive parts with their sizes.
    Parts(Vec<(String, usize)>),
}

impl Coordinates {
    /// Coordinates along a single axis.
    pub fn line(axis: &'static str) -> Coordinates {
        Coordinates::Axes(vec![(axis, usize::MAX)])
    }

    /// Describes the position of an element.
    pub fn describe(&self, index: usize) -> String {
        match self {
            Coordinates::Axes(axes) => {
                let mut rest = index;
                let mut words = Vec::new();
                for &(name, size) in axes.iter().rev() {
                    words.push(format!("{name} {}", rest % size));
                    rest /= size;
                }
                words.reverse();
                words.join(", ")
            }
            Coordinates::Parts(parts) => {
                let mut first = 0;
                for (name, size) in parts {
                    if index < first + size {
                        return format!("{name}, row {}", index - first);
                    }
                    first += size;
                }
                format!("element {index}")
            }
        }
    }
}

/// An output of a case, and the expected content.
pub(super) struct Expected {
    /// Index of the buffer.
    pub buffer: usize,
    /// Shape of the output.
    pub place: Coordinates,
    /// The expected content.
    pub want: Want,
}

/// Launches over buffers, and their expected outputs.
pub(super) struct Case {
    /// Description of the inputs, for messages.
    pub what: String,
    /// Buffers of the launches.
    pub buffers: Vec<Buffer>,
    /// Kernels and arguments, in order.
    pub launches: Vec<(KernelSpec, Vec<Arg>)>,
    /// Outputs with their expected content.
    pub expected: Vec<Expected>,
    /// Indices of buffers that kernels may write and that are not compared.
    pub scratch: Vec<usize>,
}

impl Case {
    /// An empty case.
    pub fn new(what: impl Into<String>) -> Case {
        Case {
            what: what.into(),
            buffers: Vec::new(),
            launches: Vec::new(),
            expected: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Adds a buffer with content, and returns its index.
    pub fn input(&mut self, name: &str, bytes: Vec<u8>) -> usize {
        self.buffer(name, Content::Bytes(bytes))
    }

    /// Adds a buffer of `count` elements filled with [`POISON`], and returns its index.
    pub fn output(&mut self, name: &str, element: Element, count: usize) -> usize {
        self.buffer(name, Content::Poison(count * element.bytes()))
    }

    /// Index of the buffer with a name.
    pub fn buffer_named(&self, name: &str) -> usize {
        self.buffers.iter().position(|buffer| buffer.name == name).expect("the case has the buffer")
    }

    fn buffer(&mut self, name: &str, content: Content) -> usize {
        self.buffers.push(Buffer { name: name.to_owned(), content });
        self.buffers.len() - 1
    }

    /// Adds a launch whose arguments are all buffers.
    pub fn launch(&mut self, spec: KernelSpec, buffers: &[usize]) {
        self.launches.push((spec, buffers.iter().map(|&buffer| Arg::Buffer(buffer)).collect()));
    }

    /// Lets kernels write these buffers, which are not compared.
    pub fn may_change(&mut self, buffers: impl IntoIterator<Item = usize>) {
        self.scratch.extend(buffers);
    }

    /// Sets the expected content of an output.
    pub fn expect(&mut self, buffer: usize, place: Coordinates, want: Want) {
        self.expected.push(Expected { buffer, place, want });
    }

    /// Names of the case's kernels, in launch order, each once.
    pub fn kernels(&self) -> String {
        let mut names: Vec<String> = self.launches.iter().map(|(spec, _)| spec.name()).collect();
        names.dedup();
        names.join(" + ")
    }
}
