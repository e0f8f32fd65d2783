//! Properties of opcodes that passes ask for: effect, convergence and the lowest target.

use crate::target::{IsaVersion, Target};

/// Effect of an instruction besides its results. Decides whether passes may remove, merge or move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None: the results follow from the operands.
    Pure,
    /// Reads memory. May be removed, but not merged or moved in general.
    Read,
    /// Reads a register that differs from one read to the next, such as a clock.
    Volatile,
    /// Exchanges values among lanes of the warp; no memory is ordered by it.
    Exchange,
    /// Writes memory.
    Write,
    /// Waits for other threads, kernels or copies, or orders memory: later loads may see what others wrote.
    Sync,
    /// Ends the block.
    Control,
}

/// Threads that must execute an instruction together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convergence {
    /// Every thread executes it on its own.
    Independent,
    /// All lanes of the warp.
    Warp {
        /// The PTX instruction, for messages.
        ptx: &'static str,
    },
    /// The lanes of a mask that have not exited.
    Mask {
        /// The PTX instruction, for messages.
        ptx: &'static str,
        /// Index of the operand that is the mask.
        operand: usize,
    },
    /// `threads` threads of the CTA (0: all of them), as whole warps, at the barrier `id`.
    Barrier {
        /// The PTX instruction, for messages.
        ptx: &'static str,
        /// The barrier's number.
        id: u8,
        /// Threads that take part; 0 for all of the CTA.
        threads: u32,
        /// The threads wait; otherwise they only arrive.
        waits: bool,
    },
    /// All threads of the cluster that have not exited.
    Cluster {
        /// The PTX instruction, for messages.
        ptx: &'static str,
    },
}

/// Lowest target and PTX ISA version of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The instruction as PTX names it, for messages.
    pub name: String,
    /// The first target that has it.
    pub target: Target,
    /// The first PTX ISA version that has it.
    pub isa: IsaVersion,
}

/// sm_80 and PTX 7.0, which every supported target has.
pub(super) const BASELINE: Option<Requirement> = None;

/// A requirement above the baseline.
pub(super) fn since(name: impl Into<String>, target: Target, isa: IsaVersion) -> Option<Requirement> {
    Some(Requirement { name: name.into(), target, isa })
}
