//! SentencePiece's scores as ranked merges.
//!
//! SentencePiece's BPE repeatedly merges the two neighbours whose concatenation is the token with the highest
//! score. That is BPE with ranked merges when each token is given a merge for every way to split it into two
//! tokens, ranked by the token's score: the conversion that Hugging Face's `transformers` makes of SentencePiece
//! files (`SentencePieceExtractor` in `convert_slow_tokenizer.py`). Scores fall with the id in trained
//! vocabularies; where two are equal, the lower ids go first.

use super::vocab::{TokenType, Vocab};

/// The merges, best first.
pub fn merges<'a>(vocab: &Vocab<'a>, scores: &[f32]) -> Vec<(&'a str, &'a str)> {
    // Text never becomes a control or byte token by merging its letters.
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
