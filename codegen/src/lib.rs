#![doc = include_str!("../BOOK.md")]

// The macros name this crate by its path, also in this crate's own `#[device]` functions.
extern crate self as bespoke_codegen;

pub mod cache;
pub mod dsl;
#[cfg(feature = "emit")]
pub mod emit;
pub mod ir;
pub mod kernel;
pub mod launch;
pub mod module;
pub mod opt_report;
pub mod passes;
pub mod ptx;
pub mod ptxas;
mod target;
mod times;

pub use bespoke_macros::{Carry, Parameters, device, kernel};
pub use dsl::hooks;
pub use dsl::{Carry, Parameters, Recorded};
pub use kernel::{CompileError, Compiled, IrError, Kernel};
pub use module::{CompiledModule, Module};
pub use times::CtaTimes;

/// The imports of a file of kernels.
pub mod prelude {
    pub use crate::dsl::*;
    pub use crate::ir::{Cache, Order, Rounding, Scope, TensorReduction};
    pub use crate::ptx::Target;
    pub use crate::{Kernel, Module, Recorded};
    pub use bespoke_macros::{Carry, Parameters, device, kernel};
    pub use half::{bf16, f16};
}
