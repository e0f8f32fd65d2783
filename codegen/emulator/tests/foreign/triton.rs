//! Kernels of `triton/kernels.py`, compiled by Triton.

use half::f16;

use crate::device::{Device, close, float, grid, singles};
use crate::matrices::{halves, product};
use crate::reductions::{normalised, softmax};
use bespoke_emulator::LaunchConfig;

#[test]
fn softmax_of_rows() {
    let device = Device::load(include_str!("triton/softmax.ptx"));
    let (rows, columns) = (5, 200);
    let x: Vec<f32> = singles(rows * columns, 1).iter().map(|x| 5.0 * x).collect();
    let y = device.output::<f32>(rows * columns);
    let config = LaunchConfig { dynamic_shared: 64, ..LaunchConfig::linear(rows as u32, 128) };
    device.run("softmax", config, &[device.buffer(&x), y, columns as u64]);
    let expected: Vec<f32> = x.chunks(columns).flat_map(softmax).collect();
    close(&device.read::<f32>(y, rows * columns), &expected, 1e-6);
}

#[test]
fn layers_are_normalised() {
    let device = Device::load(include_str!("triton/layernorm.ptx"));
    let (rows, columns) = (3, 300);
    let (x, gain, bias) = (singles(rows * columns, 2), singles(columns, 3), singles(columns, 4));
    let y = device.output::<f32>(rows * columns);
    let inputs = [&x, &gain, &bias].map(|values| device.buffer(values));
    let config = LaunchConfig { dynamic_shared: 64, ..LaunchConfig::linear(rows as u32, 128) };
    let arguments = [inputs[0], inputs[1], inputs[2], y, columns as u64, float(1e-5)];
    device.run("layernorm", config, &arguments);
    let expected: Vec<f32> = x.chunks(columns).flat_map(|row| normalised(row, &gain, &bias)).collect();
    close(&device.read::<f32>(y, rows * columns), &expected, 1e-5);
}

#[test]
fn a_pipelined_product_of_halves() {
    let device = Device::load(include_str!("triton/matmul.ptx"));
    let (m, n, k) = (64, 96, 80);
    let (a, b) = (singles(m * k, 5), singles(k * n, 6));
    let c = device.output::<u16>(m * n);
    let inputs = [device.buffer(&halves(&a)), device.buffer(&halves(&b))];
    let config = grid([m as u32 / 32, n as u32 / 32], [64, 1], 16 << 10);
    device.run("matmul", config, &[inputs[0], inputs[1], c, m as u64, n as u64, k as u64]);
    let got: Vec<f32> =
        device.read::<u16>(c, m * n).into_iter().map(|bits| f16::from_bits(bits).to_f32()).collect();
    close(&got, &product(&a, &b, k, n), 5e-4);
}
