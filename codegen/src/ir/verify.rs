//! Verifier: checks that a function is well formed. Passes and back ends rely on these rules for verified functions.
//!
//! The kernel:
//! - Its name and its parameters' names are identifiers; the parameters' names differ.
//! - A parameter is a global pointer with or without an element type, a scalar without one, or a tensor map with a valid
//!   layout.
//! - `threads`, if fixed, is from 1 to 1024; `min_blocks` is from 1 to 32 and requires `threads`; `max_registers` is from 1
//!   to 255; `cluster` is from 1 to 8.
//! - A shared variable has at least one element, of a scalar type other than a predicate; its alignment is a power of
//!   two and at least the element's size.
//! - Local arrays and tables have at least one element, of a scalar type other than a predicate.
//! - A source location's `inlined_at` is a location recorded earlier.
//!
//! Blocks:
//! - The layout has at least one block and none twice; all are reachable from the first.
//! - The entry block has neither parameters nor predecessors.
//! - A block has exactly one terminator, its last instruction.
//!
//! Values:
//! - An instruction is in one block only. Values name their instruction or block as their definition, and vice versa.
//! - The definition of every operand and block argument dominates its use.
//!
//! Instructions:
//! - Number and types of operands and results are those of [`Op::signature`]; an opcode without a type has `Type::U32`.
//! - A jump has one target, a branch two, any other instruction none. Targets are in the layout, and the arguments
//!   match the target's parameters in number and types.
//! - `param` names a parameter and has its type; `shared_address`, `local_address` and `table_address` name a variable.
//! - A conversion's operand is a scalar number; a bit cast's operand and result have the same width and are not
//!   predicates.
//! - Constant memory is not written. Local and constant memory have no atomics, volatile or ordered accesses.
//! - Cache operators other than `volatile`, and cache policies, require global memory.
//! - An access at a constant offset from a shared variable is aligned to its own size. (It may be out of bounds:
//!   folding produces such accesses in code that is never executed.)
//! - The same alignment rule holds for asynchronous copies into shared memory, rows of matrices and mbarriers. A
//!   constant size of a bulk copy or prefetch is a multiple of 16.
//! - If any source location is recorded, every instruction has one.

mod inst;

use std::collections::HashSet;
use std::fmt;

use cranelift_entity::{EntitySet, SecondaryMap};

use super::dominators::{Dominators, InstBlocks};
use super::{Block, Def, Function, Inst, InstData, Op, Table, Type, Value, print};

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// Block of the violation, if it is in one.
    pub block: Option<Block>,
    /// Text of the instruction, if the violation is in one.
    pub inst: Option<String>,
    /// The source location of the instruction, with the chain of inlined calls.
    pub source: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl VerifyError {
    fn of_function(function: &Function, message: &str) -> VerifyError {
        let message = format!("function `{}`: {message}", function.name);
        VerifyError { block: None, inst: None, source: None, message }
    }
}

impl std::error::Error for VerifyError {}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(block) = self.block {
            write!(f, "{block}: ")?;
        }
        if let Some(inst) = &self.inst {
            write!(f, "`{inst}`: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, " (at {source})")?;
        }
        Ok(())
    }
}

/// The first violated rule of an instruction that matches its signature. The recorder calls this for each instruction.
pub(crate) fn misuse(function: &Function, data: &InstData) -> Option<String> {
    inst::misuses(function, data).into_iter().next()
}

