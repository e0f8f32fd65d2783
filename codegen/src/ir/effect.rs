//! Properties of opcodes for passes: effect, convergence and lowest target.

use super::named::named_enum;
use crate::target::{IsaVersion, Target};

/// Side effect of an instruction. Decides whether passes may remove, merge or move the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No side effect: the results depend on the operands only.
    Pure,
    /// Reads memory. May be removed, but not merged or moved in general.
    Read,
    /// Reads a register that differs from one read to the next, such as a clock.
    Volatile,
    /// Exchanges values among lanes of the warp; does not order memory.
    Exchange,
    /// Writes memory.
    Write,
    /// Waits for other threads, kernels or copies, or orders memory: later loads may see what others wrote.
    Sync,
    /// Ends the block.
    Control,
    /// States a fact about its operands. It has no PTX instruction: it is removed with the operands, and never merged or
    /// moved.
    Fact,
}

named_enum! {
    /// Side effect of code that passes do not look into: inline PTX, or a called function. Weakest first.
    pub enum OpaqueEffect {
        /// None: the results depend on the operands and the thread only. May be removed and merged; inline PTX may also be
        /// moved, a call, which can take long, may not.
        Pure = "pure",
        /// Reads memory. May be removed.
        Reads = "reads",
        /// Writes memory that the kernel does not read through the read-only cache.
        Writes = "writes",
        /// Waits, orders memory, or writes memory. No load moves across it.
        Synchronises = "synchronises",
    }
}

impl OpaqueEffect {
    /// The effect as that of an instruction.
    pub(super) fn of_instruction(self) -> Effect {
        match self {
            OpaqueEffect::Pure => Effect::Pure,
            OpaqueEffect::Reads => Effect::Read,
            OpaqueEffect::Writes => Effect::Write,
            OpaqueEffect::Synchronises => Effect::Sync,
        }
    }
}

impl Effect {
    /// The weakest [`OpaqueEffect`] of code that contains an instruction of this effect.
    pub(super) fn as_opaque(self) -> OpaqueEffect {
        match self {
            Effect::Pure | Effect::Control | Effect::Fact => OpaqueEffect::Pure,
            Effect::Read => OpaqueEffect::Reads,
            Effect::Write => OpaqueEffect::Writes,
            Effect::Volatile | Effect::Exchange | Effect::Sync => OpaqueEffect::Synchronises,
        }
    }
}

/// Threads that must execute an instruction together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convergence {
    /// No other thread is required.
    Independent,
    /// All lanes of the warp.
    Warp {
        /// PTX name of the instruction, for messages.
        ptx: &'static str,
    },
    /// The lanes of a mask that have not exited.
    Mask {
        /// PTX name of the instruction, for messages.
        ptx: &'static str,
        /// Index of the operand that is the mask.
        operand: usize,
    },
    /// `threads` threads of the CTA (0: all of them), as whole warps, at the barrier `id`.
    Barrier {
        /// PTX name of the instruction, for messages.
        ptx: &'static str,
        /// The barrier's number.
        id: u8,
        /// Threads that take part; 0 for all of the CTA.
        threads: u32,
        /// Whether the threads wait; otherwise they only arrive.
        waits: bool,
    },
    /// All threads of the cluster that have not exited.
    Cluster {
        /// PTX name of the instruction, for messages.
        ptx: &'static str,
    },
}

/// Lowest target and PTX ISA version of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// PTX name of the instruction, for messages.
    pub name: String,
    /// The first target that supports the instruction.
    pub target: Target,
    /// The first PTX ISA version that supports the instruction.
    pub isa: IsaVersion,
}

/// Requirement of an instruction of PTX 7.0 for sm_80, which every supported target has: none.
pub(super) const BASELINE: Option<Requirement> = None;

/// Requirement of an instruction above the baseline: lowest target and PTX ISA version.
pub(super) fn since(name: impl Into<String>, target: Target, isa: IsaVersion) -> Option<Requirement> {
    Some(Requirement { name: name.into(), target, isa })
}
