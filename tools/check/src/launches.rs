//! Files of launches: which buffers there are, which kernels run on them, and what must come out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::CheckError;
use super::values::{Element, Number};

/// The version of the format.
const VERSION: u32 = 1;

/// A file of launches, as read. docs/check.md describes the format.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launches {
    /// 1.
    pub version: u32,
    /// Buffers by name.
    #[serde(default)]
    pub buffers: BTreeMap<String, Buffer>,
    /// Launches, in order.
    #[serde(default, rename = "launch")]
    pub launches: Vec<Launch>,
    /// Where the files that it names are looked for: its own folder.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// Memory for kernels. Its length comes from its content, or from `count`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// What its elements are; bytes if it does not say.
    #[serde(default, rename = "type")]
    pub element: Element,
    /// Number of elements.
    pub count: Option<usize>,
    /// What it holds at first, by rule; uninitialised if neither this nor another field says.
    pub init: Option<Content>,
    /// What the numbers of `random` depend on.
    #[serde(default)]
    pub seed: u64,
    /// Where the numbers of `random` lie: from the first, up to below the second. Without it, -1 to 1 for floats,
    /// 0 to 100 for integers.
    pub range: Option<[f64; 2]>,
    /// One number for all elements.
    pub fill: Option<Number>,
    /// Its elements.
    pub values: Option<Vec<Number>>,
    /// Its bytes, in hexadecimal digits.
    pub hex: Option<String>,
    /// A file with its bytes.
    pub file: Option<PathBuf>,
    /// What it must hold after the last launch.
    pub expect: Option<Expectation>,
}

/// What a buffer holds at first, by rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Nothing that may be read.
    Uninitialised,
    /// Zeros.
    Zeros,
    /// 0, 1, 2 …
    Iota,
    /// Random numbers.
    Random,
}

/// What a buffer must hold after the last launch, from its first element on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// These elements.
    pub values: Option<Vec<Number>>,
    /// The elements in a file.
    pub file: Option<PathBuf>,
    /// What this function makes of other buffers' first content.
    #[serde(rename = "fn")]
    pub function: Option<Function>,
    /// The function's buffers.
    #[serde(default)]
    pub of: Vec<String>,
    /// How far an element may be off: by this, or by this share of its value, whichever is more.
    #[serde(default)]
    pub tolerance: f64,
}

/// A function of whole buffers, computed in double precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    /// The buffer itself.
    Copy,
    /// The sum of its elements: one number.
    Sum,
    /// The smallest of its elements: one number.
    Min,
    /// The largest of its elements: one number.
    Max,
    /// The sums of two buffers' elements.
    Add,
    /// The products of two buffers' elements.
    Multiply,
    /// The sum of the products of two buffers' elements: one number.
    Dot,
}

/// One launch of a kernel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: String,
    /// CTAs: one number, or those along x, y and z.
    pub grid: Extent,
    /// Threads of a CTA: one number, or those along x, y and z.
    pub block: Extent,
    /// CTAs of a cluster, if the launch and not the kernel says so: one number, or those along x, y and z.
    pub cluster: Option<Extent>,
    /// Bytes of dynamic shared memory.
    #[serde(default)]
    pub shared: u32,
    /// A value for each parameter.
    #[serde(default)]
    pub args: Vec<Argument>,
    /// Whether it may start before the launch ahead of it is over: programmatic dependent launch.
    #[serde(default)]
    pub programmatic: bool,
}

/// A size along up to three axes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Extent {
    /// Along x.
    Line(u32),
    /// Along x, y and z; those left out are 1.
    Axes(Vec<u32>),
}

impl Extent {
    /// The three sizes; none if there are more.
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
#[serde(untagged)]
pub enum Argument {
    /// A number, as the parameter's type has it.
    Number(Number),
    /// The address of a buffer.
    Buffer(String),
    /// An address in a buffer.
    Within(Within),
    /// The bytes of a structure.
    Bytes(Bytes),
}

/// An address in a buffer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// The buffer.
    pub buffer: String,
    /// Bytes from its start.
    pub offset: u64,
}

/// The bytes of a parameter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    /// Hexadecimal digits.
    pub hex: String,
}

impl Launches {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or is no file of launches of a known version.
    pub fn read(path: &Path) -> Result<Launches, CheckError> {
        let text = read(path)?;
        let launches = Launches::parse(&text).map_err(|source| CheckError::toml(path, &text, source))?;
        if launches.version != VERSION {
            let what =
                format!("version {} of the format; this program knows version {VERSION}", launches.version);
            return Err(CheckError::launches(path.display().to_string(), what));
        }
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Launches { folder, ..launches })
    }

    /// Reads a text; files that it names are looked for in the current folder.
    ///
    /// # Errors
    /// If it is no TOML, or has other fields than [`Launches`].
    pub fn parse(text: &str) -> Result<Launches, toml::de::Error> {
        toml::from_str(text)
    }
}

/// The text of a file.
pub(super) fn read(path: &Path) -> Result<String, CheckError> {
    std::fs::read_to_string(path).map_err(|source| CheckError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of launches in docs/check.md.
    fn documented() -> &'static str {
        let page = include_str!("../../../docs/check.md");
        let (_, rest) = page.split_once("The file of launches names buffers").expect("the section is there");
        let (_, rest) = rest.split_once("```toml\n").expect("with an example");
        rest.split_once("```").expect("that ends").0
    }

    #[test]
    fn the_documented_file_is_one() {
        let launches = Launches::parse(documented()).expect("it is valid");
        assert_eq!(launches.version, VERSION);
        let sum = &launches.buffers["sum"];
        let expected = sum.expect.as_ref().expect("it is expected to hold something");
        assert_eq!((expected.function, expected.of.as_slice()), (Some(Function::Sum), &["x".to_owned()][..]));
        let [launch] = &launches.launches[..] else { panic!("{launches:?}") };
        assert_eq!((launch.grid.axes(), launch.block.axes()), (Some([4, 1, 1]), Some([256, 1, 1])));
        assert!(launch.programmatic);
        assert_eq!(
            launch.args[2..],
            [
                Argument::Number(Number::Integer(1000)),
                Argument::Within(Within { buffer: "weights".into(), offset: 64 }),
                Argument::Bytes(Bytes { hex: "0100000002000000".into() }),
            ]
        );
    }

    #[test]
    fn extents_have_up_to_three_axes() {
        assert_eq!(Extent::Axes(vec![2, 3]).axes(), Some([2, 3, 1]));
        assert_eq!(Extent::Axes(vec![1; 4]).axes(), None);
    }
}
