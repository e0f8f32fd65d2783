//! A case as data: buffers, launches, and what the outputs must be.

use bespoke_kernels::spec::KernelSpec;

/// The byte that outputs are filled with: as f32 or f16 it makes a NaN, as u32 a token that no vocabulary has.
pub(super) const POISON: u8 = 0xFF;

/// What a buffer holds before the launches.
pub(super) enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many bytes of [`POISON`].
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
    /// Its name in findings and in the report.
    pub name: String,
    /// What it holds.
    pub content: Content,
}

/// An argument of a launch.
#[derive(Clone, Copy)]
pub(super) enum Arg {
    /// The address of a buffer.
    Buffer(usize),
    /// A number.
    Word(u32),
}

/// What an output's elements are.
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

/// How far from the reference an output may be.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// Energy of the error over energy of the reference. No single error may exceed ten times the root of it.
    pub nmse: f64,
    /// Why that much.
    pub reason: &'static str,
}

/// Values in double precision.
pub(super) struct Close {
    /// The elements compared; the others must be written.
    pub at: Vec<usize>,
    /// Their values; a NaN stands for an element that must not be written.
    pub values: Vec<f64>,
    /// What errors are relative to, if not the root mean square of the values.
    pub scale: Option<f64>,
    /// How close.
    pub limit: Limit,
}

impl Close {
    /// All elements of an output.
    pub fn all(values: Vec<f64>, limit: Limit) -> Close {
        Close { at: (0..values.len()).collect(), values, scale: None, limit }
    }
}

/// What an output must be.
pub(super) enum Want {
    /// These bytes.
    Exactly(Element, Vec<u8>),
    /// f32 near these values.
    Close(Close),
}

/// How the elements of an output are counted, for messages.
pub(super) enum Place {
    /// By these axes, outermost first, with their sizes.
    Axes(Vec<(&'static str, usize)>),
    /// By parts one after the other, with their sizes.
    Parts(Vec<(String, usize)>),
}

impl Place {
    /// One axis.
    pub fn line(axis: &'static str) -> Place {
        Place::Axes(vec![(axis, usize::MAX)])
    }

    /// Where an element lies, in words.
    pub fn of(&self, index: usize) -> String {
        match self {
            Place::Axes(axes) => {
                let mut rest = index;
                let mut words = Vec::new();
                for &(name, size) in axes.iter().rev() {
                    words.push(format!("{name} {}", rest % size));
                    rest /= size;
                }
                words.reverse();
                words.join(", ")
            }
            Place::Parts(parts) => {
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

/// An output and what it must be.
pub(super) struct Expected {
    /// The buffer.
    pub buffer: usize,
    /// How its elements are counted.
    pub place: Place,
    /// What they must be.
    pub want: Want,
}

/// Launches over buffers, and what comes of them.
pub(super) struct Case {
    /// Which inputs, in words.
    pub what: String,
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// Kernels and arguments, in order.
    pub launches: Vec<(KernelSpec, Vec<Arg>)>,
    /// The outputs.
    pub expected: Vec<Expected>,
    /// Buffers that kernels may write and that are not looked at.
    pub scratch: Vec<usize>,
}

impl Case {
    /// A case without anything.
    pub fn new(what: impl Into<String>) -> Case {
        Case {
            what: what.into(),
            buffers: Vec::new(),
            launches: Vec::new(),
            expected: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Adds a buffer with content.
    pub fn input(&mut self, name: &str, bytes: Vec<u8>) -> usize {
        self.buffer(name, Content::Bytes(bytes))
    }

    /// Adds a buffer of `count` elements of [`POISON`].
    pub fn output(&mut self, name: &str, element: Element, count: usize) -> usize {
        self.buffer(name, Content::Poison(count * element.bytes()))
    }

    fn buffer(&mut self, name: &str, content: Content) -> usize {
        self.buffers.push(Buffer { name: name.to_owned(), content });
        self.buffers.len() - 1
    }

    /// Adds a launch whose arguments are all buffers.
    pub fn launch(&mut self, spec: KernelSpec, buffers: &[usize]) {
        self.launches.push((spec, buffers.iter().map(|&buffer| Arg::Buffer(buffer)).collect()));
    }

    /// Lets kernels write these buffers without their being looked at.
    pub fn may_change(&mut self, buffers: impl IntoIterator<Item = usize>) {
        self.scratch.extend(buffers);
    }

    /// Says what an output must be.
    pub fn expect(&mut self, buffer: usize, place: Place, want: Want) {
        self.expected.push(Expected { buffer, place, want });
    }

    /// The names of the kernels, in order, each once.
    pub fn kernels(&self) -> String {
        let mut names: Vec<String> = self.launches.iter().map(|(spec, _)| spec.name()).collect();
        names.dedup();
        names.join(" + ")
    }
}
