//! Validated vocabulary of a GGUF file.

use std::collections::{HashMap, HashSet};

use bespoke_gguf::Gguf;

use super::TokenizerError;
use super::bytes::char_to_byte;
use super::ends;
use super::pre::{self, PreTokenizer, Spelling};

/// Keys of arrays of ids: tokens that include the white space before them, and tokens that include the white space after
/// them. GGUF has no such keys; models that were converted from folders have these.
pub const STRIP_KEYS: [&str; 2] = ["bespoke.tokenizer.strip_left", "bespoke.tokenizer.strip_right"];

/// Type of a token (`tokenizer.ggml.token_type`, llama.cpp's `enum llama_token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Ordinary text; also tokens of undefined type.
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
    fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 | 1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Whether tokens of this type are matched in text as a whole, before pre-tokenisation.
    pub fn is_matched_whole(self) -> bool {
        matches!(self, Self::Unknown | Self::Control | Self::UserDefined)
    }
}

/// Method of encoding text, with its data.
pub enum Method<'a> {
    /// BPE with merges in order of rank.
    Merges { pre: &'static PreTokenizer, merges: Vec<(&'a str, &'a str)> },
    /// SentencePiece's BPE, with a score for each token.
    Scores(Vec<f32>),
}

/// A validated vocabulary that borrows from the file.
pub struct Vocab<'a> {
    pub method: Method<'a>,
    pub tokens: Vec<&'a str>,
    pub types: Vec<TokenType>,
    /// Ids by token, without empty tokens. Of equal tokens, the first.
    pub ids: HashMap<&'a str, u32>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    pub space_prefix: bool,
    /// Ids of the tokens that include the white space before them, and of those that include the white space after
    /// them.
    pub strips: [HashSet<u32>; 2],
    /// Tokens that end a generation, sorted.
    pub ends: Vec<u32>,
}

/// Length of a token in bytes that no real vocabulary reaches; it bounds the time of a merge.
const MAX_TOKEN_BYTES: usize = 1 << 14;

