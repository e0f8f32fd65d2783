//! Calls are expanded: a kernel's code is its own and that of all functions it calls, once a call.
//!
//! PTX functions share nothing with their callers but what they are given, so that an expanded call is
//! a copy of the callee with registers and variables of its own. Its parameters and results become
//! names for the caller's `.param` variables, and its `ret` a branch behind the copy, where diverged
//! lanes meet again as at any branch.

use std::collections::HashMap;

use crate::load::ast::{Ast, Function, Guard, Instruction, Location, Operand, ParamDecl, RegId, Variable};
use crate::load::error::{ParseError, ParseErrorKind};

/// A kernel with more instructions than this, calls expanded, is refused.
const MAX_INSTRUCTIONS: usize = 1 << 20;
/// Functions that call one another deeper than this are taken to be recursive.
const MAX_DEPTH: usize = 64;

/// The kernel `function` without calls. What cannot be called is left in place and put on `errors`.
pub(crate) fn expand(ast: &Ast, function: &Function, errors: &mut Vec<ParseError>) -> Function {
    let mut expansion = Expansion { ast, errors, calls: 0 };
    expansion.function(function, 0)
}

struct Expansion<'a> {
    ast: &'a Ast,
    errors: &'a mut Vec<ParseError>,
    /// Calls so far: makes labels and names unique.
    calls: usize,
}

/// What a call site gives a callee.
struct Call<'a> {
    at: &'a Instruction,
    name: &'a str,
    returns: &'a [Operand],
    arguments: &'a [Operand],
}

impl<'a> Call<'a> {
    fn new(at: &'a Instruction) -> Result<Call<'a>, ParseError> {
        let (returns, name, arguments) = match &at.operands[..] {
            [Operand::Symbol(name, 0)] => (&[][..], name, &[][..]),
            [Operand::Symbol(name, 0), Operand::Vector(arguments)] => (&[][..], name, &arguments[..]),
            [Operand::Vector(returns), Operand::Symbol(name, 0)] => (&returns[..], name, &[][..]),
            [Operand::Vector(returns), Operand::Symbol(name, 0), Operand::Vector(arguments)] => {
                (&returns[..], name, &arguments[..])
            }
            _ => {
                return Err(at.error(ParseErrorKind::Unsupported, "calls through pointers are not supported"));
            }
        };
        Ok(Call { at, name, returns, arguments })
    }

    fn instruction(&self, opcode: &str, modifiers: &[&str], operands: Vec<Operand>) -> Instruction {
        Instruction {
            guard: None,
            opcode: opcode.to_string(),
            modifiers: modifiers.iter().map(|&modifier| modifier.to_string()).collect(),
            operands,
            ..self.at.clone()
        }
    }

    /// Copies between a place in memory and a register or constant.
    fn transfer(&self, opcode: &str, formal: &ParamDecl, operands: Vec<Operand>) -> Instruction {
        let ty = formatted(formal);
        let modifiers = if opcode == "mov" { vec![ty.as_str()] } else { vec!["param", ty.as_str()] };
        self.instruction(opcode, &modifiers, operands)
    }
}

fn formatted(formal: &ParamDecl) -> String {
    formal.ty.name().to_string()
}

impl Expansion<'_> {
    fn function(&mut self, function: &Function, depth: usize) -> Function {
        let mut result = Function { body: Vec::new(), labels: HashMap::new(), ..function.clone() };
        let mut places = Vec::with_capacity(function.body.len());
        for instruction in &function.body {
            places.push(result.body.len());
            if instruction.opcode != "call" {
                result.body.push(instruction.clone());
                continue;
            }
            if let Err(error) = self.call(&mut result, instruction, depth) {
                self.errors.push(error);
            }
            if result.body.len() > MAX_INSTRUCTIONS {
                let message = "the function is too large with its calls expanded";
                self.errors.push(instruction.error(ParseErrorKind::Unsupported, message));
                break;
            }
        }
        let place = |&at: &usize| places.get(at).copied().unwrap_or(result.body.len());
        let own = function.labels.iter().map(|(name, at)| (name.clone(), place(at)));
        let own: Vec<_> = own.collect();
        result.labels.extend(own);
        result
    }

