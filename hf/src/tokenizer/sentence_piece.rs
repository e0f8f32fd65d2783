//! SentencePiece-like BPE: scores from the order of the merges.
//!
//! A SentencePiece BPE merges the neighbours whose concatenation has the highest score. `transformers` writes such a
//! vocabulary as ranked merges: every way to split a token into two, ordered by the token's score. The score is
//! therefore the order in which a token first appears in the merges, and SentencePiece's own scores are these numbers.

use std::collections::{HashMap, HashSet};

use bespoke_gguf::Writer;

use super::{TokenType, Vocabulary};
use crate::HfError;
use crate::json::Document;

/// Score of added tokens, as in llama.cpp's conversion. Merges never produce them.
const ADDED: f32 = -1000.0;

/// Longest token in bytes. Every way to split a token is looked up, so its length is limited; SentencePiece's tokens
/// have at most a few dozen bytes.
const LONGEST: usize = 1024;

/// Writes the keys of the model `llama` or, if scores cannot express the merges, of `gemma4`.
pub fn write(vocabulary: &Vocabulary<'_>, header: &mut Writer) -> Result<(), HfError> {
    let space_prefix = space_prefix(vocabulary)?;
    if let Some(token) = vocabulary.tokens.iter().find(|token| token.len() > LONGEST) {
        let fault = format!("a token has {} bytes; at most {LONGEST} are supported", token.len());
        return Err(vocabulary.model.fault("vocab", fault));
    }
    let order = order_of_tokens(vocabulary);
    match disagreement(vocabulary, &order) {
        None => {
            header.set("tokenizer.ggml.model", "llama")?;
            header.set("tokenizer.ggml.pre", "default")?;
            header.set_array("tokenizer.ggml.scores", &scores(vocabulary, &order))?;
        }
        Some(_) if !space_prefix => {
            header.set("tokenizer.ggml.model", "gemma4")?;
            header.set("tokenizer.ggml.pre", "gemma4")?;
            let merges: Vec<String> =
                vocabulary.merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
            header.set_array("tokenizer.ggml.merges", &merges)?;
        }
        Some(merge) => {
            let fault =
                format!("{merge}: merges that no SentencePiece vocabulary has are not supported here");
            return Err(vocabulary.model.fault("merges", fault));
        }
    }
    header.set("tokenizer.ggml.add_space_prefix", space_prefix)?;
    Ok(())
}

/// Whether a space is put before a text. Refuses other normalisers and pre-tokenizers than those of SentencePiece.
fn space_prefix(vocabulary: &Vocabulary<'_>) -> Result<bool, HfError> {
    let document = &vocabulary.document;
    let refused = |step: &Document<'_>, ty: Option<&str>| {
        Err(step
            .fault("type", format!("{} is not supported for a SentencePiece-like BPE", ty.unwrap_or("null"))))
    };
    let mut prefix = false;
    for step in super::byte_level::parts(document, "normalizer", "normalizers")? {
        match step.str("type")? {
            Some("Prepend") if step.str("prepend")? == Some("▁") => prefix = true,
            Some("Replace") if step.str("content")? == Some("▁") => {}
            other => return refused(&step, other),
        }
    }
    for step in super::byte_level::steps(vocabulary)? {
        match step.str("type")? {
            Some("Metaspace") => {
                let scheme = step.str("prepend_scheme")?;
                let legacy = step.bool("add_prefix_space")?.unwrap_or(true);
                prefix |= scheme.map_or(legacy, |scheme| scheme != "never");
            }
            // Gemma's split at spaces, of which the normaliser leaves none.
            Some("Split") => {}
            other => return refused(&step, other),
        }
    }
    Ok(prefix)
}

/// Order in which tokens first appear as the result of a merge.
fn order_of_tokens(vocabulary: &Vocabulary<'_>) -> HashMap<u32, u32> {
    let mut order = HashMap::new();
    for (left, right) in &vocabulary.merges {
        if let Some(&id) = vocabulary.ids.get(&format!("{left}{right}")) {
            let next = order.len() as u32;
            order.entry(id).or_insert(next);
        }
    }
    order
}

/// Scores of all tokens: merged tokens by their order, then tokens that no merge produces (single characters) by id.
fn scores(vocabulary: &Vocabulary<'_>, order: &HashMap<u32, u32>) -> Vec<f32> {
    let mut next = order.len() as u32;
    let score = |id: u32| match vocabulary.types[id as usize] {
        TokenType::Normal => {
            let order = order.get(&id).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            // `-0.0` would be another value than SentencePiece's.
            0.0 - order as f32
        }
        TokenType::Byte => 0.0,
        TokenType::Control | TokenType::UserDefined => ADDED,
        TokenType::Unused => 10.0 * ADDED,
    };
    (0..vocabulary.tokens.len() as u32).map(score).collect()
}

/// The first merge that differs from the merges of a SentencePiece vocabulary with the scores of `order`: every way to
/// split a token into two tokens, by score. Merges that concern added tokens may be missing: these tokens are matched
/// before merging.
fn disagreement(vocabulary: &Vocabulary<'_>, order: &HashMap<u32, u32>) -> Option<String> {
    let is_added =
        |id: u32| matches!(vocabulary.types[id as usize], TokenType::Control | TokenType::UserDefined);
    let text = |token: &str| {
        let &id = vocabulary.ids.get(token)?;
        (vocabulary.types[id as usize] != TokenType::Byte).then_some(id)
    };
    let mut present: HashSet<(u32, u32)> = HashSet::with_capacity(vocabulary.merges.len());
    let mut last = 0;
    for (left, right) in &vocabulary.merges {
        let ids = (text(left), text(right), vocabulary.ids.get(&format!("{left}{right}")));
        let at = ids.2.and_then(|id| order.get(id)).copied();
        let (Some(left_id), Some(right_id), Some(at)) = (ids.0, ids.1, at) else {
            return Some(format!("`{left} {right}`"));
        };
        if at < last {
            return Some(format!("`{left} {right}`"));
        }
        last = at;
        present.insert((left_id, right_id));
    }
    // By id, so that the same merge is named each time.
    let mut tokens: Vec<(&str, u32)> =
        vocabulary.ids.iter().map(|(token, &id)| (token.as_ref(), id)).collect();
    tokens.sort_unstable_by_key(|&(_, id)| id);
    for (token, id) in tokens {
        if is_added(id) || vocabulary.types[id as usize] == TokenType::Byte {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(left_id), Some(right_id)) = (text(left), text(right))
                && !is_added(left_id)
                && !is_added(right_id)
                && !present.contains(&(left_id, right_id))
            {
                return Some(format!("`{left} {right}` is missing"));
            }
        }
    }
    None
}
