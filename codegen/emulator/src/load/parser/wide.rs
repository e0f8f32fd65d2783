//! Registers of 128 bits: each is two registers of 64 bits, and instructions on them are replaced by instructions on these.

use super::body::Body;
use crate::load::ast::{Instruction, Operand, RegId};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::types::WIDE;

/// The two halves of a register, low half first.
fn halves(low: RegId) -> Vec<Operand> {
    vec![Operand::Reg(low), Operand::Reg(low + 1)]
}

impl Body<'_, '_> {
    /// Equivalent instructions on registers of 64 bits.
    ///
    /// # Errors
    /// If a register of 128 bits is used where a narrower one is required, or the reverse.
    pub(super) fn split_wide(&self, mut instruction: Instruction) -> Result<Vec<Instruction>, ParseError> {
        let is_wide = instruction.modifiers.iter().any(|modifier| modifier == WIDE);
        let low = |operand: &Operand| match operand {
            Operand::Reg(register) if self.wide.contains(register) => Some(*register),
            _ => None,
        };
        let registers = instruction.operands.iter().filter_map(low).count();
        let has_policy = instruction.modifiers.iter().any(|modifier| modifier == "L2::cache_hint");
        let is_other =
            |operand: &&Operand| matches!(operand, Operand::Address(..) | Operand::Sink | Operand::Vector(_));
        let others = instruction.operands.iter().filter(is_other).count() + usize::from(has_policy);
        let needed = if is_wide { instruction.operands.len() - others } else { 0 };
        if registers != needed {
            let text = instruction.text();
            let message = match is_wide {
                true => format!("`{text}` needs registers of 128 bits"),
                false => format!("`{text}` takes no register of 128 bits"),
            };
            return Err(instruction.error(ParseErrorKind::Operand, message));
        }
        if !is_wide {
            return Ok(vec![instruction]);
        }
        for operand in &mut instruction.operands {
            if let Some(register) = low(operand) {
                *operand = Operand::Vector(halves(register));
            }
        }
        match (instruction.opcode.as_str(), &instruction.operands[..]) {
            ("mov", [Operand::Vector(target), Operand::Vector(source)])
                if target.len() == 2 && source.len() == 2 =>
            {
                let half = |(target, source): (&Operand, &Operand)| Instruction {
                    modifiers: vec!["b64".to_string()],
                    operands: vec![target.clone(), source.clone()],
                    ..instruction.clone()
                };
                let is_written = |(target, _): &(&Operand, &Operand)| **target != Operand::Sink;
                Ok(target.iter().zip(source).filter(is_written).map(half).collect())
            }
            ("ld" | "st", _) => {
                let at = instruction.modifiers.iter().position(|modifier| modifier == WIDE);
                if let Some(at) = at {
                    instruction.modifiers.splice(at..=at, ["v2".to_string(), "b64".to_string()]);
                }
                Ok(vec![instruction])
            }
            ("atom", _) => Ok(vec![instruction]),
            _ => {
                let message = format!("no instruction has the form `{}`", instruction.text());
                Err(instruction.error(ParseErrorKind::Syntax, message))
            }
        }
    }
}
