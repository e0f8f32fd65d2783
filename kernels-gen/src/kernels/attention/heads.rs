//! The CTA's query heads and the new key: their elements in shared memory, and the pairs of elements of each thread.

use bespoke_codegen::prelude::*;

use super::shape::{AttentionShape, CONSUMERS, Rope};
use crate::kernels::rope::RopeKind;

/// Address in shared memory of query head `index`, of the new key (after the queries), or of the new value (after that).
pub(super) fn head(index: impl IntoVal<u32>, s: &AttentionShape) -> Ptr<Shared, f32> {
    dynamic_shared::<u8>()
        .byte_add(s.shared_map().heads)
        .cast::<f32>()
        .at(index.into_val() * s.shared_stride())
}

/// Number of element pairs in the CTA's query heads and in the new key.
pub(super) fn pairs(s: &AttentionShape) -> u32 {
    (s.heads_per_block + 1) * (s.head_dim / 2)
}

/// Number of passes over the element pairs; in a pass each thread processes one pair.
pub(super) fn passes(s: &AttentionShape) -> u32 {
    pairs(s).div_ceil(CONSUMERS)
}

/// Pair of elements of one head, which a thread processes in one pass. RoPE rotates the two elements together.
pub(super) struct Pair {
    /// Index among all pairs of the CTA.
    pub index: Val<u32>,
    /// Index of the head; the new key comes after the query heads.
    pub head: Val<u32>,
    /// Index of the pair within the head; pairs that are not rotated come last.
    pub pair: Val<u32>,
    /// Indices within the head of the pair's two elements.
    pub elements: [Val<u32>; 2],
}

/// Whether the pair belongs to a query.
#[device]
pub(super) fn is_query(pair: &Pair, s: &AttentionShape) -> Val<bool> {
    pair.head < s.heads_per_block
}

/// The element pair that this thread processes in pass `pass`.
pub(super) fn pair(pass: u32, s: &AttentionShape) -> Pair {
    let index = thread_index() + pass * CONSUMERS;
    let (head, pair) = (index / (s.head_dim / 2), index % (s.head_dim / 2));
    Pair { index, head, pair, elements: elements(pair, s) }
}

/// Indices of the two elements of pair `pair` within a head.
#[device]
fn elements(pair: Val<u32>, s: &AttentionShape) -> [Val<u32>; 2] {
    match s.rope {
        None | Some(Rope { kind: RopeKind::Norm, .. }) => [pair * 2, pair * 2 + 1],
        Some(Rope { kind: RopeKind::Neox, rotated, .. }) => {
            let half = rotated / 2;
            if rotated == s.head_dim {
                [pair, pair + half]
            } else {
                let rotated = pair < half;
                [select(rotated, pair, pair * 2), select(rotated, pair + half, pair * 2 + 1)]
            }
        }
    }
}
