//! Shapes of attention: of its kernels, of shares, of prefill steps, and of appends.

use bespoke_kernels::kernels::attention::{
    AppendShape, AttentionShape, ChunkShape, KvType, NormSpan, QkNorm, Rope, SharesShape,
};
use bespoke_kernels::kernels::gemv::tokens::{InputForms, InputLayout};
use bespoke_kernels::kernels::launching::{CopyEngine, Trigger};
use bespoke_kernels::kernels::rope::RopeKind;

/// Shapes of attention: one to eight query heads per key/value head, and a group of heads in two CTAs; full and partial
/// rotation, of pairs and of halves, and none; norms of heads and of projections; windows within a tile, and over the
/// borders of pages and splits; rows of one sequence and of several; other scales; soft caps; splits of one page and of several;
/// rings of one stage and of more, with both copy engines, whose stages hold a page and less; caches of f16 and of bytes; outputs
/// quantised for a product of warps and of warpgroups, in all forms.
pub(super) fn attentions() -> Vec<AttentionShape> {
    use NormSpan::{Head, Projection};
    use RopeKind::{Neox, Norm};
    let shape = |[heads, kv_heads, head_dim, rotated]: [u32; 4], kind, [splits, min_pages]: [u32; 2]| {
        AttentionShape {
            tokens: 1,
            heads,
            kv_heads,
            head_dim,
            rope: Some(Rope { kind, rotated, magnitude: 1.0 }),
            qk_norm: None,
            window: None,
            scale: AttentionShape::default_scale(head_dim),
            softcap: None,
            kv: KvType::F16,
            heads_per_block: (heads / kv_heads).min(8),
            splits,
            run_blocks: splits,
            at_once: None,
            min_pages,
            stages: 2,
            stage_tiles: AttentionShape::PAGE_TILES,
            copy: CopyEngine::Bulk,
            trigger: Trigger::AtStart,
            appended: false,
            output_layout: None,
        }
    };
    let async_copies =
        |shape| AttentionShape { stages: 1, copy: CopyEngine::Async, trigger: Trigger::Never, ..shape };
    let two_blocks = |shape| AttentionShape { heads_per_block: 2, ..shape };
    let normed = |span, shape| AttentionShape { qk_norm: Some(QkNorm { eps: 1e-6, span }), ..shape };
    let window = |positions, shape| AttentionShape { window: Some(positions), ..shape };
    let bounded = |cap, shape: AttentionShape| {
        let scale = shape.scale * 1.25;
        AttentionShape { softcap: Some(cap), scale, ..shape }
    };
    let unrotated = |shape| AttentionShape { rope: None, ..shape };
    let magnified = |magnitude, shape: AttentionShape| {
        let rope = shape.rope.map(|rope| Rope { magnitude, ..rope });
        AttentionShape { rope, ..shape }
    };
    let bytes = |shape| AttentionShape { kv: KvType::Q8_0, ..shape };
    let parts = |stage_tiles, stages, shape| AttentionShape { stage_tiles, stages, ..shape };
    let rows = |tokens, run_blocks, shape| AttentionShape { tokens, run_blocks, ..shape };
    let by_length = |at_once, shape| AttentionShape { at_once: Some(at_once), ..shape };
    let appended = |shape| AttentionShape { appended: true, ..shape };
    let quantised = |forms, block_tokens, shape: AttentionShape| {
        let granules = shape.heads * shape.head_dim / 128;
        let layout = InputLayout { tokens: shape.tokens, granules, forms, block_tokens };
        AttentionShape { output_layout: Some(layout), ..shape }
    };
    vec![
        shape([4, 2, 64, 64], Norm, [3, 1]),
        shape([7, 1, 80, 80], Neox, [2, 1]),
        async_copies(shape([8, 1, 128, 96], Neox, [2, 2])),
        normed(Head, shape([2, 2, 128, 128], Neox, [4, 1])),
        two_blocks(shape([4, 1, 16, 16], Norm, [5, 1])),
        async_copies(shape([1, 1, 256, 2], Norm, [1, 1])),
        window(1, shape([1, 1, 16, 16], Norm, [2, 1])),
        window(20, unrotated(shape([3, 1, 32, 32], Norm, [2, 1]))),
        window(100, shape([4, 2, 64, 64], Neox, [3, 1])),
        bounded(50.0, window(130, parts(2, 2, shape([2, 1, 256, 256], Neox, [2, 1])))),
        normed(Head, window(150, parts(1, 3, async_copies(shape([4, 1, 256, 256], Neox, [2, 2]))))),
        bounded(30.0, parts(2, 3, shape([2, 1, 192, 64], Norm, [3, 1]))),
        magnified(1.19, shape([2, 2, 96, 96], Neox, [2, 1])),
        magnified(0.8, parts(2, 2, async_copies(shape([1, 1, 48, 32], Neox, [2, 1])))),
        normed(Projection, shape([4, 2, 112, 112], Neox, [2, 1])),
        normed(Projection, two_blocks(unrotated(shape([80, 1, 64, 64], Neox, [2, 1])))),
        bytes(unrotated(shape([2, 1, 64, 64], Norm, [3, 1]))),
        bytes(async_copies(shape([6, 3, 128, 128], Neox, [2, 1]))),
        bytes(shape([3, 1, 80, 80], Norm, [2, 1])),
        bytes(two_blocks(window(90, shape([4, 1, 16, 16], Norm, [2, 1])))),
        bytes(normed(Head, bounded(40.0, window(170, parts(2, 2, shape([2, 1, 256, 256], Neox, [2, 1])))))),
        bytes(normed(Projection, parts(1, 3, async_copies(shape([4, 2, 112, 96], Norm, [2, 1]))))),
        rows(2, 2, shape([2, 1, 64, 64], Norm, [2, 1])),
        rows(4, 2, bytes(async_copies(normed(Head, shape([4, 2, 128, 128], Neox, [3, 1]))))),
        by_length(7, rows(4, 2, bytes(async_copies(normed(Head, shape([4, 2, 128, 128], Neox, [3, 1])))))),
        by_length(
            2,
            rows(3, 1, normed(Projection, window(70, parts(2, 2, shape([2, 2, 256, 64], Neox, [2, 1]))))),
        ),
        rows(8, 2, shape([2, 1, 16, 16], Norm, [2, 1])),
        by_length(9, rows(16, 2, bytes(shape([1, 1, 32, 32], Neox, [2, 1])))),
        rows(32, 1, shape([1, 1, 16, 16], Norm, [2, 1])),
        by_length(99, rows(64, 1, async_copies(shape([1, 1, 16, 16], Neox, [2, 1])))),
        by_length(9, appended(rows(8, 2, shape([4, 2, 64, 64], Norm, [3, 1])))),
        appended(rows(16, 2, bytes(normed(Head, two_blocks(shape([4, 1, 32, 32], Neox, [2, 1])))))),
        appended(rows(4, 1, async_copies(window(20, parts(2, 2, shape([2, 2, 48, 32], Neox, [2, 1])))))),
        quantised(MINS, 0, rows(4, 2, shape([8, 2, 64, 64], Norm, [3, 1]))),
        quantised(MINS, 8, by_length(5, rows(8, 2, shape([4, 1, 64, 64], Neox, [3, 1])))),
        quantised(FLOATS, 0, by_length(9, rows(8, 1, two_blocks(shape([4, 2, 128, 128], Norm, [2, 1]))))),
        quantised(
            CHUNKS,
            8,
            appended(rows(16, 2, bytes(async_copies(shape([8, 1, 256, 256], Neox, [2, 1]))))),
        ),
        quantised(HALVES, 0, rows(8, 2, shape([8, 2, 64, 64], Norm, [3, 1]))),
        quantised(HALVES, 8, by_length(5, rows(8, 2, shape([4, 1, 64, 64], Neox, [3, 1])))),
        // Fewer rows than a group or a block of tokens.
        quantised(HALVES, 0, rows(2, 2, shape([8, 2, 64, 64], Norm, [3, 1]))),
        quantised(MINS, 0, rows(3, 1, bytes(shape([4, 2, 128, 128], Neox, [2, 1])))),
        quantised(HALVES, 8, by_length(5, rows(5, 2, shape([4, 1, 64, 64], Neox, [3, 1])))),
    ]
}

