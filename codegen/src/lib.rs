//! A Rust DSL for GPU kernels, the SSA IR that it records, passes over it and the PTX printer.
//!
//! A kernel is a Rust function under `#[kernel]`. Calling it *records* it: values known while recording are
//! ordinary Rust values, values known only on the GPU are handles ([`dsl::Val`], [`dsl::Ptr`]). The result is a
//! [`Kernel`], which [`Kernel::compile`] optimises and prints as PTX for a [`ptx::Target`].
//!
//! ```
//! use bespoke_codegen::prelude::*;
//!
//! /// y[i] += a · x[i] for i < n.
//! #[kernel(threads = threads)]
//! fn axpy(x: Ptr<Global, f32>, y: Ptr<Global, f32>, a: Val<f32>, n: Val<u32>, threads: u32) {
//!     let i = block_index() * threads + thread_index();
//!     if i < n {
//!         y.at(i).store(fma(a, x.at(i).load(), y.at(i).load()));
//!     }
//! }
//!
//! let compiled = axpy(128).unwrap().compile(Target::Sm80).unwrap();
//! assert!(compiled.ptx.contains(".visible .entry axpy("));
//! ```

// The macros name this crate by its path, also in this crate's own `#[device]` functions.
extern crate self as bespoke_codegen;

pub mod cache;
pub mod dsl;
#[cfg(feature = "emit")]
pub mod emit;
pub mod ir;
pub mod kernel;
pub mod launch;
pub mod passes;
pub mod ptx;
pub mod ptxas;

pub use bespoke_macros::{Carry, device, kernel};
pub use dsl::hooks;
pub use dsl::{Carry, Recorded};
pub use kernel::{CompileError, Compiled, Kernel};

/// What a file of kernels imports.
pub mod prelude {
    pub use crate::dsl::*;
    pub use crate::ir::{Cache, Order, Rounding, Scope};
    pub use crate::ptx::Target;
    pub use crate::{Kernel, Recorded};
    pub use bespoke_macros::{Carry, device, kernel};
    pub use half::{bf16, f16};
}
