//! Tokenizer: text to token ids and back, defined by the metadata of a GGUF file.
//!
//! Three tokenizer models are supported. `gpt2` is byte-level BPE: text is split by the steps that `tokenizer.ggml.pre`
//! names (`pre.rs`, `split.rs`), the bytes of each piece are mapped to characters (`bytes.rs`), and characters are
//! merged by rank (`bpe.rs`). `llama` is SentencePiece's BPE: spaces become `▁`, neighbours are merged by the score of
//! the merged token, and a character without a token is encoded as byte tokens (`scores.rs`). `gemma4` is BPE by rank
//! over text in which spaces are `▁`.
//!
//! Special tokens in text, such as `<|im_end|>`, are encoded as their ids, as chat templates expect (`special.rs`).
//!
//! Text is encoded as by llama.cpp, but for: patterns are those of the published `tokenizer.json` files (`pre.rs`);
//! where special tokens overlap, the first one in the text counts; and merges of `llama` never produce a control token.
//! No Unicode normalisation is applied: GGUF does not record it.

mod bpe;
mod bytes;
mod ends;
mod error;
mod keys;
mod pre;
mod scores;
mod special;
mod split;
mod stream;
mod vocab;

pub use bytes::byte_to_char;
pub use ends::{END_LIST_KEY, declared_end_tokens};
pub use error::TokenizerError;
pub use pre::pre_named_for;
pub use stream::DecodeStream;
pub use vocab::STRIP_KEYS;

use std::collections::HashMap;

use bespoke_gguf::Gguf;
use bpe::Bpe;
use scores::Scores;
use special::{Part, Special};
use vocab::{Method, Vocab};

/// Tokenizer of a model.
pub struct Tokenizer {
    method: Encoder,
    special: Special,
    /// Ids by token.
    ids: HashMap<Box<str>, u32>,
    /// Spelling of each token in the vocabulary.
    spellings: Pieces,
    /// Bytes of each token in text.
    pieces: Pieces,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// Tokens that end a generation, sorted.
    ends: Vec<u32>,
    /// Whether a space is prepended to text before it is encoded.
    space_prefix: bool,
}

/// Encoder of text without special tokens.
enum Encoder {
    Bpe(Box<Bpe>),
    Scores(Scores),
}

/// Options of [`Tokenizer::encode_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Whether the beginning-of-sequence token is added, if the file asks for it.
    pub bos: bool,
    /// Whether the end-of-sequence token is added, if the file asks for it.
    pub eos: bool,
    /// Whether control tokens in the text are encoded as their ids. If not, they are text, as in what a user wrote.
    /// User-defined tokens are always encoded as their ids.
    pub special: bool,
}

impl Default for EncodeOptions {
    /// Options for a prompt: the file's beginning-of-sequence token, no end-of-sequence token, special tokens.
    fn default() -> Self {
        Self { bos: true, eos: false, special: true }
    }
}

impl Tokenizer {
    /// Creates a tokenizer from the `tokenizer.*` keys of a file.
    pub fn from_gguf(file: &Gguf) -> Result<Self, TokenizerError> {
        keys::check(file)?;
        let vocab = Vocab::read(file)?;
        let method = match &vocab.method {
            Method::Merges { pre, merges } => Encoder::Bpe(Box::new(Bpe::new(&vocab, pre, merges)?)),
            Method::Scores(scores) => Encoder::Scores(Scores::new(&vocab, scores)),
        };
        Ok(Self {
            method,
            special: Special::new(&vocab)?,
            ids: vocab.ids.iter().map(|(&token, &id)| (token.into(), id)).collect(),
            spellings: Pieces::new(&vocab, |id, out| out.extend(vocab.tokens[id].as_bytes())),
            pieces: Pieces::new(&vocab, |id, out| vocab.append_piece(id, out)),
            bos: vocab.bos,
            eos: vocab.eos,
            add_bos: vocab.add_bos,
            add_eos: vocab.add_eos,
            ends: vocab.ends,
            space_prefix: vocab.space_prefix,
        })
    }

    /// Encodes a prompt, after a beginning-of-sequence token if the file asks for one.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_with(text, EncodeOptions::default())
    }

    /// Encodes a text. A byte without a token, in a vocabulary that lacks one, has no id; a warning gives their number.
    pub fn encode_with(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let mut left_out = 0;
        // The space goes before the text, and before text after a special token.
        let mut prefixed = self.space_prefix;
        for part in self.special.split(text, options.special) {
            match part {
                Part::Token(id) => {
                    ids.push(id);
                    prefixed = self.space_prefix;
                }
                Part::Text(text) => {
                    left_out += self.encode_text(text, prefixed, &mut ids)?;
                    prefixed = false;
                }
            }
        }
        if left_out > 0 {
            tracing::warn!(
                "{left_out} bytes of the text are left out: the vocabulary has no tokens for them"
            );
        }
        // Chat templates may already begin with the token.
        if let Some(bos) = self.bos.filter(|bos| options.bos && self.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids.extend(self.eos.filter(|_| options.eos && self.add_eos));
        Ok(ids)
    }

    /// Encodes text without special tokens. Returns the number of bytes that were left out.
    fn encode_text(&self, text: &str, prefixed: bool, ids: &mut Vec<u32>) -> Result<usize, TokenizerError> {
        match &self.method {
            Encoder::Bpe(bpe) => bpe.encode(text, ids),
            Encoder::Scores(scores) => {
                let prefix = if prefixed { "▁" } else { "" };
                let text = prefix.to_owned() + &text.replace(' ', "▁");
                scores.encode(&text, |token| self.ids.get(token).copied(), ids);
                Ok(0)
            }
        }
    }

    /// Decodes a whole sequence: the inverse of [`encode`](Self::encode). Control tokens have no text; an id outside the
    /// vocabulary becomes `[token 32001]`. Bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        ids.iter().for_each(|&id| self.append_text(id, &mut bytes));
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

    /// Bytes of a token in text; of a token without text, its name.
    pub fn piece_or_name(&self, id: u32) -> &[u8] {
        match self.piece(id) {
            [] => self.token(id).unwrap_or_default().as_bytes(),
            piece => piece,
        }
    }

    /// Appends the bytes of a token; of an id outside the vocabulary, a placeholder.
    fn append_text(&self, id: u32, out: &mut Vec<u8>) {
        match (id as usize) < self.len() {
            true => out.extend(self.piece(id)),
            false => out.extend(format!("[token {id}]").as_bytes()),
        }
    }

    /// Spelling of a token in the vocabulary, such as `Ġthe`, `▁the` or `<|end|>`.
    pub fn token(&self, id: u32) -> Option<&str> {
        let spelling = ((id as usize) < self.len()).then(|| self.spellings.get(id))?;
        std::str::from_utf8(spelling).ok()
    }

    /// Id of the token with this spelling in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
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
    ends: Vec<usize>,
}

impl Pieces {
    fn new(vocab: &Vocab<'_>, append: impl Fn(usize, &mut Vec<u8>)) -> Self {
        let mut pieces = Self { bytes: Vec::new(), ends: Vec::with_capacity(vocab.tokens.len()) };
        for id in 0..vocab.tokens.len() {
            append(id, &mut pieces.bytes);
            pieces.ends.push(pieces.bytes.len());
        }
        pieces
    }

    fn get(&self, id: u32) -> &[u8] {
        let Some(&end) = self.ends.get(id as usize) else { return &[] };
        let start = (id as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..end]
    }

    fn len(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests;
