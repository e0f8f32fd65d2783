//! The error for an instruction that the target lacks.

use crate::target::Target;

/// An instruction that the target does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {instruction} needs {needs}, but the kernel is specialised for {target}{place}")]
pub struct Unsupported {
    /// The kernel.
    pub kernel: String,
    /// The instruction's name.
    pub instruction: String,
    /// The first target that has it, as `sm_90 or later`.
    pub needs: String,
    /// The target asked for.
    pub target: Target,
    /// Where in the Rust source, as ` (file:line:column)`; empty if unknown.
    pub place: String,
}
