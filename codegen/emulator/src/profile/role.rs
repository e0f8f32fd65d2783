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

impl Role {
    pub(crate) fn of(instruction: &Instruction) -> Role {
        Role { class: class(instruction), traffic: traffic(instruction) }
    }
}

fn has(instruction: &Instruction, modifier: &str) -> bool {
    instruction.modifiers.iter().any(|found| found == modifier)
}

fn ty(instruction: &Instruction) -> Option<Ty> {
    instruction.modifiers.iter().find_map(|modifier| Ty::parse(modifier))
}

fn class(instruction: &Instruction) -> Class {
    match instruction.opcode.as_str() {
        "wmma" if has(instruction, "load") || has(instruction, "store") => Class::Memory,
        "mma" | "wmma" | "wgmma" => Class::Matrix,
        "cp" if is_bookkeeping(instruction) => Class::Control,
        "ld" | "ldu" | "st" | "atom" | "red" | "ldmatrix" | "stmatrix" | "cp" | "prefetch" | "prefetchu" => {
            Class::Memory
        }
        "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "bar" | "barrier" | "mbarrier"
        | "fence" | "membar" | "griddepcontrol" | "nanosleep" => Class::Control,
        "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => Class::Warp,
        "mov" | "cvt" | "cvta" | "selp" | "slct" | "prmt" | "isspacep" | "createpolicy" | "mapa" => {
            Class::Move
        }
        "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign" | "testp" => {
            Class::Float
        }
        _ if ty(instruction).is_some_and(Ty::is_float) => Class::Float,
        _ => Class::Integer,
    }
}

/// Commits, waits and arrivals of copies, which move nothing.
fn is_bookkeeping(instruction: &Instruction) -> bool {
    ["commit_group", "wait_group", "wait_all", "arrive"].iter().any(|word| has(instruction, word))
}

fn traffic(instruction: &Instruction) -> Traffic {
    match instruction.opcode.as_str() {
        "bra" => Traffic::Branch,
        // Its addresses are on a list.
        "st" | "red" if has(instruction, "async") => Traffic::None,
        "ld" | "ldu" => lanes(instruction, false),
        "st" | "atom" | "red" => lanes(instruction, true),
        "ldmatrix" | "stmatrix" => {
            let matrices = [("x1", 1), ("x2", 2), ("x4", 4)];
            let found = matrices.iter().find(|(name, _)| has(instruction, name));
            found.map_or(Traffic::None, |&(_, count)| Traffic::Rows { lanes: 8 * count })
        }
        "cp" if is_bookkeeping(instruction) || has(instruction, "prefetch") => Traffic::None,
        "cp" if has(instruction, "bulk") => Traffic::BulkCopy,
        "cp" => Traffic::Copy,
        _ => Traffic::None,
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
    let count = elements.iter().find(|(name, _)| has(instruction, name)).map_or(1, |&(_, count)| count);
    match ty(instruction) {
        Some(ty) if ty.bytes() > 0 => Traffic::Lanes { space, bytes: count * ty.bytes(), writes },
        _ => Traffic::None,
    }
}
