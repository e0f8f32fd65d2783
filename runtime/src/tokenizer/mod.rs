//! Text to token ids and back, from a GGUF file's own metadata.
//!
//! Two models cover the decoders that this runtime runs. `gpt2` is byte-level BPE: text is split by the pattern
//! that `tokenizer.ggml.pre` names (`pre.rs`), each piece's bytes are written as characters (`bytes.rs`) and merged
//! by rank. `llama` is SentencePiece's BPE: spaces become `▁`, characters merge by the score of what they make,
//! and a character without a token falls back to its bytes' tokens (`scores.rs`).
//!
//! Special tokens in text (`<|im_end|>`) become their ids wherever they stand, as chat templates expect.

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

/// A model's tokenizer.
pub struct Tokenizer {
    model: tokenizers::Tokenizer,
    pieces: Pieces,
    bos: Option<u32>,
    add_bos: bool,
    /// Ids that end a generation, sorted.
    ends: Vec<u32>,
    /// Whether text gets a leading space before it is encoded.
    space_prefix: bool,
}

impl Tokenizer {
    /// Reads the `tokenizer.*` keys of a file.
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

    /// The ids of a text, the beginning-of-sequence token first where the file asks for it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding =
            self.model.encode_fast(text, false).map_err(|error| TokenizerError::Model(error.to_string()))?;
        let bos = self.bos.filter(|_| self.add_bos);
        // A chat template that already begins with the token is not given a second one.
        let bos = bos.filter(|bos| encoding.get_ids().first() != Some(bos));
        Ok(bos.into_iter().chain(encoding.get_ids().iter().copied()).collect())
    }

    /// The text of a whole sequence: what [`encode`](Self::encode) was given, but for control tokens.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.piece(id)).copied().collect();
        let bytes = if self.space_prefix { bytes.strip_prefix(b" ").unwrap_or(&bytes) } else { &bytes };
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Decodes tokens one by one, as the continuation of a text.
    pub fn decode_stream(&self) -> DecodeStream<'_> {
        DecodeStream::new(self)
    }

    /// The bytes that a token stands for in text: none for control tokens and ids outside the vocabulary.
    /// Characters may be split over several tokens.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id)
    }

    /// A token as the vocabulary writes it, such as `Ġthe`, `▁the` or `<|end|>`.
    pub fn token(&self, id: u32) -> Option<String> {
        self.model.id_to_token(id)
    }

    /// The id of a token as the vocabulary writes it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.model.token_to_id(token)
    }

    /// Tokens in the vocabulary.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether the vocabulary is empty; never, for a tokenizer that was read from a file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The beginning-of-sequence token.
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

/// Every token's bytes, back to back.
struct Pieces {
    bytes: Vec<u8>,
    /// Where each token's bytes end.
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
