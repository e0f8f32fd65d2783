//! Compiles a kernel at run time, and launches it on a GPU if there is one, else on the emulator.

use std::error::Error;

use bespoke::device::{self, Launch, Selector};
use bespoke_codegen::launch::params;
use bespoke_codegen::prelude::*;

const THREADS: u32 = 128;

/// y[i] += a · x[i] for i < n.
#[kernel(threads = threads)]
fn axpy(x: Ptr<Global, f32>, y: Ptr<Global, f32>, a: Val<f32>, n: Val<u32>, threads: u32) {
    let i = block_index() * threads + thread_index();
    if i < n {
        y.at(i).store(fma(a, x.at(i).load(), y.at(i).load()));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = device::open(Selector::Auto)?.device;
    let (major, minor) = device.info().compute;
    let target = Target::for_device(major, minor).ok_or("the GPU is older than Ampere")?;
    let module = device.load("axpy", &axpy(THREADS)?.compile(target)?.ptx)?;

    let n = 1000;
    let x = device.buffer_of("x", &vec![3.0f32; n])?;
    let y = device.buffer_of("y", &vec![1.0f32; n])?;
    let launch = Launch {
        kernel: module.kernel("axpy")?,
        grid: [(n as u32).div_ceil(THREADS), 1, 1],
        block: [THREADS, 1, 1],
        dynamic_shared: 0,
        params: params(&[&x.pointer(), &y.pointer(), &2.0f32, &(n as u32)]),
        programmatic: false,
    };
    device.sequence(vec![launch])?.run_eager()?;
    println!("y[999] = {}", device.read(&y)?[999]);
    Ok(())
}
