//! Dequantisation: exact values of blocks.
//!
//! Layouts are those of ggml's block structs (`ggml-common.h`), arithmetic that of its reference `dequantize_row_*`
//! functions (`ggml-quants.c`). Every product is exact in f32; adding or subtracting a minimum rounds once, to f32. All
//! numbers are little endian; `d`, `m` and `dmin` are f16.
//!
//! ```text
//! Q4_0  18 B /  32   d | 16 B nibbles                          w = d·(q − 8)
//! Q4_1  20 B /  32   d | m | 16 B nibbles                      w = d·q + m
//! Q5_0  22 B /  32   d | 4 B fifth bits | 16 B nibbles         w = d·(q − 16)
//! Q5_1  24 B /  32   d | m | 4 B fifth bits | 16 B nibbles     w = d·q + m
//! Q8_0  34 B /  32   d | 32 × i8                               w = d·q
//! Q4_K 144 B / 256   d | dmin | 12 B scales | 128 B nibbles    w = d·sc·q − dmin·mn
//! Q5_K 176 B / 256   d | dmin | 12 B scales | 32 B fifth bits
//!                      | 128 B nibbles                         w = d·sc·q − dmin·mn
//! Q6_K 210 B / 256   128 B nibbles | 64 B high pairs
//!                      | 16 × i8 scales | d                    w = d·sc·(q − 32)
//! ```
//!
//! Position of an element's bits:
//!
//! - **Blocks of 32**: byte `i` of the nibbles has element `i` in its low half and element `i + 16` in its high half;
//!   bit `i` of the fifth bits (a `u32`) belongs to element `i`.
//! - **Q4_K, Q5_K**: eight sub-blocks of 32. Nibble bytes `32k..32k + 32` have sub-block `2k` in their low and
//!   sub-block `2k + 1` in their high halves. Bit `s` of fifth-bit byte `i` belongs to element `i` of sub-block `s`.
//!   For the scale and minimum of a sub-block see [`scale_min`].
//! - **Q6_K**: two halves of 128. In half `h`, element `32k + i` (`k < 4`) has its low nibble in byte
//!   `64h + 32·(k mod 2) + i`, the low half of it for `k < 2`, and its high pair in bits `2k..2k + 2` of high
//!   byte `32h + i`. Scale `8h + j` covers elements `16j..16j + 16` of the half.

use crate::{Error, GgmlType};
use half::{bf16, f16};

/// Elements per block of the types without superblocks.
const BLOCK: usize = 32;
/// Elements per superblock of the K types.
const SUPERBLOCK: usize = 256;

/// Writes the exact values of `bytes`, consecutive blocks of `ty`, to `out` in element order.
///
/// Supports F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K. Another type is an error, and so is a
/// length of `out` other than the number of elements in `bytes`.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    if ty.row_bytes(out.len()) != Some(bytes.len()) {
        return Err(Error::DequantizeLength { ty, bytes: bytes.len(), elements: out.len() });
    }
    match ty {
        GgmlType::F32 => each(bytes, out, |b: &[u8; 4], w: &mut [f32; 1]| w[0] = f32::from_le_bytes(*b)),
        GgmlType::F16 => {
            each(bytes, out, |b: &[u8; 2], w: &mut [f32; 1]| w[0] = f16::from_le_bytes(*b).to_f32())
        }
        GgmlType::BF16 => {
            each(bytes, out, |b: &[u8; 2], w: &mut [f32; 1]| w[0] = bf16::from_le_bytes(*b).to_f32())
        }
        GgmlType::Q4_0 => each(bytes, out, q4_0),
        GgmlType::Q4_1 => each(bytes, out, q4_1),
        GgmlType::Q5_0 => each(bytes, out, q5_0),
        GgmlType::Q5_1 => each(bytes, out, q5_1),
        GgmlType::Q8_0 => each(bytes, out, q8_0),
        GgmlType::Q4_K => each(bytes, out, q4_k),
        GgmlType::Q5_K => each(bytes, out, q5_k),
        GgmlType::Q6_K => each(bytes, out, q6_k),
        _ => return Err(Error::NotDequantizable { ty }),
    }
    Ok(())
}

