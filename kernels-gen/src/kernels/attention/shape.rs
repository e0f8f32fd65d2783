//! Compile-time parameters of attention, and the sizes and addresses derived from them.

use bespoke_codegen::dsl::WARP;
use serde::{Deserialize, Serialize};

use crate::kernels::launching::{CopyEngine, Trigger};
use crate::kernels::rope::RopeKind;

/// Compile-time parameters of attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Number of query heads.
    pub heads: u32,
    /// Number of key heads, and of value heads; divides `heads`.
    pub kv_heads: u32,
    /// Number of elements per head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// Number of rotated elements at the start of a head; even.
    pub rotated: u32,
    /// Pairing of the rotated elements.
    pub rope: RopeKind,
    /// ε of the RMSNorm of each query and key head before the rotation (QK norm); `None` if the model has no QK norms.
    pub qk_norm: Option<f32>,
    /// Query heads per CTA: at most 8; divides heads / kv_heads.
    pub heads_per_block: u32,
    /// Maximum number of splits of the context; a split is a run of consecutive pages, attended to by one CTA per block
    /// of query heads.
    pub splits: u32,
    /// Minimum number of pages per split.
    pub min_pages: u32,
    /// Number of stages of the ring in shared memory; a stage holds one page of keys and values.
    pub stages: u32,
    /// The instruction that copies the cache to shared memory.
    pub copy: CopyEngine,
    /// The event that lets the next launch start.
    pub trigger: Trigger,
}

/// Positions per page of the cache. The keys (or values) of a page are contiguous for each key head.
pub const PAGE: u32 = 64;

/// Positions per tile: a quarter of a page, which a warp attends to at a time.
pub const TILE: u32 = 16;

/// Number of consumer warps, one per tile of a page; there is one producer warp besides.
pub(super) const WARPS: u32 = PAGE / TILE;

/// Number of consumer threads.
pub(super) const CONSUMERS: u32 = WARPS * WARP;

/// Offsets in a CTA's dynamic shared memory, in bytes. The ring of pages comes first.
pub(super) struct SharedMap {
    /// f32 [heads_per_block + 2, `shared_stride`]: queries, then the new key and value.
    pub heads: u32,
    /// f32 `[heads_per_block]`: the scores of the new key.
    pub scores: u32,
    /// f32 [warps, heads_per_block, `partial_stride`]: partial results of the warps.
    pub partial: u32,
    /// Total size of dynamic shared memory.
    pub bytes: u32,
}

impl AttentionShape {
    /// Number of query heads per key head.
    pub fn group(&self) -> u32 {
        self.heads / self.kv_heads
    }

    /// The grid: blocks of query heads along x, splits of the context along y.
    pub fn grid(&self) -> [u32; 3] {
        [self.heads / self.heads_per_block, self.splits, 1]
    }

    /// Threads per CTA.
    pub fn threads(&self) -> u32 {
        CONSUMERS + WARP
    }

    /// Size of a partial result in f32: the numerator, the maximum and the denominator, padded to 16 bytes.
    pub(super) fn partial_stride(&self) -> u32 {
        self.head_dim + 4
    }

    /// Distance between consecutive heads in shared memory, in f32. A half-warp accesses pairs of elements of four
    /// heads at once; a padding of eight f32 puts these in different banks.
    pub(super) fn shared_stride(&self) -> u32 {
        self.head_dim + 8
    }

    /// Size of the workspace for the partial results of splits, in f32: [heads, splits, head_dim + 4].
    pub fn workspace(&self) -> u32 {
        self.heads * self.splits * self.partial_stride()
    }

    /// Number of u32 counters of finished splits: one per block of query heads. Counters are zero between launches.
    pub fn counters(&self) -> u32 {
        self.heads / self.heads_per_block
    }

    /// Bytes of the keys (or values) of one key head in a page.
    pub fn page_bytes(&self) -> u32 {
        PAGE * self.head_dim * 2
    }

    /// Bytes of the cache of keys (or values) for `positions` positions, rounded up to whole pages.
    pub fn cache_bytes(&self, positions: u32) -> u64 {
        u64::from(positions.div_ceil(PAGE)) * u64::from(self.kv_heads) * u64::from(self.page_bytes())
    }

    /// Index in the cache of keys of element `element` of key head `head` at `position`, in elements.
    pub fn key_index(&self, position: u32, head: u32, element: u32) -> u64 {
        let (group, quarter) = (position % 8, element % 8 / 2);
        self.tile_index(position, head)
            + u64::from(element / 16 * 256 + (group * 4 + quarter) * 8)
            + u64::from(position / 8 % 2 * 4 + element / 8 % 2 * 2 + element % 2)
    }

    /// Index in the cache of values of element `element` of value head `head` at `position`, in elements.
    pub fn value_index(&self, position: u32, head: u32, element: u32) -> u64 {
        let (group, quarter) = (element % 8, position % 8 / 2);
        self.tile_index(position, head)
            + u64::from(element / 16 * 256 + (group * 4 + quarter) * 8)
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
