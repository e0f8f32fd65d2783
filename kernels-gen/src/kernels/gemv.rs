//! y = W·x (+ bias) for one token: the matrix-vector products that a decoder spends its time on.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::activations;
use super::quants;
use crate::weights::{Layout, PlaneKind, WeightType};

/// One matrix of a [`GemvShape`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// The weights' type.
    pub ty: WeightType,
    /// Rows: outputs.
    pub rows: u32,
    /// A bias of `rows` f32 lies behind the matrix.
    pub bias: bool,
}

/// Several matrices over the same input, stacked: y = (W₀·x + b₀, W₁·x + b₁, …).
///
/// In device memory the matrices lie one after the other, each in its [`Layout`] and followed by its bias, at the
/// offsets of [`GemvShape::offsets`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GemvShape {
    /// Inputs.
    pub cols: u32,
    /// The matrices.
    pub segments: Vec<Segment>,
    /// Threads a CTA.
    pub threads: u32,
    /// Lanes that share a row: a power of two.
    pub lanes_per_row: u32,
    /// Rows that a group of lanes computes at the same time, for instruction-level parallelism.
    pub rows_per_group: u32,
    /// CTAs; each goes on with the rows that many CTAs further until none is left.
    pub grid: u32,
}

/// Where a segment's parts lie, in bytes from the start of the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentOffsets {
    /// The matrix.
    pub weights: u64,
    /// Its planes.
    pub layout: Layout,
    /// Its bias.
    pub bias: Option<u64>,
}

impl GemvShape {
    /// Rows of all matrices.
    pub fn rows(&self) -> u32 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    /// Where everything lies, and the size in bytes of the whole.
    ///
    /// # Panics
    /// If a type's blocks do not divide `cols`; a plan checks that first.
    pub fn offsets(&self) -> (Vec<SegmentOffsets>, u64) {
        let mut at = 0;
        let mut offsets = Vec::new();
        for segment in &self.segments {
            let layout = Layout::new(segment.ty, segment.rows, self.cols).expect("whole blocks a row");
            let weights = at;
            at += layout.bytes;
            let bias = segment.bias.then_some(at);
            if segment.bias {
                at += (u64::from(segment.rows) * 4).next_multiple_of(256);
            }
            offsets.push(SegmentOffsets { weights, layout, bias });
        }
        (offsets, at)
    }

    /// Rows that a warp computes at the same time. Divides the rows of every segment.
    pub fn rows_per_warp(&self) -> u32 {
        WARP / self.lanes_per_row * self.rows_per_group
    }

    fn quantised(&self) -> bool {
        self.segments.iter().any(|segment| segment.ty.is_quantised())
    }

    /// Columns padded to whole 16-byte units of any float type.
    fn padded_cols(&self) -> u32 {
        self.cols.next_multiple_of(8)
    }

    /// Where f32 activations begin in shared memory: behind the quantised ones.
    fn float_offset(&self) -> u32 {
        if self.quantised() { activations::quantised_bytes(self.cols).next_multiple_of(16) } else { 0 }
    }

    /// Dynamic shared memory, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        let floats = self.segments.iter().any(|segment| !segment.ty.is_quantised());
        self.float_offset() + if floats { self.padded_cols() * 4 } else { 0 }
    }
}

/// y[r] = Σ_c W[r, c]·x[c] + bias[r].
///
/// `w` is the stack of matrices, `x` f32 [cols], `y` f32 [rows]. Every CTA first brings x into shared memory
/// (quantised to 16 bits for quantised weights, see [`activations`]). Then a group of lanes takes
/// `rows_per_group` rows at a time: lane l of the group multiplies chunks l, l + lanes, … of each row and the group
/// adds up by butterfly shuffles, in an order that depends on the shape alone.
#[kernel(threads = s.threads, min_blocks = 1024 / s.threads)]
pub fn gemv(w: Ptr<Global, u8>, x: Ptr<Global, f32>, y: Ptr<Global, f32>, s: &GemvShape) {
    let shared = dynamic_shared::<u8>();
    let quantised =
        if s.quantised() { Some(activations::quantise(x, shared, s.cols, s.threads)) } else { None };
    let floats = shared.bytes(s.float_offset()).cast::<f32>();
    if s.segments.iter().any(|segment| !segment.ty.is_quantised()) {
        activations::copy(x, floats, s.cols, s.padded_cols(), s.threads);
    }

    let member = thread_index() & (s.lanes_per_row - 1);
    let row_in_warp = lane() / s.lanes_per_row * s.rows_per_group;
    let rows_per_warp = s.rows_per_warp();
    let tile = s.threads / WARP * rows_per_warp;
    let (offsets, _) = s.offsets();
    let mut tile_start = block_index() * tile;
    while tile_start < s.rows() {
        let warp_row = tile_start + warp_index() * rows_per_warp;
        let mut first = 0u32;
        for (segment, offsets) in s.segments.iter().zip(&offsets) {
            let end = first + segment.rows;
            // A segment is a whole number of warps' rows: the lanes of a warp agree, as the shuffles need.
            assert!(segment.rows % rows_per_warp == 0, "{} rows for warps of {rows_per_warp}", segment.rows);
            if warp_row >= first && warp_row < end {
                let local = warp_row - first + row_in_warp;
                let matrix = w.bytes(offsets.weights);
                let sums = match &quantised {
                    Some(x) if segment.ty.is_quantised() => {
                        dot_quantised(matrix, &offsets.layout, x, local, member, s)
                    }
                    _ => dot_floats(matrix, &offsets.layout, floats, local, member, s),
                };
                for (i, sum) in sums.into_iter().enumerate() {
                    let i = i as u32;
                    let mut total = group_sum(sum, s.lanes_per_row);
                    if member == 0 {
                        if let Some(bias) = offsets.bias {
                            total += w.bytes(bias).cast::<f32>().at(local + i).load();
                        }
                        y.at(local + first + i).store(total);
                    }
                }
            }
            first = end;
        }
        tile_start += s.grid * tile;
    }
}

