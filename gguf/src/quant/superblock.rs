//! K types: superblocks of 256 elements in groups. The scale of a group is an integer times the superblock's scale.

use super::search::{self, Spreads, TINY};
use super::small::{put_nibbles as put_nibbles_of_32, table_quants};
use super::{inverse, put_half};
use crate::dequant::IQ4_VALUES;
use half::f16;

/// Elements per superblock.
const SUPERBLOCK: usize = 256;
/// Elements per group in Q4_K, Q5_K and IQ4_XS.
const GROUP: usize = 32;
/// Groups per superblock in Q4_K, Q5_K and IQ4_XS.
const GROUPS: usize = SUPERBLOCK / GROUP;
/// Elements per group in Q2_K, Q3_K and Q6_K.
const HALF_GROUP: usize = 16;
/// Groups per superblock in Q2_K, Q3_K and Q6_K.
const HALF_GROUPS: usize = SUPERBLOCK / HALF_GROUP;

const Q2: Spreads = Spreads { offset: -0.5, tenths: 0..=15 };
const Q4: Spreads = Spreads { offset: -1.0, tenths: 0..=20 };
const Q5: Spreads = Spreads { offset: -0.5, tenths: 0..=15 };
const Q6: Spreads = Spreads { offset: 0.0, tenths: -9..=9 };

/// Common parts of Q2_K, Q4_K and Q5_K, with `G` groups.
struct WithMins<const G: usize> {
    d: f32,
    dmin: f32,
    /// Scale and minimum of each group, in units of d and dmin.
    coded: [(u8, u8); G],
    quants: [u8; SUPERBLOCK],
}

/// How the groups of a type with minimums are fitted.
struct Fit<const N: usize> {
    /// Largest quant.
    max: f32,
    /// Largest coded scale and minimum.
    max_scale: f32,
    spreads: Spreads,
    /// Weights of the errors of a group's elements.
    weights: fn(&[f32; N]) -> [f32; N],
    /// Loss of a residue.
    loss: fn(f32) -> f32,
}

/// Q4_K and Q5_K: the weight of an element grows with its magnitude, but is not zero for small elements.
fn fit32(max: f32, spreads: Spreads) -> Fit<GROUP> {
    let weights = |group: &[f32; GROUP]| {
        let mean_square = group.iter().map(|x| x * x).sum::<f32>() / GROUP as f32;
        group.map(|x| mean_square.sqrt() + x.abs())
    };
    Fit { max, max_scale: 63.0, spreads, weights, loss: |residue| residue * residue }
}

/// Fits every group, rounds scales and minimums to codes, and quantises with the rounded scales and minimums.
fn with_mins<const N: usize, const G: usize>(values: &[f32; SUPERBLOCK], fit: &Fit<N>) -> WithMins<G> {
    let (groups, _) = values.as_chunks::<N>();
    let mut fits = [(0.0f32, 0.0f32); G];
    for (of_group, group) in fits.iter_mut().zip(groups) {
        *of_group = search::with_min(group, &(fit.weights)(group), fit.max, &fit.spreads, fit.loss);
    }
    let largest = |part: fn(&(f32, f32)) -> f32| fits.iter().map(part).fold(0.0, f32::max);
    let most = (largest(|fit| fit.0), largest(|fit| fit.1));
    let code = |x: f32, most: f32| {
        let per_unit = if most > 0.0 { fit.max_scale / most } else { 0.0 };
        (x * per_unit).round_ties_even().clamp(0.0, fit.max_scale) as u8
    };
    let coded = fits.map(|(scale, min)| (code(scale, most.0), code(min, most.1)));

    let (d, dmin) = (most.0 / fit.max_scale, most.1 / fit.max_scale);
    let (d_half, dmin_half) = (f16::from_f32(d).to_f32(), f16::from_f32(dmin).to_f32());
    let mut quants = [0; SUPERBLOCK];
    let (outs, _) = quants.as_chunks_mut::<N>();
    for ((&(scale, min), group), out) in coded.iter().zip(groups).zip(outs) {
        let (scale, min) = (d_half * f32::from(scale), dmin_half * f32::from(min));
        if scale != 0.0 {
            *out = group.map(|x| ((x + min) / scale).round_ties_even().clamp(0.0, fit.max) as u8);
        }
    }
    WithMins { d, dmin, coded, quants }
}