/// Forms of the inputs of products of some types of weights.
const CHUNKS: InputForms = InputForms { chunks: true, ..InputForms::NONE };
const MINS: InputForms = InputForms { mins: true, ..CHUNKS };
const HALVES: InputForms = InputForms { mins: true, short_halves: true, ..InputForms::NONE };
const FLOATS: InputForms = InputForms { sums: true, half_sums: true, floats: true, ..CHUNKS };

/// Cases of `attention_shares`: powers of two and other numbers of rows, a CTA for each split or fewer, sliding windows, and GPUs
/// on which few or many CTAs are resident at once.
pub(super) fn shares() -> Vec<SharesShape> {
    let shape = |tokens, at_once, window, [splits, run_blocks, min_pages]: [u32; 3]| SharesShape {
        tokens,
        window,
        splits,
        run_blocks,
        at_once,
        min_pages,
    };
    vec![
        shape(2, 16, None, [16, 16, 2]),
        shape(3, 6, Some(300), [4, 4, 1]),
        shape(4, 33, None, [16, 16, 2]),
        shape(5, 7, Some(1), [3, 1, 1]),
        shape(8, 23, None, [16, 5, 2]),
        shape(16, 33, None, [16, 8, 2]),
        shape(32, 33, Some(1000), [16, 4, 2]),
        shape(64, 33, None, [16, 2, 2]),
        shape(16, 33, None, [16, 3, 2]),
        shape(64, 132, None, [16, 2, 2]),
        shape(70, 160, None, [7, 3, 1]),
    ]
}

