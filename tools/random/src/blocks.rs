//! Random blocks whose values have a given standard deviation.
//!
//! All quants are uniform over their range; scales are chosen for the requested standard deviation, with a jitter of
//! ±20 % from block to block, so that no two blocks have the same scale. Layouts are those of
//! [`bespoke_gguf::dequant`].

use bespoke_gguf::GgmlType;
use bespoke_gguf::dequant::{FP4_VALUES, IQ4_VALUES};
use half::{bf16, f16};

use crate::rng::SplitMix64;

/// Elements filled by one generator: whole blocks of every type, 147 KiB (Q4_K) to 1 MiB (F32).
pub const CHUNK_ELEMENTS: usize = 1 << 18;

/// Fills consecutive blocks of `ty`. Quantised types ignore `mean`, which is 0 for every matrix.
pub fn fill(ty: GgmlType, mean: f32, std: f32, rng: &mut SplitMix64, out: &mut [u8]) {
    match ty {
        GgmlType::F32 => each(out, |w: &mut [u8; 4]| *w = (mean + std * rng.normal()).to_le_bytes()),
        GgmlType::F16 => {
            each(out, |w: &mut [u8; 2]| *w = f16::from_f32(mean + std * rng.normal()).to_le_bytes())
        }
        GgmlType::BF16 => {
            each(out, |w: &mut [u8; 2]| *w = bf16::from_f32(mean + std * rng.normal()).to_le_bytes())
        }
        GgmlType::Q4_0 => signed::<18>(rng, std / rms_signed(16), out),
        GgmlType::Q5_0 => signed::<22>(rng, std / rms_signed(32), out),
        GgmlType::Q8_0 => signed::<34>(rng, std / rms_signed(256), out),
        GgmlType::Q4_1 => with_min::<20>(rng, std, 16, out),
        GgmlType::Q5_1 => with_min::<24>(rng, std, 32, out),
        GgmlType::Q4_K => k_with_mins::<144>(rng, std, 16, out),
        GgmlType::Q5_K => k_with_mins::<176>(rng, std, 32, out),
        GgmlType::Q6_K => q6_k(rng, std, out),
        GgmlType::Q2_K => q2_k(rng, std, out),
        GgmlType::Q3_K => q3_k(rng, std, out),
        GgmlType::IQ4_NL => signed::<18>(rng, std / rms(&IQ4_VALUES), out),
        GgmlType::IQ4_XS => iq4_xs(rng, std, out),
        GgmlType::MXFP4 => mxfp4(rng, std, out),
        other => unreachable!("the plan was checked against supported types, and has no {other}"),
    }
}

fn each<const N: usize>(out: &mut [u8], block: impl FnMut(&mut [u8; N])) {
    out.as_chunks_mut::<N>().0.iter_mut().for_each(block);
}

/// A random scale: uniform within ±20 %, with mean square `size`².
fn jitter(rng: &mut SplitMix64, size: f32) -> f32 {
    // E[(0.8 + 0.4·u)²] for uniform u.
    const MEAN_SQUARE: f32 = 0.64 + 0.32 + 0.16 / 3.0;
    size * (0.8 + 0.4 * rng.unit()) / MEAN_SQUARE.sqrt()
}

/// The variance of a uniform integer of `levels` values.
fn variance(levels: u32) -> f32 {
    (levels * levels - 1) as f32 / 12.0
}

/// The root mean square of a uniform integer of −levels/2 to levels/2 − 1, whose mean is −1/2.
fn rms_signed(levels: u32) -> f32 {
    (variance(levels) + 0.25).sqrt()
}

/// The root mean square of a table whose values are equally frequent.
fn rms(values: &[i8; 16]) -> f32 {
    (values.iter().map(|&value| f32::from(value).powi(2)).sum::<f32>() / 16.0).sqrt()
}

