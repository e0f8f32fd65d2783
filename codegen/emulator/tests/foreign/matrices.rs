//! Kernels of `cuda/matmul.cu`, compiled by nvcc.

use half::f16;

use crate::device::{Device, close, grid, singles};

const PTX: &str = include_str!("cuda/matmul.ptx");
const N: usize = 48;

/// Product of a `rows` × `depth` and a `depth` × `columns` matrix, both row-major.
pub fn product(a: &[f32], b: &[f32], depth: usize, columns: usize) -> Vec<f32> {
    let element = |row: &[f32], column: usize| {
        row.iter().enumerate().map(|(k, &a)| a as f64 * b[k * columns + column] as f64).sum::<f64>() as f32
    };
    a.chunks(depth).flat_map(|row| (0..columns).map(move |column| element(row, column))).collect()
}

fn transposed(x: &[f32], columns: usize) -> Vec<f32> {
    (0..x.len()).map(|at| x[at % (x.len() / columns) * columns + at / (x.len() / columns)]).collect()
}

pub fn halves(x: &[f32]) -> Vec<u16> {
    x.iter().map(|&x| f16::from_f32(x).to_bits()).collect()
}

/// Runs a kernel that multiplies two `N` × `N` matrices of `f32`, and checks the product.
fn singles_by(kernel: &str) {
    let device = Device::load(PTX);
    let (a, b) = (singles(N * N, 1), singles(N * N, 2));
    let c = device.output::<f32>(N * N);
    let blocks = (N / 16) as u32;
    let arguments = [device.buffer(&a), device.buffer(&b), c, N as u64];
    device.run(kernel, grid([blocks; 2], [16, 16], 0), &arguments);
    close(&device.read::<f32>(c, N * N), &product(&a, &b, N, N), 1e-5);
}

/// Runs a kernel that multiplies matrices of `f16`, the second column-major, in tiles of 16 × `columns`, and checks the
/// product.
fn halves_by(kernel: &str, columns: usize) {
    let device = Device::load(PTX);
    let (a, b) = (singles(N * N, 3), singles(N * N, 4));
    let c = device.output::<f32>(N * N);
    let inputs = [device.buffer(&halves(&a)), device.buffer(&halves(&transposed(&b, N)))];
    let blocks = [N / columns, N / 16].map(|n| n as u32);
    device.run(kernel, grid(blocks, [32, 1], 0), &[inputs[0], inputs[1], c, N as u64]);
    close(&device.read::<f32>(c, N * N), &product(&a, &b, N, N), 1e-6);
}

#[test]
fn tiles_in_shared_memory() {
    singles_by("matmul_tiled");
}

#[test]
fn stages_filled_by_asynchronous_copies() {
    singles_by("matmul_pipelined");
}

#[test]
fn fragments_of_the_wmma_interface() {
    halves_by("matmul_wmma", 16);
}

#[test]
fn fragments_by_ldmatrix_and_mma() {
    halves_by("matmul_mma", 8);
}

#[test]
fn a_transpose_through_padded_tiles() {
    let device = Device::load(PTX);
    let (rows, columns) = (50, 70);
    let x = singles(rows * columns, 5);
    let y = device.output::<f32>(rows * columns);
    let arguments = [device.buffer(&x), y, rows as u64, columns as u64];
    device.run("transpose", grid([3, 2], [32, 8], 0), &arguments);
    assert_eq!(device.read::<f32>(y, rows * columns), transposed(&x, columns));
}
