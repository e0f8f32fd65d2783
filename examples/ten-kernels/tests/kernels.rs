//! The kernels on the emulator, with all checks, beside the same computation on the host.

use bespoke_codegen::prelude::*;
use bespoke_testing::{Done, Launch};
use ten_kernels::*;

/// Numbers that look random, the same in every run.
fn numbers(count: usize) -> impl Iterator<Item = u32> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(12_345u32), next).skip(1).map(|state| state >> 8).take(count)
}

/// Numbers from −1 to 1 in steps of 1/16: their products and sums are exact in f32.
fn sixteenths(count: usize) -> Vec<f32> {
    numbers(count).map(|n| (n % 33) as f32 / 16.0 - 1.0).collect()
}

/// A·B of row-major matrices, for an A of `k` columns and a B of `n`.
fn product(a: &[f32], b: &[f32], n: usize, k: usize) -> Vec<f32> {
    let rows = a.chunks(k);
    let row = |a: &[f32]| -> Vec<f32> {
        (0..n).map(|column| a.iter().zip(b[column..].iter().step_by(n)).map(|(a, b)| a * b).sum()).collect()
    };
    rows.flat_map(row).collect()
}

#[test]
fn sgemm_multiplies() {
    let (m, n, k) = (128, 256, 40);
    let (a, b) = (sixteenths(m * k), sixteenths(k * n));
    let kernel = sgemm::sgemm().unwrap();
    let launch =
        Launch::of(&kernel).grid((n as u32 / sgemm::TILE, m as u32 / sgemm::TILE)).buffer(&a).buffer(&b);
    let done = launch.uninitialised::<f32>(m * n).value(n as u32).value(k as u32).profile().run().unwrap();
    assert_eq!(done.buffer::<f32>(2), product(&a, &b, n, k));
    assert_eq!(done.bank_conflicts(), [""; 0]);
}

#[test]
fn hgemm_multiplies() {
    // Sums of at most 160 products of multiples of 1/16: f32 has them exactly, f16 nearly.
    let (m, n, k) = (256, 128, 160);
    let (a, b) = (sixteenths(m * k), sixteenths(k * n));
    let halves = |values: &[f32]| values.iter().copied().map(f16::from_f32).collect::<Vec<_>>();
    let kernel = hgemm::hgemm().unwrap();
    let launch = Launch::of(&kernel).grid((n as u32 / hgemm::TILE, m as u32 / hgemm::TILE));
    let launch = launch.dynamic_shared(hgemm::SHARED).buffer(&halves(&a)).buffer(&halves(&b));
    let done = launch.uninitialised::<f16>(m * n).value(n as u32).value(k as u32).profile().run().unwrap();
    assert_eq!(done.buffer::<f16>(2), halves(&product(&a, &b, n, k)));
    // Two rows of A's tile are 80 bytes apart and share banks when they are copied; `ldmatrix` has no conflicts.
    let conflicts = done.bank_conflicts();
    assert!(conflicts.iter().all(|line| line.contains("2-way: cp.async")), "{}", conflicts.join("\n"));
}

#[test]
fn softmax_of_any_width() {
    for width in [4, 1020, 2052] {
        let x: Vec<f32> = numbers(3 * width).map(|n| (n % 2001) as f32 / 100.0 - 10.0).collect();
        let of_row = |row: &[f32]| -> Vec<f32> {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            row.iter().map(|&x| (f64::from(x).exp() / sum) as f32).collect()
        };
        let kernel = softmax::softmax().unwrap();
        let launch = Launch::of(&kernel).grid(3).buffer(&x).uninitialised::<f32>(3 * width);
        let done = launch.value(width as u32).run().unwrap();
        done.assert_close(1, &x.chunks(width).flat_map(of_row).collect::<Vec<f32>>(), 1e-6);
    }
}

