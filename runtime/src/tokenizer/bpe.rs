//! BPE with ranked merges: the pre-tokenizer's pieces, spelled as in the vocabulary, merged by `tokenizers`.

use tokenizers::Model;
use tokenizers::models::bpe::{self, BPE};

use super::TokenizerError;
use super::bytes::byte_to_char;
use super::pre::{PreTokenizer, Spelling};
use super::split::Splitter;
use super::vocab::Vocab;

/// Encoder by merges.
pub struct Bpe {
    splitter: Splitter,
    spelling: Spelling,
    model: BPE,
    /// Whether each byte has a token.
    has_byte: Vec<bool>,
}

impl Bpe {
    /// Creates the encoder of a vocabulary with merges in order of rank.
    pub fn new(
        vocab: &Vocab<'_>,
        pre: &PreTokenizer,
        merges: &[(&str, &str)],
    ) -> Result<Self, TokenizerError> {
        let ids = vocab.ids.iter().map(|(token, id)| (token.to_string(), *id));
        let merges = merges.iter().map(|(left, right)| (left.to_string(), right.to_string()));
        let model = BPE::builder()
            .vocab_and_merges(ids.collect::<bpe::Vocab>(), merges.collect())
            .ignore_merges(pre.ignore_merges)
            .byte_fallback(pre.spelling == Spelling::Text)
            .build()
            .map_err(|error| TokenizerError::Model(error.to_string()))?;
        let has_byte = |byte| model.token_to_id(byte_to_char(byte).encode_utf8(&mut [0; 4])).is_some();
        Ok(Self {
            splitter: Splitter::new(pre.steps).map_err(|error| TokenizerError::Model(error.to_string()))?,
            spelling: pre.spelling,
            has_byte: (0..=255).map(has_byte).collect(),
            model,
        })
    }

    /// Encodes a text. Returns the number of bytes that were left out, because they have no token.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<usize, TokenizerError> {
        match self.spelling {
            Spelling::Bytes => self.encode_bytes(text, ids),
            Spelling::Text => self.encode_text(text, ids).map(|()| 0),
        }
    }

    /// Encodes by characters that stand for bytes. A byte without a token has no id, and no merge crosses it.
    fn encode_bytes(&self, text: &str, ids: &mut Vec<u32>) -> Result<usize, TokenizerError> {
        let mut left_out = 0;
        let mut spelled = String::new();
        for piece in self.splitter.split(text) {
            spelled.clear();
            for byte in piece.bytes() {
                if self.has_byte[usize::from(byte)] {
                    spelled.push(byte_to_char(byte));
                } else {
                    self.merge(&spelled, ids)?;
                    spelled.clear();
                    left_out += 1;
                }
            }
            self.merge(&spelled, ids)?;
        }
        Ok(left_out)
    }

    /// Encodes by the text itself, with `▁` for spaces. Line ends are one token if there is one for all of them.
    fn encode_text(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let text = text.replace(' ', "▁");
        for piece in self.splitter.split(&text) {
            match self.model.token_to_id(piece).filter(|_| piece.starts_with('\n')) {
                Some(id) => ids.push(id),
                None => self.merge(piece, ids)?,
            }
        }
        Ok(())
    }

    fn merge(&self, spelled: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let tokens =
            self.model.tokenize(spelled).map_err(|error| TokenizerError::Model(error.to_string()))?;
        ids.extend(tokens.iter().map(|token| token.id));
        Ok(())
    }
}
