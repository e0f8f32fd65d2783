//! Instructions with a member mask, which the lanes of the mask execute together.

use std::collections::HashMap;

use crate::load::ast::{Function, Instruction};

/// Lowest target whose members may execute an instruction at different places of the program.
const INDEPENDENT_TARGET: u32 = 70;

/// Opcode of an instruction with a member mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collective {
    /// `bar.warp.sync`.
    Barrier,
    /// `shfl.sync`.
    Shuffle,
    /// `vote.sync`.
    Vote,
    /// `match.sync`.
    Match,
    /// `redux.sync`.
    Reduce,
    /// `elect.sync`.
    Elect,
}

impl Collective {
    /// The instructions of a function whose members may be at different instructions; none for a target below sm_70.
    pub(crate) fn in_function(function: &Function, target: Option<u32>) -> HashMap<usize, Collective> {
        if target.is_some_and(|target| target < INDEPENDENT_TARGET) {
            return HashMap::new();
        }
        let instructions = function.body.iter().enumerate();
        instructions.filter_map(|(pc, instruction)| Some((pc, Collective::of(instruction)?))).collect()
    }

    /// The opcode of an instruction; `None` if the instruction has no member mask.
    fn of(instruction: &Instruction) -> Option<Collective> {
        match instruction.opcode.as_str() {
            "bar" if instruction.has("warp") => Some(Collective::Barrier),
            "shfl" => Some(Collective::Shuffle),
            "vote" => Some(Collective::Vote),
            "match" => Some(Collective::Match),
            "redux" => Some(Collective::Reduce),
            "elect" => Some(Collective::Elect),
            _ => None,
        }
    }
}
