//! Kernels of `cuda/integers.cu`, compiled by nvcc.

use bespoke_emulator::LaunchConfig;

use crate::device::{Device, singles, words};

const PTX: &str = include_str!("cuda/integers.ptx");

#[test]
fn bits_are_counted_moved_and_mixed() {
    let (device, n) = (Device::load(PTX), 256);
    let (mut a, mut b) = (words(n, 1), words(n, 2));
    a[..6].copy_from_slice(&[0, 1, u32::MAX, 0x8000_0000, 31, 32]);
    b[..6].copy_from_slice(&[0, 32, 33, u32::MAX, 0x8000_0000, 63]);
    let out = device.output::<u32>(8 * n);
    let arguments = [device.buffer(&a), device.buffer(&b), out, n as u64];
    device.run("bit_tricks", LaunchConfig::linear(2, 128), &arguments);
    let got = device.read::<u32>(out, 8 * n);
    for (i, got) in got.chunks(8).enumerate() {
        let (x, y) = (a[i], b[i]);
        let first = if x == 0 { 0 } else { x.trailing_zeros() + 1 };
        let bytes: Vec<u8> = [x.to_le_bytes(), y.to_le_bytes()].concat();
        let wide = (y as u64) << 32 | x as u64;
        let field = |length: u32| ((1u64 << length) - 1) as u32;
        let (position, length) = (x & 31, y & 15);
        let mask = ((field(length) as u64) << position) as u32;
        let dot =
            x.to_le_bytes().into_iter().zip(y.to_le_bytes()).map(|(x, y)| x as i8 as i32 * y as i8 as i32);
        let added = x.to_le_bytes().into_iter().zip(y.to_le_bytes()).map(|(x, y)| x.saturating_add(y));
        let added: Vec<u8> = added.collect();
        let expected = [
            x.count_ones() + y.leading_zeros() * 100 + first * 10_000,
            x.reverse_bits() ^ u32::from_le_bytes([bytes[1], bytes[3], bytes[5], bytes[7]]),
            ((wide << (y & 31) >> 32) as u32).wrapping_add((wide >> (x & 63).min(32)) as u32),
            x >> (y & 31) & field(y >> 8 & 31),
            y & !mask | x << position & mask,
            x ^ y ^ x.wrapping_add(y),
            (((x as u64 * y as u64) >> 32) as u32)
                .wrapping_add((x as i32).abs_diff(y as i32).wrapping_add(7)),
            (dot.sum::<i32>().wrapping_add(5) as u32)
                .wrapping_add(u32::from_le_bytes([added[0], added[1], added[2], added[3]])),
        ];
        assert_eq!(got, expected, "of {x:#x} and {y:#x}");
    }
}

fn wide_words(n: usize, seed: u64) -> Vec<u64> {
    words(2 * n, seed).chunks(2).map(|pair| (pair[0] as u64) << 32 | pair[1] as u64).collect()
}

#[test]
fn sixty_four_bits_are_divided() {
    let (device, n) = (Device::load(PTX), 128);
    // Divisors with all numbers of significant bits.
    let b = wide_words(n, 4);
    let b: Vec<i64> = b.iter().enumerate().map(|(i, &b)| (b >> (i % 63)) as i64 | 1).collect();
    let a: Vec<i64> = wide_words(n, 3).iter().map(|&a| a as i64).collect();
    let out = device.output::<i64>(4 * n);
    let arguments = [device.buffer(&a), device.buffer(&b), out, n as u64];
    device.run("wide_division", LaunchConfig::linear(1, 128), &arguments);
    let got = device.read::<i64>(out, 4 * n);
    for (i, got) in got.chunks(4).enumerate() {
        let (x, y) = (a[i], b[i]);
        let (u, v) = (x as u64, y as u64);
        let high = ((u as u128 * v as u128) >> 64) as u64;
        let mixed = (u % v).wrapping_add(high).wrapping_add(u / 1_000_000_007 % 97);
        assert_eq!(got, [x / y, x % y, (u / v) as i64, mixed as i64], "of {x} and {y}");
    }
}

#[test]
fn products_of_128_bits_carry() {
    let (device, n) = (Device::load(PTX), 100);
    let (a, b) = (wide_words(n, 5), wide_words(n, 6));
    let out = device.output::<u64>(2 * n);
    let arguments = [device.buffer(&a), device.buffer(&b), out, n as u64];
    device.run("wide_product", LaunchConfig::linear(1, 128), &arguments);
    let expected = a.iter().zip(&b).flat_map(|(&a, &b)| {
        let product = a as u128 * b as u128 + b as u128;
        [product as u64, (product >> 64) as u64]
    });
    assert_eq!(device.read::<u64>(out, 2 * n), expected.collect::<Vec<_>>());
}

#[test]
fn a_maximum_by_compare_and_swap_and_lists_by_exchange() {
    let (device, n) = (Device::load(PTX), 500);
    let x = singles(n, 7);
    let best = device.buffer(&[f32::MIN.to_bits()]);
    let (heads, next) = (device.buffer(&[-1i32; 4]), device.output::<i32>(n));
    let arguments = [device.buffer(&x), best, heads, next, n as u64];
    device.run("cas_loop", LaunchConfig::linear(4, 128), &arguments);
    let largest = x.iter().copied().fold(f32::MIN, f32::max);
    assert_eq!(device.read::<f32>(best, 1), [largest]);
    let next = device.read::<i32>(next, n);
    for (class, mut at) in device.read::<i32>(heads, 4).into_iter().enumerate() {
        let mut found = Vec::new();
        while at >= 0 {
            found.push(at as usize);
            at = next[at as usize];
        }
        found.sort_unstable();
        assert_eq!(found, (class..n).step_by(4).collect::<Vec<_>>());
    }
}

#[test]
fn lanes_vote_and_match() {
    let device = Device::load(PTX);
    let x: Vec<i32> = words(64, 8).into_iter().map(|word| (word % 7) as i32).collect();
    let out = device.output::<u32>(4 * 64);
    device.run("warp_votes", LaunchConfig::linear(1, 64), &[device.buffer(&x), out]);
    let got = device.read::<u32>(out, 4 * 64);
    for (warp, x) in x.chunks(32).enumerate() {
        let mask = |test: &dyn Fn(i32) -> bool| {
            x.iter().enumerate().fold(0u32, |mask, (lane, &x)| mask | (test(x) as u32) << lane)
        };
        for (lane, &own) in x.iter().enumerate() {
            let largest = *x[..16].iter().max().expect("not empty") as u32;
            let low = if lane < 16 { largest + 0xffff } else { 0 };
            let expected = [
                mask(&|x| x & 1 == 1),
                mask(&|x| x == own),
                u32::MAX.wrapping_add(1),
                low + x.contains(&3) as u32 + 2,
            ];
            assert_eq!(got[4 * (32 * warp + lane)..][..4], expected, "lane {lane} of warp {warp}");
        }
    }
}
