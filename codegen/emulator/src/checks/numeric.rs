//! Numeric checks: results that are not finite, and 32-bit indices that have wrapped.
//!
//! Each instruction is classified when its kernel is loaded; `exec::numeric` runs the checks.

use crate::load::ast::Instruction;

/// The numeric checks of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumericChecks<'a> {
    /// Whether to find results that are not finite.
    pub(crate) values: bool,
    /// Whether to find addresses made of wrapped numbers.
    pub(crate) overflow: bool,
    /// The instructions' roles.
    pub(crate) roles: &'a [NumericRole],
}

/// What an instruction does to the values that are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nothing of interest.
    Other,
    /// Computes a single or a double from so many operands.
    Single(usize),
    Double(usize),
    /// Computes a 32-bit integer that may wrap.
    Add,
    Subtract,
    Multiply,
    MultiplyAdd,
    ShiftLeft,
    /// Computes something that has wrapped if one of so many operands has.
    Carries(usize),
    /// Accesses memory at the address of slot A.
    Access,
}

/// What the numeric checks know of an instruction.
#[derive(Debug)]
pub(crate) struct NumericRole {
    pub(crate) kind: Kind,
    /// The slots that it writes.
    pub(crate) writes: Box<[u32]>,
}

impl NumericRole {
    pub(crate) fn new(instruction: &Instruction, writes: Box<[u32]>) -> NumericRole {
        let has = |modifier: &str| instruction.modifiers.iter().any(|found| found == modifier);
        let ty = instruction.modifiers.last().map_or("", String::as_str);
        let operands = instruction.operands.len().saturating_sub(1).min(3);
        let kind = match (instruction.opcode.as_str(), ty) {
            (
                "add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2"
                | "sin" | "cos" | "tanh",
                "f32",
            ) => Kind::Single(operands),
            ("add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" | "rsqrt", "f64") => {
                Kind::Double(operands)
            }
            _ if has("sat") || has("cc") => Kind::Other,
            ("add", "u32" | "s32") => Kind::Add,
            ("sub", "u32" | "s32") => Kind::Subtract,
            ("mul", "u32" | "s32") if has("lo") => Kind::Multiply,
            ("mad", "u32" | "s32") if has("lo") => Kind::MultiplyAdd,
            ("shl", "b32") => Kind::ShiftLeft,
            ("mul" | "mad", _) if has("wide") => Kind::Carries(operands),
            ("add" | "sub", "u64" | "s64") | ("mad", "u64" | "s64") => Kind::Carries(operands),
            ("mov" | "cvta", "b32" | "u32" | "s32" | "b64" | "u64" | "s64") => Kind::Carries(1),
            ("cvt", "u32" | "s32") => Kind::Carries(1),
            ("ld" | "st" | "atom" | "red", _) if !has("async") => Kind::Access,
            _ => Kind::Other,
        };
        NumericRole { kind, writes }
    }
}
