//! Errors of reading, writing and converting.

use crate::GgmlType;
use std::path::PathBuf;

/// Error of a GGUF file, or of a value in it.
///
/// Offsets are bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the messages show
pub enum Error {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },

    // The header.
    #[error("not a GGUF file: it {}", magic_hint(found))]
    Magic { found: String },
    #[error(
        "the file is big endian (its version field reads {version:#010x}); convert it to little endian first"
    )]
    BigEndian { version: u32 },
    #[error("GGUF version {version} is not supported (versions 2 and 3 are){}", version_hint(*version))]
    Version { version: u32 },
    #[error(
        "byte {at}: {what} needs {need} more bytes, but the file has {len} bytes in all (truncated download?)"
    )]
    Truncated { at: u64, what: &'static str, need: u64, len: u64 },
    #[error(
        "the header declares {count} {what}, more than the file's {len} bytes can hold (truncated download?)"
    )]
    Count { what: &'static str, count: u64, len: u64 },
    #[error("byte {at}: {what} is not UTF-8")]
    Utf8 { at: u64, what: &'static str },

    // Metadata.
    #[error("metadata key {key}: {source}")]
    InKey { key: String, source: Box<Error> },
    #[error("metadata key {key} appears twice (again at byte {at})")]
    DuplicateKey { key: String, at: u64 },
    #[error("byte {at}: unknown metadata value kind {number} (kinds are 0 to 12)")]
    Kind { at: u64, number: u32 },
    #[error("byte {at}: arrays of arrays are not supported")]
    NestedArray { at: u64 },
    #[error("byte {at}: a bool must be 0 or 1, not {byte}")]
    Bool { at: u64, byte: u8 },
    #[error("metadata key general.alignment is {value}, which is not a power of two")]
    Alignment { value: u64 },
    #[error("metadata key {key} is missing")]
    MissingKey { key: String },
    #[error("metadata key {key}: expected {expected}, found {found}")]
    WrongKind { key: String, expected: &'static str, found: String },

    // Tensors.
    #[error("tensor {index} of the directory: {source}")]
    InDirectory { index: u64, source: Box<Error> },
    #[error("tensor {name} appears twice (again at byte {at})")]
    DuplicateTensor { name: String, at: u64 },
    #[error("tensor {name}: {rank} dimensions at byte {at}; GGUF allows at most 4")]
    Rank { name: String, rank: u32, at: u64 },
    #[error("tensor {name}: dimension {index} is zero")]
    ZeroDimension { name: String, index: usize },
    #[error(
        "tensor {name}: ggml type {number} at byte {at} is unknown (retired, or newer than this program)"
    )]
    UnknownType { name: String, number: u32, at: u64 },
    #[error("tensor {name}: dimensions {dims:?} of {ty} overflow the address space")]
    TooLarge { name: String, dims: Vec<u64>, ty: GgmlType },
    #[error("tensor {name}: rows of {cols} elements are not a whole number of {ty} blocks, which have {} elements", ty.block_elements())]
    PartialBlock { name: String, cols: u64, ty: GgmlType },
    #[error("tensor {name}: offset {offset} is not a multiple of the alignment {alignment}")]
    Misaligned { name: String, offset: u64, alignment: u64 },
    #[error("tensor {name}: data ends at byte {end}, but the file has {len} bytes (truncated download?)")]
    DataBeyondEnd { name: String, end: u128, len: u64 },
    #[error("tensors {first} and {second} overlap at byte {at}")]
    Overlap { first: String, second: String, at: u64 },
    #[error("tensor {name} is missing")]
    MissingTensor { name: String },

    #[error("tensor {name}: {source}")]
    Source { name: String, source: Box<dyn std::error::Error + Send + Sync> },

    // Split models.
    #[error("part {index} of {count} of the model is missing: cannot read {}: {source}", path.display())]
    MissingPart { path: PathBuf, index: u32, count: u32, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    InPart { path: PathBuf, source: Box<Error> },
    #[error("this is a part of another model: {key} is {found}, not {expected}")]
    OtherPart { key: &'static str, found: String, expected: String },
    #[error(
        "{} is a part of a split model, whose name must end in {suffix}: the other parts are found by their names",
        path.display()
    )]
    SplitName { path: PathBuf, suffix: String },
    #[error("{key} is {count}: a part of a split model must be opened by its path")]
    SplitInMemory { key: &'static str, count: u32 },
    #[error("{key} is {expected}, but the parts have {found} tensors")]
    SplitTensors { key: &'static str, expected: u32, found: usize },
    #[error("tensor {name} is in an earlier part, and again in {}", path.display())]
    TensorInTwoParts { name: String, path: PathBuf },

    // Values.
    #[error("dequantising {ty} is not supported")]
    NotDequantizable { ty: GgmlType },
    #[error("{bytes} bytes of {ty} do not have {elements} elements")]
    DequantizeLength { ty: GgmlType, bytes: usize, elements: usize },
    #[error("quantising to {ty} is not supported")]
    NotQuantizable { ty: GgmlType },
    #[error("{elements} values do not fill {bytes} bytes of {ty}")]
    QuantizeLength { ty: GgmlType, bytes: usize, elements: usize },
    #[error("{value} cannot be written as {ty}")]
    NotRepresentable { ty: GgmlType, value: f32 },
    #[error(
        "tensor {name}: {} is NaN or infinite: the file is damaged, or its conversion overflowed; download or convert \
         it again",
        non_finite_place(*ty, *block, *cols)
    )]
    NonFinite { name: String, ty: GgmlType, block: u64, cols: u64 },
}

