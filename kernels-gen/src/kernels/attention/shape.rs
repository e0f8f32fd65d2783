//! Compile-time parameters of attention, and the sizes and addresses derived from them.

use bespoke_codegen::dsl::WARP;
use serde::{Deserialize, Serialize};

use super::kv::KvType;
use crate::kernels::gemv::SCALED;
use crate::kernels::gemv::tokens::InputLayout;
use crate::kernels::launching::{CopyEngine, Trigger};
use crate::kernels::rope::RopeKind;

/// Rotary position embedding of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Pairing of the rotated elements.
    pub kind: RopeKind,
    /// Number of rotated elements at the start of a head; even, and not zero.
    pub rotated: u32,
    /// Factor of sin and cos; 1 unless the scaling of long contexts changes it (YaRN, LongRoPE).
    pub magnitude: f32,
}

/// RMSNorm of queries and keys before the rotation (QK norm).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QkNorm {
    /// ε of the norm.
    pub eps: f32,
    /// The elements that are normalised together.
    pub span: NormSpan,
}

/// Elements that a QK norm normalises together; its weights have the same extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormSpan {
    /// Each head: weights f32 `[head_dim]` (Qwen3, Gemma 3).
    Head,
    /// The queries of all heads, and the keys of all heads: weights f32 [heads · head_dim] and [kv_heads · head_dim]
    /// (OLMo 2).
    Projection,
}

/// Compile-time parameters of attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Number of rows of the step.
    pub tokens: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of key heads, and of value heads; divides `heads`.
    pub kv_heads: u32,
    /// Number of elements per head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// Rotation of queries and keys; `None` for a layer without position embedding (NoPE).
    pub rope: Option<Rope>,
    /// RMSNorm of queries and keys before the rotation; `None` if the model has no QK norms.
    pub qk_norm: Option<QkNorm>,
    /// Sliding window: a position attends to itself and to the `window - 1` positions before it; `None` for all earlier
    /// positions.
    pub window: Option<u32>,
    /// Factor of the scores, normally 1/√head_dim.
    pub scale: f32,
    /// Bound of the scores: a score x becomes softcap · tanh(x / softcap).
    pub softcap: Option<f32>,
    /// Element type of the cache.
    pub kv: KvType,
    /// Query heads per CTA: at most 8; divides heads / kv_heads.
    pub heads_per_block: u32,
    /// Maximum number of splits of the context; a split is a run of consecutive pages, attended to by one CTA per block
    /// of query heads.
    pub splits: u32,
    /// CTAs for each row and block of query heads, or on average if they are divided by the lengths of the rows' contexts: at
    /// most `splits`. CTA i of n has the splits i, i + n, … It does not change results.
    pub run_blocks: u32,
    /// In a step of several rows whose CTAs do not all fit the GPU at once: the number of CTAs for each block of query heads that
    /// do. CTAs are then divided by the lengths of the rows' contexts, by [`super::attention_shares()`]. It does not change
    /// results.
    pub at_once: Option<u32>,
    /// Minimum number of pages per split.
    pub min_pages: u32,
    /// Number of stages of the ring in shared memory.
    pub stages: u32,
    /// Tiles of keys, and of values, that a stage holds: 4 (a page), 2 or 1.
    pub stage_tiles: u32,
    /// The instruction that copies the cache to shared memory.
    pub copy: CopyEngine,
    /// The event that lets the next launch start.
    pub trigger: Trigger,
    /// Whether the launch before this one has appended the entries of all rows ([`super::append()`]), so that rows may be
    /// consecutive tokens of a sequence. It does not change results.
    pub appended: bool,
    /// If the kernel quantises its output for the next product: the layout of that product's inputs, which must pass
    /// [`AttentionShape::can_quantise`]. It saves a launch of [`prepare`](crate::kernels::gemv::tokens::prepare()). `None` for an
    /// output of f32.
    pub output_layout: Option<InputLayout>,
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
    /// u32 [steps, `query_lanes`, 4]: fragments of the queries; none in `append`.
    pub query: u32,
    /// f32 [`head_rows`, `shared_stride`]: queries, the new key and the new value before they are rounded.
    pub heads: u32,
    /// f32 [warps, heads_per_block, `shared_stride`]: partial results of the warps; before that, sums and factors of norms.
    pub partial: u32,
    /// The new key and value as in the cache: see `entry`.
    pub entry: u32,
    /// Total size of dynamic shared memory.
    pub bytes: u32,
}

impl AttentionShape {
    /// Tiles of a page: the largest number in a stage.
    pub const PAGE_TILES: u32 = WARPS;

    /// 1/√head_dim: the usual factor of the scores.
    pub fn default_scale(head_dim: u32) -> f32 {
        1.0 / (head_dim as f32).sqrt()
    }

    /// Number of rotated elements of a head; 0 without RoPE.
    pub fn rotated(&self) -> u32 {
        self.rope.map_or(0, |rope| rope.rotated)
    }

    /// Numbers of weights of the norms of queries and keys; `None` without QK norms.
    pub fn norm_widths(&self) -> Option<[u32; 2]> {
        self.qk_norm.map(|norm| match norm.span {
            NormSpan::Head => [self.head_dim; 2],
            NormSpan::Projection => [self.heads * self.head_dim, self.kv_heads * self.head_dim],
        })
    }

    /// Largest number of pages that contain positions of one window; `None` without a window.
    pub fn window_pages(&self) -> Option<u32> {
        self.window.map(|window| (window.max(1) - 1).div_ceil(PAGE) + 1)
    }

