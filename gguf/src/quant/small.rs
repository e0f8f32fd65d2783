//! Types with blocks of 32 elements: a scale and, for some, a minimum. Only IQ4_NL searches for its scale.

use super::search::{self, extreme, nearest};
use super::{inverse, put_half};
use crate::dequant::{FP4_VALUES, IQ4_VALUES, e8m0_half};

/// Elements per block.
const BLOCK: usize = 32;

/// The smallest and the largest element of a block.
fn range(values: &[f32; BLOCK]) -> (f32, f32) {
    values.iter().fold((f32::MAX, f32::MIN), |(low, high), &w| (low.min(w), high.max(w)))
}

/// Quantises to w ≈ d·(q − half), where the element of the largest magnitude gets q = 0. Returns d and q.
fn signed(values: &[f32; BLOCK], half: f32) -> (f32, [u8; BLOCK]) {
    let d = extreme(values) / -half;
    let id = inverse(d);
    (d, values.map(|w| (w * id + half + 0.5).clamp(0.0, 2.0 * half - 1.0) as u8))
}

/// Quantises to w ≈ d·q + m. Returns d, m and q.
fn with_min(values: &[f32; BLOCK], max: f32) -> (f32, f32, [u8; BLOCK]) {
    let (low, high) = range(values);
    let d = (high - low) / max;
    let id = inverse(d);
    (d, low, values.map(|w| ((w - low) * id + 0.5).min(max) as u8))
}

/// Packs elements 0 to 15 into the low halves of the bytes, and 16 to 31 into the high halves.
pub(super) fn put_nibbles(quants: &[u8; BLOCK], out: &mut [u8]) {
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = quants[i] & 15 | quants[i + 16] << 4;
    }
}

/// Fifth bits of the quants.
fn fifth_bits(quants: &[u8; BLOCK]) -> [u8; 4] {
    let bits = quants.iter().enumerate().fold(0, |bits, (i, &q)| bits | u32::from(q >> 4 & 1) << i);
    bits.to_le_bytes()
}

pub fn q4_0(values: &[f32; BLOCK]) -> [u8; 18] {
    let (d, quants) = signed(values, 8.0);
    let mut block = [0; 18];
    put_half(&mut block, 0, d);
    put_nibbles(&quants, &mut block[2..]);
    block
}

pub fn q4_1(values: &[f32; BLOCK]) -> [u8; 20] {
    let (d, m, quants) = with_min(values, 15.0);
    let mut block = [0; 20];
    put_half(&mut block, 0, d);
    put_half(&mut block, 2, m);
    put_nibbles(&quants, &mut block[4..]);
    block
}

pub fn q5_0(values: &[f32; BLOCK]) -> [u8; 22] {
    let (d, quants) = signed(values, 16.0);
    let mut block = [0; 22];
    put_half(&mut block, 0, d);
    block[2..6].copy_from_slice(&fifth_bits(&quants));
    put_nibbles(&quants, &mut block[6..]);
    block
}

pub fn q5_1(values: &[f32; BLOCK]) -> [u8; 24] {
    let (d, m, quants) = with_min(values, 31.0);
    let mut block = [0; 24];
    put_half(&mut block, 0, d);
    put_half(&mut block, 2, m);
    block[4..8].copy_from_slice(&fifth_bits(&quants));
    put_nibbles(&quants, &mut block[8..]);
    block
}

pub fn q8_0(values: &[f32; BLOCK]) -> [u8; 34] {
    let d = extreme(values).abs() / 127.0;
    let id = inverse(d);
    let mut block = [0; 34];
    put_half(&mut block, 0, d);
    for (byte, w) in block[2..].iter_mut().zip(values) {
        *byte = (w * id).round() as i8 as u8;
    }
    block
}

pub fn iq4_nl(values: &[f32; BLOCK]) -> [u8; 18] {
    let d = search::of_table(values, &IQ4_VALUES);
    let mut block = [0; 18];
    put_half(&mut block, 0, d);
    put_nibbles(&table_quants(values, d), &mut block[2..]);
    block
}

/// Codes of the table's values that are nearest to the elements of a block with scale `d`.
pub(super) fn table_quants(values: &[f32; BLOCK], d: f32) -> [u8; BLOCK] {
    let id = inverse(d);
    values.map(|w| nearest(&IQ4_VALUES, w * id) as u8)
}

/// The exponent is that of the largest magnitude, as the MX specification proposes: E2M1's largest power of two is 4.
pub fn mxfp4(values: &[f32; BLOCK]) -> [u8; 17] {
    let exponent = extreme(values).abs().to_bits() >> 23;
    let mut block = [0; 17];
    block[0] = exponent.saturating_sub(2) as u8;
    let d = e8m0_half(block[0]);
    let error = |code: usize, w: f32| (f32::from(FP4_VALUES[code]) * d - w).abs();
    let quants = values.map(|w| {
        let closer = |best: usize, code: usize| if error(code, w) < error(best, w) { code } else { best };
        (0..16).reduce(closer).unwrap_or(0) as u8
    });
    put_nibbles(&quants, &mut block[1..]);
    block
}