/// The start of a block of Q4_K or Q5_K: `d`, `dmin` and the groups' scales and minimums.
fn head(parts: &WithMins<GROUPS>) -> [u8; 16] {
    let mut head = [0; 16];
    put_half(&mut head, 0, parts.d);
    put_half(&mut head, 2, parts.dmin);
    put_scales(&parts.coded, &mut head);
    head
}

/// Writes scales and minimums to bytes 4 to 15: the inverse of [`scale_min`](crate::dequant::scale_min).
fn put_scales(coded: &[(u8, u8); GROUPS], head: &mut [u8; 16]) {
    for s in 0..4 {
        let ((low_scale, low_min), (high_scale, high_min)) = (coded[s], coded[s + 4]);
        head[4 + s] = low_scale | high_scale >> 4 << 6;
        head[8 + s] = low_min | high_min >> 4 << 6;
        head[12 + s] = high_scale & 15 | (high_min & 15) << 4;
    }
}

/// Packs groups `2k` and `2k + 1` into the low and high halves of 32 bytes.
fn put_nibbles(quants: &[u8; SUPERBLOCK], out: &mut [u8]) {
    for (bytes, pair) in out.chunks_exact_mut(GROUP).zip(quants.chunks_exact(2 * GROUP)) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = pair[i] & 15 | pair[GROUP + i] << 4;
        }
    }
}

pub fn q4_k(values: &[f32; SUPERBLOCK]) -> [u8; 144] {
    let parts = with_mins(values, &fit32(15.0, Q4));
    let mut block = [0; 144];
    block[..16].copy_from_slice(&head(&parts));
    put_nibbles(&parts.quants, &mut block[16..]);
    block
}

pub fn q5_k(values: &[f32; SUPERBLOCK]) -> [u8; 176] {
    let parts = with_mins(values, &fit32(31.0, Q5));
    let quants = parts.quants;
    let mut block = [0; 176];
    block[..16].copy_from_slice(&head(&parts));
    let (fifth, nibbles) = block[16..].split_at_mut(32);
    for (e, &q) in quants.iter().enumerate() {
        fifth[e % GROUP] |= (q >> 4) << (e / GROUP);
    }
    put_nibbles(&quants, nibbles);
    block
}

pub fn q6_k(values: &[f32; SUPERBLOCK]) -> [u8; 210] {
    let (groups, _) = values.as_chunks::<HALF_GROUP>();
    let mut fits = [0.0f32; HALF_GROUPS];
    for (fit, group) in fits.iter_mut().zip(groups) {
        *fit = search::signed(group, 32.0, &Q6);
    }
    let mut block = [0; 210];
    let extreme = search::extreme(&fits);
    if extreme.abs() < TINY {
        return block;
    }
    let per_unit = -128.0 / extreme;
    let d = 1.0 / per_unit;
    put_half(&mut block, 208, d);
    let d_half = f16::from_f32(d).to_f32();
    for (g, (fit, group)) in fits.iter().zip(groups).enumerate() {
        let coded = (per_unit * fit).round_ties_even().clamp(-128.0, 127.0);
        block[192 + g] = coded as i8 as u8;
        let scale = d_half * coded;
        for (i, x) in group.iter().enumerate() {
            let q = if scale == 0.0 { 0.0 } else { (x / scale).round_ties_even().clamp(-32.0, 31.0) };
            let q = (q + 32.0) as u8;
            let (h, k, j) = position(g * HALF_GROUP + i);
            block[64 * h + 32 * (k % 2) + j] |= (q & 15) << (k / 2 * 4);
            block[128 + 32 * h + j] |= (q >> 4) << (2 * k);
        }
    }
    block
}

