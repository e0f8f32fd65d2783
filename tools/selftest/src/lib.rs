//! Compares every kernel with a computation in double precision on the host.
//!
//! A [`KernelSpec`](bespoke_kernels::spec::KernelSpec) becomes cases: random inputs of realistic size, launches, and
//! outputs expected by the kernel's documented formula. The kernel is the one that decoding would launch: the PTX built
//! into this binary for the newest target that the device runs, or, if there is none, one compiled in this process.
//! Outputs are filled with NaN bits before the run; elements that a kernel must not write must still hold them, and
//! inputs must be unchanged.
//!
//! [`small`] has every kind of kernel at every weight type with awkward dimensions, and takes seconds on the emulator;
//! [`of_shape`] has the kernels of a model's plan.

mod bits;
mod case;
mod cases;
mod compare;
mod inputs;
mod reference;
mod replay;
mod report;
mod runner;
mod sampling;
mod suite;
pub mod text;

pub use bits::{differing_next, differing_schedule, differing_tiling, differing_token};
pub use replay::{replay_equals_eager, replay_shapes};
pub use report::{Report, Row};
pub use runner::{first_failure, run, run_with_progress};
pub use suite::{of_shape, small};
