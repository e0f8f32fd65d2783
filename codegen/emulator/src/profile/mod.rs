//! Profiles: how often each instruction of a kernel ran, with how many lanes, and what its memory accesses cost.

mod counts;
mod kernel;
mod lint;
pub(crate) mod requests;
pub(crate) mod traffic;

pub(crate) use counts::Tally;
pub use counts::{Class, Counts, GlobalCounts, SharedCounts};
pub use kernel::{InstructionProfile, LineProfile, Profile};
pub use lint::{Lint, LintKind, Thresholds};
