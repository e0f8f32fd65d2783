//! The convergence check names the line of a divergent barrier or warp-wide instruction, and the branch's line.

use bespoke_codegen::prelude::*;
use expect_test::{Expect, expect};

fn check(kernel: Recorded, expected: Expect) {
    let error = kernel.expect("the kernel is recorded").compile(Target::Sm80).expect_err("an error");
    expected.assert_eq(&error.to_string());
}

#[kernel(threads = 128)]
fn barrier_of_one_warp(out: Ptr<Global, f32>) {
    let sums = shared_array::<f32>(4);
    if warp_index() == 0 {
        barrier();
    }
    out.at(thread_index()).store(sums.at(0).load());
}

#[kernel(threads = 128)]
fn sum_by_the_first_threads(out: Ptr<Global, f32>) {
    let mut x = out.at(thread_index()).load();
    if thread_index() < 10 {
        x = x + shuffle_xor(x, 16);
    }
    out.at(thread_index()).store(x);
}

#[kernel(threads = 96)]
fn return_before_a_barrier(out: Ptr<Global, f32>) {
    if thread_index() >= 90 {
        return;
    }
    barrier();
    out.at(thread_index()).store(1.0);
}

#[test]
fn a_barrier_that_threads_miss() {
    check(
        barrier_of_one_warp(),
        expect![[r#"
            kernel barrier_of_one_warp: codegen/tests/convergence.rs:15:9: `bar.sync` must be executed by all threads of the CTA, but some of them skip it
              codegen/tests/convergence.rs:14:5: this branch takes thread 0 to it and thread 32 past it
              help: move it after the branch, or give the 32 threads that reach it a barrier of their own: `named_barrier(1, 32)`"#]],
    );
}

#[test]
fn a_shuffle_that_lanes_miss() {
    check(
        sum_by_the_first_threads(),
        expect![[r#"
            kernel sum_by_the_first_threads: codegen/tests/convergence.rs:24:17: `shfl.sync` must be executed by all lanes of its mask, but some of them skip it
              codegen/tests/convergence.rs:23:5: this branch takes thread 0 to it and thread 10 past it
              help: move it before the branch; lanes that do not need the result may ignore it"#]],
    );
}

#[test]
fn threads_that_have_returned() {
    check(
        return_before_a_barrier(),
        expect![[r#"
            kernel return_before_a_barrier: codegen/tests/convergence.rs:34:5: `bar.sync` must be executed by all threads of the CTA, but some of them skip it
              codegen/tests/convergence.rs:31:5: this branch takes thread 64 to it and thread 90 past it
              help: move it after the branch, where all threads reach it"#]],
    );
}
