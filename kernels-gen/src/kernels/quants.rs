//! Chunks of 32 quantised weights: loading, and the dot product with 32 activations.

use bespoke_codegen::prelude::*;

use super::activations::ChunkOfActivations;
use crate::weights::{Layout, PlaneKind, WeightType};

/// Weights are read once: they should not displace anything in the first-level cache.
const WEIGHTS: Cache = Cache::ReadOnlyStreaming;

/// 32 consecutive weights as integers, and what makes values of them.
pub struct Chunk {
    /// Word j holds weights 4j to 4j + 3, a byte each.
    pub words: [Val<u32>; 8],
    /// The bytes are signed.
    pub signed: bool,
    /// From integers to values.
    pub scale: Scale,
}

/// How the value of a weight follows from its integer q.
pub enum Scale {
    /// d·(q − offset).
    Symmetric {
        /// d.
        d: Val<f32>,
        /// What stands for zero.
        offset: f32,
    },
    /// d·q + m.
    Affine {
        /// d.
        d: Val<f32>,
        /// m.
        m: Val<f32>,
    },
    /// d·(q − 32), with a d for each half of the chunk.
    Halves {
        /// The two d.
        d: [Val<f32>; 2],
    },
}

/// The matrix's plane of a kind, at row `row` and `per_chunk` bytes a chunk.
#[device]
fn plane_at(
    w: Ptr<Global, u8>,
    layout: &Layout,
    kind: PlaneKind,
    row: Val<u32>,
    offset: Val<u32>,
) -> Ptr<Global, u8> {
    let plane = layout.plane(kind);
    w.bytes(mul_wide(row, plane.row_bytes)).bytes(offset).bytes(plane.offset)
}

/// Loads chunk `chunk` of row `row` of the matrix at `w`.
#[device]
pub fn load_chunk(w: Ptr<Global, u8>, layout: &Layout, row: Val<u32>, chunk: Val<u32>) -> Chunk {
    match layout.ty {
        WeightType::Q8_0 => {
            let bytes = plane_at(w, layout, PlaneKind::Bytes, row, chunk * 32).cast::<u32>();
            let low = bytes.load_vector_cached::<4>(WEIGHTS);
            let high = bytes.at(4).load_vector_cached::<4>(WEIGHTS);
            let d = load_half(plane_at(w, layout, PlaneKind::Scale, row, chunk * 2));
            let words = [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
            Chunk { words, signed: true, scale: Scale::Symmetric { d, offset: 0.0 } }
        }
        WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q4_K => {
            let words = low_nibbles(w, layout, row, chunk);
            Chunk { words, signed: false, scale: load_scale(w, layout, row, chunk) }
        }
        WeightType::Q5_0 | WeightType::Q5_1 | WeightType::Q5_K => {
            let low = low_nibbles(w, layout, row, chunk);
            let bits =
                plane_at(w, layout, PlaneKind::High1, row, chunk * 4).cast::<u32>().load_cached(WEIGHTS);
            let words = std::array::from_fn(|t| {
                let fifth = if t < 4 { bits << (4 - t as u32) } else { bits >> (t as u32 - 4) };
                low[t] | (fifth & 0x1010_1010)
            });
            Chunk { words, signed: false, scale: load_scale(w, layout, row, chunk) }
        }
        WeightType::Q6_K => {
            let low = low_nibbles(w, layout, row, chunk);
            let pairs = plane_at(w, layout, PlaneKind::High2, row, chunk * 8).cast::<u32>();
            let pairs = pairs.load_vector_cached::<2>(WEIGHTS);
            let words = std::array::from_fn(|j| {
                let (half, t) = (j / 4, j as u32 % 4);
                let upper = if t < 2 { pairs[half] << (4 - 2 * t) } else { pairs[half] >> (2 * t - 4) };
                low[j] | (upper & 0x3030_3030)
            });
            Chunk { words, signed: false, scale: load_scale(w, layout, row, chunk) }
        }
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => panic!("{} has no chunks", layout.ty),
    }
}

/// The low nibbles of a chunk: word j holds those of weights 4j to 4j + 3.
#[device]
fn low_nibbles(w: Ptr<Global, u8>, layout: &Layout, row: Val<u32>, chunk: Val<u32>) -> [Val<u32>; 8] {
    let packed = plane_at(w, layout, PlaneKind::Low, row, chunk * 16).cast::<u32>();
    let packed = packed.load_vector_cached::<4>(WEIGHTS);
    std::array::from_fn(|j| if j < 4 { packed[j] & 0x0F0F_0F0F } else { (packed[j - 4] >> 4) & 0x0F0F_0F0F })
}

/// An f16 as f32.
#[device]
fn load_half(at: Ptr<Global, u8>) -> Val<f32> {
    at.cast::<f16>().load_cached(WEIGHTS).cast::<f32>()
}

/// Two f16 side by side as f32.
#[device]
fn load_halves(at: Ptr<Global, u8>) -> [Val<f32>; 2] {
    let [low, high] = at.cast::<F16x2>().load_cached(WEIGHTS).unpack();
    [low.cast(), high.cast()]
}

/// What turns the integers of a chunk into values.
#[device]
fn load_scale(w: Ptr<Global, u8>, layout: &Layout, row: Val<u32>, chunk: Val<u32>) -> Scale {
    match layout.ty {
        WeightType::Q4_0 | WeightType::Q5_0 => {
            let d = load_half(plane_at(w, layout, PlaneKind::Scale, row, chunk * 2));
            Scale::Symmetric { d, offset: if layout.ty == WeightType::Q4_0 { 8.0 } else { 16.0 } }
        }
        WeightType::Q4_1 | WeightType::Q5_1 => {
            let [d, m] = load_halves(plane_at(w, layout, PlaneKind::Scale, row, chunk * 4));
            Scale::Affine { d, m }
        }
        WeightType::Q4_K | WeightType::Q5_K => {
            let header = plane_at(w, layout, PlaneKind::Super, row, (chunk >> 3) * 16).cast::<u32>();
            let header = header.load_vector_cached::<4>(WEIGHTS);
            let [d, dmin] = header[0].bitcast::<F16x2>().unpack();
            let (scale, min) = six_bit_scales([header[1], header[2], header[3]], chunk & 7);
            let (d, dmin) = (d.cast::<f32>(), dmin.cast::<f32>());
            Scale::Affine { d: d * scale.cast::<f32>(), m: -(dmin * min.cast::<f32>()) }
        }
        WeightType::Q6_K => {
            let scales = plane_at(w, layout, PlaneKind::Scales16, row, chunk * 2).cast::<u16>();
            let scales = scales.load_cached(WEIGHTS).cast::<u32>();
            let d = load_half(plane_at(w, layout, PlaneKind::Scale, row, (chunk >> 3) * 2));
            let first = scales.bitcast::<i32>().bit_field(0, 8).cast::<f32>();
            let second = scales.bitcast::<i32>().bit_field(8, 8).cast::<f32>();
            Scale::Halves { d: [d * first, d * second] }
        }
        WeightType::Q8_0 | WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
            panic!("the scale of {} is read with its weights", layout.ty)
        }
    }
}

