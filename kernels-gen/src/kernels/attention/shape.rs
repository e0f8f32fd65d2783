//! Attention's compile-time parameters, and what follows from them.

use bespoke_codegen::dsl::WARP;
use serde::{Deserialize, Serialize};

use crate::kernels::launching::{CopyEngine, Trigger};
use crate::kernels::rope::RopeKind;

/// Attention's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements a head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// Elements of a head that are rotated: the first ones; even.
    pub rotated: u32,
    /// Which are rotated together.
    pub rope: RopeKind,
    /// ε of an RMSNorm of each head of queries and keys before the rotation, if there is one.
    pub qk_norm: Option<f32>,
    /// Query heads of a group that a CTA computes: at most 8; divides heads / kv_heads.
    pub heads_per_block: u32,
    /// Most runs that the context is split into.
    pub splits: u32,
    /// Fewest pages a run.
    pub min_pages: u32,
    /// Pages in shared memory at a time.
    pub stages: u32,
    /// How the cache is loaded.
    pub copy: CopyEngine,
    /// When the next launch may start.
    pub trigger: Trigger,
}

/// Positions of a page of the cache. A page has, for each key head, the keys (or values) of its positions in one
/// piece.
pub const PAGE: u32 = 64;

/// Positions that a warp treats at a time: a quarter of a page.
pub const TILE: u32 = 16;

/// Warps that multiply: one for each tile of a page; one more loads.
pub(super) const WARPS: u32 = PAGE / TILE;

/// Threads that multiply.
pub(super) const CONSUMERS: u32 = WARPS * WARP;

/// Where things lie in a CTA's dynamic shared memory, in bytes; the pages lie first.
pub(super) struct SharedMap {
    /// f32 [heads_per_block + 2, shared stride]: queries, then the new key and value.
    pub heads: u32,
    /// f32 `[heads_per_block]`: the scores of the new key.
    pub scores: u32,
    /// f32 [warps, heads_per_block, shared stride]: as partial results in global memory.
    pub partial: u32,
    /// The size of all.
    pub bytes: u32,
}

impl AttentionShape {
    /// Query heads a key head.
    pub fn group(&self) -> u32 {
        self.heads / self.kv_heads
    }

    /// CTAs: blocks of query heads, runs.
    pub fn grid(&self) -> [u32; 3] {
        [self.heads / self.heads_per_block, self.splits, 1]
    }

    /// Threads a CTA.
    pub fn threads(&self) -> u32 {
        CONSUMERS + WARP
    }

    /// f32 a partial result: the numerator, then the maximum and the denominator; whole 16 bytes.
    pub(super) fn partial_stride(&self) -> u32 {
        self.head_dim + 4
    }

    /// f32 from head to head in shared memory. A half-warp takes pairs of elements of four heads at a time: eight more
    /// than a head's multiple of 16 put these in different banks.
    pub(super) fn shared_stride(&self) -> u32 {
        self.head_dim + 8
    }

    /// Elements of the f32 workspace in which runs meet: [heads, splits, head_dim + 4].
    pub fn workspace(&self) -> u32 {
        self.heads * self.splits * self.partial_stride()
    }

    /// Words of the counters of runs that are done: one for each block of heads; zero between launches.
    pub fn counters(&self) -> u32 {
        self.heads / self.heads_per_block
    }

    /// Bytes of a page of one key head, of keys or of values.
    pub fn page_bytes(&self) -> u32 {
        PAGE * self.head_dim * 2
    }

    /// Bytes of a cache of keys, or of values, for `positions` positions: whole pages.
    pub fn cache_bytes(&self, positions: u32) -> u64 {
        u64::from(positions.div_ceil(PAGE)) * u64::from(self.kv_heads) * u64::from(self.page_bytes())
    }

    /// Where in a cache of keys element `element` of key head `head` at `position` lies, in elements.
    pub fn key_index(&self, position: u32, head: u32, element: u32) -> u64 {
        let (group, place) = (position % 8, element % 8 / 2);
        self.tile_index(position, head)
            + u64::from(element / 16 * 256 + (group * 4 + place) * 8)
            + u64::from(position / 8 % 2 * 4 + element / 8 % 2 * 2 + element % 2)
    }

    /// As [`AttentionShape::key_index`], of values.
    pub fn value_index(&self, position: u32, head: u32, element: u32) -> u64 {
        let (group, place) = (element % 8, position % 8 / 2);
        self.tile_index(position, head)
            + u64::from(element / 16 * 256 + (group * 4 + place) * 8)
            + u64::from(element / 8 % 2 * 4 + position / 8 % 2 * 2 + position % 2)
    }

    fn tile_index(&self, position: u32, head: u32) -> u64 {
        let page = u64::from(position / PAGE) * u64::from(self.kv_heads) + u64::from(head);
        (page * u64::from(WARPS) + u64::from(position % PAGE / TILE)) * u64::from(TILE * self.head_dim)
    }

    /// Dynamic shared memory, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_map().bytes
    }

    pub(super) fn shared_map(&self) -> SharedMap {
        let heads = self.stages * 2 * self.page_bytes();
        let scores = heads + (self.heads_per_block + 2) * self.shared_stride() * 4;
        let partial = scores + (self.heads_per_block * 4).next_multiple_of(16);
        let bytes = partial + WARPS * self.heads_per_block * self.shared_stride() * 4;
        SharedMap { heads, scores, partial, bytes }
    }
}
