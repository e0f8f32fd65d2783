//! How work is divided: CTA sizes, rows a warp, splits, from the target's constants.

use bespoke_codegen::dsl::WARP;
use bespoke_codegen::ptx::Target;

use crate::kernels::argmax::ArgmaxShape;
use crate::kernels::attention::AttentionShape;
use crate::kernels::gemv::{GemvShape, Segment};
use crate::shape::Dimensions;

/// Threads a CTA of elementwise kernels.
pub(super) const ELEMENTWISE: u32 = 128;

/// Divides a stack of matrices.
///
/// A row gets as many lanes as it has 16-byte units, up to a warp. CTAs are large, because each quantises the whole
/// input; two of them a multiprocessor cover each other's pauses. Where there are few rows, CTAs are smaller, so
/// that every multiprocessor gets some.
pub(super) fn gemv(target: Target, cols: u32, segments: Vec<Segment>) -> GemvShape {
    let units = segments
        .iter()
        .map(|segment| match (segment.ty.is_quantised(), segment.ty.ggml().row_bytes(8)) {
            (true, _) => cols / 32,
            (false, Some(eight)) => (cols * eight as u32 / 8).div_ceil(16),
            (false, None) => cols,
        })
        .max()
        .unwrap_or(1);
    let divides = |rows: u32| segments.iter().all(|segment| segment.rows.is_multiple_of(rows));
    let mut lanes_per_row = units.next_power_of_two().clamp(1, WARP);
    while !divides(WARP / lanes_per_row) {
        lanes_per_row *= 2;
    }
    let mut shape = GemvShape { cols, segments, threads: 512, lanes_per_row, rows_per_group: 1, grid: 1 };
    let rows = shape.rows();
    let multiprocessors = target.multiprocessors();
    while shape.threads > 128 && rows.div_ceil(shape.threads / WARP * shape.rows_per_warp()) < multiprocessors
    {
        shape.threads /= 2;
    }
    let tiles = rows.div_ceil(shape.threads / WARP * shape.rows_per_warp());
    shape.grid = tiles.min(multiprocessors * (1024 / shape.threads));
    shape
}

/// Divides attention: enough runs of the context to give every multiprocessor two CTAs.
pub(super) fn attention(target: Target, d: &Dimensions) -> AttentionShape {
    let group = d.heads / d.kv_heads;
    // Queries and numerators of a head cost 16 registers a lane.
    let heads_per_block = (1..=8.min(group)).rev().find(|n| group.is_multiple_of(*n)).unwrap_or(1);
    let blocks = d.heads / heads_per_block;
    AttentionShape {
        heads: d.heads,
        kv_heads: d.kv_heads,
        head_dim: d.head_dim,
        heads_per_block,
        splits: (2 * target.multiprocessors() / blocks).clamp(1, 64),
        min_run: 32,
        threads: 128,
        combine_threads: d.head_dim.next_multiple_of(WARP),
    }
}

/// Divides the search for the largest logit.
pub(super) fn argmax(target: Target, vocab: u32) -> ArgmaxShape {
    let threads = 256;
    ArgmaxShape {
        vocab,
        blocks: vocab.div_ceil(4 * threads).clamp(1, target.multiprocessors().min(threads)),
        threads,
    }
}

/// Threads for the norm of a row: eight elements each, whole warps, at most 1024.
pub(super) fn norm_threads(cols: u32) -> u32 {
    cols.div_ceil(8).next_multiple_of(WARP).clamp(WARP, 1024)
}
