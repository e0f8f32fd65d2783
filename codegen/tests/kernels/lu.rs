//! LU decomposition of a batch of small matrices with partial pivoting, one thread per matrix.

use bespoke_codegen::launch::{DevicePointer, params};
use bespoke_emulator::{LaunchConfig, Memory, Module, Options, run};

use super::*;

const THREADS: u32 = 64;

/// Replaces each of `count` matrices of `N` × `N` elements, row by row, by its factors: U in the upper triangle, L below the
/// diagonal. `matrices` has their addresses. `pivots` gets the row that step k exchanged with row k.
///
/// A matrix is in registers: all indices are compile-time values, and an exchange of rows is a choice in each row.
#[kernel(threads = THREADS)]
pub fn batched_lu<const N: usize>(matrices: Ptr<Global, u64>, pivots: Ptr<Global, u32>, count: Val<u32>) {
    let index = block_index() * THREADS + thread_index();
    if index >= count {
        return;
    }
    let matrix = Ptr::<Global, f64>::from_address(matrices.at(index).load());
    let mut a: [[Val<f64>; N]; N] =
        std::array::from_fn(|row| std::array::from_fn(|column| matrix.at(row * N + column).load()));
    for k in 0..N {
        let (mut pivot, mut largest) = (val(k as u32), a[k][k].abs());
        for row in k + 1..N {
            let size = a[row][k].abs();
            let better = size > largest;
            pivot = select(better, row as u32, pivot);
            largest = select(better, size, largest);
        }
        pivots.at(index * (N as u32) + (k as u32)).store(pivot);
        for row in k + 1..N {
            let exchanged = pivot == (row as u32);
            for column in 0..N {
                let (upper, lower) = (a[k][column], a[row][column]);
                a[k][column] = select(exchanged, lower, upper);
                a[row][column] = select(exchanged, upper, lower);
            }
        }
        let reciprocal = a[k][k].rcp();
        for row in k + 1..N {
            a[row][k] *= reciprocal;
            for column in k + 1..N {
                a[row][column] = fma(-a[row][k], a[k][column], a[row][column]);
            }
        }
    }
    for row in 0..N {
        for column in 0..N {
            matrix.at(row * N + column).store(a[row][column]);
        }
    }
}

/// The same steps on the host.
fn decompose<const N: usize>(a: &mut [f64]) -> [u32; N] {
    std::array::from_fn(|k| {
        let larger =
            |best: usize, row: usize| if a[row * N + k].abs() > a[best * N + k].abs() { row } else { best };
        let pivot = (k + 1..N).fold(k, larger);
        (0..N).for_each(|column| a.swap(k * N + column, pivot * N + column));
        let reciprocal = 1.0 / a[k * N + k];
        for row in k + 1..N {
            a[row * N + k] *= reciprocal;
            for column in k + 1..N {
                a[row * N + column] = (-a[row * N + k]).mul_add(a[k * N + column], a[row * N + column]);
            }
        }
        pivot as u32
    })
}

fn check<const N: usize>(count: usize) {
    let bytes = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let memory = Memory::new();
    let random: Vec<f64> = numbers(count * N * N).map(|n| f64::from(n % 2001) / 1000.0 - 1.0).collect();
    let addresses: Vec<u64> = random
        .chunks(N * N)
        .map(|matrix| {
            let address = memory.alloc("a matrix", (8 * N * N) as u64);
            memory.write(address, &bytes(matrix)).unwrap();
            address
        })
        .collect();
    let table = memory.alloc("addresses", 8 * count as u64);
    memory.write(table, &addresses.iter().flat_map(|at| at.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let pivots = memory.alloc("pivots", (4 * N * count) as u64);
    let kernel = batched_lu::<N>().unwrap();
    let module = Module::parse(&kernel.compile(Target::Sm80).unwrap().ptx).unwrap();
    let arguments =
        params(&[&DevicePointer::<u64>::new(table), &DevicePointer::<u32>::new(pivots), &(count as u32)]);
    let config = LaunchConfig::linear((count as u32).div_ceil(THREADS), THREADS);
    run(module.kernel("batched_lu").unwrap(), &memory, &config, &arguments, &Options::default()).unwrap();
    for (i, (matrix, &address)) in random.chunks(N * N).zip(&addresses).enumerate() {
        let mut expected = matrix.to_vec();
        let exchanged = decompose::<N>(&mut expected);
        let mut found = vec![0; 8 * N * N];
        memory.read(address, &mut found).unwrap();
        assert_eq!(found, bytes(&expected), "matrix {i}");
        let mut found = vec![0; 4 * N];
        memory.read(pivots + (4 * N * i) as u64, &mut found).unwrap();
        assert_eq!(found, exchanged.map(u32::to_le_bytes).concat(), "pivots of matrix {i}");
    }
}

#[test]
fn factors_equal_the_host() {
    check::<2>(3);
    check::<4>(100);
    check::<6>(65);
}
