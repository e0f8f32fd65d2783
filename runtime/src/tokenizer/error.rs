//! Errors of the tokenizer.

/// Error of reading or using a file's tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe variants and fields")]
pub enum TokenizerError {
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    #[error(
        "tokenizer.ggml.model `{model}`{} is not supported (`gpt2`, byte-level BPE, `llama`, SentencePiece's BPE, and \
         `gemma4` are)",
        kind_of_model(model)
    )]
    UnknownModel { model: String },
    #[error(
        "tokenizer.ggml.pre `{pre}` is not supported: text would not be split as in the model's training; the model \
         still runs on token ids (supported: {})",
        super::pre::names().collect::<Vec<_>>().join(", ")
    )]
    UnknownPre { pre: String },
    #[error("tokenizer.ggml.tokens is empty")]
    Empty,
    #[error("{key} has {found} entries for {tokens} tokens")]
    Length { key: &'static str, found: usize, tokens: usize },
    #[error("tokenizer.ggml.tokens[{index}] has {len} bytes; a token has at most {limit}")]
    LongToken { index: usize, len: usize, limit: usize },
    #[error("tokenizer.ggml.token_type[{index}] is {number}, which is not a type of token (0 to 6 are)")]
    Type { index: usize, number: i32 },
    #[error("tokenizer.ggml.scores[{index}] is not a number")]
    Score { index: usize },
    #[error("tokenizer.ggml.merges[{index}], `{merge}`, {fault}")]
    Merge { index: usize, merge: String, fault: String },
    #[error("{key} is {id}, but there are {tokens} tokens")]
    Id { key: &'static str, id: u32, tokens: usize },
    #[error(
        "metadata key {key} is not supported: text could be encoded, or tokens chosen, otherwise than in the model's \
         training; the model still runs on token ids"
    )]
    UnsupportedKey { key: String },
    #[error(
        "the file asks for a beginning-of-sequence token (tokenizer.ggml.add_bos_token) but has no tokenizer.ggml.bos_token_id"
    )]
    NoBos,
    #[error(
        "the file asks for an end-of-sequence token (tokenizer.ggml.add_eos_token) but has no tokenizer.ggml.eos_token_id"
    )]
    NoEos,
    #[error("the tokenizer failed: {0}")]
    Model(String),
}

/// Description of a known but unsupported tokenizer model, for a message, after the model's name.
fn kind_of_model(model: &str) -> &'static str {
    match model {
        "bert" => ", WordPiece,",
        "t5" => ", SentencePiece's unigram model,",
        "rwkv" => ", a tree of byte strings,",
        "plamo2" => ", PLaMo-2's own,",
        "hybriddna" => ", k-mers of DNA,",
        "whitespace" => ", words between spaces,",
        _ => "",
    }
}
