//! Tokenizer: text to token ids and back, defined by the metadata of a GGUF file.
//!
//! Two tokenizer models are supported. `gpt2` is byte-level BPE: text is split by the pattern that `tokenizer.ggml.pre`
//! names (`pre.rs`), the bytes of each piece are mapped to characters (`bytes.rs`), and characters are merged by rank.
//! `llama` is SentencePiece's BPE: spaces become `▁`, neighbours are merged by the score of the merged token, and a
//! character without a token is encoded as byte tokens (`scores.rs`).
//!
//! Special tokens in text, such as `<|im_end|>`, are encoded as their ids, as chat templates expect.

mod bytes;
mod error;
mod model;
mod pre;
mod scores;
mod stream;
mod vocab;

pub use bytes::byte_to_char;
pub use error::TokenizerError;
pub use stream::DecodeStream;

use bespoke_gguf::Gguf;
use vocab::Vocab;

/// Tokenizer of a model.
pub struct Tokenizer {
    model: tokenizers::Tokenizer,
    pieces: Pieces,
    bos: Option<u32>,
    add_bos: bool,
    /// Tokens that end a generation, sorted.
    ends: Vec<u32>,
    /// Whether a space is prepended to text before it is encoded.
    space_prefix: bool,
}

impl Tokenizer {
    /// Creates a tokenizer from the `tokenizer.*` keys of a file.
    pub fn from_gguf(file: &Gguf) -> Result<Self, TokenizerError> {
        let vocab = Vocab::read(file)?;
        Ok(Self {
            model: model::build(&vocab)?,
            pieces: Pieces::new(&vocab),
            bos: vocab.bos,
            add_bos: vocab.add_bos,
            ends: vocab.ends(),
            space_prefix: vocab.space_prefix,
        })
    }

    /// Encodes a text, after a beginning-of-sequence token if the file asks for one.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding =
            self.model.encode_fast(text, false).map_err(|error| TokenizerError::Model(error.to_string()))?;
        let bos = self.bos.filter(|_| self.add_bos);
        // Chat templates may already begin with the token.
        let bos = bos.filter(|bos| encoding.get_ids().first() != Some(bos));
        Ok(bos.into_iter().chain(encoding.get_ids().iter().copied()).collect())
    }

    /// Decodes a whole sequence: the inverse of [`encode`](Self::encode). Control tokens have no text.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.piece(id)).copied().collect();
        let bytes = if self.space_prefix { bytes.strip_prefix(b" ").unwrap_or(&bytes) } else { &bytes };
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Creates a stream that decodes tokens one by one, as the continuation of a text.
    pub fn decode_stream(&self) -> DecodeStream<'_> {
        DecodeStream::new(self)
    }

    /// Bytes that a token stands for in text; empty for control tokens and ids outside the vocabulary. A character may
    /// be split over several tokens.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id)
    }

    /// Spelling of a token in the vocabulary, such as `Ġthe`, `▁the` or `<|end|>`.
    pub fn token(&self, id: u32) -> Option<String> {
        self.model.id_to_token(id)
    }

    /// Id of the token with this spelling in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.model.token_to_id(token)
    }

    /// Number of tokens in the vocabulary.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether the vocabulary is empty; never true, because reading an empty vocabulary is an error.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Tokens that end a generation (end of sequence, of turn, of message), sorted.
    pub fn end_tokens(&self) -> &[u32] {
        &self.ends
    }

    /// Whether a token is one of [`Tokenizer::end_tokens`].
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.binary_search(&id).is_ok()
    }
}

/// Concatenated bytes of all tokens.
struct Pieces {
    bytes: Vec<u8>,
    /// Offset of the end of each token's bytes.
    ends: Vec<u32>,
}

impl Pieces {
    fn new(vocab: &Vocab<'_>) -> Self {
        let mut pieces = Self { bytes: Vec::new(), ends: Vec::with_capacity(vocab.tokens.len()) };
        for id in 0..vocab.tokens.len() {
            vocab.append_piece(id, &mut pieces.bytes);
            pieces.ends.push(pieces.bytes.len() as u32);
        }
        pieces
    }

    fn get(&self, id: u32) -> &[u8] {
        let Some(&end) = self.ends.get(id as usize) else { return &[] };
        let start = (id as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    fn len(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests;
