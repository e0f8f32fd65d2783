//! Errors of the tokenizer.

/// Error of reading or using a file's tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe variants and fields")]
pub enum TokenizerError {
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    #[error("tokenizer.ggml.model `{model}` is not supported (`gpt2` and `llama` are)")]
    UnknownModel { model: String },
    #[error("tokenizer.ggml.tokens is empty")]
    Empty,
    #[error("{key} has {found} entries for {tokens} tokens")]
    Length { key: &'static str, found: usize, tokens: usize },
    #[error("tokens {first} and {second} are both `{token}`")]
    Duplicate { first: u32, second: u32, token: String },
    #[error("merge {index}, `{merge}`, {fault}")]
    Merge { index: usize, merge: String, fault: String },
    #[error("{key} is {id}, but there are {tokens} tokens")]
    Id { key: &'static str, id: u32, tokens: usize },
    #[error("the file asks for a beginning-of-sequence token but has no tokenizer.ggml.bos_token_id")]
    NoBos,
    #[error("no token stands for the byte {byte:#04x}: not every text can be encoded")]
    NoByte { byte: u8 },
    #[error("the tokenizer failed: {0}")]
    Model(String),
}
