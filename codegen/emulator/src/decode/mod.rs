//! Decoder: determines for each instruction the function that executes it, its operand slots, and the registers to
//! check.

pub(crate) mod opcodes;

use std::collections::{HashMap, HashSet};

use crate::code::cursor::{FunctionTables, InstructionCursor, Operands, Symbol};
use crate::code::operands::NONE;
use crate::code::program::{RegisterCheck, WgmmaRegisters};
use crate::code::value_flow::{RegisterSlot, ValueFlow, first_selector};
use crate::context::{Exec, Inst};
use crate::load::ast::{Function, Instruction, Operand, RegId};
use crate::load::control_flow::Cfg;
use crate::load::dataflow::{self, Effects};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::layout::Layout;
use crate::load::types::Width;

/// Function decoded to executable instructions.
pub(crate) struct Decoded {
    pub(crate) insts: Vec<Inst>,
    pub(crate) register_checks: Vec<RegisterCheck>,
    /// Number of registers whose initialisation is tracked at run time.
    pub(crate) tracked: usize,
    /// Operand lists of instructions with more operands than slots.
    pub(crate) lists: Vec<Box<[u32]>>,
    pub(crate) layout: Layout,
    pub(crate) value_flow: Vec<ValueFlow>,
    pub(crate) wgmma: WgmmaRegisters,
}

/// Largest size of a data-flow analysis, in bits: registers times basic blocks.
const MAX_ANALYSIS_BITS: usize = 1 << 30;

/// Decodes a function. `symbols` are the variables and parameters that the function can name.
///
/// # Errors
/// All errors in the function's instructions.
pub(crate) fn decode(
    function: &Function,
    symbols: &HashMap<String, Symbol>,
) -> Result<Decoded, Vec<ParseError>> {
    let (targets, branch_errors) = branch_targets(function);
    let cfg = Cfg::build(function, &targets);
    let widths: Vec<Width> = function.registers.iter().map(|register| register.ty.width()).collect();
    if widths.len().saturating_mul(cfg.blocks.len()) > MAX_ANALYSIS_BITS {
        let line = function.body.first().map_or(0, |first| first.line);
        let message = "the function has too many registers and branches";
        return Err(vec![ParseError::new(ParseErrorKind::Unsupported, (line, 1), message)]);
    }
    let tables = FunctionTables {
        function,
        symbols,
        layout: Layout::unshared(&widths),
        lists: Vec::new(),
        wgmma: HashMap::new(),
    };
    let mut decoder = Decoder { tables, targets: &targets, cfg: &cfg, effects: Vec::new() };
    // The first pass finds the registers that each instruction reads and writes. Register slots are allocated from this
    // result, and the second pass decodes with these slots.
    let mut errors = decoder.instructions().err().unwrap_or_default();
    if !branch_errors.is_empty() || !errors.is_empty() {
        let position = |error: &ParseError| (error.line, error.column);
        let branches: HashSet<_> = branch_errors.iter().map(position).collect();
        errors.retain(|error| !branches.contains(&position(error)));
        errors.extend(branch_errors);
        return Err(errors);
    }
    let effects = std::mem::take(&mut decoder.effects);
    let uninitialised = dataflow::maybe_uninitialised(&cfg, &effects, widths.len());
    // A `wgmma` writes its accumulators when it is waited for, whether or not they are live then.
    let mut pinned = uninitialised.clone();
    decoder.tables.wgmma.keys().for_each(|&register| pinned[register as usize] = true);
    let (slots, bytes) = dataflow::allocate(&cfg, &effects, &widths, &pinned);
    decoder.tables.layout = Layout::new(slots, bytes);
    decoder.tables.lists.clear();
    let mut insts = decoder.instructions()?;
    let effects = std::mem::take(&mut decoder.effects);
    let (register_checks, tracked) = register_checks(&mut insts, &effects, &uninitialised);
    count_unconditional(&mut insts, &cfg);
    let FunctionTables { layout, lists, wgmma, .. } = decoder.tables;
    let wgmma = wgmma_registers(function, &effects, &wgmma);
    let instructions = function.body.iter().zip(&effects);
    let value_flow = instructions.map(|(at, effect)| value_flow(at, effect, &layout, &widths)).collect();
    Ok(Decoded { insts, register_checks, tracked, lists, layout, value_flow, wgmma })
}

/// The flow of values through an instruction.
fn value_flow(instruction: &Instruction, effect: &Effects, layout: &Layout, widths: &[Width]) -> ValueFlow {
    let slots = |registers: &[RegId]| -> Box<[RegisterSlot]> {
        let slot = |&register: &RegId| RegisterSlot {
            slot: layout.register(register),
            width: widths[register as usize],
        };
        registers.iter().map(slot).collect()
    };
    // The first register read is the guard.
    let operands = &effect.reads[usize::from(effect.guarded)..];
    let selecting = first_selector(&instruction.opcode).and_then(|first| instruction.operands.get(first..));
    let register = |operand: &Operand| match operand {
        Operand::Reg(register) => Some(*register),
        Operand::Not(inner) => match **inner {
            Operand::Reg(register) => Some(register),
            _ => None,
        },
        _ => None,
    };
    let registers = |operands: &[Operand]| -> Vec<RegId> { operands.iter().filter_map(register).collect() };
    let selectors = selecting.map(registers).unwrap_or_default();
    let data = registers(
        &instruction.operands
            [..first_selector(&instruction.opcode).unwrap_or(0).min(instruction.operands.len())],
    );
    let is_data = |register: &&RegId| !selectors.contains(register) || data.contains(register);
    let operands: Vec<RegId> = operands.iter().filter(is_data).copied().collect();
    let opcode = instruction.opcode.as_str();
    ValueFlow {
        dependence: opcodes::dependence(instruction),
        reads: slots(&operands),
        selectors: slots(&selectors),
        reads_carry: matches!(opcode, "addc" | "subc" | "madc"),
        writes_carry: instruction.has("cc"),
        conditional_reads: slots(&effect.conditional_reads),
        condition: effect.condition,
        writes: slots(&effect.writes),
    }
}

