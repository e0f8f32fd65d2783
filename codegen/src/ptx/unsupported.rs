//! Error for an instruction that the target does not support.

use crate::target::Target;

/// An instruction that the target does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {instruction} needs {needs}, but the kernel is compiled for {target}{place}")]
pub struct Unsupported {
    /// Name of the kernel.
    pub kernel: String,
    /// PTX name of the instruction.
    pub instruction: String,
    /// The lowest target that supports the instruction, as `sm_90 or later`.
    pub needs: String,
    /// The target that the kernel was compiled for.
    pub target: Target,
    /// Rust source location of the instruction, as ` (file:line:column)`; empty if unknown.
    pub place: String,
}
