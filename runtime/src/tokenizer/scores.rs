//! Conversion of SentencePiece's scores to ranked merges.
//!
//! SentencePiece's BPE repeatedly merges the two neighbours whose concatenation is the token with the highest score.
//! This is BPE with ranked merges: each token has a merge for every way to split it into two tokens, ranked by the
//! token's score. Hugging Face's `transformers` converts SentencePiece files in the same way (`SentencePieceExtractor`
//! in `convert_slow_tokenizer.py`). Merges of equal score are ordered by the ids of the two tokens.

use super::vocab::{TokenType, Vocab};

/// Derives BPE merges from the vocabulary: every way to split a text token into two other text tokens. Ordered by the
/// score of the whole token, highest first.
pub fn merges<'a>(vocab: &Vocab<'a>, scores: &[f32]) -> Vec<(&'a str, &'a str)> {
    // Merges do not produce control or byte tokens.
    let is_text = |id: u32| {
        matches!(vocab.types[id as usize], TokenType::Normal | TokenType::UserDefined | TokenType::Unused)
    };
    let id_of = |token: &str| vocab.ids.get(token).copied().filter(|&id| is_text(id));
    let mut found = Vec::new();
    for (id, &token) in (0..).zip(&vocab.tokens) {
        if !is_text(id) {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(left_id), Some(right_id)) = (id_of(left), id_of(right)) {
                found.push((scores[id as usize], (left_id, right_id), (left, right)));
            }
        }
    }
    found.sort_by(|(a, a_ids, _), (b, b_ids, _)| b.total_cmp(a).then(a_ids.cmp(b_ids)));
    found.into_iter().map(|(_, _, merge)| merge).collect()
}