#[test]
fn histogram_counts_every_sample() {
    let bins = 300;
    let samples: Vec<f32> = numbers(20_000).map(|n| (n % 1100) as f32 / 1000.0 - 0.05).collect();
    let mut expected = vec![7u32; bins];
    for sample in &samples {
        expected[((sample * bins as f32) as usize).min(bins - 1)] += 1;
    }
    let kernel = histogram::histogram().unwrap();
    let launch = Launch::of(&kernel).grid(3).dynamic_shared(4 * bins as u32).buffer(&samples);
    let launch = launch.buffer(&vec![7u32; bins]).value(samples.len() as u32).value(bins as u32);
    assert_eq!(launch.run().unwrap().buffer::<u32>(1), expected);
}

/// The parts of a dot product of 6,144 elements by three CTAs.
fn dot_parts<T>(kernel: Recorded, x: &[T], y: &[T]) -> Done
where
    T: bespoke_testing::Element,
{
    let kernel = kernel.unwrap();
    let launch = Launch::of(&kernel).grid(3).buffer(x).buffer(y).uninitialised::<T>(3);
    launch.value(x.len() as u32).run().unwrap()
}

#[test]
fn dot_products_of_any_element() {
    let (x, y) = (sixteenths(6144), sixteenths(6500)[356..].to_vec());
    // All sums are multiples of 1/256 below 2^15, so they are exact in any order.
    let expected: f32 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
    let done = dot_parts(dot::dot::<f32, 4>(), &x, &y);
    assert_eq!(done.buffer::<f32>(2).iter().sum::<f32>(), expected);
    assert!(done.has("fma.rn.f32"));

    let wide = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
    let done = dot_parts(dot::dot::<f64, 2>(), &wide(&x), &wide(&y));
    assert_eq!(done.buffer::<f64>(2).iter().sum::<f64>(), f64::from(expected));

    let whole = |values: &[f32]| values.iter().map(|value| (value * 16.0) as i32).collect::<Vec<_>>();
    let done = dot_parts(dot::dot::<i32, 4>(), &whole(&x), &whole(&y));
    assert_eq!(done.buffer::<i32>(2).iter().sum::<i32>(), (expected * 256.0) as i32);
}

#[test]
fn convolution_has_zeros_around_the_image() {
    let (width, height) = (70, 41);
    let x = sixteenths(width * height);
    let filter: [[f32; 5]; 5] =
        std::array::from_fn(|i| std::array::from_fn(|j| (3 * i + j) as f32 / 4.0 - 2.0));
    let pixel = |row: usize, column: usize| {
        let inside = (2..height + 2).contains(&row) && (2..width + 2).contains(&column);
        if inside { x[(row - 2) * width + column - 2] } else { 0.0 }
    };
    let sum = |at: usize| {
        let (row, column) = (at / width, at % width);
        (0..25).map(|i| filter[i / 5][i % 5] * pixel(row + i / 5, column + i % 5)).sum()
    };
    let expected: Vec<f32> = (0..width * height).map(sum).collect();
    let kernel = convolution::convolution(&filter).unwrap();
    let launch = Launch::of(&kernel).grid((3, 2)).buffer(&x).uninitialised::<f32>(x.len());
    let done = launch.value(width as u32).value(height as u32).run().unwrap();
    assert_eq!(done.buffer::<f32>(1), expected);
}

#[test]
fn scan_of_a_million_elements() {
    let ctas = 256;
    let x: Vec<u32> = numbers((ctas * scan::TILE) as usize).collect();
    let running = |sum: &mut u32, &x: &u32| {
        *sum = sum.wrapping_add(x);
        Some(*sum)
    };
    let expected: Vec<u32> = x.iter().scan(0, running).collect();
    let kernel = scan::scan().unwrap();
    // The words of earlier launches do not count.
    for launches in [0, 3] {
        let states: Vec<u64> =
            (0..ctas).map(|tile| if launches == 0 { 0 } else { 7 << 32 | u64::from(tile) }).collect();
        let launch = Launch::of(&kernel).grid(ctas).buffer(&x).uninitialised::<u32>(x.len()).buffer(&states);
        let done = launch.buffer(&[launches * ctas]).run().unwrap();
        assert!(done.buffer::<u32>(1) == expected, "after {launches} launches");
    }
}