    /// Number of query heads per key head.
    pub fn group(&self) -> u32 {
        self.heads / self.kv_heads
    }

    /// The grid: blocks of query heads along x; CTAs of a row along y and rows along z, or CTAs of all rows along y.
    pub fn grid(&self) -> [u32; 3] {
        let [ctas, rows] = match self.at_once {
            None => [self.run_blocks, self.tokens],
            Some(_) => [self.run_blocks * self.tokens, 1],
        };
        [self.heads / self.heads_per_block, ctas, rows]
    }

    /// Whether a CTA has one run of pages at most, by the shape alone.
    pub(super) fn has_one_run(&self) -> bool {
        self.run_blocks == self.splits
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

    /// Number of elements of a row's queries, keys and values.
    pub(super) fn qkv_width(&self) -> u32 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Number of elements of a row's output.
    pub(super) fn y_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Whether the kernel can quantise its output in `layout`. All 256 columns with a common scale must belong to one CTA, and
    /// `layout` must have the rows as tokens.
    pub fn can_quantise(&self, layout: &InputLayout) -> bool {
        (self.heads_per_block * self.head_dim).is_multiple_of(SCALED)
            && layout.columns() == self.y_width()
            && layout.tokens == self.tokens
    }

    /// CTAs that must fit on a multiprocessor. With several rows, other CTAs hide a CTA's latency. Each quarter of a
    /// multiprocessor has registers for four warps with 128 registers a thread, or for three with 168. A CTA has five warps, so
    /// three CTAs fit, or two. The accumulators of heads of more than 128 elements leave no registers for a second CTA.
    pub(crate) fn min_blocks(&self) -> u32 {
        match self.head_dim {
            _ if self.tokens == 1 => 1,
            ..=64 => 3,
            65..=128 => 2,
            _ => 1,
        }
    }

    /// Bytes that a thread may spill. With several rows ptxas keeps one or two addresses in local memory while a CTA attends to a
    /// run: they are written once, and read once a run.
    pub(crate) fn allowed_spills(&self) -> u32 {
        if self.tokens > 1 { 16 } else { 0 }
    }

    /// Size of a row's workspace for the partial results of splits, in f32.
    pub(super) fn row_workspace(&self) -> u32 {
        self.heads * self.splits * self.partial_stride()
    }

    /// Number of counters of a row: one per block of query heads. See [`AttentionShape::counters`].
    pub(super) fn row_counters(&self) -> u32 {
        self.heads / self.heads_per_block
    }

    /// Size of the workspace for the partial results of splits, in f32: [rows, heads, splits, head_dim + 4].
    pub fn workspace(&self) -> u32 {
        self.tokens * self.row_workspace()
    }

    /// Number of u32 counters: [rows, blocks of query heads]. Each counts the CTAs that have stored all of their splits, and is
    /// zero between launches.
    pub fn counters(&self) -> u32 {
        self.tokens * self.row_counters()
    }

    /// Steps of a matrix product over the head dimension: 16 elements each.
    pub(super) fn steps(&self) -> u32 {
        self.head_dim / 16
    }

    /// Steps whose fragments of the queries are held in registers: all, unless accumulators and fragments together
    /// exceed a thread's registers.
    pub(super) fn held_steps(&self) -> u32 {
        if self.steps() <= 12 { self.steps() } else { 4 }
    }

    /// Lanes of a warp whose fragments of the queries have a head of the CTA.
    pub(super) fn query_lanes(&self) -> u32 {
        4 * self.heads_per_block
    }

    /// Positions of a part of a page: as many as a stage holds.
    pub(super) fn part_positions(&self) -> u32 {
        self.stage_tiles * TILE
    }

    /// Number of parts of a page.
    pub(super) fn parts_per_page(&self) -> u32 {
        WARPS / self.stage_tiles
    }

    /// Bytes of the keys (or values) that a stage holds.
    pub(super) fn part_bytes(&self) -> u32 {
        self.stage_tiles * self.tile_bytes()
    }

    /// Bytes of a stage: keys, then values.
    pub fn stage_bytes(&self) -> u32 {
        2 * self.part_bytes()
    }

    /// Dynamic shared memory, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_map().bytes
    }

    /// Whether the kernel loads pages; [`super::append()`] does not.
    fn has_ring(&self) -> bool {
        self.stages > 0
    }

    /// Number of rows of f32 in shared memory. All heads have one in [`super::append()`] and with a cache of type q8_0; queries and the
    /// new key have one if they are normalised by head.
    fn head_rows(&self) -> u32 {
        if !self.has_ring() || self.kv == KvType::Q8_0 {
            self.heads_per_block + 2
        } else if self.qk_norm.is_some_and(|norm| norm.span == NormSpan::Head) {
            self.heads_per_block + 1
        } else {
            0
        }
    }

    pub(super) fn shared_map(&self) -> SharedMap {
        let query = self.stages * self.stage_bytes();
        let heads = query + if self.has_ring() { self.steps() * self.query_lanes() * 16 } else { 0 };
        let partial = heads + self.head_rows() * self.shared_stride() * 4;
        // The norms of projections need two sums per warp.
        let partials = (WARPS * self.heads_per_block * self.shared_stride() * 4).max(2 * WARPS * 4);
        let entry = partial + partials;
        let bytes = entry + (2 * self.position_bytes()).next_multiple_of(16);
        SharedMap { query, heads, partial, entry, bytes }
    }
}
