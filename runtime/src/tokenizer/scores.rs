//! SentencePiece's BPE: the two neighbours whose concatenation is the token with the highest score are merged, until no
//! two neighbours are a token. Of equal scores the leftmost pair is merged first.
//!
//! A character without a token becomes the tokens of its bytes, or the unknown token if the vocabulary lacks one of the
//! bytes; neighbouring unknown characters share one unknown token, as in SentencePiece.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::vocab::{TokenType, Vocab, byte_name};

/// Encoder by scores.
pub struct Scores {
    /// Score of each token that merging may produce; `None` for control, unknown and byte tokens.
    scores: Vec<Option<f32>>,
    /// Token of each byte.
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
    /// Length of the longest token in bytes.
    longest: usize,
}

/// A part of the text: a character at first, and the concatenation of merged parts later.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// Length in bytes; zero for a symbol that was merged into the one before it.
    len: usize,
    /// Index of the symbol before; `NONE` for the first.
    prev: usize,
    /// Index of the symbol after; `NONE` for the last.
    next: usize,
}

const NONE: usize = usize::MAX;

/// Two neighbours whose concatenation is a token.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Length of both in bytes when the pair was found; another length means that the pair is outdated.
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

impl Scores {
    /// Creates the encoder of a vocabulary with a score for each token.
    pub fn new(vocab: &Vocab<'_>, scores: &[f32]) -> Self {
        let is_text = |ty| matches!(ty, TokenType::Normal | TokenType::UserDefined | TokenType::Unused);
        let byte = |byte: u8| {
            let name = vocab.ids.get(byte_name(byte).as_str());
            // Some vocabularies have the character itself instead.
            let name = name.or_else(|| vocab.ids.get(std::str::from_utf8(&[byte]).ok()?));
            name.copied()
        };
        Self {
            // Minus zero is zero, so that equal scores compare as equal.
            scores: scores.iter().zip(&vocab.types).map(|(&s, &ty)| is_text(ty).then_some(s + 0.0)).collect(),
            bytes: (0..=255).map(byte).collect(),
            unknown: vocab.unknown,
            longest: vocab.tokens.iter().map(|token| token.len()).max().unwrap_or(0),
        }
    }

    /// Encodes a text in which spaces are `▁`. `id_of` finds a token by its spelling.
    pub fn encode(&self, text: &str, id_of: impl Fn(&str) -> Option<u32>, ids: &mut Vec<u32>) {
        let text_token = |part: &str| {
            let id = id_of(part)?;
            Some((id, self.scores[id as usize]?))
        };
        let mut symbols: Vec<Symbol> = (0..)
            .zip(text.char_indices())
            .map(|(index, (start, character))| Symbol {
                start,
                len: character.len_utf8(),
                prev: if index == 0 { NONE } else { index - 1 },
                next: index + 1,
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        let pair = |symbols: &[Symbol], left: usize, right: usize| {
            if left == NONE || right == NONE {
                return None;
            }
            let start = symbols[left].start;
            let len = symbols[left].len + symbols[right].len;
            if len > self.longest {
                return None;
            }
            let (_, score) = text_token(&text[start..start + len])?;
            Some(Pair { score, left, right, len })
        };
        let mut queue: BinaryHeap<Pair> =
            (1..symbols.len()).filter_map(|right| pair(&symbols, right - 1, right)).collect();
        while let Some(Pair { left, right, len, .. }) = queue.pop() {
            let (before, after) = (symbols[left], symbols[right]);
            if before.len == 0 || after.len == 0 || before.len + after.len != len {
                continue;
            }
            symbols[left].len = len;
            symbols[left].next = after.next;
            symbols[right].len = 0;
            if after.next != NONE {
                symbols[after.next].prev = left;
            }
            queue.extend(pair(&symbols, before.prev, left));
            queue.extend(pair(&symbols, left, after.next));
        }
        let mut after_unknown = false;
        for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
            let part = &text[symbol.start..symbol.start + symbol.len];
            if let Some((id, _)) = text_token(part) {
                ids.push(id);
                after_unknown = false;
                continue;
            }
            let start = ids.len();
            ids.extend(part.bytes().filter_map(|byte| self.bytes[usize::from(byte)]));
            if ids.len() - start == part.len() {
                after_unknown = false;
                continue;
            }
            ids.truncate(start);
            if !after_unknown {
                ids.extend(self.unknown);
            }
            after_unknown = true;
        }
    }
}
