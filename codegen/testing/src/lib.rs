//! Runs kernels of the DSL on the emulator, for tests and for the examples in the documentation.
//!
//! [`Launch`] passes arguments to a kernel and runs it with all checks of the emulator:
//!
//! ```
//! use bespoke_codegen::prelude::*;
//! use bespoke_testing::Launch;
//!
//! /// y[i] += a · x[i] for i < n.
//! #[kernel(threads = 64)]
//! fn axpy(x: Ptr<Global, f32>, y: Ptr<Global, f32>, a: Val<f32>, n: Val<u32>) {
//!     let i = block_index() * 64 + thread_index();
//!     if i < n {
//!         y.at(i).store(fma(a, x.at(i).load(), y.at(i).load()));
//!     }
//! }
//!
//! let kernel = axpy()?;
//! let launch = Launch::of(&kernel).buffer(&[3.0f32; 100]).buffer(&[1.0f32; 100]).value(2.0f32).value(100u32);
//! let done = launch.grid(2).run()?;
//! assert_eq!(done.buffer::<f32>(1), [7.0; 100]);
//!
//! // One element more than the buffers have: the finding names the line in Rust.
//! let launch = Launch::of(&kernel).buffer(&[3.0f32; 100]).buffer(&[1.0f32; 100]).value(2.0f32).value(101u32);
//! let finding = launch.grid(2).run().err().map(|failure| failure.to_string()).unwrap_or_default();
//! assert!(finding.contains("out of bounds") || finding.contains("past the end"), "{finding}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`map`] and [`run`] are for short examples: [`map`] applies a function in each lane, [`run`] runs a kernel with one
//! buffer. Both also check that the kernel's PTX contains the instruction that the example shows.

mod element;
mod launch;

pub use bespoke_emulator::{Checks, Profile};
pub use element::Element;
pub use launch::{Done, Extent, Failure, Launch};

use bespoke_codegen::prelude::*;

/// Lane numbers of a warp, as input of [`map`] and [`run`].
pub const LANES: [u32; 32] = {
    let mut lanes = [0; 32];
    let mut lane = 0;
    while lane < 32 {
        lanes[lane] = lane as u32;
        lane += 1;
    }
    lanes
};

/// Applies `function` to each element of `input` in a thread of one CTA, and returns the results. The PTX must contain
/// an instruction that starts with `ptx`, in which `…` matches any characters.
///
/// ```
/// use bespoke_testing::map;
///
/// assert_eq!(map(|x| x.count_ones(), "popc.b32", [7u32, 8]), [3, 1]);
/// ```
///
/// # Panics
/// If the kernel cannot be recorded or compiled, has a finding, or contains no such instruction.
#[track_caller]
pub fn map<A: Element, R: Element, const N: usize>(
    function: impl Fn(Val<A>) -> Val<R>,
    ptx: &str,
    input: [A; N],
) -> [R; N] {
    let kernel = applied(N as u32, &function).unwrap_or_else(|error| panic!("{error}"));
    let done = finished(Launch::of(&kernel).buffer(&input).uninitialised::<R>(N), ptx);
    std::array::from_fn(|i| done.buffer::<R>(1)[i])
}

#[kernel(threads = threads)]
fn applied<A: Scalar, R: Scalar>(
    input: Ptr<Global, A>,
    output: Ptr<Global, R>,
    threads: u32,
    function: &impl Fn(Val<A>) -> Val<R>,
) {
    let i = thread_index();
    output.at(i).store(function(input.at(i).load()));
}

/// Runs one CTA of a kernel whose only parameter is a buffer. The buffer initially contains `buffer`; its final
/// contents are returned. The PTX must contain an instruction that starts with `ptx`, in which `…` matches any
/// characters.
///
/// ```
/// use bespoke_codegen::prelude::*;
/// use bespoke_testing::run;
///
/// #[kernel(threads = 4)]
/// fn reversed(x: Ptr<Global, u32>) {
///     let i = thread_index();
///     let value = x.at(i).load();
///     barrier();
///     x.at(3 - i).store(value);
/// }
/// assert_eq!(run(reversed(), "bar.sync 0;", [1u32, 2, 3, 4]), [4, 3, 2, 1]);
/// ```
///
/// # Panics
/// If the kernel cannot be recorded or compiled, has a finding, or contains no such instruction.
#[track_caller]
pub fn run<T: Element, const N: usize>(kernel: Recorded, ptx: &str, buffer: [T; N]) -> [T; N] {
    let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
    let done = finished(Launch::of(&kernel).buffer(&buffer), ptx);
    std::array::from_fn(|i| done.buffer::<T>(0)[i])
}

#[track_caller]
fn finished(launch: Launch<'_>, ptx: &str) -> Done {
    let done = launch.run().unwrap_or_else(|error| panic!("{error}"));
    assert!(done.has(ptx), "no `{ptx}` in\n{}", done.ptx());
    done
}