#[test]
fn top_k_stores_the_largest_first() {
    const K: usize = 5;
    let (rows, length) = (4, 332);
    // Few different numbers, so that equal ones occur.
    let x: Vec<f32> = numbers(rows * length).map(|n| (n % 97) as f32 - 48.5).collect();
    let mut expected: Vec<(f32, u32)> = Vec::new();
    for row in x.chunks(length) {
        let mut ranked: Vec<(f32, u32)> = row.iter().copied().zip(0..).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        expected.extend(&ranked[..K]);
    }
    let kernel = top_k::top_k::<K>().unwrap();
    let launch = Launch::of(&kernel).grid(rows as u32).buffer(&x);
    let launch = launch.uninitialised::<f32>(rows * K).uninitialised::<u32>(rows * K);
    let done = launch.value(length as u32).run().unwrap();
    let found: Vec<(f32, u32)> = done.buffer::<f32>(1).into_iter().zip(done.buffer::<u32>(2)).collect();
    assert_eq!(found, expected);
}

/// Factors of a matrix by the same steps on the host, and the original row of each pivot.
fn decompose(a: &[f64]) -> (Vec<f64>, Vec<u32>) {
    const N: usize = lu::N;
    let mut rows: Vec<(u32, Vec<f64>)> = (0..).zip(a.chunks(N).map(<[f64]>::to_vec)).collect();
    for k in 0..N {
        // Of equal elements the one of the lowest original row is the pivot.
        let by_size = |a: &&(u32, Vec<f64>), b: &&(u32, Vec<f64>)| {
            a.1[k].abs().total_cmp(&b.1[k].abs()).then(b.0.cmp(&a.0))
        };
        let pivot = rows[k..].iter().max_by(by_size).unwrap().clone();
        let at = rows.iter().position(|row| row.0 == pivot.0).unwrap();
        rows.swap(k, at);
        let reciprocal = 1.0 / pivot.1[k];
        for (_, row) in &mut rows[k + 1..] {
            row[k] *= reciprocal;
            for j in k + 1..N {
                row[j] = (-row[k]).mul_add(pivot.1[j], row[j]);
            }
        }
    }
    (rows.iter().flat_map(|row| row.1.clone()).collect(), rows.iter().map(|row| row.0).collect())
}

#[test]
fn lu_factors_equal_those_of_the_host() {
    let count = 11;
    let matrices: Vec<f64> =
        numbers(count * lu::N * lu::N).map(|n| f64::from(n % 2001) / 1000.0 - 1.0).collect();
    let kernel = lu::lu().unwrap();
    let launch = Launch::of(&kernel).grid(2).buffer(&matrices).uninitialised::<f64>(matrices.len());
    let done = launch.uninitialised::<u32>(count * lu::N).value(count as u32).run().unwrap();
    let (factors, pivots) = (done.buffer::<f64>(1), done.buffer::<u32>(2));
    for (i, matrix) in matrices.chunks(lu::N * lu::N).enumerate() {
        let (expected, rows) = decompose(matrix);
        assert_eq!(factors[i * lu::N * lu::N..][..lu::N * lu::N], expected, "matrix {i}");
        assert_eq!(pivots[i * lu::N..][..lu::N], rows, "pivots of matrix {i}");
    }
}

#[test]
fn bytes_of_a_text_are_counted() {
    // Mostly letters, as in a text, so that many lanes meet at one counter.
    let text: Vec<u8> =
        numbers(40_000).map(|n| if n % 3 == 0 { n as u8 } else { b'a' + (n % 26) as u8 }).collect();
    let mut expected = vec![1u32; 256];
    text.iter().for_each(|&byte| expected[usize::from(byte)] += 1);
    let kernel = bytes::bytes().unwrap();
    let launch = Launch::of(&kernel).grid(3).buffer(&text).buffer(&[1u32; 256]).value(text.len() as u32);
    let done = launch.run().unwrap();
    assert_eq!(done.buffer::<u32>(1), expected);
    assert!(done.has("ld.global.v4.u32") && done.has("red.relaxed.cta.shared.add.u32"), "{}", done.ptx());
}