impl Error {
    /// Wraps an error in the value of metadata key `key`.
    pub(crate) fn in_key(key: &str) -> impl FnOnce(Error) -> Error + '_ {
        move |source| Error::InKey { key: key.into(), source: Box::new(source) }
    }

    /// Whether parsing ended because the bytes end at byte `read`, before the end of the file.
    pub(crate) fn needs_more_than(&self, read: u64) -> bool {
        match self {
            Error::Truncated { at, need, len, .. } => {
                at.saturating_add(*need) > read && at.saturating_add(*need) <= *len
            }
            Error::InKey { source, .. } | Error::InDirectory { source, .. } => source.needs_more_than(read),
            _ => false,
        }
    }

    pub(crate) fn wrong_kind(key: &str, expected: &'static str, found: impl ToString) -> Error {
        Error::WrongKind { key: key.into(), expected, found: found.to_string() }
    }
}

/// What a file begins with in place of `GGUF`, and what to do about the files that are most often found there.
fn magic_hint(found: &str) -> String {
    let todo = match found {
        "" => return "is empty; download it again".to_owned(),
        // "version https://git-lfs.github.com/spec/v1"
        "vers" => "; if it is a pointer of Git LFS, get the file with `git lfs pull`",
        "<!DO" | "<!do" | "<htm" => "; this is a web page: download the file itself",
        "lmgg" | "fmgg" | "tjgg" | "algg" => {
            "; this is a format older than GGUF: convert the model again with a current llama.cpp"
        }
        _ => "",
    };
    format!("starts with \"{found}\", not \"GGUF\"{todo}")
}

/// Name and place of a block's number, for a tensor with rows of `cols` elements.
fn non_finite_place(ty: GgmlType, block: u64, cols: u64) -> String {
    let elements = ty.block_elements() as u64;
    let (row, col) = (block * elements / cols.max(1), block * elements % cols.max(1));
    match elements {
        1 => format!("element {block} (row {row}, column {col})"),
        _ => format!("the scale of block {block} (row {row}, columns {col} to {})", col + elements - 1),
    }
}

fn version_hint(version: u32) -> &'static str {
    if version == 1 { "; re-convert the model with a current llama.cpp" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_recognised_by_their_first_bytes() {
        for (found, message) in [
            ("", "not a GGUF file: it is empty; download it again"),
            ("PK\\x03\\x04", "not a GGUF file: it starts with \"PK\\x03\\x04\", not \"GGUF\""),
            (
                "vers",
                "not a GGUF file: it starts with \"vers\", not \"GGUF\"; if it is a pointer of Git LFS, get the file with \
                 `git lfs pull`",
            ),
            (
                "<!do",
                "not a GGUF file: it starts with \"<!do\", not \"GGUF\"; this is a web page: download the file itself",
            ),
        ] {
            assert_eq!(Error::Magic { found: found.to_owned() }.to_string(), message);
        }
    }
}
