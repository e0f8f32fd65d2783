//! Files of launches: buffers, kernels to launch on them, and expected results.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::CheckError;
use super::tensor_map::TensorArgument;
use super::values::{Element, Number};

/// Bytes of a pointer.
pub(super) const POINTER: usize = 8;

/// Version of the format of launch files.
const VERSION: u32 = 1;

/// A parsed launch file. docs/check.md describes the format.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launches {
    /// Version of the format: 1.
    pub version: u32,
    /// Number of multiprocessors of the device on which the launches must fit; by default that of the largest common
    /// device of the PTX's target.
    pub multiprocessors: Option<NonZeroU32>,
    /// Buffers by name.
    #[serde(default)]
    pub buffers: BTreeMap<String, Buffer>,
    /// Launches, in order.
    #[serde(default, rename = "launch")]
    pub launches: Vec<Launch>,
    /// Folder of the file, to which the paths in it are relative.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// Memory for kernels. The length comes from the initial content, or from `count`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Type of the elements; bytes by default.
    #[serde(default, rename = "type")]
    pub element: Element,
    /// Number of elements, if the content does not determine the length.
    pub count: Option<usize>,
    /// Rule for the initial content. Without `init`, `fill`, `values`, `hex` and `file` the buffer is uninitialised.
    pub init: Option<Content>,
    /// Seed of the rule `random`.
    #[serde(default)]
    pub seed: u64,
    /// Range of the rule `random`, end excluded; by default -1 to 1 for floats, 0 to 100 for integers.
    pub range: Option<[f64; 2]>,
    /// Initial value of all elements.
    pub fill: Option<Number>,
    /// Initial values of the elements.
    pub values: Option<Vec<Number>>,
    /// Initial bytes as hexadecimal digits.
    pub hex: Option<String>,
    /// File with the initial bytes.
    pub file: Option<PathBuf>,
    /// Addresses of buffers in the initial content.
    pub pointers: Option<Pointers>,
    /// File to which the content is written after the last launch, unless there are findings.
    pub save: Option<PathBuf>,
    /// Expected content after the last launch.
    pub expect: Option<Expectation>,
}

/// Rule for the initial content of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Uninitialised: a read by a kernel is a finding.
    Uninitialised,
    /// Zeros.
    Zeros,
    /// Elements 0, 1, 2 …
    Iota,
    /// Random numbers that depend on the seed.
    Random,
}

/// Expected content of a buffer after the last launch, from its first element on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Expected elements.
    pub values: Option<Vec<Number>>,
    /// File with the expected elements.
    pub file: Option<PathBuf>,
    /// Function that computes the expected elements from the initial contents of other buffers.
    #[serde(rename = "fn")]
    pub function: Option<Function>,
    /// Names of the buffers that are operands of the function.
    #[serde(default)]
    pub of: Vec<String>,
    /// Tolerance per element: absolute or relative, whichever is larger.
    #[serde(default)]
    pub tolerance: f64,
}

/// A function of whole buffers, computed in double precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    /// The buffer unchanged.
    Copy,
    /// The sum of a buffer's elements: one number.
    Sum,
    /// The smallest element of a buffer: one number.
    Min,
    /// The largest element of a buffer: one number.
    Max,
    /// The element-wise sum of two buffers.
    Add,
    /// The element-wise product of two buffers.
    Multiply,
    /// The dot product of two buffers: one number.
    Dot,
}

/// One launch of a kernel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The kernel's name; by default that of the metadata.
    pub kernel: Option<String>,
    /// File with the metadata that Triton wrote beside the PTX. They give block, cluster, shared memory, kinds of launch,
    /// and the last two parameters, pointers to scratch memory.
    pub triton: Option<PathBuf>,
    /// CTAs of the grid: one number, or the numbers along x, y and z.
    pub grid: Extent,
    /// Threads per CTA: one number, or the numbers along x, y and z.
    pub block: Option<Extent>,
    /// CTAs per cluster, if the kernel does not set the size: one number, or the numbers along x, y and z.
    pub cluster: Option<Extent>,
    /// Bytes of dynamic shared memory per CTA.
    pub shared: Option<u32>,
    /// Whether the launch is cooperative, so that its CTAs may synchronise as a grid.
    #[serde(default)]
    pub cooperative: bool,
    /// Values of the parameters.
    #[serde(default)]
    pub args: Vec<Argument>,
    /// Whether the launch may start before its predecessor ends: programmatic dependent launch.
    #[serde(default)]
    pub programmatic: bool,
}

/// Extent along up to three axes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number from 0 to 4294967295, or a list of up to three")]
pub enum Extent {
    /// Extent along x; 1 along y and z.
    Line(u32),
    /// Extents along x, y and z; missing extents are 1.
    Axes(Vec<u32>),
}

impl Extent {
    /// Extents along x, y and z; `None` if more than three are given.
    pub fn axes(&self) -> Option<[u32; 3]> {
        let given = match self {
            Extent::Line(x) => std::slice::from_ref(x),
            Extent::Axes(axes) => axes,
        };
        let mut axes = [1; 3];
        axes.get_mut(..given.len())?.copy_from_slice(given);
        Some(axes)
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, a buffer's name, { buffer = \"…\", offset = … }, { hex = \"…\", pointers = … } or { tensor = \
                 \"…\", type = \"…\", sizes = […], box = […] } with strides, steps, swizzle, interleave and fill as needed"
)]
pub enum Argument {
    /// A number of the parameter's type.
    Number(Number),
    /// An address.
    Pointer(Pointer),
    /// The bytes of a structure.
    Bytes(Bytes),
    /// A tensor map.
    Tensor(TensorArgument),
}

