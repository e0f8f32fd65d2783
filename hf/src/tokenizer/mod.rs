//! Tokenizer: `tokenizer.json` and its companions to GGUF's `tokenizer.*` keys.
//!
//! Two kinds of BPE are supported. Byte-level BPE becomes the model `gpt2`; its pre-tokenizer is found in the table of
//! `bespoke::tokenizer` by its patterns. SentencePiece-like BPE (`▁` for spaces, byte tokens) becomes the model
//! `llama`, whose scores are the order of the merges, or `gemma4` if the merges are not those of a SentencePiece
//! vocabulary.

mod byte_level;
mod sentence_piece;
mod special;

use std::collections::HashMap;
use std::path::Path;

use bespoke::tokenizer::STRIP_KEYS;
use bespoke_gguf::Writer;
use serde_json::Value;

use crate::config::Config;
use crate::json::Document;
use crate::{HfError, json};

/// Types of tokens (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    Normal = 1,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

/// Tokens and merges of a `tokenizer.json`.
pub struct Vocabulary<'a> {
    /// The whole file.
    document: Document<'a>,
    /// The object `model`.
    model: Document<'a>,
    /// Spellings by id; every id has one.
    tokens: Vec<String>,
    types: Vec<TokenType>,
    ids: HashMap<String, u32>,
    merges: Vec<(String, String)>,
    /// Ids of the added tokens by their contents.
    added: HashMap<String, u32>,
    /// Ids of the added tokens that white space before them belongs to, and of those that it belongs to after them.
    strips: [Vec<u32>; 2],
}

/// Writes all `tokenizer.*` keys. `size`: number of rows of the embedding; every row gets a token.
pub fn write(folder: &Path, config: &Config, size: usize, header: &mut Writer) -> Result<(), HfError> {
    let Some(file) = json::read_optional(&folder.join("tokenizer.json"))? else {
        tracing::warn!("{} has no tokenizer.json: only token ids can be given", folder.display());
        return Ok(());
    };
    let vocabulary = Vocabulary::read(file.root(), size)?;
    match vocabulary.kind()? {
        Kind::ByteLevel => byte_level::write(&vocabulary, header)?,
        Kind::SentencePiece => sentence_piece::write(&vocabulary, header)?,
    }
    header.set_array("tokenizer.ggml.tokens", &vocabulary.tokens)?;
    let types: Vec<i32> = vocabulary.types.iter().map(|&ty| ty as i32).collect();
    header.set_array("tokenizer.ggml.token_type", &types)?;
    for (key, ids) in STRIP_KEYS.into_iter().zip(&vocabulary.strips) {
        if !ids.is_empty() {
            header.set_array(key, ids)?;
        }
    }
    special::write(folder, config, &vocabulary, header)
}

/// Kind of a BPE.
enum Kind {
    ByteLevel,
    SentencePiece,
}

impl<'a> Vocabulary<'a> {
    fn read(document: Document<'a>, size: usize) -> Result<Self, HfError> {
        let model = document.object("model")?;
        let model = document.required("model", model)?;
        if let Some(ty) = model.str("type")?.filter(|ty| *ty != "BPE") {
            return Err(model.fault("type", format!("{ty} is not supported: only BPE is")));
        }
        let mut vocabulary = Self {
            tokens: (0..size).map(|id| format!("[PAD{id}]")).collect(),
            types: vec![TokenType::Unused; size],
            ids: HashMap::new(),
            merges: merges(&model)?,
            added: HashMap::new(),
            strips: Default::default(),
            document,
            model,
        };
        vocabulary.read_tokens()?;
        vocabulary.read_added()?;
        Ok(vocabulary)
    }

    /// Reads `model.vocab`. Ids without a row in the embedding are left out.
    fn read_tokens(&mut self) -> Result<(), HfError> {
        let vocab = self.model.object("vocab")?;
        let vocab = self.model.required("vocab", vocab)?;
        let mut beyond = 0;
        for (token, id) in vocab.entries() {
            let id = id.as_u64().ok_or_else(|| vocab.fault(token, "expected an id"))?;
            let Some(slot) = self.tokens.get_mut(id as usize) else {
                beyond += 1;
                continue;
            };
            if self.types[id as usize] != TokenType::Unused {
                return Err(vocab.fault(token, format!("has the id {id}, as `{slot}` has")));
            }
            slot.clone_from(token);
            self.types[id as usize] = if is_byte(token) { TokenType::Byte } else { TokenType::Normal };
            self.ids.insert(token.clone(), id as u32);
        }
        if beyond > 0 {
            tracing::warn!("{beyond} tokens of tokenizer.json have ids without a row in the embedding");
        }
        Ok(())
    }

    /// Reads `added_tokens`, which are matched in text as a whole.
    fn read_added(&mut self) -> Result<(), HfError> {
        for added in self.document.objects("added_tokens")? {
            let (id, content) = (added.u32("id")?, added.str("content")?);
            let (id, content) = (added.required("id", id)?, added.required("content", content)?);
            if id as usize >= self.tokens.len() {
                tracing::warn!(
                    "the added token {content} has the id {id}, which has no row in the embedding"
                );
                continue;
            }
            let control = added.bool("special")?.unwrap_or(false) || looks_special(content);
            let (ty, spelling) = match control {
                true => (TokenType::Control, content.to_owned()),
                // Matched in text, which has spaces.
                false => (TokenType::UserDefined, content.replace('▁', " ")),
            };
            for (key, ids) in ["lstrip", "rstrip"].into_iter().zip(&mut self.strips) {
                if added.bool(key)?.unwrap_or(false) {
                    ids.push(id);
                }
            }
            self.ids.insert(content.to_owned(), id);
            self.added.insert(content.to_owned(), id);
            self.types[id as usize] = ty;
            self.tokens[id as usize] = spelling;
        }
        Ok(())
    }

    fn kind(&self) -> Result<Kind, HfError> {
        let byte_level =
            byte_level::steps(self)?.iter().any(|step| step.str("type").ok() == Some(Some("ByteLevel")));
        if byte_level {
            Ok(Kind::ByteLevel)
        } else if self.model.bool("byte_fallback")?.unwrap_or(false) {
            Ok(Kind::SentencePiece)
        } else {
            let fault =
                "neither a byte-level BPE nor one with byte_fallback: such tokenizers are not supported";
            Err(self.document.fault("pre_tokenizer", fault))
        }
    }
}

/// Merges in order of rank: pairs, or strings of two tokens with a space between them.
fn merges(model: &Document<'_>) -> Result<Vec<(String, String)>, HfError> {
    let merges = model.array("merges")?;
    let merges = model.required("merges", merges)?;
    let merge = |(index, merge): (usize, &Value)| {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(left), Value::String(right)] => Some((left.as_str(), right.as_str())),
                _ => None,
            },
            _ => None,
        };
        let pair = pair.map(|(left, right)| (left.to_owned(), right.to_owned()));
        pair.ok_or_else(|| model.fault(&format!("merges[{index}]"), "expected two tokens"))
    };
    merges.iter().enumerate().map(merge).collect()
}

/// Whether a token is spelled `<0x0A>`.
fn is_byte(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Whether a token that is not declared special is a control token, as llama.cpp's conversion decides: some models
/// declare their control tokens as ordinary added tokens.
fn looks_special(token: &str) -> bool {
    let between = |start: &str, end: &str| token.starts_with(start) && token.ends_with(end);
    ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].contains(&token)
        || between("<|", "|>")
        || between("<｜", "｜>")
        || between("<unused", ">")
}
