//! Class and memory traffic of instructions, derived from their text when a kernel is loaded.

use super::counts::Class;
use crate::load::ast::Instruction;
use crate::load::types::Ty;

/// Class and memory traffic of an instruction, for profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProfileTraits {
    pub(crate) class: Class,
    pub(crate) traffic: Traffic,
}

/// Memory traffic of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// No traffic, or none that is counted (parameters, constants, hints).
    None,
    /// A branch, which may diverge.
    Branch,
    /// Access of `bytes` bytes by each lane at its own address.
    Lanes { space: TrafficSpace, bytes: u32, writes: bool },
    /// `ldmatrix` and `stmatrix`: the first `lanes` lanes each have the address of a row, 16 bytes of shared memory.
    Rows { lanes: u32 },
    /// `cp.async`: one copy per lane, from global to shared memory.
    Copy,
    /// `cp.async.bulk`: one copy per lane, to or from shared memory.
    BulkCopy,
}

/// Memory whose traffic is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficSpace {
    Global,
    Shared,
    /// Generic: the address determines the space.
    Generic,
}

/// Memory traffic of an opcode family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficKind {
    /// No traffic, or none that is counted.
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

impl ProfileTraits {
    /// Traits of an instruction whose opcode family has this class and traffic.
    pub(crate) fn new(class: Class, traffic: TrafficKind, instruction: &Instruction) -> ProfileTraits {
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
        ProfileTraits { class, traffic }
    }
}

fn lanes(instruction: &Instruction, writes: bool) -> Traffic {
    let starts = |prefix: &str| instruction.modifiers.iter().any(|found| found.starts_with(prefix));
    let space = if starts("global") {
        TrafficSpace::Global
    } else if starts("shared") {
        TrafficSpace::Shared
    } else if starts("param") || starts("const") || starts("local") {
        return Traffic::None;
    } else {
        TrafficSpace::Generic
    };
    let elements = [("v2", 2), ("v4", 4), ("v8", 8)];
    let count = elements.iter().find(|(name, _)| instruction.has(name)).map_or(1, |&(_, count)| count);
    match instruction.modifiers.iter().find_map(|modifier| Ty::parse(modifier)) {
        Some(ty) if ty.bytes() > 0 => Traffic::Lanes { space, bytes: count * ty.bytes(), writes },
        _ => Traffic::None,
    }
}
