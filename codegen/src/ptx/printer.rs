//! Printer of an entry point: signature, blocks, terminators and the moves that assign block parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;

use super::lines::Lines;
use super::moves::{Move, sequence};
use super::operand::{Class, Register, arithmetic, bits, immediate, immediate_allowed};
use super::shared_registers::shared_registers;
use super::signature::{entry_signature, function_signature};
use super::symbols::Symbols;
use crate::ir::{ARRAY_ALIGN, Block, BlockCall, Function, InstData, Op, Type, Value};

/// State of printing one entry point.
pub(super) struct Printer<'a> {
    pub function: &'a Function,
    pub text: String,
    registers: SecondaryMap<Value, Option<Register>>,
    /// Maps each value that shares a register to the value of its group under which `registers` has the register.
    shared_registers: FxHashMap<Value, Value>,
    counts: FxHashMap<Class, u32>,
    /// Names of the module's constants.
    pub symbols: &'a Symbols<'a>,
    /// Names in the module of the functions that are called.
    pub callees: BTreeMap<String, String>,
    lines: Lines<'a>,
    /// Number of branch edges with a label of their own.
    edges: u32,
    /// Values that are used. An atomic whose result is unused becomes a `red`.
    pub used: BTreeSet<Value>,
}

impl<'a> Printer<'a> {
    /// A printer of `function` that continues the line directives of `lines`.
    pub fn new(
        function: &'a Function,
        symbols: &'a Symbols<'a>,
        callees: BTreeMap<String, String>,
        lines: Lines<'a>,
    ) -> Printer<'a> {
        let mut used = BTreeSet::new();
        for &block in &function.layout {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                used.extend(data.args.iter().copied());
                used.extend(data.dests.iter().flat_map(|dest| dest.args.iter().copied()));
            }
        }
        Printer {
            function,
            text: String::new(),
            registers: SecondaryMap::new(),
            shared_registers: shared_registers(function),
            counts: FxHashMap::default(),
            symbols,
            callees,
            lines,
            edges: 0,
            used,
        }
    }

    /// Allocates a new register of the class.
    pub fn fresh(&mut self, class: Class) -> Register {
        let count = self.counts.entry(class).or_insert(0);
        *count += 1;
        Register { class, number: *count }
    }

    /// The register that holds the value. A constant is loaded into a new register just before its use.
    pub fn register(&mut self, value: Value) -> Register {
        let value = self.shared_registers.get(&value).copied().unwrap_or(value);
        if let Some(register) = self.registers[value] {
            return register;
        }
        let ty = self.function.value_type(value);
        let register = self.fresh(Class::of(ty));
        match self.function.constant(value) {
            // The register is not cached: this load may not dominate the next use.
            Some(constant) => self.load_constant(register, ty, constant),
            None => self.registers[value] = Some(register),
        }
        register
    }

    /// Moves the operands that an instruction updates in place to the registers of its results, where the registers
    /// differ.
    pub fn update_in_place(&mut self, data: &InstData) {
        for (&operand, &result) in data.args.iter().zip(&data.results).take(data.in_place()) {
            let ty = self.function.value_type(operand);
            match self.function.constant(operand) {
                Some(constant) => {
                    let to = self.register(result);
                    self.load_constant(to, ty, constant);
                }
                None => {
                    let from = self.register(operand);
                    let to = self.register(result);
                    if to != from {
                        self.line(format_args!("mov.{} {to}, {from};", to.class.declared()));
                    }
                }
            }
        }
    }

    fn load_constant(&mut self, to: Register, ty: Type, constant: u64) {
        if ty == Type::Pred {
            self.line(format_args!("setp.ne.u32 {to}, {constant}, 0;"));
        } else {
            let move_type = if matches!(ty, Type::F32 | Type::F64) { arithmetic(ty) } else { bits(ty) };
            self.line(format_args!("mov.{move_type} {to}, {};", immediate(ty, constant)));
        }
    }

    /// The value as an operand: an immediate if possible, otherwise its register.
    pub fn operand(&mut self, value: Value) -> String {
        let ty = self.function.value_type(value);
        match self.function.constant(value) {
            Some(constant) if immediate_allowed(ty) => immediate(ty, constant),
            _ => self.register(value).to_string(),
        }
    }

    /// Writes one indented line.
    pub fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "\t{text}");
    }

    fn body(&mut self) {
        let function = self.function;
        for (index, &block) in function.layout.iter().enumerate() {
            let next = function.layout.get(index + 1).copied();
            if index > 0 {
                let _ = writeln!(self.text, "{}:", label(block));
            }
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                if matches!(data.op, Op::Const(_)) {
                    continue;
                }
                if let Some(loc) = data.loc {
                    self.lines.locate(function, loc, &mut self.text);
                }
                match data.op {
                    Op::Jump => self.jump(&data.dests[0], next),
                    Op::Branch => self.branch(data, next),
                    Op::Return => self.line(format_args!("ret;")),
                    _ => self.instruction(data),
                }
            }
        }
    }

    fn jump(&mut self, dest: &BlockCall, next: Option<Block>) {
        self.assign(dest);
        if next != Some(dest.block) {
            self.line(format_args!("bra {};", label(dest.block)));
        }
    }

    fn branch(&mut self, data: &InstData, next: Option<Block>) {
        let condition = self.register(data.args[0]);
        let (then, otherwise) = (&data.dests[0], &data.dests[1]);
        if then.args.is_empty() && next != Some(then.block) {
            self.line(format_args!("@{condition} bra {};", label(then.block)));
            self.jump(otherwise, next);
        } else if otherwise.args.is_empty() {
            self.line(format_args!("@!{condition} bra {};", label(otherwise.block)));
            self.jump(then, next);
        } else {
            // Both edges of a branch may assign parameters: the second edge gets a block of its own.
            self.edges += 1;
            let edge = format!("{}_edge{}", label(otherwise.block), self.edges);
            self.line(format_args!("@!{condition} bra {edge};"));
            self.jump(then, None);
            let _ = writeln!(self.text, "{edge}:");
            self.jump(otherwise, next);
        }
    }

    /// Prints the moves that assign the parameters of the target block.
    fn assign(&mut self, dest: &BlockCall) {
        let function = self.function;
        let mut assignments: Vec<(Register, Value)> = Vec::new();
        for (&param, &arg) in function.block(dest.block).params.iter().zip(&dest.args) {
            assignments.push((self.register(param), arg));
        }
        let mut sources: FxHashMap<Value, Register> = FxHashMap::default();
        for &(_, arg) in &assignments {
            if function.constant(arg).is_none() {
                sources.insert(arg, self.register(arg));
            }
        }
        for class in Class::ALL {
            let group: Vec<_> = assignments.iter().copied().filter(|(to, _)| to.class == class).collect();
            let mut scratch = None;
            for step in sequence(&group, |value| sources.get(&value).copied()) {
                let declared = class.declared();
                match step {
                    Move::Copy(to, from) => match function.constant(from) {
                        Some(constant) => self.load_constant(to, function.value_type(from), constant),
                        None => self.line(format_args!("mov.{declared} {to}, {};", sources[&from])),
                    },
                    Move::Save(from) => {
                        let to = *scratch.get_or_insert_with(|| self.fresh(class));
                        self.line(format_args!("mov.{declared} {to}, {from};"));
                    }
                    Move::Restore(to) => {
                        if let Some(from) = scratch {
                            self.line(format_args!("mov.{declared} {to}, {from};"));
                        }
                    }
                }
            }
        }
    }

    /// Prints the entry point. Returns its text and the state of the line directives.
    pub fn entry(mut self) -> (String, Lines<'a>) {
        self.body();
        let mut out = String::with_capacity(self.text.len() + 1024);
        entry_signature(self.function, &mut out);
        self.definition(out)
    }

    /// Prints the function as `name`. Returns its text and the state of the line directives.
    pub fn function(mut self, name: &str) -> (String, Lines<'a>) {
        self.body();
        let mut out = String::with_capacity(self.text.len() + 1024);
        function_signature(self.function, name, &mut out);
        self.definition(out)
    }

    /// Appends the body to the signature.
    fn definition(self, mut out: String) -> (String, Lines<'a>) {
        let function = self.function;
        let mut line = |text: std::fmt::Arguments<'_>| {
            let _ = writeln!(out, "{text}");
        };
        line(format_args!("{{"));
        for class in Class::ALL {
            if let Some(count) = self.counts.get(&class) {
                line(format_args!("\t.reg .{} {}<{}>;", class.declared(), class.prefix(), count + 1));
            }
        }
        for (variable, shared) in &function.shared {
            let bytes = shared.count * shared.element.bytes();
            line(format_args!("\t.shared .align {} .b8 {variable}[{bytes}];", shared.align));
        }
        for (variable, local) in &function.locals {
            let bytes = local.count * local.element.bytes();
            line(format_args!("\t.local .align {ARRAY_ALIGN} .b8 {variable}[{bytes}];"));
        }
        out.push_str(&self.text);
        out.push_str("}\n");
        (out, self.lines)
    }
}

/// PTX label of a block.
fn label(block: Block) -> String {
    format!("$L_{block}")
}
