//! K types: superblocks of 256 elements in groups. The scale of a group is an integer times the superblock's scale.

use super::search::{self, Spreads, TINY};
use super::{inverse, put_half};
use half::f16;

/// Elements per superblock.
const SUPERBLOCK: usize = 256;
/// Elements per group in Q4_K and Q5_K.
const GROUP: usize = 32;
/// Groups per superblock in Q4_K and Q5_K.
const GROUPS: usize = SUPERBLOCK / GROUP;
/// Elements per group in Q6_K.
const GROUP6: usize = 16;
/// Groups per superblock in Q6_K.
const GROUPS6: usize = SUPERBLOCK / GROUP6;

const Q4: Spreads = Spreads { offset: -1.0, tenths: 0..=20 };
const Q5: Spreads = Spreads { offset: -0.5, tenths: 0..=15 };
const Q6: Spreads = Spreads { offset: 0.0, tenths: -9..=9 };

/// Common parts of Q4_K and Q5_K.
struct WithMins {
    /// `d`, `dmin` and the groups' scales and minimums: the start of a block.
    head: [u8; 16],
    quants: [u8; SUPERBLOCK],
}

/// Fits every group, rounds scales and minimums to 6 bits, and quantises with the rounded scales and minimums.
fn with_mins(values: &[f32; SUPERBLOCK], max: f32, spreads: &Spreads) -> WithMins {
    let (groups, _) = values.as_chunks::<GROUP>();
    let mut fits = [(0.0f32, 0.0f32); GROUPS];
    for (fit, group) in fits.iter_mut().zip(groups) {
        // The weight of an element grows with its magnitude, but is not zero for small elements.
        let mean_square = group.iter().map(|x| x * x).sum::<f32>() / GROUP as f32;
        let weights = group.map(|x| mean_square.sqrt() + x.abs());
        *fit = search::with_min(group, &weights, max, spreads);
    }
    let largest = |part: fn(&(f32, f32)) -> f32| fits.iter().map(part).fold(0.0, f32::max);
    let (d, dmin) = (largest(|fit| fit.0) / 63.0, largest(|fit| fit.1) / 63.0);
    let six_bits = |x: f32, unit: f32| (x * inverse(unit)).round_ties_even().clamp(0.0, 63.0) as u8;
    let coded = fits.map(|(scale, min)| (six_bits(scale, d), six_bits(min, dmin)));

    let mut head = [0; 16];
    put_half(&mut head, 0, d);
    put_half(&mut head, 2, dmin);
    put_scales(&coded, &mut head);
    let (d, dmin) = (f16::from_f32(d).to_f32(), f16::from_f32(dmin).to_f32());
    let mut quants = [0; SUPERBLOCK];
    let (outs, _) = quants.as_chunks_mut::<GROUP>();
    for ((&(scale, min), group), out) in coded.iter().zip(groups).zip(outs) {
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        if scale != 0.0 {
            *out = group.map(|x| ((x + min) / scale).round_ties_even().clamp(0.0, max) as u8);
        }
    }
    WithMins { head, quants }
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
    let WithMins { head, quants } = with_mins(values, 15.0, &Q4);
    let mut block = [0; 144];
    block[..16].copy_from_slice(&head);
    put_nibbles(&quants, &mut block[16..]);
    block
}

pub fn q5_k(values: &[f32; SUPERBLOCK]) -> [u8; 176] {
    let WithMins { head, quants } = with_mins(values, 31.0, &Q5);
    let mut block = [0; 176];
    block[..16].copy_from_slice(&head);
    let (fifth, nibbles) = block[16..].split_at_mut(32);
    for (e, &q) in quants.iter().enumerate() {
        fifth[e % GROUP] |= (q >> 4) << (e / GROUP);
    }
    put_nibbles(&quants, nibbles);
    block
}

pub fn q6_k(values: &[f32; SUPERBLOCK]) -> [u8; 210] {
    let (groups, _) = values.as_chunks::<GROUP6>();
    let mut fits = [0.0f32; GROUPS6];
    for (fit, group) in fits.iter_mut().zip(groups) {
        *fit = search::signed(group, 32.0, &Q6);
    }
    let mut block = [0; 210];
    let extreme = fits.iter().fold(0.0, |most: f32, &fit| if fit.abs() > most.abs() { fit } else { most });
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
            let (h, k, j) = position(g * GROUP6 + i);
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