/// Position of element `element` of a Q6_K superblock: half, quarter of the half, and index in the quarter.
fn position(element: usize) -> (usize, usize, usize) {
    (element / 128, element / 32 % 4, element % 32)
}

/// Packs the low two bits of the quants: four chunks of 32 elements into 32 bytes.
fn put_pairs(quants: &[u8; SUPERBLOCK], out: &mut [u8]) {
    for (e, &q) in quants.iter().enumerate() {
        out[e / 128 * 32 + e % 32] |= (q & 3) << (e / 32 % 4 * 2);
    }
}

pub fn q2_k(values: &[f32; SUPERBLOCK]) -> [u8; 84] {
    let fit = Fit {
        max: 3.0,
        max_scale: 15.0,
        spreads: Q2,
        weights: |group: &[f32; HALF_GROUP]| group.map(f32::abs),
        loss: f32::abs,
    };
    let parts: WithMins<HALF_GROUPS> = with_mins(values, &fit);
    let mut block = [0; 84];
    for (byte, &(scale, min)) in block.iter_mut().zip(&parts.coded) {
        *byte = scale | min << 4;
    }
    put_pairs(&parts.quants, &mut block[16..80]);
    put_half(&mut block, 80, parts.d);
    put_half(&mut block, 82, parts.dmin);
    block
}

pub fn q3_k(values: &[f32; SUPERBLOCK]) -> [u8; 110] {
    let (groups, _) = values.as_chunks::<HALF_GROUP>();
    let mut fits = [0.0f32; HALF_GROUPS];
    for (fit, group) in fits.iter_mut().zip(groups) {
        *fit = search::signed_by_steps(group, 4.0);
    }
    let mut block = [0; 110];
    let extreme = search::extreme(&fits);
    if extreme == 0.0 {
        return block;
    }
    let per_unit = -32.0 / extreme;
    put_half(&mut block, 108, 1.0 / per_unit);
    let d = f16::from_f32(1.0 / per_unit).to_f32();
    let mut quants = [4u8; SUPERBLOCK];
    let (outs, _) = quants.as_chunks_mut::<HALF_GROUP>();
    for (s, ((fit, group), out)) in fits.iter().zip(groups).zip(outs).enumerate() {
        let code = (per_unit * fit).round_ties_even().clamp(-32.0, 31.0);
        let bits = (code + 32.0) as u8;
        block[96 + s % 8] |= (bits & 15) << (s / 8 * 4);
        block[104 + s % 4] |= (bits >> 4) << (s / 4 * 2);
        let scale = d * code;
        if scale != 0.0 {
            *out = group.map(|x| ((x / scale).round_ties_even().clamp(-4.0, 3.0) + 4.0) as u8);
        }
    }
    for (e, q) in quants.iter().enumerate() {
        block[e % 32] |= (q >> 2) << (e / 32);
    }
    put_pairs(&quants, &mut block[32..96]);
    block
}

pub fn iq4_xs(values: &[f32; SUPERBLOCK]) -> [u8; 136] {
    let (groups, _) = values.as_chunks::<GROUP>();
    let mut fits = [0.0f32; GROUPS];
    for (fit, group) in fits.iter_mut().zip(groups) {
        *fit = search::of_table(group, &IQ4_VALUES);
    }
    let mut block = [0; 136];
    let d = search::extreme(&fits) / -32.0;
    let per_unit = inverse(d);
    put_half(&mut block, 0, d);
    let mut high = 0u16;
    for (s, (fit, group)) in fits.iter().zip(groups).enumerate() {
        let code = (per_unit * fit).round_ties_even().clamp(-32.0, 31.0);
        let bits = (code + 32.0) as u8;
        block[4 + s / 2] |= (bits & 15) << (s % 2 * 4);
        high |= u16::from(bits >> 4) << (2 * s);
        put_nibbles_of_32(&table_quants(group, d * code), &mut block[8 + 16 * s..][..16]);
    }
    block[2..4].copy_from_slice(&high.to_le_bytes());
    block
}
