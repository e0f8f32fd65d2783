//! PTX printer.
//!
//! [`print()`] writes a module with one entry point, [`print_module`] one with several. Each SSA value gets a virtual register; ptxas allocates the
//! physical registers. Moves at the end of the predecessors assign block parameters; parameters that are passed on share
//! registers where they can. Constants are immediates wherever
//! PTX allows them. Floating-point arithmetic always states its rounding: ptxas cannot contract it, and every device
//! computes the same bits.
//!
//! 8-bit integers are kept in 32-bit registers, sign- or zero-extended; arithmetic on them is done in 32 bits and
//! wrapped. `.loc` lines point into the kernel's Rust source, with the calls that an instruction was inlined through.

mod asynchronous;
mod call;
mod inst;
mod lines;
mod liveness;
mod matrix;
mod memory;
mod module;
mod moves;
mod operand;
mod printer;
mod shared_registers;
mod signature;
mod symbols;
mod unsupported;

pub use crate::target::{IsaVersion, Target, UnknownTarget};
pub(crate) use module::{constant_bytes, declares};
pub use module::{entry_text, print, print_module};
pub(crate) use shared_registers::shared_register_groups;
pub use unsupported::Unsupported;

/// The architecture that the `.target` directive of a PTX module names, if it is for one compute capability alone, such as
/// `sm_90a`.
pub fn architecture(ptx: &str) -> Option<String> {
    let target = ptx.lines().find_map(|line| line.strip_prefix(".target "))?;
    let name = target.split(',').next()?.trim();
    name.ends_with('a').then(|| name.to_owned())
}
