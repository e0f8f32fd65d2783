//! A DSL kernel with an out-of-bounds read, for tools such as compute-sanitizer: their reports should name this file.
//!
//!     compute-sanitizer target/release/examples/seeded_bug cuda
//!     cargo run --release -p bespoke --example seeded_bug emulator

use bespoke::device::{self, Launch, Selector};
use bespoke_codegen::prelude::*;

/// Elements of both buffers.
const COUNT: u32 = 1000;
const THREADS: u32 = 128;

/// Mean of an element and the next one. The last element has no next one.
#[device]
fn smoothed(x: Ptr<Global, f32>, i: Val<u32>) -> Val<f32> {
    0.5 * (x.at(i).load() + x.at(i + 1).load())
}

/// y[i] = (x[i] + x[i + 1]) / 2. Reads one element past the end of `x`.
#[kernel(threads = THREADS)]
fn smooth(x: Ptr<Global, f32>, y: Ptr<Global, f32>) {
    let i = block_index() * THREADS + thread_index();
    if i < COUNT {
        y.at(i).store(smoothed(x, i));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let selector: Selector = std::env::args().nth(1).as_deref().unwrap_or("auto").parse()?;
    let device = device::open(selector)?.device;
    let (major, minor) = device.info().compute;
    let target = Target::for_device(major, minor).ok_or("this GPU is too old")?;
    let module = device.load("smooth", &smooth()?.compile(target)?.ptx)?;
    let bytes = u64::from(COUNT) * 4;
    let (x, y) = (device.alloc("x", bytes)?, device.alloc("y", bytes)?);
    device.fill(x.address(), bytes, 0)?;
    let params = [x.address(), y.address()].iter().flat_map(|address| address.0.to_le_bytes()).collect();
    let launch = Launch {
        kernel: module.kernel("smooth")?,
        grid: [COUNT.div_ceil(THREADS), 1, 1],
        block: [THREADS, 1, 1],
        dynamic_shared: 0,
        params,
        programmatic: false,
    };
    device.sequence(vec![launch])?.run_eager()?;
    device.wait()?;
    println!("{} found nothing", device.info().name);
    Ok(())
}