/// Shapes of attention of prefill steps: small heads, large ones and groups of heads in several CTAs; fewer rows than a CTA
/// has, and more; windows, bounded scores, norms, and both types of the cache; warps and warpgroups, some of which have warps
/// without a head.
pub(super) fn chunks() -> Vec<ChunkShape> {
    let of = |tokens, heads_per_block, row_groups, index: usize| {
        let one = attentions()[index].clone();
        let copy = if index.is_multiple_of(2) { CopyEngine::Bulk } else { CopyEngine::Async };
        let stages = 1 + index as u32 % 3;
        let stage_tiles = AttentionShape::PAGE_TILES;
        let attention = AttentionShape {
            tokens,
            heads_per_block,
            splits: 1,
            run_blocks: 1,
            at_once: None,
            min_pages: 1,
            stages,
            stage_tiles,
            copy,
            output_layout: None,
            ..one
        };
        ChunkShape { attention, row_groups, warpgroups: false }
    };
    let mut shapes: Vec<ChunkShape> =
        (0..attentions().len()).map(|index| of(5 + index as u32, 1, 1 + index as u32 % 2, index)).collect();
    shapes.extend([of(37, 2, 2, 0), of(64, 7, 1, 1), of(100, 2, 4, 4), of(20, 2, 2, 8)]);
    let warpgroups = |chunk: ChunkShape| {
        let attention = AttentionShape { copy: CopyEngine::Bulk, ..chunk.attention };
        ChunkShape { attention, warpgroups: true, ..chunk }
    };
    let multiplied = [
        of(20, 8, 1, 2),
        of(100, 4, 2, 4),
        of(33, 4, 1, 4),
        of(64, 4, 2, 10),
        of(64, 7, 1, 1),
        of(40, 3, 2, 7),
    ];
    shapes.extend(multiplied.map(warpgroups));
    shapes
}

/// Shapes of the append to the cache: with and without RoPE and norms, for one row and for several, in both types.
pub(super) fn appends() -> Vec<AppendShape> {
    let mut shapes: Vec<AppendShape> =
        chunks().iter().map(|chunk| AppendShape::of(&chunk.attention, true)).collect();
    shapes.dedup();
    shapes
}
