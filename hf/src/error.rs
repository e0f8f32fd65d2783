//! Errors of reading a folder.

use std::path::PathBuf;

/// Error of a Hugging Face folder. Messages name the file, and the key or the tensor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe variants and fields")]
pub enum HfError {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {bytes} bytes; files of this kind have at most {limit}", path.display())]
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    #[error("{}: malformed JSON: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("{}: {key}: {fault}", path.display())]
    Key { path: PathBuf, key: String, fault: String },
    #[error("config.json: the architecture {found} is not supported; these are: {supported}")]
    Architecture { found: String, supported: String },
    #[error("{}: neither model.safetensors nor model.safetensors.index.json is there{hint}", path.display())]
    NoWeights { path: PathBuf, hint: &'static str },
    #[error("{}: not a valid safetensors file: {fault}", path.display())]
    Shard { path: PathBuf, fault: String },
    #[error("{}: the tensor {tensor} is not in {file}, where the index places it", path.display())]
    NotInShard { path: PathBuf, tensor: String, file: String },
    #[error("{}: the tensor {tensor} is in {file:?}: a shard must be a file of the same folder", path.display())]
    Outside { path: PathBuf, tensor: String, file: String },
    #[error("the tensor {tensor} is missing in the safetensors files")]
    MissingTensor { tensor: String },
    #[error("{}: the tensor {tensor} has the shape {found:?}, but config.json gives {expected:?}", path.display())]
    Shape { path: PathBuf, tensor: String, found: Vec<usize>, expected: Vec<u64> },
    #[error("{}: the tensor {tensor} is {found}; F32, F16 and BF16 are supported", path.display())]
    Dtype { path: PathBuf, tensor: String, found: String },
    #[error(
        "{}: the tensor {tensor} is not used by {architecture} models, and ignoring it could give wrong results",
        path.display()
    )]
    UnusedTensor { path: PathBuf, tensor: String, architecture: &'static str },
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
}