fn put(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// Q4_0, Q5_0, Q8_0, IQ4_NL: w = d·q, where q has a mean near 0; the sign of d is random so that the mean of w is 0.
fn signed<const N: usize>(rng: &mut SplitMix64, size: f32, out: &mut [u8]) {
    rng.fill(out);
    each(out, |block: &mut [u8; N]| {
        let d = jitter(rng, size);
        let signed = if block[0] & 1 == 0 { d } else { -d };
        put(block, 0, signed);
    });
}

/// Q4_1, Q5_1: w = d·q + m with m = −d·(levels − 1)/2.
fn with_min<const N: usize>(rng: &mut SplitMix64, std: f32, levels: u32, out: &mut [u8]) {
    rng.fill(out);
    let size = std / variance(levels).sqrt();
    each(out, |block: &mut [u8; N]| {
        let d = jitter(rng, size);
        put(block, 0, d);
        put(block, 2, -d * (levels - 1) as f32 / 2.0);
    });
}

/// Q4_K, Q5_K: w = d·sc·q − dmin·mn, with sub-block scales and minimums uniform in 24..56.
fn k_with_mins<const N: usize>(rng: &mut SplitMix64, std: f32, levels: u32, out: &mut [u8]) {
    const LEAST: u8 = 24;
    const SCALES: u32 = 32;
    rng.fill(out);
    // With dmin = d·q̄: w/d = sc·(q − q̄) + q̄·(sc − mn), two terms that are uncorrelated.
    let mid = (levels - 1) as f32 / 2.0;
    let mean_scale = f32::from(LEAST) + (SCALES - 1) as f32 / 2.0;
    let mean_square_scale = mean_scale * mean_scale + variance(SCALES);
    let rms = (mean_square_scale * variance(levels) + mid * mid * 2.0 * variance(SCALES)).sqrt();
    each(out, |block: &mut [u8; N]| {
        let d = jitter(rng, std / rms);
        put(block, 0, d);
        put(block, 2, d * mid);
        let (scale_bits, min_bits) = (rng.bits(), rng.bits());
        let pick = |bits: u64, s: usize| LEAST + (bits >> (8 * s)) as u8 % SCALES as u8;
        for s in 0..4 {
            let (low_scale, high_scale) = (pick(scale_bits, s), pick(scale_bits, s + 4));
            let (low_min, high_min) = (pick(min_bits, s), pick(min_bits, s + 4));
            block[4 + s] = low_scale | high_scale >> 4 << 6;
            block[8 + s] = low_min | high_min >> 4 << 6;
            block[12 + s] = high_scale & 15 | (high_min & 15) << 4;
        }
    });
}

/// Q6_K: w = d·sc·(q − 32), with scales of either sign and a magnitude uniform in 40..90.
fn q6_k(rng: &mut SplitMix64, std: f32, out: &mut [u8]) {
    const LEAST: u8 = 40;
    const SCALES: u32 = 50;
    rng.fill(out);
    let mean_scale = f32::from(LEAST) + (SCALES - 1) as f32 / 2.0;
    let rms = rms_signed(64) * (mean_scale * mean_scale + variance(SCALES)).sqrt();
    each(out, |block: &mut [u8; 210]| {
        for scale in &mut block[192..208] {
            let magnitude = LEAST + ((u32::from(*scale >> 1) * SCALES) >> 7) as u8;
            *scale = if *scale & 1 == 0 { magnitude } else { magnitude.wrapping_neg() };
        }
        put(block, 208, jitter(rng, std / rms));
    });
}

/// Q2_K: w = d·sc·q − dmin·mn, with scales and minimums uniform in 4..12.
fn q2_k(rng: &mut SplitMix64, std: f32, out: &mut [u8]) {
    const LEAST: u8 = 4;
    const SCALES: u32 = 8;
    rng.fill(out);
    // As for Q4_K, with dmin = d·3/2.
    let mean_scale = f32::from(LEAST) + (SCALES - 1) as f32 / 2.0;
    let mean_square_scale = mean_scale * mean_scale + variance(SCALES);
    let rms = (mean_square_scale * variance(4) + 1.5 * 1.5 * 2.0 * variance(SCALES)).sqrt();
    each(out, |block: &mut [u8; 84]| {
        for byte in &mut block[..16] {
            *byte = (LEAST + (*byte & 7)) | (LEAST + (*byte >> 4 & 7)) << 4;
        }
        let d = jitter(rng, std / rms);
        put(block, 80, d);
        put(block, 82, d * 1.5);
    });
}

/// The magnitudes of Q3_K's and IQ4_XS's 6-bit scales: uniform in 12..28, of either sign. Returns the scale plus 32 from
/// five random bits.
fn six_bits(bits: u8) -> u8 {
    let magnitude = MIN_OF_SIX_BITS + (bits & 15);
    if bits & 16 == 0 { 32 + magnitude } else { 32 - magnitude }
}

const MIN_OF_SIX_BITS: u8 = 12;

/// The root mean square of the scales of [`six_bits`].
fn rms_six_bits() -> f32 {
    let mean = f32::from(MIN_OF_SIX_BITS) + 7.5;
    (mean * mean + variance(16)).sqrt()
}

/// Q3_K: w = d·sc·(q − 4).
fn q3_k(rng: &mut SplitMix64, std: f32, out: &mut [u8]) {
    rng.fill(out);
    each(out, |block: &mut [u8; 110]| {
        let scales: [u8; 16] = std::array::from_fn(|s| six_bits(block[96 + s % 12] >> (s / 12 * 3)));
        for s in 0..4 {
            let [a, b, c, d] = [scales[s], scales[s + 4], scales[s + 8], scales[s + 12]];
            block[96 + s] = a & 15 | c << 4;
            block[100 + s] = b & 15 | d << 4;
            block[104 + s] = a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6;
        }
        put(block, 108, jitter(rng, std / (rms_signed(8) * rms_six_bits())));
    });
}

/// IQ4_XS: w = d·sc·v with the values v of the table.
fn iq4_xs(rng: &mut SplitMix64, std: f32, out: &mut [u8]) {
    rng.fill(out);
    each(out, |block: &mut [u8; 136]| {
        let bits = rng.bits();
        let mut high = 0;
        for s in 0..4 {
            let (even, odd) = (six_bits((bits >> (10 * s)) as u8), six_bits((bits >> (10 * s + 5)) as u8));
            block[4 + s] = even & 15 | odd << 4;
            high |= u16::from(even >> 4 | odd >> 4 << 2) << (4 * s);
        }
        block[2..4].copy_from_slice(&high.to_le_bytes());
        put(block, 0, jitter(rng, std / (rms(&IQ4_VALUES) * rms_six_bits())));
    });
}

/// MXFP4: w = 2^(e − 128)·v. A block has one of two exponents, of which the larger is chosen with the probability that
/// gives the mean square.
fn mxfp4(rng: &mut SplitMix64, std: f32, out: &mut [u8]) {
    rng.fill(out);
    let size = std / rms(&FP4_VALUES);
    let exponent = size.log2().floor();
    // The mean square of 2^k and 2^(k + 1) is size² for p·4 + (1 − p) = (size / 2^k)².
    let share = ((size / exponent.exp2()).powi(2) - 1.0) / 3.0;
    let smaller = (exponent + 128.0).clamp(0.0, 254.0) as u8;
    each(out, |block: &mut [u8; 17]| block[0] = smaller + u8::from(rng.unit() < share));
}
