//! A vector of activations in shared memory.
//!
//! For quantised weights the activations become 16-bit integers, 32 to a scale: x ≈ scale·q with
//! q = round(x/scale) in [−32767, 32767] and scale = max|x|/32767 over the chunk. A 16-bit integer times an 8-bit
//! weight is what `dp2a` multiplies; all sums over a chunk fit 32 bits, so they are exact until they become f32
//! (relative error 2^-24). What remains is the rounding to 16 bits: about 10^-9 of the energy, far below that of the
//! 8-bit activations that other engines use. A NaN or an infinity anywhere in a chunk makes its scale, and so every
//! product of the chunk, a NaN.
//!
//! # Layout
//!
//! For n chunks, from the start of the array:
//!
//! | bytes | contents |
//! | --- | --- |
//! | 64·n | four parts of n × 16 bytes: part p of chunk c holds elements 8p to 8p + 7 as i16. A warp's 16-byte reads of one part are contiguous, so free of bank conflicts |
//! | 4·n | the scales |
//! | 8·n | two planes of n f32: Σq over the first and the second half of each chunk (exact: below 2^24) |
//!
//! For float weights the activations stay f32, padded with zeros to the padded width of the weights' rows.

use bespoke_codegen::prelude::*;

/// The size in bytes of `cols` activations for quantised weights.
pub fn quantised_bytes(cols: u32) -> u32 {
    cols / 32 * (64 + 4 + 8)
}

/// Quantised activations in shared memory.
#[derive(Clone, Copy)]
pub struct Activations {
    base: Ptr<Shared, u8>,
    chunks: u32,
}

/// One chunk of 32 activations.
pub struct ChunkOfActivations {
    /// Elements 2i (low half) and 2i + 1 as i16.
    pub pairs: Vec<Val<u32>>,
    /// The scale.
    pub scale: Val<f32>,
    /// Σq over each half.
    pub sums: [Val<f32>; 2],
}

/// Quantises the vector `x` of `cols` f32 (a multiple of 32) into shared memory at `base`; all of the CTA's
/// `threads` threads take part, and may read the result when this returns.
#[device]
pub fn quantise(x: Ptr<Global, f32>, base: Ptr<Shared, u8>, cols: u32, threads: u32) -> Activations {
    let chunks = cols / 32;
    let thread = thread_index();
    for pass in 0..cols.div_ceil(8 * threads) {
        // Eight elements a thread, so four threads a chunk.
        let eighth = thread + pass * threads;
        let inside = eighth < cols / 8;
        let mut values = [val(0.0f32); 8];
        if inside {
            let from = x.at(eighth * 8);
            let low = from.load_vector::<4>();
            let high = from.at(4).load_vector::<4>();
            values = [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
        }
        // As integers the bits of magnitudes compare like the numbers, with NaN above all: `max.f32` would drop it.
        let magnitude = |value: Val<f32>| value.bitcast::<u32>() & 0x7FFF_FFFF;
        let mut bits = magnitude(values[0]);
        for &value in &values[1..] {
            bits = bits.max(magnitude(value));
        }
        bits = bits.max(shuffle_xor(bits, 1));
        bits = bits.max(shuffle_xor(bits, 2));
        let largest = bits.bitcast::<f32>();
        // A chunk of zeros keeps q = 0; so does one of numbers too small for their inverse to be one.
        let inverse = select(largest > 1e-30, 32767.0f32 * largest.rcp_approx(), 0.0f32);
        let mut sum = val(0i32);
        let mut words = Vec::new();
        for pair in 0..4usize {
            let q: [Val<i32>; 2] = std::array::from_fn(|i| {
                (values[2 * pair + i] * inverse).cast_rounded::<i32>(Rounding::Nearest)
            });
            sum += q[0] + q[1];
            words.push(permute_bytes(q[0].bitcast::<u32>(), q[1].bitcast::<u32>(), 0x5410u32));
        }
        // Lanes 0 and 1 of four hold the first half of the chunk, lanes 2 and 3 the second.
        sum += shuffle_xor(sum, 1);
        if inside {
            let (chunk, part) = (eighth >> 2, eighth & 3);
            let at = base.bytes((part * chunks + chunk) * 16).cast::<u32>();
            at.store_vector([words[0], words[1], words[2], words[3]]);
            if part == 0 {
                scales(base, chunks).at(chunk).store(largest * (1.0 / 32767.0f32));
            }
            if (part & 1) == 0 {
                sums(base, chunks).at((part >> 1) * chunks + chunk).store(sum.cast::<f32>());
            }
        }
    }
    barrier();
    Activations { base, chunks }
}

#[device]
fn scales(base: Ptr<Shared, u8>, chunks: u32) -> Ptr<Shared, f32> {
    base.bytes(chunks * 64).cast()
}

#[device]
fn sums(base: Ptr<Shared, u8>, chunks: u32) -> Ptr<Shared, f32> {
    base.bytes(chunks * 68).cast()
}

/// Reads a chunk.
#[device]
pub fn load_activations(x: &Activations, chunk: Val<u32>) -> ChunkOfActivations {
    let mut pairs = Vec::new();
    for part in 0..4u32 {
        let words = x.base.bytes(chunk * 16).bytes(part * x.chunks * 16).cast::<u32>().load_vector::<4>();
        pairs.extend(words);
    }
    let scale = scales(x.base, x.chunks).at(chunk).load();
    let sums = sums(x.base, x.chunks).at(chunk);
    ChunkOfActivations { pairs, scale, sums: [sums.load(), sums.at(x.chunks).load()] }
}

/// Copies the vector `x` of `cols` f32 into shared memory and pads it with zeros to `padded` elements; all of the
/// CTA's `threads` threads take part, and may read the result when this returns.
#[device]
pub fn copy(x: Ptr<Global, f32>, to: Ptr<Shared, f32>, cols: u32, padded: u32, threads: u32) {
    for pass in 0..padded.div_ceil(threads) {
        let i = thread_index() + pass * threads;
        if i < cols {
            to.at(i).store(x.at(i).load());
        } else if i < padded {
            to.at(i).store(0.0);
        }
    }
    barrier();
}