impl<'a> Vocab<'a> {
    /// Reads and validates the `tokenizer.ggml` keys.
    pub fn read(file: &'a Gguf) -> Result<Self, TokenizerError> {
        let model = file.str("tokenizer.ggml.model")?;
        if !["gpt2", "llama", "gemma4"].contains(&model) {
            return Err(TokenizerError::UnknownModel { model: model.into() });
        }
        let tokens = file.strings("tokenizer.ggml.tokens")?;
        if tokens.is_empty() {
            return Err(TokenizerError::Empty);
        }
        if let Some(index) = tokens.iter().position(|token| token.len() > MAX_TOKEN_BYTES) {
            let len = tokens[index].len();
            return Err(TokenizerError::LongToken { index, len, limit: MAX_TOKEN_BYTES });
        }
        let mut types = types(file, tokens.len())?;
        let ids = index(&tokens);
        let named_ends = ends::by_name(&ids);
        // Such marks are no text, although some files declare them so. Many vocabularies have `</s>` as ordinary text.
        for &id in &named_ends {
            let ty = &mut types[id as usize];
            if *ty == TokenType::Normal && tokens[id as usize] != ends::SENTENCE_END {
                *ty = TokenType::Control;
            }
        }
        for &id in named_ends.iter().chain(&ends::fill_in(&ids)) {
            let ty = &mut types[id as usize];
            *ty = if *ty == TokenType::UserDefined { TokenType::Control } else { *ty };
        }
        let method = match model {
            "llama" => Method::Scores(scores(file, tokens.len())?),
            _ => {
                let name = match model {
                    "gemma4" => Some(pre::GEMMA4),
                    _ => file.opt_str("tokenizer.ggml.pre")?,
                };
                Method::Merges { pre: pre::named(name)?, merges: merges(file, &ids)? }
            }
        };
        let id = |key| checked_id(file, key, tokens.len());
        let (add_bos, space_prefix) = match &method {
            Method::Merges { pre, .. } => (pre.add_bos, false),
            Method::Scores(_) => (true, file.opt_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true)),
        };
        let vocab = Self {
            // Old SentencePiece files do not name their tokens.
            bos: id("tokenizer.ggml.bos_token_id")?.or_else(|| control(&ids, &types, "<s>")),
            eos: id("tokenizer.ggml.eos_token_id")?,
            unknown: id("tokenizer.ggml.unknown_token_id")?
                .or_else(|| Some(types.iter().position(|ty| *ty == TokenType::Unknown)? as u32)),
            // Files of Gemma 4 deny that the model needs the token.
            add_bos: model == "gemma4" || file.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(add_bos),
            add_eos: file.opt_bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            ends: sorted_ends(file, &types, named_ends)?,
            space_prefix,
            strips: match matches!(method, Method::Scores(_)) && is_phi3(file)? {
                true => [HashSet::new(), phi3_strips(&tokens, &types)],
                false => [strips(file, STRIP_KEYS[0])?, strips(file, STRIP_KEYS[1])?],
            },
            method,
            tokens,
            types,
            ids,
        };
        match (vocab.add_bos && vocab.bos.is_none(), vocab.add_eos && vocab.eos.is_none()) {
            (true, _) => Err(TokenizerError::NoBos),
            (_, true) => Err(TokenizerError::NoEos),
            _ => Ok(vocab),
        }
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
            TokenType::Normal | TokenType::Unused => match self.spelling() {
                Spelling::Text => match byte_token(token) {
                    // Gemma 4's file declares its byte tokens normal.
                    Some(byte) if matches!(self.method, Method::Merges { .. }) => out.push(byte),
                    _ => out.extend(token.replace('▁', " ").as_bytes()),
                },
                Spelling::Bytes => {
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

    fn spelling(&self) -> Spelling {
        match self.method {
            Method::Merges { pre, .. } => pre.spelling,
            Method::Scores(_) => Spelling::Text,
        }
    }
}

/// Spelling of a byte's token, such as `<0x0A>`.
pub fn byte_name(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// Byte of a token spelled `<0x0A>`.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}

fn same_length(key: &'static str, found: usize, tokens: usize) -> Result<(), TokenizerError> {
    if found == tokens { Ok(()) } else { Err(TokenizerError::Length { key, found, tokens }) }
}

fn types(file: &Gguf, tokens: usize) -> Result<Vec<TokenType>, TokenizerError> {
    let Some(numbers) = file.opt_i32s("tokenizer.ggml.token_type")? else {
        return Ok(vec![TokenType::Normal; tokens]);
    };
    same_length("tokenizer.ggml.token_type", numbers.len(), tokens)?;
    let ty = |(index, number)| TokenType::from_number(number).ok_or(TokenizerError::Type { index, number });
    numbers.into_iter().enumerate().map(ty).collect()
}

fn scores(file: &Gguf, tokens: usize) -> Result<Vec<f32>, TokenizerError> {
    let scores = file.f32s("tokenizer.ggml.scores")?;
    same_length("tokenizer.ggml.scores", scores.len(), tokens)?;
    match scores.iter().position(|score| score.is_nan()) {
        Some(index) => Err(TokenizerError::Score { index }),
        None => Ok(scores),
    }
}

/// Ids by token. Equal tokens, which some files have, are reported; the first of them is used.
fn index<'a>(tokens: &[&'a str]) -> HashMap<&'a str, u32> {
    let mut ids = HashMap::with_capacity(tokens.len());
    let mut equal: Option<(u32, u32)> = None;
    let mut count = 0;
    for (id, &token) in (0..).zip(tokens).filter(|(_, token)| !token.is_empty()) {
        let first = *ids.entry(token).or_insert(id);
        if first != id {
            equal.get_or_insert((first, id));
            count += 1;
        }
    }
    if let Some((first, second)) = equal {
        tracing::warn!(
            "tokenizer.ggml.tokens: tokens {first} and {second} are both `{}`; text is encoded with the first ({count} \
             such in all)",
            tokens[second as usize]
        );
    }
    ids
}

