//! Kernels of `cuda/halves.cu`, compiled by nvcc.

use bespoke_emulator::LaunchConfig;
use half::{bf16, f16};

use crate::device::{Device, singles, words};

const PTX: &str = include_str!("cuda/halves.ptx");

fn f(bits: u16) -> f64 {
    f16::from_bits(bits).to_f64()
}

/// Rounds a sum or product of `f16` values, computed in double precision, to the bits of an `f16`.
fn h(x: f64) -> u16 {
    f16::from_f64(x).to_bits()
}

#[test]
fn pairs_of_halves() {
    let (device, n) = (Device::load(PTX), 96);
    // Values with exponents in the middle of the range.
    let random = |seed| -> Vec<u16> {
        words(2 * n, seed).into_iter().map(|word| (word as u16 & 0x8fff).wrapping_add(0x3400)).collect()
    };
    let (a, b) = (random(1), random(2));
    let out = device.output::<u16>(2 * n);
    let arguments = [device.buffer(&a), device.buffer(&b), out, n as u64];
    device.run("half_pairs", LaunchConfig::linear(3, 32), &arguments);
    let got = device.read::<u16>(out, 2 * n);
    for i in 0..n {
        let (x, y) = ([a[2 * i], a[2 * i + 1]], [b[2 * i], b[2 * i + 1]]);
        let mut s: [f64; 2] = std::array::from_fn(|k| {
            let sum = h(f(x[k]) * f(y[k]) + f(h(f(x[k]) - f(y[k]))));
            f(sum).max(f(h(f(x[k]) * 0.25)))
        });
        if f(x[0]) > f(y[1]) {
            s.swap(0, 1);
        }
        let expected: [u16; 2] = std::array::from_fn(|k| h(s[k].min(f(y[k]).abs())));
        assert_eq!(got[2 * i..][..2], expected, "of {x:x?} and {y:x?}");
    }
}

#[test]
fn pairs_of_brain_floats() {
    let (device, n) = (Device::load(PTX), 64);
    let random =
        |seed| -> Vec<u16> { singles(2 * n, seed).iter().map(|&x| bf16::from_f32(x).to_bits()).collect() };
    let (a, b) = (random(3), random(4));
    let out = device.output::<u16>(2 * n);
    let arguments = [device.buffer(&a), device.buffer(&b), out, n as u64];
    device.run("brain_pairs", LaunchConfig::linear(2, 32), &arguments);
    let value = |bits: u16| bf16::from_bits(bits).to_f64();
    let round = |x: f64| bf16::from_f64(x).to_bits();
    let expected = a.iter().zip(&b).map(|(&a, &b)| {
        let s = round(value(a) * value(b) + value(a));
        round(value(round(value(s) * value(b))) - value(a).max(value(b)))
    });
    assert_eq!(device.read::<u16>(out, 2 * n), expected.collect::<Vec<_>>());
}

#[test]
fn numbers_are_converted() {
    let (device, n) = (Device::load(PTX), 128);
    let x: Vec<f32> = singles(n, 5).iter().enumerate().map(|(i, x)| x * (1 << (i % 9)) as f32).collect();
    let (h, b) = (device.output::<u16>(n), device.output::<u16>(n));
    let (q, u) = (device.output::<i32>(n), device.output::<u8>(n));
    device.run("conversions", LaunchConfig::linear(4, 32), &[device.buffer(&x), h, b, q, u, n as u64]);
    let half: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
    let brain: Vec<u16> = x.iter().map(|&x| (x.to_bits() >> 16) as u16).collect();
    assert_eq!(device.read::<u16>(h, n), half.iter().map(|h| h.to_bits()).collect::<Vec<_>>());
    assert_eq!(device.read::<u16>(b, n), brain);
    let whole = (0..n).map(|i| {
        let near = x[i].round_ties_even() as i32 + (x[i] * 0.5).round_ties_even() as i32;
        near + half[i].to_f32() as i32 + bf16::from_bits(brain[i]).to_f32() as i32
    });
    assert_eq!(device.read::<i32>(q, n), whole.collect::<Vec<_>>());
    assert_eq!(device.read::<u8>(u, n), x.iter().map(|&x| x as u8).collect::<Vec<_>>());
}

/// All non-negative finite values of an 8-bit format, indexed by their bits.
fn values(fraction: u32, bias: i32, last: u8) -> Vec<f64> {
    let value = |bits: u8| {
        let exponent = (bits >> fraction) as i32;
        let significand = (bits & ((1 << fraction) - 1)) as f64 / (1 << fraction) as f64;
        let hidden = if exponent > 0 { 1.0 } else { 0.0 };
        (hidden + significand) * 2f64.powi(exponent.max(1) - bias)
    };
    (0..=last).map(value).collect()
}

/// Bits of the value in `values` that is nearest to `x`, ties to even, with the sign of `x`.
fn nearest(x: f32, values: &[f64]) -> u8 {
    let distance = |bits: &usize| (values[*bits] - x.abs() as f64).abs();
    let closer = |a: &usize, b: &usize| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)));
    let magnitude = (0..values.len()).min_by(closer).expect("not empty") as u8;
    magnitude | (x.is_sign_negative() as u8) << 7
}

#[test]
fn floats_of_eight_bits() {
    let (device, n) = (Device::load(PTX), 256);
    let mut x: Vec<f32> =
        words(n, 6).into_iter().map(|word| f32::from_bits(word % (1 << 28) + 0x3600_0000)).collect();
    x.iter_mut().step_by(2).for_each(|x| *x = -*x);
    // Ties, values at the limits of the formats, and values beyond these limits.
    x[..8].copy_from_slice(&[0.0, -0.0, 17.0, 19.0, 464.0, 448.5, 1e9, -61440.0]);
    let (e4, e5, back) = (device.output::<u8>(n), device.output::<u8>(n), device.output::<f32>(n));
    device.run("eight_bits", LaunchConfig::linear(8, 32), &[device.buffer(&x), e4, e5, back, n as u64]);
    let (four, five) = (values(3, 7, 0x7e), values(2, 15, 0x7b));
    let by = |values: &[f64]| -> Vec<u8> { x.iter().map(|&x| nearest(x, values)).collect() };
    assert_eq!(device.read::<u8>(e4, n), by(&four));
    assert_eq!(device.read::<u8>(e5, n), by(&five));
    let value = |bits: u8, values: &[f64]| {
        let magnitude = values[(bits & 0x7f) as usize] as f32;
        if bits & 0x80 != 0 { -magnitude } else { magnitude }
    };
    let sums = by(&four).into_iter().zip(by(&five)).map(|(a, b)| value(a, &four) + value(b, &five));
    assert_eq!(device.read::<f32>(back, n), sums.collect::<Vec<_>>());
}
