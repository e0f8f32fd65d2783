//! The error for an instruction that the target does not support.

use crate::target::Target;

/// An instruction that the target does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {instruction} needs {needs}, but the kernel is compiled for {target}{place}")]
pub struct Unsupported {
    /// The kernel.
    pub kernel: String,
    /// The instruction's name.
    pub instruction: String,
    /// The lowest target that supports it, as `sm_90 or later`.
    pub needs: String,
    /// The requested target.
    pub target: Target,
    /// The Rust source location, as ` (file:line:column)`; empty if unknown.
    pub place: String,
}
