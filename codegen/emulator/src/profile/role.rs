//! What kind of work an instruction is, told from its text when the kernel is loaded.

use super::Class;
use crate::load::ast::Instruction;
use crate::load::types::Ty;

/// What a profile needs to know of an instruction before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) class: Class,
    pub(crate) traffic: Traffic,
}

/// How an instruction reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Not at all, or in a way that is not counted (parameters, constants, hints).
    None,
    /// It parts the lanes, possibly.
    Branch,
    /// Each lane at an address of its own: bytes a lane.
    Lanes { space: MemorySpace, bytes: u32, writes: bool },
    /// `ldmatrix`: so many lanes name 16 bytes of shared memory each.
    Rows { lanes: u32 },
    /// `cp.async`: each lane from global to shared memory.
    Copy,
    /// `cp.async.bulk`: a range a lane, to shared memory or from it.
    BulkCopy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemorySpace {
    Global,
    Shared,
    /// Told by the address.
    Generic,
}

/// Memory traffic of an opcode family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficKind {
    /// None, or none that is counted.
    None,
    /// A branch, which may diverge.
    Branch,
    Load,
    /// A store or an atomic operation.
    Store,
    /// `ldmatrix` and `stmatrix`.
    MatrixRows,
    /// `cp.async`.
    AsyncCopy,
    /// `cp.async.bulk`.
    BulkCopy,
}

impl Role {
    /// The role of an instruction whose opcode family has this class and traffic.
    pub(crate) fn new(class: Class, traffic: TrafficKind, instruction: &Instruction) -> Role {
        let traffic = match traffic {
            TrafficKind::None => Traffic::None,
            TrafficKind::Branch => Traffic::Branch,
            TrafficKind::Load => lanes(instruction, false),
            TrafficKind::Store => lanes(instruction, true),
            TrafficKind::MatrixRows => {
                let matrices = [("x1", 1), ("x2", 2), ("x4", 4)];
                let found = matrices.iter().find(|(name, _)| instruction.has(name));
                found.map_or(Traffic::None, |&(_, count)| Traffic::Rows { lanes: 8 * count })
            }
            TrafficKind::AsyncCopy => Traffic::Copy,
            TrafficKind::BulkCopy => Traffic::BulkCopy,
        };
        Role { class, traffic }
    }
}

fn lanes(instruction: &Instruction, writes: bool) -> Traffic {
    let starts = |prefix: &str| instruction.modifiers.iter().any(|found| found.starts_with(prefix));
    let space = if starts("global") {
        MemorySpace::Global
    } else if starts("shared") {
        MemorySpace::Shared
    } else if starts("param") || starts("const") || starts("local") {
        return Traffic::None;
    } else {
        MemorySpace::Generic
    };
    let elements = [("v2", 2), ("v4", 4), ("v8", 8)];
    let count = elements.iter().find(|(name, _)| instruction.has(name)).map_or(1, |&(_, count)| count);
    match instruction.modifiers.iter().find_map(|modifier| Ty::parse(modifier)) {
        Some(ty) if ty.bytes() > 0 => Traffic::Lanes { space, bytes: count * ty.bytes(), writes },
        _ => Traffic::None,
    }
}
