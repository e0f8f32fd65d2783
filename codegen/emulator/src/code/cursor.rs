//! Cursor over an instruction being decoded: decoders take its modifiers and operands, and fill its slots.

use std::collections::HashMap;

use super::access::PARAM_WINDOW;
use super::operands::{A, B, C, D, NEGATED, NONE};
use crate::load::ast::{Function, Instruction, Operand, RegId, Special};
use crate::load::dataflow::Effects;
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::layout::{Layout, Uniform};
use crate::load::types::{Ty, Width};
use crate::load::unsupported;

/// Variable or parameter that a PTX name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Symbol {
    /// Byte offset in the CTA's shared memory.
    Shared(u64),
    /// Byte offset in the parameter block.
    Param(u32),
    /// Byte offset in the module's variables.
    Module(u64),
    /// Byte offset in the thread's local memory.
    Local(u64),
    /// Address of a device function.
    Function(u64),
}

/// Tables that the instructions of a function share while they are decoded.
pub(crate) struct FunctionTables<'f> {
    pub(crate) function: &'f Function,
    pub(crate) symbols: &'f HashMap<String, Symbol>,
    pub(crate) layout: Layout,
    /// Operand lists of instructions that have more operands than slots.
    pub(crate) lists: Vec<Box<[u32]>>,
    /// Numbers of the registers that are operands of some `wgmma`.
    pub(crate) wgmma: HashMap<RegId, u32>,
}

/// A decoded instruction without the function that executes it.
pub(crate) struct Operands {
    pub(crate) slots: [u32; 7],
    pub(crate) guard: u32,
    pub(crate) imm: u64,
    pub(crate) effects: Effects,
}

/// A number with a noun in the singular or plural: `1 operand`, `2 operands`.
pub(crate) fn quantity(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Cursor over one instruction. Decoders take its modifiers and operands; any that are left at the end are an error.
pub(crate) struct InstructionCursor<'d, 'f> {
    tables: &'d mut FunctionTables<'f>,
    ast: &'f Instruction,
    modifiers: Vec<&'f str>,
    operands_used: usize,
    effects: Effects,
    guard: u32,
    pub(crate) slots: [u32; 7],
    pub(crate) imm: u64,
    /// Target and reconvergence point of a branch, as instruction indices.
    pub(crate) branch: Option<(usize, Option<usize>)>,
}

/// Width of the register that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressWidth {
    W32,
    W64,
}

impl<'d, 'f> InstructionCursor<'d, 'f> {
    /// A cursor at the start of an instruction; `branch` is the target and the reconvergence point of a branch.
    pub(crate) fn new(
        tables: &'d mut FunctionTables<'f>,
        ast: &'f Instruction,
        branch: Option<(usize, Option<usize>)>,
    ) -> InstructionCursor<'d, 'f> {
        let mut effects = Effects { guarded: ast.guard.is_some(), ..Effects::default() };
        let mut slot = NONE;
        if let Some(guard) = ast.guard {
            effects.reads.push(guard.register);
            slot = tables.layout.register(guard.register) | if guard.negated { NEGATED } else { 0 };
        }
        InstructionCursor {
            tables,
            ast,
            modifiers: ast.modifiers.iter().map(String::as_str).collect(),
            operands_used: 0,
            effects,
            guard: slot,
            slots: [0; 7],
            imm: 0,
            branch,
        }
    }

    /// Ends decoding. The error is a modifier or an operand that no decoder has taken.
    pub(crate) fn finish(self) -> Result<Operands, ParseError> {
        if let Some(modifier) = self.modifiers.first() {
            let message = format!("unknown or misplaced modifier `.{modifier}` of `{}`", self.text());
            return Err(self.refused(message));
        }
        if self.operands_used < self.ast.operands.len() {
            let kind = unsupported::operand_count_error(self.ast);
            let message = match kind {
                ParseErrorKind::Unsupported => {
                    format!("the emulator does not support `{}` with three sources", self.text())
                }
                _ => format!("`{}` takes {}", self.text(), quantity(self.operands_used, "operand")),
            };
            return Err(self.ast.error(kind, message));
        }
        Ok(Operands { slots: self.slots, guard: self.guard, imm: self.imm, effects: self.effects })
    }

