//! A grid where the kernel was specialised for one, and none where it was not.

#[path = "device.rs"]
mod device;

use bespoke_codegen::launch::{F16x2, f16};
#[allow(unused_imports)]
use device::{Device, bytes, floats, kernels};

fn main() {
    let pair = F16x2(f16::ONE, f16::ONE);
    let grid = [4, 1, 1];
    let Ok(()) = kernels::blend::launch(&mut Device, grid, floats(), bytes(), true, f16::ONE, pair, 250);
    let Ok(()) = kernels::nothing::launch(&mut Device);
}
