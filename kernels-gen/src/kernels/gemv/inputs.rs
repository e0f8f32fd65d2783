//! The input vector in shared memory: as 16-bit integers in the order of the tensor cores' fragments, or as f32.
//!
//! A chunk of 32 inputs v is held as q = round(v / d) with d = max|v| / 32512, and q as two signed bytes:
//! q = 256·high + low. `mma.m16n8k32` multiplies both with the same weights, as two columns of its right operand;
//! the other columns are other chunks'.
//!
//! # Layout
//!
//! | offset | contents |
//! | --- | --- |
//! | 64·c | chunk c: 32 bytes of high parts, then 32 of low parts. Of each, byte 8t + 4h + b is input 16h + 4t + b |
//! | 64·chunks + 8·c | f32 d, and d·Σq if a segment's type has an offset |
//! | behind, if a segment has a float type | the inputs as f32 |

use bespoke_codegen::prelude::*;

use super::shape::GemvShape;

/// The input in shared memory.
pub(super) struct Inputs {
    /// The quantised chunks.
    pub fragments: Ptr<Shared, u8>,
    /// Their scales and sums.
    pub scales: Ptr<Shared, u8>,
    /// The inputs as f32.
    pub floats: Ptr<Shared, f32>,
}

/// Largest magnitude of a quantised input: its high byte is at most 127.
const LARGEST: f32 = 32512.0;

/// Inputs that a thread treats at a time.
const UNIT: u32 = 8;

/// Units that a thread has in registers at a time: all of a feed-forward block's, whose loads then wait once.
const UNITS_AT_A_TIME: u32 = 8;

/// The size of all, in bytes.
pub(super) fn bytes(s: &GemvShape) -> u32 {
    float_offset(s) + if s.floats() { s.padded_cols() * 4 } else { 0 }
}

fn chunks(s: &GemvShape) -> u32 {
    s.padded_cols().div_ceil(32)
}

fn float_offset(s: &GemvShape) -> u32 {
    if s.quantised() { (chunks(s) * 72).next_multiple_of(16) } else { 0 }
}

impl Inputs {
    pub fn at(base: Ptr<Shared, u8>, s: &GemvShape) -> Inputs {
        Inputs {
            fragments: base,
            scales: base.bytes(chunks(s) * 64),
            floats: base.bytes(float_offset(s)).cast(),
        }
    }
}

/// This thread's part of the norm's weights: constant, so that it can be loaded before the input is there.
#[device]
pub(super) fn norm_weights(weights: Ptr<Global, f32>, s: &GemvShape) -> Vec<Vec<Val<f32>>> {
    let mut out = Vec::new();
    for pass in 0..passes(s) {
        out.push(load_unit(weights, thread_index() + pass * s.consumers(), s));
    }
    out
}

fn passes(s: &GemvShape) -> u32 {
    (s.padded_cols() / UNIT).div_ceil(s.consumers())
}

/// Eight elements of `x`; zeros behind its end.
#[device]
fn load_unit(x: Ptr<Global, f32>, unit: Val<u32>, s: &GemvShape) -> Vec<Val<f32>> {
    let mut values = vec![val(0.0f32); UNIT as usize];
    if s.cols % UNIT == 0 {
        if unit * UNIT < s.cols {
            let at = x.at(unit * UNIT);
            let (low, high) = (at.load_vector::<4>(), at.at(4).load_vector::<4>());
            values = low.into_iter().chain(high).collect();
        }
    } else {
        for (i, value) in values.iter_mut().enumerate() {
            let column = unit * UNIT + i as u32;
            if column < s.cols {
                *value = x.at(column).load();
            }
        }
    }
    values
}

/// Brings x, times the norm's weights if there are any, into shared memory; gives this thread's part of Σx². The
/// consumers call this; a barrier must follow.
#[device]
pub(super) fn fill(x: Ptr<Global, f32>, norm: &[Vec<Val<f32>>], inputs: &Inputs, s: &GemvShape) -> Val<f32> {
    let mut squares = val(0.0f32);
    let mut first = 0;
    while first < passes(s) {
        let last = passes(s).min(first + UNITS_AT_A_TIME);
        let unit = |pass: u32| thread_index() + pass * s.consumers();
        let mut loaded = Vec::new();
        for pass in first..last {
            loaded.push(load_unit(x, unit(pass), s));
        }
        for (pass, values) in (first..last).zip(loaded) {
            let mut values = values;
            if s.normed() {
                for value in &values {
                    squares = fma(*value, *value, squares);
                }
                values = values.iter().zip(&norm[pass as usize]).map(|(&value, &n)| value * n).collect();
            }
            if s.quantised() {
                quantise(&values, unit(pass), inputs, s);
            }
            if s.floats() && unit(pass) * UNIT < s.padded_cols() {
                let to = inputs.floats.at(unit(pass) * UNIT);
                to.store_vector([values[0], values[1], values[2], values[3]]);
                to.at(4).store_vector([values[4], values[5], values[6], values[7]]);
            }
        }
        first = last;
    }
    squares
}

/// Quantises a unit together with the three other lanes that have the rest of its chunk.
#[device]
fn quantise(values: &[Val<f32>], unit: Val<u32>, inputs: &Inputs, s: &GemvShape) {
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
    let inverse = select(largest > 1e-30, LARGEST * largest.rcp_approx(), 0.0f32);
    // Adding 1.5·2²³ rounds to an integer in the low bits, ties to even.
    let magic = 12_582_912.0f32;
    let shifted: Vec<Val<f32>> = values.iter().map(|&value| fma(value, inverse, magic)).collect();
    let mut sum = val(0.0f32);
    if s.has_offsets() {
        for &value in &shifted {
            sum += value - magic;
        }
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
    }

    let part = unit & 3;
    let is_second = part >= 2;
    // Part 0 has inputs 0 to 7: t = 0 and 1 of the first half; part 3 the last of the second half. Parts of the same t
    // exchange words, so that the first half's stores all high parts, the second half's all low ones: 16 bytes a lane,
    // one after the other.
    let mut words = Vec::new();
    for four in shifted.chunks_exact(4) {
        let low: Vec<Val<u32>> = four.iter().map(|value| value.bitcast::<u32>()).collect();
        // The low byte is signed: rounding it away is what leaves the high part.
        let high: Vec<Val<u32>> = low.iter().map(|&word| word + 128).collect();
        let (high, low) = (bytes_of(&high, 1), bytes_of(&low, 0));
        let given = shuffle_xor(select(is_second, high, low), 2);
        words.extend([select(is_second, given, high), select(is_second, low, given)]);
    }

    if unit * UNIT < s.padded_cols() {
        let at = inputs.fragments.bytes(unit * 16).cast::<u32>();
        at.store_vector([words[0], words[1], words[2], words[3]]);
        if part == 0 {
            let chunk = unit >> 2;
            let scale = largest * (1.0 / LARGEST);
            let to = inputs.scales.bytes(chunk * 8).cast::<f32>();
            if s.has_offsets() {
                to.store_vector([scale, scale * sum]);
            } else {
                to.store(scale);
            }
        }
    }
}

/// Byte `index` of four words, as one word.
#[device]
fn bytes_of(words: &[Val<u32>], index: u32) -> Val<u32> {
    let pair = index | (index + 4) << 4;
    let low = permute_bytes(words[0], words[1], pair);
    permute_bytes(low, permute_bytes(words[2], words[3], pair), 0x5410u32)
}
