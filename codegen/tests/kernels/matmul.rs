//! Naive matrix product, one output a thread.

use bespoke_codegen::passes::{OptLevel, optimize};
use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

use super::numbers;

const THREADS: u32 = 32;

/// c = a · b for row-major a (m × k) and b (k × n); CTA (column block, row).
#[kernel(threads = THREADS)]
fn matmul(a: Ptr<Global, f32>, b: Ptr<Global, f32>, c: Ptr<Global, f32>, n: Val<u32>, k: Val<u32>) {
    let column = block_index() * THREADS + thread_index();
    let row = block_index_y();
    if column < n {
        let mut sum = val(0.0f32);
        for p in 0..k {
            sum = fma(a.at(row * k + p).load(), b.at(p * n + column).load(), sum);
        }
        c.at(row * n + column).store(sum);
    }
}

/// The same with a factor for the loop; 1 keeps it.
#[kernel(threads = THREADS)]
fn matmul_by(
    a: Ptr<Global, f32>,
    b: Ptr<Global, f32>,
    c: Ptr<Global, f32>,
    n: Val<u32>,
    k: Val<u32>,
    factor: u32,
) {
    let column = block_index() * THREADS + thread_index();
    if column < n {
        let mut sum = val(0.0f32);
        for p in (0..k).unroll(factor) {
            sum = fma(a.at(block_index_y() * k + p).load(), b.at(p * n + column).load(), sum);
        }
        c.at(block_index_y() * n + column).store(sum);
    }
}

/// c[i] = Σ a[i], a[i + step], … below n, with a run-time step.
#[kernel(threads = THREADS)]
fn strided(a: Ptr<Global, u32>, c: Ptr<Global, u32>, n: Val<u32>, step: Val<u32>) {
    let mut sum = val(0u32);
    for i in (thread_index()..n).step_by(step).unroll(4) {
        sum += a.at(i).load();
    }
    c.at(thread_index()).store(sum);
}

/// Signed bounds, also negative ones, and a step of 3.
#[kernel(threads = THREADS)]
fn signed(c: Ptr<Global, i32>, from: Val<i32>, to: Val<i32>) {
    let mut sum = val(0i32);
    for i in (from..to).step_by(3).unroll(5) {
        sum = sum * 7 + i;
    }
    c.at(thread_index()).store(sum);
}

/// Sixteen iterations, too long to be unrolled completely; no second loop remains.
#[kernel(threads = 1)]
fn sixteen(c: Ptr<Global, u32>) {
    let mut sum = c.load();
    for i in range(val(0u32), 160).step_by(10).unroll(4) {
        for power in 1..12u32 {
            sum = sum * 3 + (sum >> (i % power + 1));
        }
    }
    c.store(sum);
}

fn product(kernel: &Kernel, (m, n, k): (u32, u32, u32)) {
    let mut from = numbers((m * k + k * n) as usize).map(|x| (x % 17) as f32);
    let a: Vec<f32> = from.by_ref().take((m * k) as usize).collect();
    let b: Vec<f32> = from.collect();
    let launch = Launch::of(kernel).grid((n.div_ceil(THREADS), m)).buffer(&a).buffer(&b);
    let done = launch.uninitialised::<f32>((m * n) as usize).value(n).value(k).run().expect("no findings");
    let expected = |i: u32| {
        let (row, column) = (i / n, i % n);
        (0..k).fold(0.0f32, |sum, p| a[(row * k + p) as usize].mul_add(b[(p * n + column) as usize], sum))
    };
    assert_eq!(done.buffer::<f32>(2), (0..m * n).map(expected).collect::<Vec<_>>(), "{m} × {n} × {k}");
}

#[test]
fn every_remainder_is_right() {
    for k in 0..10 {
        product(&matmul().expect("the kernel records"), (2, 40, k));
        for factor in [1, 2, 3, 8] {
            product(&matmul_by(factor).expect("the kernel records"), (2, 33, k));
        }
    }
}

#[test]
fn loads_of_several_iterations_are_in_one_block() {
    let loads = |kernel: Kernel| {
        let mut function = kernel.function().clone();
        optimize(&mut function, OptLevel::Default);
        let loads = function.layout.iter().map(|&block| {
            let insts = function.block(block).insts.iter();
            insts.filter(|&&inst| function.inst(inst).op.name() == "load").count()
        });
        let mut loads: Vec<usize> = loads.filter(|&count| count > 0).collect();
        loads.sort_unstable();
        loads
    };
    assert_eq!(loads(matmul().expect("the kernel records")), [2, 8]);
    assert_eq!(loads(matmul_by(8).expect("the kernel records")), [2, 16]);
    assert_eq!(loads(matmul_by(1).expect("the kernel records")), [2]);
}

#[test]
fn steps_of_any_size_are_right() {
    let kernel = strided().expect("the kernel records");
    let a: Vec<u32> = numbers(200).collect();
    for step in [1u32, 7, 32, 199, 0x4000_0000, 0x5555_5556, 0x8000_0000, 0xf000_0000] {
        let launch = Launch::of(&kernel).buffer(&a).uninitialised::<u32>(32).value(200u32).value(step);
        let done = launch.run().expect("no findings");
        let sum = |i: usize| a[i..].iter().step_by(step as usize).fold(0u32, |sum, &x| sum.wrapping_add(x));
        assert_eq!(done.buffer::<u32>(1), (0..32).map(sum).collect::<Vec<_>>(), "step {step}");
    }
}

#[test]
fn signed_bounds_are_right() {
    let kernel = signed().expect("the kernel records");
    for (from, to) in [(-20, 20), (5, -5), (0, 14), (i32::MIN, i32::MIN + 40), (i32::MAX - 40, i32::MAX - 3)]
    {
        let launch = Launch::of(&kernel).uninitialised::<i32>(32).value(from).value(to);
        let sum = (from..to).step_by(3).fold(0i32, |sum, i| sum.wrapping_mul(7).wrapping_add(i));
        assert_eq!(launch.run().expect("no findings").buffer::<i32>(0), [sum; 32], "{from}..{to}");
    }
}

#[test]
fn a_multiple_of_the_factor_leaves_no_second_loop() {
    let kernel = sixteen().expect("the kernel records");
    let expected = (0..160u32).step_by(10).fold(5u32, |sum, i| {
        (1..12).fold(sum, |sum, power| sum.wrapping_mul(3).wrapping_add(sum >> (i % power + 1)))
    });
    let done = Launch::of(&kernel).buffer(&[5u32]).run().expect("no findings");
    assert_eq!(done.buffer::<u32>(0), [expected]);
    let mut function = kernel.function().clone();
    optimize(&mut function, OptLevel::Default);
    let branches = function.layout.iter().filter(|&&block| function.successors(block).count() == 2);
    assert_eq!(branches.count(), 1);
}
