//! Kernels of `cuda/reductions.cu`, compiled by nvcc.

use bespoke_emulator::LaunchConfig;

use crate::device::{Device, close, grid, singles, words};

const PTX: &str = include_str!("cuda/reductions.ptx");

#[test]
fn shuffles_sum_a_block() {
    let (device, n) = (Device::load(PTX), 1000);
    let x = singles(n, 1);
    let sums = device.output::<f32>(3);
    device.run("reduce_shuffle", LaunchConfig::linear(3, 128), &[device.buffer(&x), sums, n as u64]);
    let expected: Vec<f32> =
        (0..3).map(|block| (0..n).filter(|i| i / 128 % 3 == block).map(|i| x[i]).sum()).collect();
    assert_eq!(device.read::<f32>(sums, 3), expected);
}

#[test]
fn shared_memory_and_atomics_sum_a_grid() {
    let (device, n) = (Device::load(PTX), 1000);
    let x: Vec<i32> = words(n, 2).into_iter().map(|word| word as i32).collect();
    let (sum, count) = (device.buffer(&[7i32]), device.buffer(&[0u64]));
    let arguments = [device.buffer(&x), sum, count, n as u64];
    device.run("reduce_shared", grid([4, 1], [256, 1], 1024), &arguments);
    assert_eq!(device.read::<i32>(sum, 1)[0], x.iter().fold(7i32, |sum, x| sum.wrapping_add(*x)));
    assert_eq!(device.read::<u64>(count, 1), [4]);
}

#[test]
fn softmax_of_rows() {
    let (device, rows, columns) = (Device::load(PTX), 3, 300);
    let x: Vec<f32> = singles(rows * columns, 3).iter().map(|x| 5.0 * x).collect();
    let y = device.output::<f32>(rows * columns);
    let arguments = [device.buffer(&x), y, columns as u64];
    device.run("softmax_rows", LaunchConfig::linear(rows as u32, 128), &arguments);
    let expected: Vec<f32> = x.chunks(columns).flat_map(softmax).collect();
    close(&device.read::<f32>(y, rows * columns), &expected, 1e-6);
}

pub fn softmax(row: &[f32]) -> Vec<f32> {
    let largest = row.iter().copied().fold(f32::MIN, f32::max);
    let powers: Vec<f64> = row.iter().map(|&x| ((x - largest) as f64).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| (power / sum) as f32).collect()
}

#[test]
fn a_block_scans_its_prefixes() {
    let device = Device::load(PTX);
    let x: Vec<i32> = words(512, 4).into_iter().map(|word| word as i32).collect();
    let y = device.output::<i32>(512);
    device.run("prefix_scan", LaunchConfig::linear(1, 512), &[device.buffer(&x), y]);
    let mut sum = 0i32;
    let expected: Vec<i32> = x
        .iter()
        .map(|x| {
            sum = sum.wrapping_add(*x);
            sum
        })
        .collect();
    assert_eq!(device.read::<i32>(y, 512), expected);
}

#[test]
fn layers_are_normalised_in_double_precision() {
    let (device, rows, columns) = (Device::load(PTX), 2, 200);
    let (x, gain, bias) = (singles(rows * columns, 5), singles(columns, 6), singles(columns, 7));
    let y = device.output::<f32>(rows * columns);
    let inputs = [&x, &gain, &bias].map(|values| device.buffer(values));
    let arguments = [inputs[0], inputs[1], inputs[2], y, columns as u64];
    device.run("layernorm", LaunchConfig::linear(rows as u32, 64), &arguments);
    let expected: Vec<f32> = x.chunks(columns).flat_map(|row| normalised(row, &gain, &bias)).collect();
    close(&device.read::<f32>(y, rows * columns), &expected, 1e-6);
}

pub fn normalised(row: &[f32], gain: &[f32], bias: &[f32]) -> Vec<f32> {
    let n = row.len() as f64;
    let mean = row.iter().map(|&x| x as f64).sum::<f64>() / n;
    let variance = row.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (variance + 1e-5).sqrt();
    let scaled = row.iter().zip(gain).zip(bias);
    scaled.map(|((&x, gain), bias)| ((x as f64 - mean) * scale) as f32 * gain + bias).collect()
}

#[test]
fn a_histogram_counts_bytes() {
    let (device, n) = (Device::load(PTX), 5000);
    let x: Vec<u8> = words(n, 8).into_iter().map(|word| (word >> 24 & word >> 16) as u8).collect();
    let bins = device.buffer(&[1u32; 256]);
    device.run("histogram", LaunchConfig::linear(3, 128), &[device.buffer(&x), bins, n as u64]);
    let mut expected = vec![1u32; 256];
    x.iter().for_each(|&x| expected[x as usize] += 1);
    assert_eq!(device.read::<u32>(bins, 256), expected);
}
