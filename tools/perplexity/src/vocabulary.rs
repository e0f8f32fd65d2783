//! Check that two models have the same vocabulary.

use bespoke_gguf::Gguf;

/// Two models whose predictions cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VocabularyError {
    /// A vocabulary cannot be read.
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    /// The vocabularies have different sizes.
    #[error("the models have different vocabularies: {0} and {1} tokens")]
    Size(usize, usize),
    /// A token differs.
    #[error(
        "the models have different vocabularies: token {id} is `{first}` in one and `{second}` in the other"
    )]
    Token {
        /// The first id with different tokens.
        id: usize,
        /// The reference's token.
        first: String,
        /// The model's token.
        second: String,
    },
}

/// Checks that two files have the same tokens (`tokenizer.ggml.tokens`) under the same ids.
///
/// # Errors
/// If they have not, or one has no tokens.
pub fn check_vocabularies(first: &Gguf, second: &Gguf) -> Result<(), VocabularyError> {
    const KEY: &str = "tokenizer.ggml.tokens";
    let (first, second) = (first.strings(KEY)?, second.strings(KEY)?);
    if first.len() != second.len() {
        return Err(VocabularyError::Size(first.len(), second.len()));
    }
    match first.iter().zip(&second).position(|(first, second)| first != second) {
        Some(id) => {
            let (first, second) = (first[id].to_owned(), second[id].to_owned());
            Err(VocabularyError::Token { id, first, second })
        }
        None => Ok(()),
    }
}
