//! The kernel's pointers and a CTA's share of the work.

use bespoke_codegen::prelude::*;

use super::shape::{AttentionShape, PAGE};
use crate::kernels::state;

/// Number of the named barrier of the consumer warps.
pub(super) const CONSUMER_BARRIER: u8 = 1;

/// The kernel's pointers; see [`super::attention`].
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub qkv: Ptr<Global, f32>,
    /// Weights of the RMSNorms of query heads and key heads, f32 `[head_dim]` each; none without QK norms.
    pub norms: Option<(Ptr<Global, f32>, Ptr<Global, f32>)>,
    pub rope_table: Ptr<Global, f32>,
    pub keys: Ptr<Global, f16>,
    pub values: Ptr<Global, f16>,
    pub partial: Ptr<Global, f32>,
    pub counters: Ptr<Global, u32>,
    pub y: Ptr<Global, f32>,
    pub state: Ptr<Global, u32>,
}

/// A CTA's heads and pages.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// The current position, which is also the number of positions in the cache.
    pub position: Val<u32>,
    /// Index of the first query head of the CTA.
    pub first_head: Val<u32>,
    /// Index of the key/value head of the CTA.
    pub kv_head: Val<u32>,
    /// The CTA's run of pages: the first page, and the one after the last.
    pub pages: [Val<u32>; 2],
    /// Number of splits that have at least one page.
    pub runs: Val<u32>,
    /// Whether this CTA's run of pages includes the current position.
    pub last: Val<bool>,
}

impl Work {
    /// The heads and pages of this CTA.
    ///
    /// Reads the position before earlier launches are known to have completed. The launch that starts this one early
    /// must itself have waited for the launch that wrote the position (`Trigger::AfterWait`).
    pub fn of_cta(operands: &Operands, s: &AttentionShape) -> Work {
        let position = state::position(operands.state);
        let pages = position / PAGE + 1;
        let run = ((pages + (s.splits - 1)) / s.splits).max(s.min_pages);
        let first = block_index_y() * run;
        let end = (first + run).min(pages);
        let first_head = block_index() * s.heads_per_block;
        Work {
            position,
            first_head,
            kv_head: first_head / s.group(),
            pages: [first, end],
            runs: (pages + run - 1) / run,
            last: is_last(first, end, pages),
        }
    }
}

#[device]
fn is_last(first: Val<u32>, end: Val<u32>, pages: Val<u32>) -> Val<bool> {
    first < end && end == pages
}
