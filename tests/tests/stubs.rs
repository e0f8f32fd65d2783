//! Kernels emitted by a build script and launched through their generated stubs, on the emulator.

use bespoke::device::{Device, Selector, StubLauncher, open};
use bespoke_codegen::launch::DevicePointer;
use kernels::sm_90::{residual_add_w256_t128, swiglu_w512_t128};

/// What this crate's build script emitted.
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

fn emulator() -> Box<dyn Device> {
    open(Selector::Emulator).unwrap().device
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Two stubs in a row: y = SwiGLU(x), then its first 256 elements += 1.
#[test]
fn stubs_launch_in_order() {
    let device = emulator();
    let gate: Vec<f32> = (0..512).map(|i| i as f32 / 64.0 - 4.0).collect();
    let up: Vec<f32> = (0..512).map(|i| 1.0 - i as f32 / 512.0).collect();
    let x = device.alloc("x", 4096).unwrap();
    let y = device.alloc("y", 2048).unwrap();
    let ones = device.alloc("ones", 1024).unwrap();
    device.upload(x.address(), &bytes(&[gate.clone(), up.clone()].concat())).unwrap();
    device.upload(ones.address(), &bytes(&[1.0; 256])).unwrap();

    let mut launcher = StubLauncher::new(&*device);
    let (x, y) = (DevicePointer::new(x.address().0), y);
    let out = DevicePointer::<f32>::new(y.address().0);
    swiglu_w512_t128::launch(&mut launcher, x, out).unwrap();
    residual_add_w256_t128::launch(&mut launcher, out, DevicePointer::new(ones.address().0)).unwrap();

    let mut result = vec![0; 2048];
    device.download(y.address(), &mut result).unwrap();
    for (i, found) in result.chunks_exact(4).enumerate() {
        let found = f64::from(f32::from_le_bytes([found[0], found[1], found[2], found[3]]));
        let gate = f64::from(gate[i]);
        let silu = gate / (1.0 + (-gate).exp()) * f64::from(up[i]);
        let expected = silu + if i < 256 { 1.0 } else { 0.0 };
        assert!((found - expected).abs() < 1e-5, "{i}: {found} for {expected}");
    }
}

/// A pointer that is too small is found by the emulator, at the kernel's own line.
#[test]
fn a_short_buffer_is_named_with_the_kernels_line() {
    let device = emulator();
    let x = device.alloc("x", 4096).unwrap();
    let y = device.alloc("y", 1024).unwrap();
    device.fill(x.address(), 4096, 0).unwrap();
    let mut launcher = StubLauncher::new(&*device);
    let error = swiglu_w512_t128::launch(
        &mut launcher,
        DevicePointer::new(x.address().0),
        DevicePointer::new(y.address().0),
    )
    .unwrap_err()
    .to_string();
    for part in ["swiglu_w512_t128", "kernels-gen/src/kernels/swiglu.rs:", "thread", "`y`"] {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}