/// Checks every rule and returns all errors. Rules that depend on others are skipped if those are violated.
pub fn verify(function: &Function) -> Result<(), Vec<VerifyError>> {
    let mut errors = check(function, &function.functions);
    for (index, callee) in function.functions.iter().enumerate() {
        let before = &function.functions[..index];
        if callee.results.is_none() || !callee.functions.is_empty() {
            errors.push(VerifyError::of_function(callee, "a kernel calls functions only"));
        }
        if before.iter().any(|other| other.name == callee.name) {
            errors.push(VerifyError::of_function(callee, "two functions have this name"));
        }
        errors.extend(check(callee, before).into_iter().map(|error| VerifyError {
            message: format!("function `{}`: {}", callee.name, error.message),
            ..error
        }));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Checks a kernel or a function, which calls `functions`.
fn check(function: &Function, functions: &[Function]) -> Vec<VerifyError> {
    let mut verifier = Verifier { function, errors: Vec::new() };
    verifier.header();
    verifier.arrays();
    verifier.locations();
    verifier.layout();
    let insts = verifier.definitions();
    if verifier.errors.is_empty() {
        verifier.blocks(&insts);
        verifier.calls(functions);
    }
    verifier.errors
}

struct Verifier<'a> {
    function: &'a Function,
    errors: Vec<VerifyError>,
}

impl Verifier<'_> {
    fn report(&mut self, message: impl Into<String>) {
        self.errors.push(VerifyError { block: None, inst: None, source: None, message: message.into() });
    }

    fn report_block(&mut self, block: Block, message: impl Into<String>) {
        self.errors.push(VerifyError {
            block: Some(block),
            inst: None,
            source: None,
            message: message.into(),
        });
    }

    fn report_inst(&mut self, block: Block, inst: Inst, message: impl Into<String>) {
        let loc = self.function.inst(inst).loc.filter(|&loc| self.function.locs.is_valid(loc));
        self.errors.push(VerifyError {
            block: Some(block),
            inst: Some(print::instruction(self.function, inst).to_string()),
            source: loc.map(|loc| print::location(self.function, loc).to_string()),
            message: message.into(),
        });
    }

    /// Checks that called functions exist, that a function uses only what a called function may, and that it sets its
    /// results in the blocks where it returns.
    fn calls(&mut self, functions: &[Function]) {
        let function = self.function;
        let results = function.results.as_ref().map_or(0, Vec::len) as u32;
        for &block in &function.layout {
            let ops = || function.block(block).insts.iter().map(|&inst| function.inst(inst).op);
            if ops().any(|op| op == Op::Return)
                && let Some(index) = (0..results).find(|&index| !ops().any(|op| op == Op::Result(index)))
            {
                self.report_block(block, format!("the block returns without result {index}"));
            }
            for &inst in &function.block(block).insts {
                let op = function.inst(inst).op;
                match op {
                    Op::Call(callee) if !functions.iter().any(|known| known.accepts_calls_of(callee)) => {
                        let name = &callee.signature().name;
                        self.report_inst(
                            block,
                            inst,
                            format!("there is no function {name} of these types and this effect before it"),
                        );
                    }
                    _ if function.results.is_some() && !op.is_callable() => {
                        self.report_inst(block, inst, "a called function cannot contain this instruction");
                    }
                    _ => {}
                }
            }
        }
    }

    fn header(&mut self) {
        let function = self.function;
        if !is_identifier(&function.name) {
            self.report(format!("the kernel's name `{}` is not an identifier", function.name));
        }
        let mut names = HashSet::new();
        for param in &function.params {
            let name = &param.name;
            if !is_identifier(name) {
                self.report(format!("the parameter's name `{name}` is not an identifier"));
            }
            if !names.insert(name) {
                self.report(format!("two parameters are called {name}"));
            }
            if let Some(align) = param.align
                && !(align.is_power_of_two() && param.element.is_some())
            {
                self.report(format!("parameter {name} cannot be aligned to {align} bytes"));
            }
            match (&param.tensor, param.ty) {
                (Some(layout), Type::TensorMap) => {
                    if let Err(why) = layout.check() {
                        self.report(format!("parameter {name}: {why}"));
                    }
                }
                (None, Type::TensorMap) => {
                    self.report(format!("parameter {name} has no layout of its tiles"))
                }
                (Some(_), _) => self.report(format!("parameter {name} is no tensor map but has a layout")),
                (None, _) => {}
            }
            if function.results.is_some() {
                if param.ty == Type::TensorMap || param.element.is_some() || param.align.is_some() {
                    self.report(format!("parameter {name} of a function is more than a value"));
                }
                continue;
            }
            if param.ty.is_memory_pointer() && param.ty != Type::Global {
                self.report(format!("parameter {name} cannot be of type {}", param.ty));
            }
            if param.ty != Type::Global && param.element.is_some() {
                self.report(format!("parameter {name} is no pointer but has an element type"));
            }
        }
        if let Some(threads) = function.threads.filter(|threads| !(1..=1024).contains(threads)) {
            self.report(format!("{threads} threads a CTA, not 1 to 1024"));
        }
        let [y, z] = function.threads_yz;
        let axes = u64::from(y) * u64::from(z);
        let threads = u64::from(function.threads.unwrap_or(1));
        if axes == 0 || z > 64 || threads % axes != 0 {
            self.report(format!("{threads} threads a CTA cannot be {y} along y and {z} along z"));
        }
        if let Some(blocks) = function.min_blocks
            && (function.threads.is_none() || !(1..=32).contains(&blocks))
        {
            self.report(format!("min_blocks {blocks}, not 1 to 32 beside `threads`"));
        }
        if let Some(registers) = function.max_registers.filter(|registers| !(1..=255).contains(registers)) {
            self.report(format!("max_registers {registers}, not 1 to 255"));
        }
        if let Some(blocks) = function.cluster.filter(|blocks| !(1..=8).contains(blocks)) {
            self.report(format!("{blocks} CTAs a cluster, not 1 to 8"));
        }
        for (var, shared) in function.shared.iter() {
            if shared.element == Type::Pred || shared.element.is_pointer() || shared.count == 0 {
                self.report(format!("{var} holds {} x {}", shared.element, shared.count));
            }
            if !shared.align.is_power_of_two() || shared.align < shared.element.bytes() {
                self.report(format!("{var} of {} cannot be aligned to {}", shared.element, shared.align));
            }
        }
    }

    fn arrays(&mut self) {
        for (var, local) in self.function.locals.iter() {
            if local.element == Type::Pred || local.element.is_pointer() || local.count == 0 {
                self.report(format!("{var} holds {} x {}", local.element, local.count));
            }
        }
        for (var, table) in self.function.tables.iter() {
            let Table { element, values } = table;
            let fit = values.iter().all(|bits| bits & !element.mask() == 0);
            if *element == Type::Pred || element.is_pointer() || values.is_empty() || !fit {
                self.report(format!("{var} holds {} numbers of type {element}", values.len()));
            }
        }
    }

    fn locations(&mut self) {
        for (loc, place) in self.function.locs.iter() {
            if place.inlined_at.is_some_and(|outer| outer >= loc) {
                self.report(format!("{loc} was inlined at a location that is not recorded before it"));
            }
        }
    }

    fn layout(&mut self) {
        let function = self.function;
        let Some(&entry) = function.layout.first() else {
            return self.report("the kernel has no blocks");
        };
        let mut seen = EntitySet::new();
        for &block in &function.layout {
            if !seen.insert(block) {
                self.report_block(block, "the block is in the layout twice");
            }
        }
        if !function.block(entry).params.is_empty() {
            self.report_block(entry, "the entry block has parameters");
        }
        for &block in &function.layout {
            self.block_shape(block);
            for target in function.successors(block) {
                if !seen.contains(target) {
                    self.report_block(block, format!("{target} is a target but not in the layout"));
                }
                if target == entry {
                    self.report_block(block, "the entry block is a target");
                }
            }
        }
        if self.errors.is_empty() {
            let doms = Dominators::new(function);
            for &block in function.layout.iter().filter(|&&block| !doms.is_reachable(block)) {
                self.report_block(block, "the block cannot be reached");
            }
        }
    }

    fn block_shape(&mut self, block: Block) {
        if self.function.block(block).unroll == Some(0) {
            self.report_block(block, "unroll 0, not at least 1");
        }
        let function = self.function;
        let Some((&last, rest)) = function.block(block).insts.split_last() else {
            return self.report_block(block, "the block is empty");
        };
        if !function.inst(last).op.is_terminator() {
            self.report_inst(block, last, "the block does not end in a terminator");
        }
        for &inst in rest.iter().filter(|&&inst| function.inst(inst).op.is_terminator()) {
            self.report_inst(block, inst, "a terminator before the end of its block");
        }
        for &inst in &function.block(block).insts {
            let data = function.inst(inst);
            let count = match data.op {
                Op::Jump => 1,
                Op::Branch => 2,
                _ => 0,
            };
            if data.dests.len() != count {
                self.report_inst(block, inst, format!("has {} targets, not {count}", data.dests.len()));
            }
        }
    }

    /// Checks that values and their definitions agree; returns the block that contains each instruction.
    fn definitions(&mut self) -> InstBlocks {
        let function = self.function;
        let mut blocks: InstBlocks = SecondaryMap::new();
        for &block in &function.layout {
            let data = function.block(block);
            for (index, &param) in data.params.iter().enumerate() {
                if function.value_def(param) != Def::Param(block, index as u32) {
                    self.report_block(
                        block,
                        format!("{param} is not defined as parameter {index} of this block"),
                    );
                }
            }
            for &inst in &data.insts {
                if let Some(first) = blocks[inst].replace(block) {
                    self.report_inst(block, inst, format!("the instruction is also in {first}"));
                }
                for (index, &result) in function.inst(inst).results.iter().enumerate() {
                    if function.value_def(result) != Def::Result(inst, index as u32) {
                        self.report_inst(block, inst, format!("{result} is not defined by this instruction"));
                    }
                }
            }
        }
        blocks
    }

    fn blocks(&mut self, insts: &InstBlocks) {
        let doms = Dominators::new(self.function);
        let mut context = inst::Context { doms: &doms, insts, placed: EntitySet::new() };
        for &block in &self.function.layout {
            for &inst in &self.function.block(block).insts {
                for message in context.check(self.function, block, inst) {
                    self.report_inst(block, inst, message);
                }
                context.placed.insert(inst);
            }
        }
    }
}

/// Whether a name can stand in the text form and in PTX: ASCII letters, digits and `_`, not starting with a digit.
pub fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A value with its type, for messages.
fn typed(function: &Function, value: Value) -> String {
    format!("{value} of type {}", function.value_type(value))
}

#[cfg(test)]
mod tests;
