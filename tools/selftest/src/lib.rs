//! Every kernel on a device, against a computation in double precision on the host.
//!
//! A [`KernelSpec`](bespoke_kernels::spec::KernelSpec) becomes cases: random but sane inputs, the launches, and what
//! each output must be by the kernel's documented formula. The kernel is the one that decoding would launch: the text
//! built into this binary for the newest target that the device runs, and one compiled in this process only where there
//! is none. It is run, and its outputs are compared. Outputs are filled with NaN bits before the run, and what a kernel
//! must not write must still hold them; inputs must come back unchanged.
//!
//! [`small`] has every kind of kernel at every weight type with awkward dimensions, in seconds on the emulator;
//! [`of_shape`] has the kernels of a model's plan as they are.

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

pub use replay::{replay_equals_eager, replay_shapes};
pub use report::{Report, Row};
pub use runner::{first_failure, run, run_telling};
pub use suite::{of_shape, small};