/// An address in memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a buffer's name, { buffer = \"…\", offset = … } or an address")]
pub enum Pointer {
    /// The address of a buffer.
    Buffer(String),
    /// An address in a buffer.
    Within(Within),
    /// An address as a number: 0 for a null pointer.
    Address(u64),
}

/// Pointers in a structure or a buffer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a list of buffers' names, or a table of names by byte offset")]
pub enum Pointers {
    /// Pointers one after the other, from the first byte on.
    List(Vec<Pointer>),
    /// Pointers by their offset in bytes.
    At(BTreeMap<String, Pointer>),
}

impl Pointers {
    /// The pointers with their offsets in bytes, in ascending order of the offsets.
    ///
    /// # Errors
    /// If an offset is no number.
    pub fn at(&self) -> Result<Vec<(u64, &Pointer)>, String> {
        match self {
            Pointers::List(pointers) => Ok((0..).step_by(POINTER).zip(pointers).collect()),
            Pointers::At(pointers) => {
                let number = |offset: &str| {
                    let digits = offset.bytes().all(|byte| byte.is_ascii_digit());
                    let number = offset.parse().ok().filter(|_| digits);
                    number.ok_or_else(|| format!("`pointers`: `{offset}` is no offset in bytes"))
                };
                let at = pointers.iter().map(|(offset, pointer)| Ok((number(offset)?, pointer)));
                let mut at = at.collect::<Result<Vec<_>, String>>()?;
                at.sort_by_key(|&(offset, _)| offset);
                Ok(at)
            }
        }
    }
}

/// An address in a buffer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// Name of the buffer.
    pub buffer: String,
    /// Offset from the start of the buffer in bytes.
    pub offset: u64,
}

impl Within {
    /// The place of a tensor in its buffer.
    pub(super) fn of(map: &TensorArgument) -> Within {
        Within { buffer: map.tensor.clone(), offset: map.offset }
    }
}

/// The bytes of a parameter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    /// Bytes as hexadecimal digits.
    pub hex: String,
    /// Addresses of buffers among the bytes, in the place of these digits.
    pub pointers: Option<Pointers>,
    /// Tensor maps among the bytes, by their offset in bytes, in the place of these digits.
    #[serde(default)]
    pub maps: BTreeMap<String, TensorArgument>,
}

impl Launches {
    /// Reads a launch file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a launch file of a known version.
    pub fn read(path: &Path) -> Result<Launches, CheckError> {
        let text = read(path)?;
        let launches = Launches::parse(&text).map_err(|source| CheckError::toml(path, &text, source))?;
        if launches.version != VERSION {
            let what =
                format!("version {} of the format; this program reads version {VERSION}", launches.version);
            return Err(CheckError::launches(path.display().to_string(), what));
        }
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Launches { folder, ..launches })
    }

    /// Parses the text of a launch file; paths in the text are relative to the current folder.
    ///
    /// # Errors
    /// If the text is not TOML, or has other fields than [`Launches`].
    pub fn parse(text: &str) -> Result<Launches, toml::de::Error> {
        toml::from_str(text)
    }
}

/// Reads a text file. The error names the path.
pub(super) fn read(path: &Path) -> Result<String, CheckError> {
    std::fs::read_to_string(path).map_err(|source| CheckError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The launch file in docs/check.md.
    fn documented() -> &'static str {
        let page = include_str!("../../../docs/check.md");
        let (_, rest) = page.split_once("The launch file names buffers").expect("the page has the section");
        let (_, rest) = rest.split_once("```toml\n").expect("the section has an example");
        rest.split_once("```").expect("the example ends").0
    }

    #[test]
    fn the_documented_file_is_valid() {
        let launches = Launches::parse(documented()).expect("it is valid");
        assert_eq!(launches.version, VERSION);
        let sum = &launches.buffers["sum"];
        let expected = sum.expect.as_ref().expect("it has an expectation");
        assert_eq!((expected.function, expected.of.as_slice()), (Some(Function::Sum), &["x".to_owned()][..]));
        let [launch] = &launches.launches[..] else { panic!("{launches:?}") };
        let block = launch.block.as_ref().and_then(Extent::axes);
        assert_eq!((launch.grid.axes(), block), (Some([4, 1, 1]), Some([256, 1, 1])));
        assert!(launch.programmatic);
        assert_eq!(
            launch.args[2..],
            [
                Argument::Number(Number::Integer(1000)),
                Argument::Pointer(Pointer::Within(Within { buffer: "weights".into(), offset: 64 })),
                Argument::Bytes(Bytes {
                    hex: "0100000002000000 0000000000000000".into(),
                    pointers: Some(Pointers::At(BTreeMap::from([("8".into(), Pointer::Buffer("x".into()))]))),
                    maps: BTreeMap::new(),
                }),
            ]
        );
    }

    #[test]
    fn extents_have_up_to_three_axes() {
        assert_eq!(Extent::Axes(vec![2, 3]).axes(), Some([2, 3, 1]));
        assert_eq!(Extent::Axes(vec![1; 4]).axes(), None);
    }
}
