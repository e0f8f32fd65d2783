//! Kernels of `cuda/elementwise.cu`, compiled by nvcc.

use bespoke_emulator::LaunchConfig;

use crate::device::{Device, close, float, singles, words};

const PTX: &str = include_str!("cuda/elementwise.ptx");

#[test]
fn vectors_are_added() {
    let (device, n) = (Device::load(PTX), 300);
    let (a, b) = (singles(n, 1), singles(n, 2));
    let c = device.output::<f32>(n);
    device.run(
        "vector_add",
        LaunchConfig::linear(3, 128),
        &[device.buffer(&a), device.buffer(&b), c, n as u64],
    );
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(device.read::<f32>(c, n), expected);
}

#[test]
fn saxpy_strides_over_a_small_grid() {
    let (device, n) = (Device::load(PTX), 1000);
    let (x, y) = (singles(n, 3), singles(n, 4));
    let out = device.buffer(&y);
    let arguments = [float(1.5), device.buffer(&x), out, n as u64];
    device.run("saxpy_strided", LaunchConfig::linear(2, 64), &arguments);
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 1.5f32.mul_add(*x, *y)).collect();
    assert_eq!(device.read::<f32>(out, n), expected);
}

#[test]
fn four_floats_are_scaled_at_a_time() {
    let (device, n) = (Device::load(PTX), 70);
    let x = singles(4 * n, 5);
    let y = device.output::<f32>(4 * n);
    let arguments = [device.buffer(&x), y, float(-3.0), n as u64];
    device.run("scale_vectors", LaunchConfig::linear(3, 32), &arguments);
    assert_eq!(device.read::<f32>(y, 4 * n), x.iter().map(|x| x * -3.0).collect::<Vec<_>>());
}

#[test]
fn narrow_integers_extend_and_truncate() {
    let (device, n) = (Device::load(PTX), 200);
    let random = words(n, 6);
    let a: Vec<i8> = random.iter().map(|&word| word as i8).collect();
    let b: Vec<u8> = random.iter().map(|&word| (word >> 8) as u8).collect();
    let c: Vec<i16> = random.iter().map(|&word| (word >> 16) as i16).collect();
    let (d, e) = (device.output::<u16>(n), device.output::<i8>(n));
    let inputs = [device.buffer(&a), device.buffer(&b), device.buffer(&c)];
    let arguments = [inputs[0], inputs[1], inputs[2], d, e, n as u64];
    device.run("narrow_types", LaunchConfig::linear(2, 128), &arguments);
    let sum = |i: usize| a[i] as i32 * b[i] as i32 + c[i] as i32;
    let expected: Vec<u16> = (0..n).map(|i| (sum(i) ^ (c[i] as i32 >> 3)) as u16).collect();
    assert_eq!(device.read::<u16>(d, n), expected);
    assert_eq!(device.read::<i8>(e, n), (0..n).map(|i| sum(i).clamp(-128, 127) as i8).collect::<Vec<_>>());
}

#[test]
fn a_stencil_reads_its_neighbours_from_shared_memory() {
    let (device, n) = (Device::load(PTX), 500);
    let x = singles(n, 7);
    let y = device.output::<f32>(n);
    device.run("stencil", LaunchConfig::linear(4, 128), &[device.buffer(&x), y, n as u64]);
    let at = |i: isize| if i >= 0 && (i as usize) < n { x[i as usize] } else { 0.0 };
    let expected: Vec<f32> = (0..n as isize)
        .map(|i| (at(i - 2) + at(i + 2)) * 0.0625 + (at(i - 1) + at(i + 1)) * 0.25 + at(i) * 0.375)
        .collect();
    close(&device.read::<f32>(y, n), &expected, 1e-6);
}

#[test]
fn the_device_library_computes_transcendental_functions() {
    let (device, n) = (Device::load(PTX), 256);
    let mut x: Vec<f32> = singles(n, 8).iter().map(|x| 4.0 * x).collect();
    // For large arguments `sinf` uses an array in local memory.
    x[..4].copy_from_slice(&[1e6, -3e5, 123_456.0, 0.0]);
    x[..3].iter_mut().for_each(|x| *x = x.min(80.0));
    let y = device.output::<f32>(n);
    device.run("transcendental", LaunchConfig::linear(2, 128), &[device.buffer(&x), y, n as u64]);
    // Error function, Abramowitz and Stegun, 7.1.26; the error is below 1.5e-7.
    let erf = |x: f64| {
        let t = 1.0 / (1.0 + 0.3275911 * x.abs());
        let series = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
        let sum = series.iter().fold(0.0, |sum, c| (sum + c) * t);
        (1.0 - sum * (-x * x).exp()).copysign(x)
    };
    let expected: Vec<f32> = x
        .iter()
        .map(|&x| {
            let (v, a) = (x as f64, x.abs() as f64);
            let sum = 2.0 * v.exp() + 2.0 * (a + 1.0).ln() + v.sin() + v.cos() + v.tanh();
            (sum + 1.0 / (a + 0.5).sqrt() + a.sqrt() + v / (1.0 + v * v) + (a + 1.0).powf(1.5) + erf(v))
                as f32
        })
        .collect();
    close(&device.read::<f32>(y, n), &expected, 2e-6);
}