/// The sum over each group of `lanes` lanes, in all of its lanes.
#[device]
fn group_sum(value: Val<f32>, lanes: u32) -> Val<f32> {
    let mut sum = value;
    let mut step = lanes / 2;
    while step > 0 {
        sum += shuffle_xor(sum, step);
        step /= 2;
    }
    sum
}

/// The partial sums of this lane for `rows_per_group` rows from `row`.
#[device]
fn dot_quantised(
    w: Ptr<Global, u8>,
    layout: &Layout,
    x: &activations::Activations,
    row: Val<u32>,
    member: Val<u32>,
    s: &GemvShape,
) -> Vec<Val<f32>> {
    let chunks = s.cols / 32;
    let mut sums = vec![val(0.0f32); s.rows_per_group as usize];
    let steps = chunks / s.lanes_per_row;
    // All loads of an unrolled body are in flight at the same time and live in registers until then: 64 bytes of
    // quants a lane are what fits.
    let chunk_bytes: u32 = layout.planes.iter().map(|plane| plane.row_bytes).sum::<u32>() / chunks;
    let unroll = if chunk_bytes > 24 { 2 } else { 4 };
    let whole = steps / unroll * unroll;
    let mut base = member;
    if whole > unroll {
        while base < whole * s.lanes_per_row {
            for step in 0..unroll {
                accumulate(w, layout, x, row, base + step * s.lanes_per_row, &mut sums);
            }
            base += unroll * s.lanes_per_row;
        }
    }
    let rest = if whole > unroll { whole } else { 0 };
    for step in rest..steps {
        accumulate(w, layout, x, row, member + step * s.lanes_per_row, &mut sums);
    }
    if chunks % s.lanes_per_row != 0 {
        let chunk = member + steps * s.lanes_per_row;
        if chunk < chunks {
            accumulate(w, layout, x, row, chunk, &mut sums);
        }
    }
    sums
}

/// Adds one chunk of each row to the sums.
#[device]
fn accumulate(
    w: Ptr<Global, u8>,
    layout: &Layout,
    x: &activations::Activations,
    row: Val<u32>,
    chunk: Val<u32>,
    sums: &mut [Val<f32>],
) {
    let weights: Vec<quants::Chunk> =
        (0..sums.len() as u32).map(|i| quants::load_chunk(w, layout, row + i, chunk)).collect();
    let activations = activations::load_activations(x, chunk);
    for (sum, weights) in sums.iter_mut().zip(&weights) {
        *sum += quants::dot(weights, &activations);
    }
}

/// As [`dot_quantised`] for F32, F16 and BF16 weights: 16 bytes of each row at a time.
#[device]
fn dot_floats(
    w: Ptr<Global, u8>,
    layout: &Layout,
    x: Ptr<Shared, f32>,
    row: Val<u32>,
    member: Val<u32>,
    s: &GemvShape,
) -> Vec<Val<f32>> {
    let plane = layout.plane(PlaneKind::Floats);
    let units = plane.row_bytes / 16;
    let per_unit = if layout.ty == WeightType::F32 { 4 } else { 8 };
    let mut sums = vec![val(0.0f32); s.rows_per_group as usize];
    let mut unit = member;
    while unit < units {
        let activations = x.at(unit * per_unit);
        let mut inputs = activations.load_vector::<4>().to_vec();
        if per_unit == 8 {
            inputs.extend(activations.at(4).load_vector::<4>());
        }
        for (i, sum) in sums.iter_mut().enumerate() {
            let at = w.bytes(mul_wide(row + i as u32, plane.row_bytes)).bytes(unit * 16);
            for (weight, &input) in float_weights(at, layout.ty).into_iter().zip(&inputs) {
                *sum = fma(weight, input, *sum);
            }
        }
        unit += s.lanes_per_row;
    }
    sums
}

/// 16 bytes of float weights as f32.
#[device]
pub fn float_weights(at: Ptr<Global, u8>, ty: WeightType) -> Vec<Val<f32>> {
    let cache = Cache::ReadOnlyStreaming;
    let words = at.cast::<u32>().load_vector_cached::<4>(cache);
    let mut out = Vec::new();
    for word in words {
        match ty {
            WeightType::F32 => out.push(word.bitcast::<f32>()),
            WeightType::F16 => out.extend(word.bitcast::<F16x2>().unpack().map(|half| half.cast::<f32>())),
            // A bfloat16 is the upper half of a binary32.
            WeightType::BF16 => {
                out.push((word << 16).bitcast::<f32>());
                out.push((word & 0xFFFF_0000).bitcast::<f32>());
            }
            quantised => panic!("{quantised} is no float type"),
        }
    }
    out
}