    pub(crate) fn opcode(&self) -> &'f str {
        &self.ast.opcode
    }

    /// Opcode and modifiers as written.
    pub(crate) fn text(&self) -> String {
        self.ast.text()
    }

    /// The error for an operand that the instruction does not accept.
    pub(crate) fn error(&self, message: impl Into<String>) -> ParseError {
        self.ast.error(ParseErrorKind::Operand, message)
    }

    /// The error for an instruction that is not valid PTX.
    pub(crate) fn malformed(&self, message: impl Into<String>) -> ParseError {
        self.ast.error(ParseErrorKind::Syntax, message)
    }

    /// The error for a rejected instruction form: `message` if PTX does not have the form, else a message that the
    /// emulator does not support the instruction.
    fn refused(&self, message: String) -> ParseError {
        let modifiers = self.ast.modifiers.iter().map(String::as_str);
        match unsupported::form_error(&self.ast.opcode, modifiers) {
            kind @ ParseErrorKind::Unsupported => {
                self.ast.error(kind, format!("the emulator does not support `{}`", self.text()))
            }
            kind => self.ast.error(kind, message),
        }
    }

    /// The error for a form that no instruction has, or that the emulator does not support.
    pub(crate) fn unsupported(&self) -> ParseError {
        self.refused(format!("no instruction has the form `{}`", self.text()))
    }

    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    pub(crate) fn take(&mut self, modifier: &str) -> bool {
        match self.modifiers.iter().position(|&found| found == modifier) {
            Some(at) => {
                self.modifiers.remove(at);
                true
            }
            None => false,
        }
    }

    /// Takes the first modifier of `choices` that the instruction has.
    pub(crate) fn take_any<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find_map(|&(name, value)| self.take(name).then_some(value))
    }

    /// Takes the first modifier that `accept` accepts.
    pub(crate) fn take_map<T>(&mut self, accept: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, value) =
            self.modifiers.iter().enumerate().find_map(|(at, modifier)| Some((at, accept(modifier)?)))?;
        self.modifiers.remove(at);
        Some(value)
    }

    /// Takes the first type suffix.
    pub(crate) fn take_ty(&mut self) -> Result<Ty, ParseError> {
        self.take_map(Ty::parse).ok_or_else(|| {
            let like = |modifier: &&&str| {
                let size = modifier.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
                let letters = &modifier[..modifier.len() - size.len()];
                matches!(letters, "b" | "u" | "s" | "f" | "bf" | "tf") && size.parse::<u32>().is_ok()
            };
            self.refused(match self.modifiers.iter().find(like) {
                Some(unknown) => format!("in `{}`: no type `.{unknown}`", self.text()),
                None => format!("`{}` needs a type", self.text()),
            })
        })
    }

    /// Bytes of the kernel's parameter block.
    pub(crate) fn param_bytes(&self) -> u64 {
        self.tables.function.param_bytes() as u64
    }

    pub(crate) fn operand_count(&self) -> usize {
        self.ast.operands.len()
    }

    pub(crate) fn operand(&mut self, index: usize) -> Result<&'f Operand, ParseError> {
        self.operands_used = self.operands_used.max(index + 1);
        let ast = self.ast;
        ast.operands.get(index).ok_or_else(|| {
            self.error(format!("`{}` needs more than {}", self.text(), quantity(index, "operand")))
        })
    }

    pub(crate) fn register_ty(&self, register: RegId) -> Ty {
        self.tables.function.registers[register as usize].ty
    }

    fn mismatch(&self, register: RegId, wanted: Width) -> ParseError {
        let found = &self.tables.function.registers[register as usize];
        let (name, text) = (&found.name, self.text());
        self.error(match (found.ty.width(), wanted) {
            (_, Width::Predicate) => format!("`{name}` must be a predicate in `{text}`"),
            (Width::Predicate, _) => {
                format!("`{name}` is a predicate where `{text}` needs {} bits", wanted.bits())
            }
            (has, _) => format!("`{name}` has {} bits where `{text}` needs {}", has.bits(), wanted.bits()),
        })
    }

    /// The slot of a register that the instruction writes.
    pub(crate) fn write_register(&mut self, register: RegId, width: Width) -> Result<u32, ParseError> {
        if self.register_ty(register).width() != width {
            return Err(self.mismatch(register, width));
        }
        self.effects.writes.push(register);
        Ok(self.tables.layout.register(register))
    }

    /// The slot of an element of a vector that the instruction writes: a register, or `_`.
    pub(crate) fn written_element(&mut self, element: &Operand, width: Width) -> Result<u32, ParseError> {
        match element {
            Operand::Reg(register) => self.write_register(*register, width),
            Operand::Sink => Ok(self.tables.layout.discarded(width)),
            _ => {
                Err(self.error(format!("an element that `{}` writes must be a register or `_`", self.text())))
            }
        }
    }

    /// The slot of a register that the instruction reads.
    pub(crate) fn read_register(&mut self, register: RegId) -> u32 {
        self.effects.reads.push(register);
        self.tables.layout.register(register)
    }

    /// Records that the instruction reads a register in the lanes in which the predicate at the slot `condition` holds. All
    /// such registers of an instruction have one condition.
    pub(crate) fn read_register_if(&mut self, register: RegId, condition: u32) {
        self.effects.conditional_reads.push(register);
        self.effects.condition = condition;
    }

    pub(crate) fn dst(&mut self, index: usize, width: Width) -> Result<u32, ParseError> {
        match self.operand(index)? {
            Operand::Reg(register) => self.write_register(*register, width),
            _ => Err(self.error(format!("operand {} of `{}` must be a register", index + 1, self.text()))),
        }
    }

    pub(crate) fn src(&mut self, index: usize, ty: Ty) -> Result<u32, ParseError> {
        let operand = self.operand(index)?;
        self.value(operand, ty)
    }

    /// The slot of a value: a register of `ty`'s width, a constant, a special register or an address.
    pub(crate) fn value(&mut self, operand: &Operand, ty: Ty) -> Result<u32, ParseError> {
        let width = ty.width();
        let constant = match operand {
            Operand::Reg(register) => {
                if self.register_ty(*register).width() != width {
                    return Err(self.mismatch(*register, width));
                }
                return Ok(self.read_register(*register));
            }
            Operand::Special(special)
                if !special.is_volatile()
                    && (width == Width::Predicate) == (*special == Special::IsExplicitCluster) =>
            {
                return Ok(self.tables.layout.special(*special, width));
            }
            Operand::Symbol(name, offset) => return self.symbol_value(name, *offset, width),
            Operand::Not(inner) if ty == Ty::Pred => return Ok(self.value(inner, ty)? | NEGATED),
            Operand::Int(value) if ty == Ty::F64 || ty == Ty::F32 => {
                return Err(self.error(format!("integer {value} where a float is needed")));
            }
            Operand::Int(value) if ty == Ty::Pred => u64::from(*value != 0),
            Operand::Int(value) => *value,
            Operand::F32(bits) if width == Width::W32 => *bits as u64,
            Operand::F32(bits) if ty == Ty::F64 => (f32::from_bits(*bits) as f64).to_bits(),
            Operand::F64(bits) if width == Width::W64 => *bits,
            // `.b32` operands, such as the registers of `mma`, may be floats.
            Operand::F64(bits) if matches!(ty, Ty::F32 | Ty::B32) => {
                (f64::from_bits(*bits) as f32).to_bits() as u64
            }
            _ => return Err(self.error(format!("unsuitable operand of `{}`", self.text()))),
        };
        let mask = u64::MAX >> (64 - width.bits());
        Ok(self.tables.layout.constant(width, constant & mask))
    }

    fn symbol_value(&mut self, name: &str, offset: i64, width: Width) -> Result<u32, ParseError> {
        let layout = &mut self.tables.layout;
        match self.tables.symbols.get(name) {
            Some(&Symbol::Shared(at)) if width >= Width::W32 => {
                Ok(layout.uniform(Uniform::SharedAddress(at.wrapping_add_signed(offset)), width))
            }
            Some(&Symbol::Local(at)) if width >= Width::W32 => {
                Ok(layout.constant(width, at.wrapping_add_signed(offset)))
            }
            Some(&Symbol::Function(at)) if width == Width::W64 && offset == 0 => {
                Ok(layout.constant(width, at))
            }
            Some(&Symbol::Param(at)) if width >= Width::W32 => {
                Ok(layout.constant(width, PARAM_WINDOW.wrapping_add(at as u64).wrapping_add_signed(offset)))
            }
            Some(&Symbol::Module(at)) if width == Width::W64 => {
                Ok(layout.uniform(Uniform::ModuleAddress(at as i64 + offset), width))
            }
            Some(_) => Err(self.error(format!("the address of `{name}` does not fit the register"))),
            None => Err(self.ast.error(ParseErrorKind::Undefined, format!("unknown name `{name}`"))),
        }
    }

    /// Stores an operand list; returns the list's number for [`Program::list`](super::program::Program::list).
    pub(crate) fn list(&mut self, operands: Vec<u32>) -> u64 {
        self.tables.lists.push(operands.into());
        self.tables.lists.len() as u64 - 1
    }

    /// Number of a register that is an operand of a `wgmma`.
    pub(crate) fn wgmma_register(&mut self, register: RegId) -> u32 {
        let next = self.tables.wgmma.len() as u32;
        *self.tables.wgmma.entry(register).or_insert(next)
    }

    pub(crate) fn constant(&mut self, width: Width, bits: u64) -> u32 {
        self.tables.layout.constant(width, bits)
    }

    /// The value of an operand, which must be an integer constant.
    pub(crate) fn constant_operand(&mut self, index: usize) -> Result<u64, ParseError> {
        match self.operand(index)? {
            Operand::Int(value) => Ok(*value),
            _ => Err(self.error(format!("operand {} of `{}` must be a constant", index + 1, self.text()))),
        }
    }

    /// The slot and width of an address operand's base; sets `imm` to the offset.
    pub(crate) fn address(&mut self, index: usize) -> Result<(u32, AddressWidth), ParseError> {
        match self.operand(index)? {
            Operand::Address(base, offset) => self.base_and_offset(base, *offset),
            _ => Err(self.error(format!("operand {} of `{}` must be an address", index + 1, self.text()))),
        }
    }

    /// The slot of the address of a tensor map, with the offset in `imm`, and the slots of the coordinates.
    pub(crate) fn tensor(&mut self, index: usize) -> Result<(u32, AddressWidth, Vec<u32>), ParseError> {
        let Operand::Tensor(map, coordinates) = self.operand(index)? else {
            return Err(self.error(format!(
                "operand {} of `{}` must be a tensor map with coordinates",
                index + 1,
                self.text()
            )));
        };
        let Operand::Address(base, offset) = &**map else { return Err(self.unsupported()) };
        let (slot, width) = self.base_and_offset(base, *offset)?;
        let coordinates = coordinates.iter().map(|coordinate| self.value(coordinate, Ty::S32));
        Ok((slot, width, coordinates.collect::<Result<_, _>>()?))
    }

    fn base_and_offset(&mut self, base: &Operand, offset: i64) -> Result<(u32, AddressWidth), ParseError> {
        self.imm = offset as u64;
        match base {
            Operand::Reg(register) => match self.register_ty(*register).width() {
                Width::W32 => Ok((self.read_register(*register), AddressWidth::W32)),
                Width::W64 => Ok((self.read_register(*register), AddressWidth::W64)),
                width => Err(self.mismatch(*register, width.max(Width::W64))),
            },
            other => Ok((self.value(other, Ty::B64)?, AddressWidth::W64)),
        }
    }

    /// The offset in the parameter block of an address operand that names a parameter.
    pub(crate) fn param_address(&mut self, index: usize) -> Result<Option<u64>, ParseError> {
        if let Operand::Address(base, offset) = self.operand(index)?
            && let Operand::Symbol(name, _) = &**base
            && let Some(&Symbol::Param(at)) = self.tables.symbols.get(name)
        {
            return Ok(Some((at as u64).wrapping_add_signed(*offset)));
        }
        Ok(None)
    }

    /// Whether an address operand names a local variable.
    pub(crate) fn names_local(&mut self, index: usize) -> Result<bool, ParseError> {
        let Operand::Address(base, _) = self.operand(index)? else { return Ok(false) };
        let Operand::Symbol(name, _) = &**base else { return Ok(false) };
        Ok(matches!(self.tables.symbols.get(name), Some(Symbol::Local(_))))
    }

    /// Fills the slots D and A from the operands of `op d, a`.
    pub(crate) fn unary(&mut self, d: Ty, a: Ty) -> Result<(), ParseError> {
        self.slots[D] = self.dst(0, d.width())?;
        self.slots[A] = self.src(1, a)?;
        Ok(())
    }

    /// Fills the slots D, A and B from the operands of `op d, a, b`.
    pub(crate) fn binary(&mut self, d: Ty, a: Ty, b: Ty) -> Result<(), ParseError> {
        self.unary(d, a)?;
        self.slots[B] = self.src(2, b)?;
        Ok(())
    }

    /// Fills the slots D, A, B and C from the operands of `op d, a, b, c`.
    pub(crate) fn ternary(&mut self, d: Ty, ab: Ty, c: Ty) -> Result<(), ParseError> {
        self.binary(d, ab, ab)?;
        self.slots[C] = self.src(3, c)?;
        Ok(())
    }
}
