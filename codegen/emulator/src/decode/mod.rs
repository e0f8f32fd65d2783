//! From the parsed function to [`Code`]: instructions with their slots and functions resolved.

use std::collections::HashMap;

use crate::checks::numeric::Watch;
use crate::exec::{self, Exec, Inst, NEGATED, NONE};
use crate::load::ast::{Function, Instruction, Location, Operand, RegId, Special};
use crate::load::control_flow::Cfg;
use crate::load::dataflow::{self, Effects};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::layout::{Layout, Uniform};
use crate::load::types::{Ty, Width};
use crate::load::unsupported;
use crate::profile::Role;

/// An instruction's place in the PTX and in the kernel's own source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) line: u32,
    /// An index into [`Code::locations`].
    pub(crate) source: Option<u32>,
}

/// Registers of one instruction whose initialisation is tracked as it runs. The numbers index the
/// warp's initialisation masks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit {
    pub(crate) reads: Vec<(usize, RegId)>,
    pub(crate) writes: Vec<usize>,
}

/// A kernel's executable form.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) insts: Vec<Inst>,
    pub(crate) places: Vec<Place>,
    pub(crate) locations: Vec<Location>,
    /// What each instruction is to a profile.
    pub(crate) roles: Vec<Role>,
    pub(crate) audits: Vec<Audit>,
    pub(crate) watches: Vec<Watch>,
    /// Operands of the instructions that have more than fit into [`Inst::slots`].
    lists: Vec<Box<[u32]>>,
    /// How many registers have a dynamic initialisation mask.
    pub(crate) tracked: usize,
    pub(crate) layout: Layout,
    pub(crate) register_names: Vec<String>,
}

impl Code {
    /// Code of a kernel that is still being loaded.
    pub(crate) fn empty() -> Code {
        Code {
            insts: Vec::new(),
            places: Vec::new(),
            locations: Vec::new(),
            roles: Vec::new(),
            audits: Vec::new(),
            watches: Vec::new(),
            lists: Vec::new(),
            tracked: 0,
            layout: Layout::new(Vec::new(), 0),
            register_names: Vec::new(),
        }
    }

    /// The operands that [`Op::list`] put away as number `index`.
    #[inline(always)]
    pub(crate) fn list(&self, index: u64) -> &[u32] {
        &self.lists[index as usize]
    }

