//! Structs whose fields are parameters of a kernel.

use std::panic::Location;

use super::kernel_param::parameter;
use super::pointer::{Global, Ptr};
use super::recorder::fail;
use super::scalar::Scalar;
use super::value::Val;

/// A value that a launch passes field by field: a handle, an array or a struct of them (`#[derive(Parameters)]`).
///
/// `#[parameters]` before a kernel's parameter passes a struct. Each field becomes a parameter of the PTX, of the
/// manifest and of the launch stub, in the order of the fields; the field `data` of `image` has the name `image_data`,
/// element 2 of an array `taps` the name `taps_2`. A field can be a struct with the derive. `#[aligned(…)]` and
/// `#[tile(…)]` go before fields as before parameters, with constants.
///
/// - Written: `#[parameters]` before a parameter
/// - PTX: `ld.param.u64`, `ld.param.u32`: one parameter for each field
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[derive(Clone, Copy, Parameters)]
/// struct Row {
///     data: Ptr<Global, u32>,
///     length: Val<u32>,
/// }
///
/// #[kernel(threads = 1)]
/// fn copied(#[parameters] from: Row, #[parameters] to: Row) {
///     for i in 0..from.length.min(to.length) {
///         to.data.at(i).store(from.data.at(i).load());
///     }
/// }
/// let kernel = copied()?;
/// let names: Vec<_> = kernel.params().iter().map(|param| &param.name[..]).collect();
/// assert_eq!(names, ["from_data", "from_length", "to_data", "to_length"]);
/// let launch = Launch::of(&kernel).buffer(&[1u32, 2, 3]).value(3u32).buffer(&[0u32; 2]).value(2u32);
/// let done = launch.run()?;
/// assert_eq!(done.buffer::<u32>(1), [1, 2]);
/// assert!(done.has("ld.param.u64") && done.has("ld.param.u32"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a launch cannot pass `{Self}`",
    label = "expected handles, or a struct of handles with `#[derive(Parameters)]`",
    note = "compile-time values are parameters of their own, without `#[parameters]`; shared memory is declared in the kernel, by `shared_array`"
)]
pub trait Parameters: Sized {
    /// Declares the parameters, with names that begin with `name`, in the signature of the kernel being recorded.
    #[track_caller]
    fn declare(name: &str) -> Self;
}

impl<T: Scalar> Parameters for Val<T> {
    #[track_caller]
    fn declare(name: &str) -> Val<T> {
        parameter(name)
    }
}

impl<T: Scalar> Parameters for Ptr<Global, T> {
    #[track_caller]
    fn declare(name: &str) -> Ptr<Global, T> {
        parameter(name)
    }
}

impl<P: Parameters, const N: usize> Parameters for [P; N] {
    #[track_caller]
    fn declare(name: &str) -> [P; N] {
        // A closure is not `#[track_caller]`, so that the loop declares the elements.
        let mut elements = Vec::with_capacity(N);
        for index in 0..N {
            elements.push(P::declare(&format!("{name}_{index}")));
        }
        match elements.try_into() {
            Ok(elements) => elements,
            Err(_) => fail(Location::caller(), format!("`{name}` has another number of elements")),
        }
    }
}

/// Declares the parameters of a struct: what `#[parameters]` expands to.
#[track_caller]
pub fn parameters<P: Parameters>(name: &str) -> P {
    P::declare(name)
}

/// Stands for a kernel's function in [`CompileTime`].
pub struct KernelFunction;

/// Implemented for types `T` of compile-time parameters: all types without handles, which exist only while a kernel is
/// recorded.
#[diagnostic::on_unimplemented(
    message = "`{T}` has handles, so it cannot be a compile-time parameter: write `#[parameters]` before it, and `#[derive(Parameters)]` on the struct"
)]
pub trait CompileTime<T: ?Sized> {}

// Handles are not `Unpin`, so that a type that contains them is not either.
#[diagnostic::do_not_recommend]
impl<T: Unpin + ?Sized> CompileTime<T> for KernelFunction {}

/// Checks that the type of a compile-time parameter has no handles.
pub fn compile_time<T: ?Sized>()
where
    KernelFunction: CompileTime<T>,
{
}
