//! Validated vocabulary of a GGUF file.

use std::collections::HashMap;

use bespoke_gguf::Gguf;

use super::TokenizerError;
use super::bytes::char_to_byte;
use super::pre::{self, PreTokenizer};

/// Type of a token (`tokenizer.ggml.token_type`, llama.cpp's `enum llama_token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Ordinary text.
    Normal,
    /// Placeholder for unknown text; has no text itself.
    Unknown,
    /// Structural mark, such as an end of turn; has no text.
    Control,
    /// Text that is always encoded as this token.
    UserDefined,
    /// Token that the file declares unused.
    Unused,
    /// A byte, spelled `<0x0A>`.
    Byte,
}

impl TokenType {
    fn from_number(number: i32) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }

    /// Whether tokens of this type are matched in text as a whole, before pre-tokenisation.
    pub fn is_matched_whole(self) -> bool {
        matches!(self, Self::Unknown | Self::Control | Self::UserDefined)
    }
}

/// Method of encoding text, with its data.
pub enum Method<'a> {
    /// Byte-level BPE, with merges in order of rank.
    ByteLevel { pre: &'static PreTokenizer, merges: Vec<(&'a str, &'a str)> },
    /// SentencePiece's BPE, with a score for each token.
    Scores(Vec<f32>),
}

/// A validated vocabulary that borrows from the file.
pub struct Vocab<'a> {
    pub method: Method<'a>,
    pub tokens: Vec<&'a str>,
    pub types: Vec<TokenType>,
    /// Ids by token, without empty tokens.
    pub ids: HashMap<&'a str, u32>,
    pub bos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: bool,
    pub space_prefix: bool,
    /// Tokens that the file declares to end a generation.
    declared_ends: Vec<u32>,
}

/// Keys that declare tokens that end a generation.
const END_KEYS: [&str; 3] =
    ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// Control tokens that end a turn by convention. Many files declare only one of several end tokens, so llama.cpp also
/// recognises these names.
const END_TOKENS: [&str; 10] = [
    "</s>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<EOT>",
    "<eos>",
];

impl<'a> Vocab<'a> {
    /// Reads and validates the `tokenizer.ggml` keys.
    pub fn read(file: &'a Gguf) -> Result<Self, TokenizerError> {
        let tokens = file.strings("tokenizer.ggml.tokens")?;
        if tokens.is_empty() {
            return Err(TokenizerError::Empty);
        }
        let types = match file.opt_i32s("tokenizer.ggml.token_type")? {
            Some(types) => types.into_iter().map(TokenType::from_number).collect(),
            None => vec![TokenType::Normal; tokens.len()],
        };
        same_length("tokenizer.ggml.token_type", types.len(), tokens.len())?;
        let ids = index(&tokens)?;
        let method = match file.str("tokenizer.ggml.model")? {
            "gpt2" => Method::ByteLevel {
                pre: pre::named(file.opt_str("tokenizer.ggml.pre")?),
                merges: merges(file, &ids)?,
            },
            "llama" => {
                let scores = file.f32s("tokenizer.ggml.scores")?;
                same_length("tokenizer.ggml.scores", scores.len(), tokens.len())?;
                Method::Scores(scores)
            }
            model => return Err(TokenizerError::UnknownModel { model: model.into() }),
        };
        let id = |key| checked_id(file, key, tokens.len());
        // Defaults for files without these keys.
        let (add_bos, space_prefix) = match &method {
            Method::ByteLevel { pre, .. } => (pre.add_bos, false),
            Method::Scores(_) => (true, file.opt_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true)),
        };
        let vocab = Self {
            bos: id("tokenizer.ggml.bos_token_id")?,
            unknown: id("tokenizer.ggml.unknown_token_id")?
                .or_else(|| Some(types.iter().position(|ty| *ty == TokenType::Unknown)? as u32)),
            add_bos: file.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(add_bos),
            declared_ends: END_KEYS
                .into_iter()
                .filter_map(|key| id(key).transpose())
                .collect::<Result<_, _>>()?,
            space_prefix,
            method,
            tokens,
            types,
            ids,
        };
        if vocab.add_bos && vocab.bos.is_none() { Err(TokenizerError::NoBos) } else { Ok(vocab) }
    }

    /// Tokens that end a generation, sorted.
    pub fn ends(&self) -> Vec<u32> {
        let by_name = END_TOKENS
            .iter()
            .filter_map(|token| self.ids.get(token).copied())
            .filter(|&id| self.types[id as usize] == TokenType::Control);
        let mut ends: Vec<u32> = self.declared_ends.iter().copied().chain(by_name).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// Appends the bytes that token `id` stands for in text.
    pub fn append_piece(&self, id: usize, out: &mut Vec<u8>) {
        let token = self.tokens[id];
        match self.types[id] {
            TokenType::Control | TokenType::Unknown => {}
            TokenType::UserDefined => out.extend(token.as_bytes()),
            TokenType::Byte => match byte_token(token) {
                Some(byte) => out.push(byte),
                None => out.extend(token.as_bytes()),
            },
            TokenType::Normal | TokenType::Unused => match self.method {
                Method::Scores(_) => out.extend(token.replace('▁', " ").as_bytes()),
                Method::ByteLevel { .. } => {
                    for character in token.chars() {
                        match char_to_byte(character) {
                            Some(byte) => out.push(byte),
                            None => out.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
                        }
                    }
                }
            },
        }
    }
}

/// Byte of a token spelled `<0x0A>`.
fn byte_token(token: &str) -> Option<u8> {
    u8::from_str_radix(token.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

fn same_length(key: &'static str, found: usize, tokens: usize) -> Result<(), TokenizerError> {
    if found == tokens { Ok(()) } else { Err(TokenizerError::Length { key, found, tokens }) }
}

fn index<'a>(tokens: &[&'a str]) -> Result<HashMap<&'a str, u32>, TokenizerError> {
    let mut ids = HashMap::with_capacity(tokens.len());
    for (second, &token) in (0..).zip(tokens).filter(|(_, token)| !token.is_empty()) {
        if let Some(first) = ids.insert(token, second) {
            return Err(TokenizerError::Duplicate { first, second, token: token.into() });
        }
    }
    Ok(ids)
}

fn checked_id(file: &Gguf, key: &'static str, tokens: usize) -> Result<Option<u32>, TokenizerError> {
    match file.opt_u32(key)? {
        Some(id) if id as usize >= tokens => Err(TokenizerError::Id { key, id, tokens }),
        id => Ok(id),
    }
}

/// Merges, each of two tokens whose concatenation is a token.
fn merges<'a>(file: &'a Gguf, ids: &HashMap<&str, u32>) -> Result<Vec<(&'a str, &'a str)>, TokenizerError> {
    let mut joined = String::new();
    let check = |(index, merge): (usize, &'a str)| {
        let fault = |fault: String| TokenizerError::Merge { index, merge: merge.into(), fault };
        let (left, right) =
            merge.split_once(' ').ok_or_else(|| fault("has no space between two tokens".into()))?;
        joined.clear();
        joined.extend([left, right]);
        match [left, right, joined.as_str()].into_iter().find(|token| !ids.contains_key(token)) {
            Some(missing) => Err(fault(format!("needs a token `{missing}`, which is not in the vocabulary"))),
            None => Ok((left, right)),
        }
    };
    file.strings("tokenizer.ggml.merges")?.into_iter().enumerate().map(check).collect()
}