    /// Whether `register` is the instruction's guard.
    pub(crate) fn is_guard(&self, inst: &Inst, register: RegId) -> bool {
        inst.guard != NONE && inst.guard & !NEGATED == self.layout.register(register)
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Symbol {
    /// Offset in the CTA's shared memory.
    Shared(u64),
    /// Offset in the parameter block.
    Param(u32),
    /// Offset in the module's variables.
    Module(u64),
    /// Offset in what each thread has for itself.
    Local(u64),
}

/// Functions whose analyses would take more than this many bits a set are refused.
const MAX_ANALYSIS_BITS: usize = 1 << 33;

/// Decodes a function whose names are `symbols`.
///
/// # Errors
/// Every instruction that is not understood.
pub(crate) fn decode(
    function: &Function,
    symbols: &HashMap<String, Symbol>,
) -> Result<Code, Vec<ParseError>> {
    let (targets, lost) = branch_targets(function);
    let cfg = Cfg::build(function, &targets);
    let widths: Vec<Width> = function.registers.iter().map(|register| register.ty.width()).collect();
    if widths.len().saturating_mul(cfg.blocks.len()) > MAX_ANALYSIS_BITS {
        let line = function.body.first().map_or(0, |first| first.line);
        let message = "the function is too large";
        return Err(vec![ParseError::new(ParseErrorKind::Unsupported, (line, 1), message)]);
    }
    let mut decoder = Decoder {
        function,
        symbols,
        targets: &targets,
        cfg: &cfg,
        layout: Layout::unshared(&widths),
        effects: Vec::new(),
        lists: Vec::new(),
    };
    // The first pass is for the effects, which the register allocation of the second needs.
    let mut errors = decoder.instructions().err().unwrap_or_default();
    if !lost.is_empty() || !errors.is_empty() {
        let place = |error: &ParseError| (error.line, error.column);
        errors.retain(|error| !lost.iter().any(|lost| place(lost) == place(error)));
        errors.extend(lost);
        return Err(errors);
    }
    let effects = std::mem::take(&mut decoder.effects);
    let suspects = dataflow::maybe_unassigned(&cfg, &effects, widths.len());
    let (slots, bytes) = dataflow::allocate(&cfg, &effects, &widths, &suspects);
    decoder.layout = Layout::new(slots, bytes);
    decoder.lists.clear();
    let mut insts = decoder.instructions()?;
    let (audits, tracked) = audits(&mut insts, &effects, &suspects);
    count_straight(&mut insts, &cfg);
    let slot = |&register: &RegId| decoder.layout.register(register);
    let watch = |(ast, effect): (_, &Effects)| Watch::new(ast, effect.writes.iter().map(slot));
    let watches = function.body.iter().zip(&effects).map(watch).collect();
    Ok(Code {
        insts,
        places: function
            .body
            .iter()
            .map(|instruction| Place { line: instruction.line, source: instruction.source })
            .collect(),
        locations: function.locations.clone(),
        roles: function.body.iter().map(Role::of).collect(),
        audits,
        watches,
        lists: decoder.lists,
        tracked,
        layout: decoder.layout,
        register_names: function.registers.iter().map(|register| register.name.clone()).collect(),
    })
}

/// Where every branch leads, and an error for every one that leads nowhere.
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

fn audits(insts: &mut [Inst], effects: &[Effects], suspects: &[bool]) -> (Vec<Audit>, usize) {
    let mut tracked = 0;
    let number: Vec<Option<usize>> = suspects
        .iter()
        .map(|&suspect| {
            tracked += suspect as usize;
            suspect.then(|| tracked - 1)
        })
        .collect();
    let mut audits = Vec::new();
    for (inst, effect) in insts.iter_mut().zip(effects) {
        let reads: Vec<_> =
            effect.reads.iter().filter_map(|&r| number[r as usize].map(|index| (index, r))).collect();
        let writes: Vec<_> = effect.writes.iter().filter_map(|&r| number[r as usize]).collect();
        if !reads.is_empty() || !writes.is_empty() {
            audits.push(Audit { reads, writes });
            inst.audit = audits.len() as u32;
        }
    }
    (audits, tracked)
}

/// Fills in [`Inst::straight`]. Lanes part and meet only between blocks.
fn count_straight(insts: &mut [Inst], cfg: &Cfg) {
    for block in &cfg.blocks {
        let mut straight = 0;
        for inst in insts[block.start..block.end].iter_mut().rev() {
            straight = if inst.guard == NONE && inst.audit == 0 { straight + 1 } else { 0 };
            inst.straight = straight;
        }
    }
}

struct Decoder<'f> {
    function: &'f Function,
    symbols: &'f HashMap<String, Symbol>,
    targets: &'f [Option<usize>],
    cfg: &'f Cfg,
    layout: Layout,
    effects: Vec<Effects>,
    lists: Vec<Box<[u32]>>,
}

impl<'f> Decoder<'f> {
    fn instructions(&mut self) -> Result<Vec<Inst>, Vec<ParseError>> {
        let mut errors = Vec::new();
        let mut insts = Vec::with_capacity(self.function.body.len());
        for at in 0..self.function.body.len() {
            match self.instruction(at) {
                Ok(inst) => insts.push(inst),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(insts) } else { Err(errors) }
    }

    fn instruction(&mut self, at: usize) -> Result<Inst, ParseError> {
        let ast = &self.function.body[at];
        let branch = self.targets[at].map(|target| {
            let block = self.cfg.block_of[at] as usize;
            (target, self.cfg.blocks[block].reconvergence)
        });
        let mut op = Op {
            decoder: self,
            ast,
            modifiers: ast.modifiers.iter().map(String::as_str).collect(),
            operands_used: 0,
            effects: Effects { guarded: ast.guard.is_some(), ..Effects::default() },
            slots: [0; 7],
            imm: 0,
            branch,
        };
        let guard = match ast.guard {
            None => NONE,
            Some(guard) => {
                op.effects.reads.push(guard.register);
                let slot = op.decoder.layout.register(guard.register);
                if guard.negated { slot | NEGATED } else { slot }
            }
        };
        let run = dispatch(&mut op)?;
        if let Some(modifier) = op.modifiers.first() {
            let message = format!("unknown or misplaced modifier `.{modifier}` of `{}`", op.text());
            return Err(op.refused(message));
        }
        if op.operands_used < ast.operands.len() {
            let message = match unsupported::operands(ast) {
                ParseErrorKind::Unsupported => format!("the emulator lacks `{}` of three sources", op.text()),
                _ => format!("`{}` takes {}", op.text(), count(op.operands_used, "operand")),
            };
            return Err(ast.error(unsupported::operands(ast), message));
        }
        let (slots, imm, effects) = (op.slots, op.imm, std::mem::take(&mut op.effects));
        self.effects.push(effects);
        Ok(Inst { run, slots, guard, audit: 0, straight: 0, imm })
    }
}

/// `1 operand`, `2 operands`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Finds the family of an instruction. Names shared by several families are told apart by type.
fn dispatch(op: &mut Op<'_, '_>) -> Result<Exec, ParseError> {
    let ty = op.peek_ty();
    match op.opcode() {
        "add" | "sub" | "mul" | "fma" | "mad" | "neg" | "abs" | "min" | "max" | "div" | "rem" | "addc"
        | "subc" | "madc" => match ty {
            Some(Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2) => exec::half::decode(op),
            Some(Ty::F32 | Ty::F64) => exec::float::decode(op),
            _ => exec::integer::decode(op),
        },
        "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign" | "testp" => {
            match ty {
                Some(Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2) => exec::half::decode(op),
                _ => exec::float_special::decode(op),
            }
        }
        "mul24" | "mad24" | "sad" | "dp4a" | "dp2a" => exec::integer::decode(op),
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "lop3" | "shf" | "prmt" | "bfe" | "bfi"
        | "bfind" | "brev" | "popc" | "clz" | "szext" | "bmsk" | "fns" => exec::bits::decode(op),
        "setp" | "set" | "selp" | "slct" => exec::compare::decode(op),
        "mov" | "cvta" => exec::moves::decode(op),
        "isspacep" | "mapa" | "getctarank" => exec::cluster::decode(op),
        "cvt" => exec::convert::decode(op),
        "st" | "red" if op.has("async") => exec::remote::decode(op),
        "barrier" if op.has("cluster") => exec::cluster::decode(op),
        "ld" | "ldu" | "st" | "prefetch" | "prefetchu" | "createpolicy" | "fence" | "membar" => {
            exec::load_store::decode(op)
        }
        "atom" | "red" => exec::atomic::decode(op),
        "bra" | "ret" | "exit" | "trap" | "bar" | "barrier" | "nanosleep" | "griddepcontrol"
        | "setmaxnreg" => exec::control::decode(op),
        "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => exec::collective::decode(op),
        "mbarrier" => exec::mbarrier::decode(op),
        "cp" => exec::copy::decode(op),
        "wmma" => exec::wmma::decode(op),
        "mma" | "ldmatrix" | "stmatrix" => exec::matrix::decode(op),
        other => Err(op.malformed(format!("unknown instruction `{other}`"))),
    }
}

/// One instruction while it is decoded. Modifiers are taken off one by one; whatever is left at the
/// end is an error.
pub(crate) struct Op<'d, 'f> {
    decoder: &'d mut Decoder<'f>,
    ast: &'f Instruction,
    modifiers: Vec<&'f str>,
    operands_used: usize,
    effects: Effects,
    pub(crate) slots: [u32; 7],
    pub(crate) imm: u64,
    /// Target and reconvergence point, for a branch.
    pub(crate) branch: Option<(usize, Option<usize>)>,
}

/// Where an address operand's base comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressWidth {
    W32,
    W64,
}

impl<'f> Op<'_, 'f> {
    pub(crate) fn opcode(&self) -> &'f str {
        &self.ast.opcode
    }

    /// Opcode and modifiers as written.
    pub(crate) fn text(&self) -> String {
        self.ast.text()
    }

    /// The error for an operand that the instruction does not take.
    pub(crate) fn error(&self, message: impl Into<String>) -> ParseError {
        self.ast.error(ParseErrorKind::Operand, message)
    }

    /// The error for an instruction that is not written as PTX is.
    pub(crate) fn malformed(&self, message: impl Into<String>) -> ParseError {
        self.ast.error(ParseErrorKind::Syntax, message)
    }

    /// The error for modifiers that have no meaning together, as `message` says, or of which the emulator lacks one.
    fn refused(&self, message: String) -> ParseError {
        let modifiers = self.ast.modifiers.iter().map(String::as_str);
        match unsupported::form(&self.ast.opcode, modifiers) {
            kind @ ParseErrorKind::Unsupported => {
                self.ast.error(kind, format!("the emulator lacks `{}`", self.text()))
            }
            kind => self.ast.error(kind, message),
        }
    }

    /// [`Op::refused`] that names the instruction and no more.
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

    /// Takes the first of `choices` that is present.
    pub(crate) fn take_any<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find_map(|&(name, value)| self.take(name).then_some(value))
    }

    /// Takes the first modifier that `accept` maps to something.
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

    fn peek_ty(&self) -> Option<Ty> {
        self.modifiers.iter().find_map(|modifier| Ty::parse(modifier))
    }

    /// Bytes of the kernel's parameter block.
    pub(crate) fn param_bytes(&self) -> u64 {
        self.decoder.function.param_bytes() as u64
    }

    pub(crate) fn operand_count(&self) -> usize {
        self.ast.operands.len()
    }

    pub(crate) fn operand(&mut self, index: usize) -> Result<&'f Operand, ParseError> {
        self.operands_used = self.operands_used.max(index + 1);
        let ast = self.ast;
        ast.operands.get(index).ok_or_else(|| {
            self.error(format!("`{}` needs more than {}", self.text(), count(index, "operand")))
        })
    }

    pub(crate) fn register_ty(&self, register: RegId) -> Ty {
        self.decoder.function.registers[register as usize].ty
    }

    fn mismatch(&self, register: RegId, wanted: Width) -> ParseError {
        let found = &self.decoder.function.registers[register as usize];
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
        Ok(self.decoder.layout.register(register))
    }

    /// The slot of a register that the instruction reads.
    pub(crate) fn read_register(&mut self, register: RegId) -> u32 {
        self.effects.reads.push(register);
        self.decoder.layout.register(register)
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
                return Ok(self.decoder.layout.special(*special, width));
            }
            Operand::Symbol(name, offset) => return self.symbol_value(name, *offset, width),
            Operand::Not(inner) if ty == Ty::Pred => return Ok(self.value(inner, ty)? | NEGATED),
            Operand::Int(value) if ty == Ty::F64 || ty == Ty::F32 => {
                return Err(self.error(format!("integer {value} where a float is needed")));
            }
            Operand::Int(value) => *value,
            Operand::F32(bits) if width == Width::W32 => *bits as u64,
            Operand::F32(bits) if ty == Ty::F64 => (f32::from_bits(*bits) as f64).to_bits(),
            Operand::F64(bits) if width == Width::W64 => *bits,
            Operand::F64(bits) if ty == Ty::F32 => (f64::from_bits(*bits) as f32).to_bits() as u64,
            _ => return Err(self.error(format!("unsuitable operand of `{}`", self.text()))),
        };
        let mask = u64::MAX >> (64 - width.bits());
        Ok(self.decoder.layout.constant(width, constant & mask))
    }

    fn symbol_value(&mut self, name: &str, offset: i64, width: Width) -> Result<u32, ParseError> {
        let layout = &mut self.decoder.layout;
        match self.decoder.symbols.get(name) {
            Some(&Symbol::Shared(at)) if width >= Width::W32 => {
                Ok(layout.uniform(Uniform::SharedAddress(at.wrapping_add_signed(offset)), width))
            }
            Some(&Symbol::Local(at)) if width >= Width::W32 => {
                Ok(layout.constant(width, at.wrapping_add_signed(offset)))
            }
            Some(&Symbol::Param(at)) if width >= Width::W32 => Ok(layout.constant(
                width,
                exec::resolve::PARAM_WINDOW.wrapping_add(at as u64).wrapping_add_signed(offset),
            )),
            Some(&Symbol::Module(at)) if width == Width::W64 => {
                Ok(layout.uniform(Uniform::ModuleAddress(at as i64 + offset), width))
            }
            Some(_) => Err(self.error(format!("the address of `{name}` does not fit the register"))),
            None => Err(self.ast.error(ParseErrorKind::Undefined, format!("unknown name `{name}`"))),
        }
    }

    /// Puts operands away for [`Code::list`]; returns their number.
    pub(crate) fn list(&mut self, operands: Vec<u32>) -> u64 {
        self.decoder.lists.push(operands.into());
        self.decoder.lists.len() as u64 - 1
    }

    pub(crate) fn constant(&mut self, width: Width, bits: u64) -> u32 {
        self.decoder.layout.constant(width, bits)
    }

    /// The value of an operand that must be an integer constant.
    pub(crate) fn constant_operand(&mut self, index: usize) -> Result<u64, ParseError> {
        match self.operand(index)? {
            Operand::Int(value) => Ok(*value),
            _ => Err(self.error(format!("operand {} of `{}` must be a constant", index + 1, self.text()))),
        }
    }

    /// The slot and width of an address's base; the offset goes to `imm`.
    pub(crate) fn address(&mut self, index: usize) -> Result<(u32, AddressWidth), ParseError> {
        let Operand::Address(base, offset) = self.operand(index)? else {
            return Err(self.error(format!("operand {} of `{}` must be an address", index + 1, self.text())));
        };
        self.imm = *offset as u64;
        match &**base {
            Operand::Reg(register) => match self.register_ty(*register).width() {
                Width::W32 => Ok((self.read_register(*register), AddressWidth::W32)),
                Width::W64 => Ok((self.read_register(*register), AddressWidth::W64)),
                width => Err(self.mismatch(*register, width.max(Width::W64))),
            },
            other => Ok((self.value(other, Ty::B64)?, AddressWidth::W64)),
        }
    }

    /// The parameter that an address operand names directly, with its offset.
    pub(crate) fn param_address(&mut self, index: usize) -> Result<Option<u64>, ParseError> {
        if let Operand::Address(base, offset) = self.operand(index)?
            && let Operand::Symbol(name, _) = &**base
            && let Some(&Symbol::Param(at)) = self.decoder.symbols.get(name)
        {
            return Ok(Some((at as u64).wrapping_add_signed(*offset)));
        }
        Ok(None)
    }

    /// Whether an address operand names a variable that each thread has for itself.
    pub(crate) fn names_local(&mut self, index: usize) -> Result<bool, ParseError> {
        let Operand::Address(base, _) = self.operand(index)? else { return Ok(false) };
        let Operand::Symbol(name, _) = &**base else { return Ok(false) };
        Ok(matches!(self.decoder.symbols.get(name), Some(Symbol::Local(_))))
    }

    /// Fills D and A: `op d, a`.
    pub(crate) fn unary(&mut self, d: Ty, a: Ty) -> Result<(), ParseError> {
        self.slots[exec::D] = self.dst(0, d.width())?;
        self.slots[exec::A] = self.src(1, a)?;
        Ok(())
    }

    /// Fills D, A and B: `op d, a, b`.
    pub(crate) fn binary(&mut self, d: Ty, a: Ty, b: Ty) -> Result<(), ParseError> {
        self.unary(d, a)?;
        self.slots[exec::B] = self.src(2, b)?;
        Ok(())
    }

    /// Fills D, A, B and C: `op d, a, b, c`.
    pub(crate) fn ternary(&mut self, d: Ty, ab: Ty, c: Ty) -> Result<(), ParseError> {
        self.binary(d, ab, ab)?;
        self.slots[exec::C] = self.src(3, c)?;
        Ok(())
    }
}