    fn call(&mut self, caller: &mut Function, at: &Instruction, depth: usize) -> Result<(), ParseError> {
        let call = Call::new(at)?;
        if call.name == "__assertfail" {
            let assert = Instruction { guard: at.guard, ..call.instruction("trap", &["assert"], Vec::new()) };
            caller.body.push(assert);
            return Ok(());
        }
        let callee = match self.ast.device.get(call.name) {
            Some(Some(callee)) if depth < MAX_DEPTH => callee,
            Some(Some(_)) => {
                return Err(at.error(ParseErrorKind::Unsupported, format!("`{}` is recursive", call.name)));
            }
            Some(None) => {
                let message = format!("`{}` has no body in this module", call.name);
                return Err(at.error(ParseErrorKind::Unsupported, message));
            }
            None => {
                let message = format!("unknown function `{}`", call.name);
                return Err(at.error(ParseErrorKind::Undefined, message));
            }
        };
        if call.returns.len() != callee.returns.len() || call.arguments.len() != callee.params.len() {
            let (results, params) = (callee.returns.len(), callee.params.len());
            let message = format!("`{}` has {params} parameters and {results} results", call.name);
            return Err(at.error(ParseErrorKind::Operand, message));
        }
        let errors = self.errors.len();
        let expanded = self.function(callee, depth + 1);
        // One line that cannot be run is one error, however often it is called.
        if self.errors.len() > errors {
            return Ok(());
        }
        self.calls += 1;
        let [back, past] = ["back from", "past"].map(|place| format!("{place} call {}", self.calls));
        if let Some(guard) = at.guard {
            let around = Some(Guard { negated: !guard.negated, ..guard });
            let skip = call.instruction("bra", &[], vec![Operand::Symbol(past.clone(), 0)]);
            caller.body.push(Instruction { guard: around, ..skip });
        }
        let mut splice = Splice {
            number: self.calls,
            registers: caller.registers.len() as RegId,
            scopes: caller.scopes.len(),
            locations: caller.locations.len() as u32,
            names: HashMap::new(),
        };
        caller.registers.extend(expanded.registers.iter().cloned());
        let moved = |place: &Location| {
            let own = place.inlined_at.map(|at| at + splice.locations);
            Location { inlined_at: own.or(at.source), ..*place }
        };
        caller.locations.extend(expanded.locations.iter().map(moved));
        for (formal, actual) in expanded.params.iter().zip(call.arguments) {
            splice.pass(caller, &call, formal, actual);
        }
        for (formal, actual) in expanded.returns.iter().zip(call.returns) {
            splice.receive(caller, &call, formal, actual);
        }
        splice.variables(caller, &expanded);
        splice.body(caller, &expanded, at.scope, &back);
        caller.labels.insert((0, back), caller.body.len());
        for (formal, actual) in expanded.returns.iter().zip(call.returns) {
            splice.take_result(caller, &call, formal, actual);
        }
        caller.labels.insert((0, past), caller.body.len());
        Ok(())
    }
}

/// One copy of a callee in its caller.
struct Splice {
    number: usize,
    /// Where its registers, scopes and locations start among the caller's.
    registers: RegId,
    scopes: usize,
    locations: u32,
    /// What its variables are called in the caller.
    names: HashMap<String, String>,
}

impl Splice {
    /// A variable of the caller for a parameter that is given, or a result that is wanted, as a register.
    fn variable(&mut self, caller: &mut Function, formal: &ParamDecl) -> String {
        let name = format!("{}@call{}", formal.name, self.number);
        caller.locals.push(Variable {
            name: name.clone(),
            bytes: formal.bytes as u64,
            align: formal.align,
            init: Vec::new(),
            dynamic: false,
        });
        self.names.insert(formal.name.clone(), name.clone());
        name
    }

