use std::panic::{AssertUnwindSafe, catch_unwind};

use bespoke_codegen::prelude::*;

use super::*;

#[kernel(threads = 1)]
fn scaled(x: Ptr<Global, f32>, factor: Val<f32>, on: Val<bool>) {
    if on {
        x.store(x.load() * factor);
    }
}

#[kernel(threads = 1)]
fn prefetched(#[tile([8, 2])] x: bespoke_codegen::dsl::TensorMap<f32, 2, Swizzle32>) {
    x.prefetch((0, 0), None);
}

#[test]
fn a_wrong_tensor_is_an_error_that_names_it() {
    let kernel = prefetched().unwrap();
    let of = || Launch::of(&kernel);
    assert!(of().tensor(&[0.0f32; 16], [8, 2]).run().is_ok());
    let check = |wrong: &dyn Fn(), expected: &str| {
        let panic = catch_unwind(AssertUnwindSafe(wrong)).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(expected));
    };
    let parameter =
        "argument 1 of `prefetched`: its parameter `x` is a tensor map of 2 dimensions with `f32`";
    check(&|| drop(of().buffer(&[0.0f32])), &format!("{parameter}: pass a `tensor`"));
    check(
        &|| drop(of().tensor(&[0u32; 16], [8, 2])),
        &format!("{parameter}, but this tensor has 2 dimensions with `u32`"),
    );
    check(
        &|| drop(of().tensor(&[0.0f32; 16], [16])),
        &format!("{parameter}, but this tensor has 1 dimensions with `f32`"),
    );
    check(
        &|| drop(of().tensor(&[0.0f32; 16], [8, 3])),
        "a tensor of [8, 3] has 24 elements, and there are 16 values",
    );
    check(
        &|| drop(of().tensor(&[0.0f32; 10], [5, 2])),
        "the tensor map `x`: a stride of 20 bytes along dimension 1: it must be a multiple of 16 below 2^40; pad the \
         rows of the tensor",
    );
    let plain = |address, layout: &TensorLayout| {
        TensorDescription::<f32, 2>::dense(address, [8, 2], layout.tile[..].try_into().unwrap())
    };
    check(
        &|| drop(of().tensor_with(&[0.0f32; 16], plain)),
        "the tensor map `x` has the layout TensorLayout { element: F32, tile: [8, 2], swizzle: None }, and its \
         parameter states TensorLayout { element: F32, tile: [8, 2], swizzle: Bytes32 }",
    );
}

#[test]
fn an_element_that_is_not_close_is_named() {
    let kernel = scaled().unwrap();
    let launch = || Launch::of(&kernel).buffer(&[3.0f32, 4.0, 5.0]).value(2.0f32).value(true);
    let done = launch().run().unwrap();
    assert!(done.profile().is_none());
    done.assert_close(0, &[6.00001f32, 4.0, 5.0], 1e-5);
    let message = |expected: &[f32]| {
        let panic = catch_unwind(AssertUnwindSafe(|| done.assert_close(0, expected, 1e-3))).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let found = message(&[6.0, 4.25, f32::NAN]);
    assert!(found.starts_with("element 1 of buffer 0 is 4, not 4.25: the difference 5.88"), "{found}");
    assert!(found.ends_with("exceeds 1e-3; so do 2 of 3 elements"), "{found}");
    assert_eq!(message(&[6.0]), "buffer 0 has 3 elements, and 1 are expected");
    assert!(launch().profile().run().unwrap().profile().is_some());
}

#[test]
fn a_kernel_that_the_module_does_not_have_is_an_error_that_names_those_it_has() {
    let module = Module::new().kernel(scaled().unwrap()).kernel(prefetched().unwrap());
    let panic = catch_unwind(AssertUnwindSafe(|| drop(Launch::entry(&module, "scale")))).unwrap_err();
    let expected = "the module has no kernel `scale`; its kernels are [\"scaled\", \"prefetched\"]";
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(expected));
}

#[test]
fn a_wrong_argument_is_an_error_that_names_it() {
    let kernel = scaled().unwrap();
    let of = || Launch::of(&kernel);
    let message = |wrong: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(wrong)).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let check = |wrong: &dyn Fn(), expected: &str| assert_eq!(message(wrong), expected);
    check(
        &|| drop(of().buffer(&[1u32])),
        "argument 1 of `scaled`: its parameter `x` points to `f32`, but this buffer contains `u32`",
    );
    check(
        &|| drop(of().value(1.0f32)),
        "argument 1 of `scaled`: its parameter `x` points to `f32`: pass a `buffer` instead of a `value`",
    );
    let first = || of().uninitialised::<f32>(1);
    check(
        &|| drop(first().buffer(&[2.0f32])),
        "argument 2 of `scaled`: its parameter `factor` is of type `f32`: pass a `value` instead of a buffer",
    );
    check(
        &|| drop(first().value(2u32)),
        "argument 2 of `scaled`: its parameter `factor` is of type `f32`, but this value is of type `u32`",
    );
    let all = || first().value(2.0f32).value(false);
    check(
        &|| drop(first().value(2.0f32).run()),
        "`scaled` is launched without an argument for its parameter `on`",
    );
    check(&|| drop(all().value(1u32)), "`scaled` has 3 parameters: argument 4 is one too many");
    check(&|| drop(all().run().unwrap().buffer::<f32>(1)), "no buffer 1: the launch has 1 buffers");
    let done = of().buffer(&[3.0f32]).value(2.0f32).value(true).run().unwrap();
    assert_eq!(done.buffer::<f32>(0), [6.0]);
}