/// Uses of the numbered registers by instructions other than `wgmma`.
fn wgmma_registers(
    function: &Function,
    effects: &[Effects],
    numbers: &HashMap<RegId, u32>,
) -> WgmmaRegisters {
    if numbers.is_empty() {
        return WgmmaRegisters::default();
    }
    let mut registers = vec![0; numbers.len()];
    numbers.iter().for_each(|(&register, &number)| registers[number as usize] = register);
    let uses = |(instruction, effect): (&Instruction, &Effects)| {
        if instruction.opcode == "wgmma" {
            return Box::default();
        }
        let numbered = |registers: &[RegId], writes| -> Vec<(u32, bool)> {
            registers.iter().filter_map(|register| Some((*numbers.get(register)?, writes))).collect()
        };
        [numbered(&effect.reads, false), numbered(&effect.writes, true)].concat().into()
    };
    WgmmaRegisters { registers, uses: function.body.iter().zip(effects).map(uses).collect() }
}

/// Target of each instruction that is a branch, and an error for each branch without a valid target.
fn branch_targets(function: &Function) -> (Vec<Option<usize>>, Vec<ParseError>) {
    let mut errors = Vec::new();
    let mut targets = Vec::with_capacity(function.body.len());
    for instruction in &function.body {
        let target = match (instruction.opcode.as_str(), &instruction.operands[..]) {
            ("bra", [Operand::Symbol(label, 0)]) => {
                let target = function.label(instruction.scope, label);
                if target.is_none() {
                    let message = format!("unknown label `{label}`");
                    errors.push(instruction.error(ParseErrorKind::Undefined, message));
                }
                target
            }
            ("bra", _) => {
                errors.push(instruction.error(ParseErrorKind::Operand, "`bra` takes one label"));
                None
            }
            _ => None,
        };
        targets.push(target);
    }
    (targets, errors)
}

/// Run-time checks of registers that may be read before a write, and the number of such registers.
fn register_checks(
    insts: &mut [Inst],
    effects: &[Effects],
    uninitialised: &[bool],
) -> (Vec<RegisterCheck>, usize) {
    let mut tracked = 0;
    let number: Vec<Option<usize>> = uninitialised
        .iter()
        .map(|&uninitialised| {
            tracked += uninitialised as usize;
            uninitialised.then(|| tracked - 1)
        })
        .collect();
    let mut checks = Vec::new();
    for (inst, effect) in insts.iter_mut().zip(effects) {
        let tracked = |registers: &[RegId]| -> Vec<(usize, RegId)> {
            registers.iter().filter_map(|&r| number[r as usize].map(|index| (index, r))).collect()
        };
        let (reads, conditional_reads) = (tracked(&effect.reads), tracked(&effect.conditional_reads));
        let writes: Vec<_> = effect.writes.iter().filter_map(|&r| number[r as usize]).collect();
        if !reads.is_empty() || !conditional_reads.is_empty() || !writes.is_empty() {
            let condition = effect.condition;
            checks.push(RegisterCheck { reads, conditional_reads, condition, writes });
            inst.register_check = checks.len() as u32;
        }
    }
    (checks, tracked)
}

/// Fills in [`Inst::unconditional`]. Lanes diverge and reconverge only between basic blocks.
fn count_unconditional(insts: &mut [Inst], cfg: &Cfg) {
    for block in &cfg.blocks {
        let mut count = 0;
        for inst in insts[block.start..block.end].iter_mut().rev() {
            count = if inst.guard == NONE && inst.register_check == 0 { count + 1 } else { 0 };
            inst.unconditional = count;
        }
    }
}

struct Decoder<'f> {
    tables: FunctionTables<'f>,
    targets: &'f [Option<usize>],
    cfg: &'f Cfg,
    effects: Vec<Effects>,
}

impl<'f> Decoder<'f> {
    fn instructions(&mut self) -> Result<Vec<Inst>, Vec<ParseError>> {
        let mut errors = Vec::new();
        let mut insts = Vec::with_capacity(self.tables.function.body.len());
        for at in 0..self.tables.function.body.len() {
            match self.instruction(at) {
                Ok(inst) => insts.push(inst),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(insts) } else { Err(errors) }
    }

    fn instruction(&mut self, at: usize) -> Result<Inst, ParseError> {
        let ast = &self.tables.function.body[at];
        let branch = self.targets[at].map(|target| {
            let block = self.cfg.block_of[at] as usize;
            (target, self.cfg.blocks[block].reconvergence)
        });
        let mut op = InstructionCursor::new(&mut self.tables, ast, branch);
        let run = dispatch(&mut op, ast)?;
        let Operands { slots, guard, imm, effects } = op.finish()?;
        self.effects.push(effects);
        Ok(Inst { run, slots, guard, register_check: 0, unconditional: 0, imm })
    }
}

/// Decodes an instruction with the decoder of its opcode family.
fn dispatch(op: &mut InstructionCursor<'_, '_>, instruction: &Instruction) -> Result<Exec, ParseError> {
    match opcodes::find(instruction) {
        Some(family) => (family.decode)(op),
        None if opcodes::is_known(op.opcode()) => {
            // Reports a missing or unknown type first: some row has the opcode, but no row has this type.
            op.take_ty()?;
            Err(op.unsupported())
        }
        None => Err(op.malformed(format!("unknown instruction `{}`", op.opcode()))),
    }
}
