//! Faults: findings without source positions.

use crate::finding::{FindingKind, Neighbour, OtherAccess, Space};

/// Lanes that have not reached an instruction that they must execute together with the active lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    /// The lanes; none has exited.
    pub(crate) lanes: u32,
    /// The lanes that can join the active lanes if they are at the same instruction: those with the same member mask, if
    /// the instruction has one.
    pub(crate) joinable: u32,
}

/// A finding without source position.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FindingKind,
    pub(crate) lane: u32,
    pub(crate) detail: String,
    pub(crate) address: Option<u64>,
    pub(crate) space: Option<Space>,
    pub(crate) nearest: Option<Neighbour>,
    /// The earlier access, for a fault about two accesses.
    pub(crate) other: Option<OtherAccess>,
    /// Index of the instruction at fault; `None` for the warp's current instruction.
    pub(crate) pc: Option<usize>,
    /// The missing lanes, if the fault is that lanes do not execute an instruction together.
    pub(crate) missing: Option<Missing>,
}

impl Fault {
    /// A fault of `lane` at the warp's current instruction.
    pub(crate) fn new(kind: FindingKind, lane: u32, detail: impl Into<String>) -> Fault {
        let detail = detail.into();
        Fault {
            kind,
            lane,
            detail,
            address: None,
            space: None,
            nearest: None,
            other: None,
            pc: None,
            missing: None,
        }
    }

    /// The same fault at instruction `pc`.
    pub(crate) fn at(self, pc: usize) -> Fault {
        Fault { pc: Some(pc), ..self }
    }
}
