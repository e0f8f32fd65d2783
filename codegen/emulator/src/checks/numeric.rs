//! Numeric checks: non-finite results of finite operands, and addresses computed from 32-bit results that overflowed.
//!
//! Instructions are classified when their kernel is loaded; `exec::numeric` runs the checks.

use crate::load::ast::Instruction;

/// The numeric checks of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumericChecks<'a> {
    /// Whether to find non-finite results.
    pub(crate) values: bool,
    /// Whether to find addresses computed from overflowed results.
    pub(crate) overflow: bool,
    /// Numeric effects of the kernel's instructions.
    pub(crate) effects: &'a [NumericKind],
}

/// Kind of a numeric effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumericKind {
    /// No effect that is checked.
    Other,
    /// Computes an `f32` from this number of operands.
    Single(usize),
    /// Computes an `f64` from this number of operands.
    Double(usize),
    /// Adds 32-bit integers; like the next four kinds, may overflow.
    Add,
    Subtract,
    Multiply,
    MultiplyAdd,
    ShiftLeft,
    /// Computes a value from this number of operands; the value counts as overflowed if one of the operands does.
    Propagates(usize),
    /// Accesses memory at the address in register slot A.
    Access,
}

impl NumericKind {
    /// The numeric effect of an instruction.
    pub(crate) fn of(instruction: &Instruction) -> NumericKind {
        let has = |modifier: &str| instruction.modifiers.iter().any(|found| found == modifier);
        let ty = instruction.modifiers.last().map_or("", String::as_str);
        let operands = instruction.operands.len().saturating_sub(1).min(3);
        match (instruction.opcode.as_str(), ty) {
            (
                "add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2"
                | "sin" | "cos" | "tanh",
                "f32",
            ) => NumericKind::Single(operands),
            ("add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" | "rsqrt", "f64") => {
                NumericKind::Double(operands)
            }
            _ if has("sat") || has("cc") => NumericKind::Other,
            ("add", "u32" | "s32") => NumericKind::Add,
            ("sub", "u32" | "s32") => NumericKind::Subtract,
            ("mul", "u32" | "s32") if has("lo") => NumericKind::Multiply,
            ("mad", "u32" | "s32") if has("lo") => NumericKind::MultiplyAdd,
            ("shl", "b32") => NumericKind::ShiftLeft,
            ("mul" | "mad", _) if has("wide") => NumericKind::Propagates(operands),
            ("add" | "sub", "u64" | "s64") | ("mad", "u64" | "s64") => NumericKind::Propagates(operands),
            ("mov" | "cvta", "b32" | "u32" | "s32" | "b64" | "u64" | "s64") => NumericKind::Propagates(1),
            ("cvt", "u32" | "s32") => NumericKind::Propagates(1),
            ("ld" | "st" | "atom" | "red", _) if !has("async") => NumericKind::Access,
            _ => NumericKind::Other,
        }
    }
}