/// The 6-bit scale and min of sub-block `sub` (0 to 7) from the 12 bytes b0..b11 of a K-quant's header: for the
/// first four the low six bits of b(sub) and b(sub + 4); for the others the low and the high nibble of b(sub + 4)
/// with the upper two bits of b(sub − 4) and b(sub) above (ggml's `get_scale_min_k4`).
#[device]
fn six_bit_scales(bytes: [Val<u32>; 3], sub: Val<u32>) -> (Val<u32>, Val<u32>) {
    let shift = (sub & 3) * 8;
    let [first, second, third] = [bytes[0] >> shift, bytes[1] >> shift, bytes[2] >> shift];
    let low_half = sub < 4;
    let scale = select(low_half, first & 63, (third & 15) | ((first >> 2) & 48));
    let min = select(low_half, second & 63, ((third >> 4) & 15) | ((second >> 2) & 48));
    (scale, min)
}

/// Σ w·x over a chunk. Integer sums are exact; see [`super::activations`] for the activations' form.
#[device]
pub fn dot(chunk: &Chunk, x: &ChunkOfActivations) -> Val<f32> {
    let half = |from: usize| {
        let mut sum = val(0i32);
        for j in from..from + 4 {
            let (a, b, w) = (x.pairs[2 * j], x.pairs[2 * j + 1], chunk.words[j]);
            sum = if chunk.signed {
                dp2a_high(Signed, b, Signed, w, dp2a_low(Signed, a, Signed, w, sum))
            } else {
                dp2a_high(Signed, b, Unsigned, w, dp2a_low(Signed, a, Unsigned, w, sum))
            };
        }
        sum
    };
    let (first, second) = (half(0), half(4));
    match &chunk.scale {
        Scale::Symmetric { d, offset } => {
            let mut dot = (first + second).cast::<f32>();
            if *offset != 0.0 {
                dot -= (x.sums[0] + x.sums[1]) * *offset;
            }
            *d * x.scale * dot
        }
        Scale::Affine { d, m } => {
            let dot = *d * (first + second).cast::<f32>();
            fma(*m, x.sums[0] + x.sums[1], dot) * x.scale
        }
        Scale::Halves { d } => {
            let first = first.cast::<f32>() - x.sums[0] * 32.0;
            let second = second.cast::<f32>() - x.sums[1] * 32.0;
            fma(d[0], first, d[1] * second) * x.scale
        }
    }
}

/// The values of a chunk's 32 weights.
#[device]
pub fn values(chunk: &Chunk) -> Vec<Val<f32>> {
    let mut out = Vec::new();
    for i in 0..32usize {
        let shift = 8 * (i as u32 % 4);
        let word = chunk.words[i / 4];
        let q = if chunk.signed {
            word.bitcast::<i32>().bit_field(shift, 8).cast::<f32>()
        } else {
            word.bit_field(shift, 8).cast::<f32>()
        };
        out.push(match &chunk.scale {
            Scale::Symmetric { d, offset } => *d * (q - *offset),
            Scale::Affine { d, m } => fma(*d, q, *m),
            Scale::Halves { d } => d[i / 16] * (q - 32.0),
        });
    }
    out
}
