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
//! Q2_K  84 B / 256   16 B scales | 64 B pairs | d | dmin       w = d·sc·q − dmin·mn
//! Q3_K 110 B / 256   32 B third bits | 64 B pairs
//!                      | 12 B scales | d                       w = d·(sc − 32)·(q − 4)
//! IQ4_NL  18 B /  32 d | 16 B nibbles                          w = d·IQ4_VALUES[q]
//! IQ4_XS 136 B / 256 d | 2 B high pairs of scales
//!                      | 4 B scale nibbles | 128 B nibbles     w = d·(sc − 32)·IQ4_VALUES[q]
//! MXFP4   17 B /  32 e | 16 B nibbles                          w = 2^(e − 128)·FP4_VALUES[q]
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
//! - **Q2_K, Q3_K**: two halves of 128. In half `h`, the low two bits of element `32k + i` (`k < 4`) are bits
//!   `2k..2k + 2` of pair byte `32h + i`. Bit `4h + k` of third-bit byte `i` is the third bit of the same element. Scale
//!   `s` covers elements `16s..16s + 16` of the superblock: in Q2_K the low half of scale byte `s`, whose high half is
//!   the minimum; for Q3_K see [`q3_scale`].
//! - **IQ4_XS**: eight sub-blocks of 32 with the nibbles of a block of 32. Sub-block `s` has the scale whose low four bits
//!   are nibble `s` of the scale nibbles, and whose upper two are bits `2s..2s + 2` of the high pairs.

use crate::{Error, GgmlType};
use half::{bf16, f16};

/// Version of these layouts of quantised blocks, which files state as `general.quantization_version`: `GGML_QNT_VERSION`.
pub const QUANTIZATION_VERSION: u32 = 2;

/// Elements per block of the types without superblocks.
const BLOCK: usize = 32;
/// Elements per superblock of the K types.
const SUPERBLOCK: usize = 256;

/// Values of the codes of IQ4_NL and IQ4_XS (ggml's `kvalues_iq4nl`).
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of the codes of MXFP4: E2M1 floats of the OCP Microscaling Formats (MX) specification 1.0. Both zeros
/// are 0, as in ggml.
pub const FP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Writes the exact values of `bytes`, consecutive blocks of `ty`, to `out` in element order.
///
/// Supports F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS and MXFP4.
/// Another type is an error, and so is a length of `out` other than the number of elements in `bytes`.
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
        GgmlType::Q2_K => each(bytes, out, q2_k),
        GgmlType::Q3_K => each(bytes, out, q3_k),
        GgmlType::IQ4_NL => each(bytes, out, iq4_nl),
        GgmlType::IQ4_XS => each(bytes, out, iq4_xs),
        GgmlType::MXFP4 => each(bytes, out, mxfp4),
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

/// The low two bits of element `e` of a Q2_K or Q3_K superblock.
fn low_pair(pairs: &[u8], e: usize) -> u8 {
    (pairs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2)) & 3
}

fn q2_k(block: &[u8; 84], out: &mut [f32; SUPERBLOCK]) {
    let (scales, pairs) = (&block[..16], &block[16..80]);
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (e, w) in out.iter_mut().enumerate() {
        let scale = scales[e / 16];
        let (scale, min) = (d * f32::from(scale & 15), dmin * f32::from(scale >> 4));
        *w = scale * f32::from(low_pair(pairs, e)) - min;
    }
}

/// 6-bit scale of half chunk `s` (0 to 15) of a Q3_K superblock, from its 12 scale bytes. The factor of the half chunk is
/// d · (scale − 32).
///
/// ```text
/// byte s mod 8             bits 0..4 of the scale: in the low half for s < 8, else in the high half
/// byte 8 + s mod 4         bits 4..6 of the scale: in bits 2(s / 4)..2(s / 4) + 2
/// ```
pub fn q3_scale(scales: &[u8; 12], s: usize) -> u8 {
    (scales[s % 8] >> (s / 8 * 4)) & 15 | ((scales[8 + s % 4] >> (s / 4 * 2)) & 3) << 4
}

fn q3_k(block: &[u8; 110], out: &mut [f32; SUPERBLOCK]) {
    let (third, pairs) = (&block[..32], &block[32..96]);
    let scales = block[96..].first_chunk::<12>().unwrap_or(&[0; 12]);
    let d = half_at(block, 108);
    for (e, w) in out.iter_mut().enumerate() {
        let scale = d * (f32::from(q3_scale(scales, e / 16)) - 32.0);
        let q = low_pair(pairs, e) | ((third[e % 32] >> (e / 32)) & 1) << 2;
        *w = scale * (f32::from(q) - 4.0);
    }
}

fn iq4_nl(block: &[u8; 18], out: &mut [f32; BLOCK]) {
    let d = half_at(block, 0);
    *out = quants_of_32(&block[2..], 0).map(|q| d * f32::from(IQ4_VALUES[usize::from(q)]));
}

fn iq4_xs(block: &[u8; 136], out: &mut [f32; SUPERBLOCK]) {
    let d = half_at(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    let (subblocks, _) = out.as_chunks_mut::<BLOCK>();
    for (s, out) in subblocks.iter_mut().enumerate() {
        let scale = (block[4 + s / 2] >> (s % 2 * 4)) & 15 | ((high >> (2 * s)) as u8 & 3) << 4;
        let scale = d * (f32::from(scale) - 32.0);
        *out = quants_of_32(&block[8 + 16 * s..], 0).map(|q| scale * f32::from(IQ4_VALUES[usize::from(q)]));
    }
}

/// Half of the value of an E8M0 number: 2^(e − 128). The specification's NaN, e = 255, is 2^127, as in ggml.
pub fn e8m0_half(e: u8) -> f32 {
    // 2^-128 and 2^-127 are subnormal.
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

fn mxfp4(block: &[u8; 17], out: &mut [f32; BLOCK]) {
    let d = e8m0_half(block[0]);
    *out = quants_of_32(&block[1..], 0).map(|q| d * f32::from(FP4_VALUES[usize::from(q)]));
}
