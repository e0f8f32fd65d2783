//! Run-time parameters: optional pointers.

use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

/// out[i] = x[i] + bias[i] for i < 4, or x[i] without a bias.
#[kernel(threads = 1)]
fn add_bias(
    #[present(parts.contains(&"bias"))] bias: Option<Ptr<Global, u32>>,
    x: Ptr<Global, u32>,
    #[present(!in_place)]
    #[aligned(16)]
    out: Option<Ptr<Global, u32>>,
    parts: &[&str],
    in_place: bool,
) {
    let out = out.unwrap_or(x);
    for i in range(val(0u32), 4u32) {
        let mut sum = x.at(i).load();
        if let Some(bias) = bias {
            sum += bias.at(i).load();
        }
        out.at(i).store(sum);
    }
}

fn parameters(kernel: &Kernel) -> Vec<(&str, Option<u32>)> {
    kernel.params().iter().map(|parameter| (parameter.name.as_str(), parameter.align)).collect()
}

#[test]
fn a_present_pointer_is_a_parameter() {
    let kernel = add_bias(&["bias"], false).unwrap();
    assert_eq!(parameters(&kernel), [("bias", None), ("x", None), ("out", Some(16))]);
    let launch = Launch::of(&kernel).buffer(&[10u32, 20, 30, 40]).buffer(&[1u32, 2, 3, 4]);
    let done = launch.uninitialised::<u32>(4).run().unwrap();
    assert_eq!(done.buffer::<u32>(2), [11, 22, 33, 44]);
}

#[test]
fn an_absent_pointer_is_not_a_parameter() {
    let kernel = add_bias(&[], true).unwrap();
    assert_eq!(parameters(&kernel), [("x", None)]);
    let done = Launch::of(&kernel).buffer(&[1u32, 2, 3, 4]).run().unwrap();
    assert_eq!(done.buffer::<u32>(0), [1, 2, 3, 4]);
    assert_eq!(done.ptx().matches(".param .u64").count(), 1, "{}", done.ptx());
}