/// Calls `block` with each block of `B` bytes and the `N` elements of the output that it encodes.
fn each<const B: usize, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; B], &mut [f32; N]),
) {
    let (blocks, _) = bytes.as_chunks::<B>();
    let (values, _) = out.as_chunks_mut::<N>();
    for (from, to) in blocks.iter().zip(values) {
        block(from, to);
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Quants of a block of 32, from its nibbles and fifth bits (0 for 4-bit types).
fn quants_of_32(nibbles: &[u8], fifth: u32) -> [u8; BLOCK] {
    std::array::from_fn(|i| {
        let nibble = (nibbles[i % 16] >> (i / 16 * 4)) & 15;
        nibble | (((fifth >> i) & 1) as u8) << 4
    })
}

fn fifth_bits(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn q4_0(block: &[u8; 18], out: &mut [f32; BLOCK]) {
    let d = half_at(block, 0);
    let quants = quants_of_32(&block[2..], 0);
    *out = quants.map(|q| d * (f32::from(q) - 8.0));
}

fn q4_1(block: &[u8; 20], out: &mut [f32; BLOCK]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let quants = quants_of_32(&block[4..], 0);
    *out = quants.map(|q| d * f32::from(q) + m);
}

fn q5_0(block: &[u8; 22], out: &mut [f32; BLOCK]) {
    let d = half_at(block, 0);
    let quants = quants_of_32(&block[6..], fifth_bits(block, 2));
    *out = quants.map(|q| d * (f32::from(q) - 16.0));
}

fn q5_1(block: &[u8; 24], out: &mut [f32; BLOCK]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let quants = quants_of_32(&block[8..], fifth_bits(block, 4));
    *out = quants.map(|q| d * f32::from(q) + m);
}

fn q8_0(block: &[u8; 34], out: &mut [f32; BLOCK]) {
    let d = half_at(block, 0);
    for (w, &q) in out.iter_mut().zip(&block[2..]) {
        *w = d * f32::from(q as i8);
    }
}

/// Returns the 6-bit scale and minimum of sub-block `s` (0 to 7) of a Q4_K or Q5_K superblock, from its 12 scale bytes.
///
/// ```text
///               s = 0..4                    s = 4..8
/// bytes 0..4    bits 0..6: scale            bits 6..8: bits 4..6 of the scale
/// bytes 4..8    bits 0..6: minimum          bits 6..8: bits 4..6 of the minimum
/// bytes 8..12                               bits 0..4: bits 0..4 of the scale
///                                           bits 4..8: bits 0..4 of the minimum
/// ```
pub fn scale_min(scales: &[u8; 12], s: usize) -> (u8, u8) {
    if s < 4 {
        (scales[s] & 63, scales[s + 4] & 63)
    } else {
        let low = scales[s + 4];
        ((low & 15) | (scales[s - 4] >> 6) << 4, (low >> 4) | (scales[s] >> 6) << 4)
    }
}

/// Dequantises Q4_K and Q5_K. `high(s, i)` is the fifth bit (0 or 16) of element `i` of sub-block `s`.
fn k_with_mins(
    head: &[u8; 16],
    nibbles: &[u8],
    high: impl Fn(usize, usize) -> u8,
    out: &mut [f32; SUPERBLOCK],
) {
    let (d, dmin) = (half_at(head, 0), half_at(head, 2));
    let scales = head.last_chunk::<12>().unwrap_or(&[0; 12]);
    for (s, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, s);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        for (i, w) in out.iter_mut().enumerate() {
            let q = (nibbles[s / 2 * 32 + i] >> (s % 2 * 4)) & 15 | high(s, i);
            *w = scale * f32::from(q) - min;
        }
    }
}

fn q4_k(block: &[u8; 144], out: &mut [f32; SUPERBLOCK]) {
    let (head, nibbles) = split_head(block);
    k_with_mins(head, nibbles, |_, _| 0, out);
}

fn q5_k(block: &[u8; 176], out: &mut [f32; SUPERBLOCK]) {
    let (head, rest) = split_head(block);
    let (fifth, nibbles) = rest.split_at(32);
    k_with_mins(head, nibbles, |s, i| ((fifth[i] >> s) & 1) << 4, out);
}

/// Splits a Q4_K or Q5_K superblock into the 16 bytes `d | dmin | scales` and the rest.
fn split_head<const N: usize>(block: &[u8; N]) -> (&[u8; 16], &[u8]) {
    const { assert!(N >= 16) };
    block.split_first_chunk().unwrap_or((&[0; 16], &[]))
}

fn q6_k(block: &[u8; 210], out: &mut [f32; SUPERBLOCK]) {
    let (nibbles, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half_at(block, 208);
    for (e, w) in out.iter_mut().enumerate() {
        let (h, k, i) = (e / 128, e / 32 % 4, e % 32);
        let nibble = (nibbles[64 * h + 32 * (k % 2) + i] >> (k / 2 * 4)) & 15;
        let pair = (high[32 * h + i] >> (2 * k)) & 3;
        let q = f32::from(nibble | pair << 4) - 32.0;
        *w = d * f32::from(scales[e / 16] as i8) * q;
    }
}