/// Tokens that end a generation, sorted: those that keys declare, and the control tokens of `named`.
fn sorted_ends(file: &Gguf, types: &[TokenType], named: Vec<u32>) -> Result<Vec<u32>, TokenizerError> {
    let mut ends = named;
    ends.retain(|&id| types[id as usize] == TokenType::Control);
    for key in ends::END_KEYS {
        ends.extend(checked_id(file, key, types.len())?);
    }
    // Ids outside the vocabulary are no tokens.
    for id in file.opt_i32s(ends::END_LIST_KEY)?.unwrap_or_default() {
        ends.extend(u32::try_from(id).ok().filter(|&id| (id as usize) < types.len()));
    }
    ends.sort_unstable();
    ends.dedup();
    Ok(ends)
}

/// Id of the control token with this name.
fn control(ids: &HashMap<&str, u32>, types: &[TokenType], name: &str) -> Option<u32> {
    ids.get(name).copied().filter(|&id| types[id as usize] == TokenType::Control)
}

fn checked_id(file: &Gguf, key: &'static str, tokens: usize) -> Result<Option<u32>, TokenizerError> {
    match file.opt_u32(key)? {
        Some(id) if id as usize >= tokens => Err(TokenizerError::Id { key, id, tokens }),
        id => Ok(id),
    }
}

/// Ids in the array at one of [`STRIP_KEYS`].
fn strips(file: &Gguf, key: &str) -> Result<HashSet<u32>, TokenizerError> {
    let ids = file.opt_i32s(key)?.unwrap_or_default();
    Ok(ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect())
}

/// Tokens of the Phi-3 family that include the white space after them. GGUF does not record this property of
/// `tokenizer.json`; llama.cpp assumes it, too.
fn phi3_strips(tokens: &[&str], types: &[TokenType]) -> HashSet<u32> {
    const KEEPING: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];
    let all = (0..).zip(tokens.iter().zip(types));
    let strips = all.filter(|(_, (token, ty))| ty.is_matched_whole() && !KEEPING.contains(token));
    strips.map(|(id, _)| id).collect()
}

/// Whether a file is of the Phi-3 family, by its architecture, or by its name as in llama.cpp.
fn is_phi3(file: &Gguf) -> Result<bool, TokenizerError> {
    let name = file.opt_str("general.name")?.unwrap_or_default().to_lowercase();
    Ok(file.opt_str("general.architecture")? == Some("phi3")
        || name.contains("phi-3")
        || name.contains("phi3"))
}

/// Merges, each of two tokens whose concatenation is a token. Of equal merges, the first.
fn merges<'a>(file: &'a Gguf, ids: &HashMap<&str, u32>) -> Result<Vec<(&'a str, &'a str)>, TokenizerError> {
    let mut joined = String::new();
    let mut seen = HashSet::new();
    let mut merges = Vec::new();
    for (index, merge) in file.strings("tokenizer.ggml.merges")?.into_iter().enumerate() {
        let fault = |fault: String| TokenizerError::Merge { index, merge: merge.into(), fault };
        // The first token has at least one byte, which may be a space.
        let space = merge.bytes().skip(1).position(|byte| byte == b' ').map(|at| at + 1);
        let space = space.ok_or_else(|| fault("has no space between two tokens".into()))?;
        let (left, right) = (&merge[..space], &merge[space + 1..]);
        joined.clear();
        joined.extend([left, right]);
        if let Some(missing) =
            [left, right, joined.as_str()].into_iter().find(|token| !ids.contains_key(token))
        {
            return Err(fault(format!("needs a token `{missing}`, which is not in the vocabulary")));
        }
        if seen.insert((left, right)) {
            merges.push((left, right));
        }
    }
    Ok(merges)
}