    fn pass(&mut self, caller: &mut Function, call: &Call<'_>, formal: &ParamDecl, actual: &Operand) {
        let given = match (formal.register, actual) {
            (None, Operand::Symbol(name, 0)) => {
                self.names.insert(formal.name.clone(), name.clone());
                return;
            }
            (None, value) => {
                let place = address(self.variable(caller, formal));
                call.transfer("st", formal, vec![place, value.clone()])
            }
            (Some(register), Operand::Symbol(name, 0)) => {
                let register = Operand::Reg(self.registers + register);
                call.transfer("ld", formal, vec![register, address(name.clone())])
            }
            (Some(register), value) => {
                call.transfer("mov", formal, vec![Operand::Reg(self.registers + register), value.clone()])
            }
        };
        caller.body.push(given);
    }

    fn receive(&mut self, caller: &mut Function, _: &Call<'_>, formal: &ParamDecl, actual: &Operand) {
        match (formal.register, actual) {
            (Some(_), _) => {}
            (None, Operand::Symbol(name, 0)) => {
                self.names.insert(formal.name.clone(), name.clone());
            }
            (None, _) => drop(self.variable(caller, formal)),
        }
    }

    fn take_result(&mut self, caller: &mut Function, call: &Call<'_>, formal: &ParamDecl, actual: &Operand) {
        let own = formal.register.map(|register| Operand::Reg(self.registers + register));
        let taken = match (own, actual) {
            (None, Operand::Symbol(..)) | (_, Operand::Sink) => return,
            (None, register) => {
                let name = self.names.get(&formal.name).cloned().unwrap_or_default();
                call.transfer("ld", formal, vec![register.clone(), address(name)])
            }
            (Some(own), Operand::Symbol(name, _)) => {
                call.transfer("st", formal, vec![address(name.clone()), own])
            }
            (Some(own), register) => call.transfer("mov", formal, vec![register.clone(), own]),
        };
        caller.body.push(taken);
    }

    fn variables(&mut self, caller: &mut Function, callee: &Function) {
        for variable in &callee.locals {
            let name = format!("{}@call{}", variable.name, self.number);
            self.names.insert(variable.name.clone(), name.clone());
            caller.locals.push(Variable { name, ..variable.clone() });
        }
        // A function's shared variables are one for all of its calls.
        for variable in &callee.shared {
            let name = format!("{}@{}", variable.name, callee.name);
            self.names.insert(variable.name.clone(), name.clone());
            if !caller.shared.iter().any(|known| known.name == name) {
                caller.shared.push(Variable { name, ..variable.clone() });
            }
        }
    }

    fn body(&self, caller: &mut Function, callee: &Function, scope: usize, back: &str) {
        let start = caller.body.len();
        // The last instruction is the exit that the parser adds to every body.
        let count = callee.body.len().saturating_sub(1);
        caller.scopes.push(scope);
        caller.scopes.extend(callee.scopes.iter().skip(1).map(|parent| parent + self.scopes));
        for ((scope, name), at) in &callee.labels {
            caller.labels.insert((scope + self.scopes, name.clone()), start + at.min(&count));
        }
        for instruction in &callee.body[..count] {
            let mut copy = Instruction {
                scope: instruction.scope + self.scopes,
                source: instruction.source.map(|at| at + self.locations),
                ..instruction.clone()
            };
            if let Some(guard) = &mut copy.guard {
                guard.register += self.registers;
            }
            copy.operands.iter_mut().for_each(|operand| self.rename(operand));
            if copy.opcode == "ret" {
                (copy.opcode, copy.operands) = ("bra".into(), vec![Operand::Symbol(back.to_string(), 0)]);
            }
            caller.body.push(copy);
        }
    }

    fn rename(&self, operand: &mut Operand) {
        match operand {
            Operand::Reg(register) => *register += self.registers,
            Operand::Symbol(name, _) => {
                if let Some(known) = self.names.get(name) {
                    name.clone_from(known);
                }
            }
            Operand::Vector(elements) => elements.iter_mut().for_each(|element| self.rename(element)),
            Operand::Address(base, _) => self.rename(base),
            Operand::Pair(a, b) => {
                self.rename(a);
                self.rename(b);
            }
            Operand::Not(inner) => self.rename(inner),
            Operand::Special(_) | Operand::Int(_) | Operand::F32(_) | Operand::F64(_) | Operand::Sink => {}
        }
    }
}

fn address(name: String) -> Operand {
    Operand::Address(Box::new(Operand::Symbol(name, 0)), 0)
}
