//! Inlining of all calls.
//!
//! A PTX function shares only its parameters and results with its callers. An inlined call is a copy of the callee with
//! its own registers and variables. The callee's parameters and results become aliases of the caller's `.param`
//! variables. Its `ret` becomes a branch to the end of the copy, where diverged lanes reconverge as after any branch.
//!
//! An indirect call becomes a guarded call of every function whose address it may have. Lanes that call different
//! functions run one after the other.

use std::collections::HashMap;

use crate::load::addresses::FunctionAddresses;
use crate::load::ast::{
    Ast, Function, Guard, Instruction, Location, Operand, ParamDecl, RegId, Register, Variable,
};
use crate::load::calls::CallGraph;
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::types::Ty;

/// Copy of the kernel `function` with all calls inlined. A call that cannot be inlined is an error in `errors`, and left
/// out. `graph` is the call graph of `ast`.
pub(crate) fn inline_calls<'a>(
    ast: &'a Ast,
    graph: &mut CallGraph<'a>,
    function: &'a Function,
    errors: &mut Vec<ParseError>,
) -> Function {
    let outcome = graph.check(function);
    let addresses = &graph.addresses;
    let mut inliner = Inliner { ast, addresses, errors, expands: outcome.is_ok(), calls: 0 };
    let inlined = inliner.function(function);
    errors.extend(outcome.err());
    inlined
}

struct Inliner<'a> {
    ast: &'a Ast,
    addresses: &'a FunctionAddresses<'a>,
    errors: &'a mut Vec<ParseError>,
    /// Whether calls are inlined; else they are left out.
    expands: bool,
    /// Number of calls inlined so far; makes labels and names unique.
    calls: usize,
}

/// A call site.
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
                let message = "a call takes a function, or a register and a `.callprototype`";
                return Err(at.error(ParseErrorKind::Operand, message));
            }
        };
        Ok(Call { at, name, returns, arguments })
    }

    /// Creates an instruction at the source position of the call.
    fn instruction(&self, opcode: &str, modifiers: &[&str], operands: Vec<Operand>) -> Instruction {
        Instruction {
            guard: None,
            opcode: opcode.to_string(),
            modifiers: modifiers.iter().map(|&modifier| modifier.to_string()).collect(),
            operands,
            ..self.at.clone()
        }
    }

    /// Creates a `mov`, `ld` or `st` that copies a parameter or result.
    fn copy(&self, opcode: &str, formal: &ParamDecl, operands: Vec<Operand>) -> Instruction {
        let ty = formal.ty.name();
        let modifiers = if opcode == "mov" { vec![ty] } else { vec!["param", ty] };
        self.instruction(opcode, &modifiers, operands)
    }
}

impl Inliner<'_> {
    fn function(&mut self, function: &Function) -> Function {
        let mut result = Function { body: Vec::new(), labels: HashMap::new(), ..function.clone() };
        let mut positions = Vec::with_capacity(function.body.len());
        for instruction in &function.body {
            positions.push(result.body.len());
            if instruction.opcode != "call" {
                result.body.push(instruction.clone());
                continue;
            }
            if self.expands
                && let Err(error) = self.call(&mut result, instruction)
            {
                self.errors.push(error);
            }
        }
        let moved = |&at: &usize| positions.get(at).copied().unwrap_or(result.body.len());
        let labels: Vec<_> = function.labels.iter().map(|(name, at)| (name.clone(), moved(at))).collect();
        result.labels.extend(labels);
        result
    }

    /// Expands a call through a register: compares the address with those of all functions of the call's type.
    fn indirect_call(&mut self, caller: &mut Function, at: &Instruction) -> Result<(), ParseError> {
        let is_register = |operand: &Operand| matches!(operand, Operand::Reg(_));
        let Some(position) = at.operands[..at.operands.len().min(2)].iter().position(is_register) else {
            let message = "an indirect call takes the address in a register";
            return Err(at.error(ParseErrorKind::Operand, message));
        };
        let instruction = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| Instruction {
            opcode: opcode.to_string(),
            modifiers: modifiers.iter().map(|&modifier| modifier.to_string()).collect(),
            operands,
            guard: None,
            ..at.clone()
        };
        self.calls += 1;
        let skipped = format!("past call {}", self.calls);
        if let Some(guard) = at.guard {
            let not_called = Some(Guard { negated: !guard.negated, ..guard });
            let skip = instruction("bra", &[], vec![Operand::Symbol(skipped.clone(), 0)]);
            caller.body.push(Instruction { guard: not_called, ..skip });
        }
        let callees = self.addresses.callees(at);
        let known = register(caller, Ty::Pred);
        let never = vec![Operand::Reg(known), Operand::Int(0), Operand::Int(1)];
        caller.body.push(instruction("setp", &["eq", "u32"], never));
        let mut guards = Vec::new();
        for &(_, address) in &callees {
            let chosen = register(caller, Ty::Pred);
            let compared = vec![Operand::Reg(chosen), at.operands[position].clone(), Operand::Int(address)];
            caller.body.push(instruction("setp", &["eq", "u64"], compared));
            let any = vec![Operand::Reg(known), Operand::Reg(known), Operand::Reg(chosen)];
            caller.body.push(instruction("or", &["pred"], any));
            guards.push(Guard { register: chosen, negated: false });
        }
        let unknown = Some(Guard { register: known, negated: true });
        caller.body.push(Instruction { guard: unknown, ..instruction("trap", &["call"], Vec::new()) });
        for (&(name, _), guard) in callees.iter().zip(guards) {
            let mut direct = Instruction { guard: Some(guard), ..at.clone() };
            direct.operands.pop();
            direct.operands[position] = Operand::Symbol(name.to_string(), 0);
            self.call(caller, &direct)?;
        }
        caller.labels.insert((0, skipped), caller.body.len());
        Ok(())
    }

    fn call(&mut self, caller: &mut Function, at: &Instruction) -> Result<(), ParseError> {
        if let Some(Operand::Prototype(_)) = at.operands.last() {
            return self.indirect_call(caller, at);
        }
        let call = Call::new(at)?;
        if call.name == "vprintf" {
            return print(caller, &call);
        }
        if call.name == "__assertfail" {
            // The first argument is the address of the assertion's text.
            let text = call.arguments.first().map(|argument| loaded(caller, &call, argument));
            let trap = call.instruction("trap", &["assert"], text.into_iter().collect());
            caller.body.push(Instruction { guard: at.guard, ..trap });
            return Ok(());
        }
        let callee = match self.ast.device.get(call.name) {
            Some(Some(callee)) => callee,
            Some(None) if call.name == "free" => return free(caller, &call),
            Some(None) => {
                let message = match call.name {
                    "malloc" => "the emulator has no heap of the device: no `malloc`".to_string(),
                    name => format!("the function `{name}` has no body in this module"),
                };
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
        self.errors.extend(callee.errors.iter().cloned());
        let callee = self.function(callee);
        // The callee's errors are already recorded; the call site adds none.
        if self.errors.len() > errors {
            return Ok(());
        }
        self.calls += 1;
        let [returned, skipped] = ["end of", "past"].map(|place| format!("{place} call {}", self.calls));
        if let Some(guard) = at.guard {
            let not_called = Some(Guard { negated: !guard.negated, ..guard });
            let skip = call.instruction("bra", &[], vec![Operand::Symbol(skipped.clone(), 0)]);
            caller.body.push(Instruction { guard: not_called, ..skip });
        }
        let mut inlined = InlinedCall {
            number: self.calls,
            registers: caller.registers.len() as RegId,
            scopes: caller.scopes.len(),
            locations: caller.locations.len() as u32,
            names: HashMap::new(),
        };
        caller.registers.extend(callee.registers.iter().cloned());
        let moved = |location: &Location| {
            let inlined_at = location.inlined_at.map(|at| at + inlined.locations);
            Location { inlined_at: inlined_at.or(at.source), ..*location }
        };
        caller.locations.extend(callee.locations.iter().map(moved));
        for (formal, actual) in callee.params.iter().zip(call.arguments) {
            inlined.pass_argument(caller, &call, formal, actual);
        }
        for (formal, actual) in callee.returns.iter().zip(call.returns) {
            inlined.bind_result(caller, formal, actual);
        }
        inlined.variables(caller, &callee);
        // What the callee allocates on the stack is freed when it returns.
        let stack = callee.body.iter().any(|one| one.opcode == "alloca").then(|| register(caller, Ty::B64));
        if let Some(stack) = stack {
            caller.body.push(call.instruction("stacksave", &["u64"], vec![Operand::Reg(stack)]));
        }
        inlined.body(caller, &callee, at.scope, &returned);
        caller.labels.insert((0, returned), caller.body.len());
        if let Some(stack) = stack {
            caller.body.push(call.instruction("stackrestore", &["u64"], vec![Operand::Reg(stack)]));
        }
        for (formal, actual) in callee.returns.iter().zip(call.returns) {
            inlined.copy_result(caller, &call, formal, actual);
        }
        caller.labels.insert((0, skipped), caller.body.len());
        Ok(())
    }
}

/// Adds a register to a function.
fn register(function: &mut Function, ty: Ty) -> RegId {
    function.registers.push(Register { name: "the state of a call".to_string(), ty });
    function.registers.len() as RegId - 1
}

/// A register with the value of an argument of 64 bits; adds the instruction that loads it.
fn loaded(caller: &mut Function, call: &Call<'_>, argument: &Operand) -> Operand {
    let loaded = Operand::Reg(register(caller, Ty::B64));
    let (opcode, modifiers, source) = match argument {
        Operand::Symbol(name, 0) => ("ld", &["param", "b64"][..], address(name.clone())),
        value => ("mov", &["b64"][..], value.clone()),
    };
    let load = call.instruction(opcode, modifiers, vec![loaded.clone(), source]);
    caller.body.push(Instruction { guard: call.at.guard, ..load });
    loaded
}

/// Adds the instructions for a call of `free`: a trap, unless the pointer is null. Tables of virtual functions refer to
/// destructors with such calls in kernels that allocate nothing.
fn free(caller: &mut Function, call: &Call<'_>) -> Result<(), ParseError> {
    let ([], [pointer]) = (call.returns, call.arguments) else {
        return Err(call.at.error(ParseErrorKind::Operand, "`free` has 1 parameter and no result"));
    };
    let pointer = loaded(caller, call, pointer);
    let is_given = register(caller, Ty::Pred);
    let never = vec![Operand::Reg(is_given), Operand::Int(0), Operand::Int(1)];
    caller.body.push(call.instruction("setp", &["eq", "u32"], never));
    let compared = vec![Operand::Reg(is_given), pointer, Operand::Int(0)];
    let compare = call.instruction("setp", &["ne", "u64"], compared);
    caller.body.push(Instruction { guard: call.at.guard, ..compare });
    let guard = Some(Guard { register: is_given, negated: false });
    caller.body.push(Instruction { guard, ..call.instruction("trap", &["free"], Vec::new()) });
    Ok(())
}

/// Adds the instructions for a call of `vprintf`: its arguments are the address of the format and the address of the
/// values.
fn print(caller: &mut Function, call: &Call<'_>) -> Result<(), ParseError> {
    let ([result], [format, values]) = (call.returns, call.arguments) else {
        let message = "`vprintf` has 2 parameters and 1 result";
        return Err(call.at.error(ParseErrorKind::Operand, message));
    };
    let count = Operand::Reg(register(caller, Ty::B32));
    let operands = vec![count.clone(), loaded(caller, call, format), loaded(caller, call, values)];
    caller
        .body
        .push(Instruction { guard: call.at.guard, ..call.instruction("call", &["vprintf"], operands) });
    let store = match result {
        Operand::Symbol(name, _) => {
            call.instruction("st", &["param", "b32"], vec![address(name.clone()), count])
        }
        Operand::Sink => return Ok(()),
        register => call.instruction("mov", &["b32"], vec![register.clone(), count]),
    };
    caller.body.push(Instruction { guard: call.at.guard, ..store });
    Ok(())
}

/// Copy of a callee inside its caller.
struct InlinedCall {
    number: usize,
    /// Index of the callee's first register in the caller's registers.
    registers: RegId,
    /// Index of the callee's first scope in the caller's scopes.
    scopes: usize,
    /// Index of the callee's first location in the caller's locations.
    locations: u32,
    /// Variables of the callee: name in the callee to name in the caller.
    names: HashMap<String, String>,
}

impl InlinedCall {
    /// Adds a variable to the caller for a parameter or result that is a register at the call site.
    fn variable(&mut self, caller: &mut Function, formal: &ParamDecl) -> String {
        let name = format!("{}@call{}", formal.name, self.number);
        caller.locals.push(Variable {
            name: name.clone(),
            bytes: formal.bytes as u64,
            align: formal.align,
            init: Vec::new(),
            addresses: Vec::new(),
            dynamic: false,
            at: (0, 0),
        });
        self.names.insert(formal.name.clone(), name.clone());
        name
    }

    fn pass_argument(
        &mut self,
        caller: &mut Function,
        call: &Call<'_>,
        formal: &ParamDecl,
        actual: &Operand,
    ) {
        let copy = match (formal.register, actual) {
            (None, Operand::Symbol(name, 0)) => {
                self.names.insert(formal.name.clone(), name.clone());
                return;
            }
            (None, value) => {
                let variable = address(self.variable(caller, formal));
                call.copy("st", formal, vec![variable, value.clone()])
            }
            (Some(register), Operand::Symbol(name, 0)) => {
                let register = Operand::Reg(self.registers + register);
                call.copy("ld", formal, vec![register, address(name.clone())])
            }
            (Some(register), value) => {
                call.copy("mov", formal, vec![Operand::Reg(self.registers + register), value.clone()])
            }
        };
        caller.body.push(copy);
    }

    /// Chooses the variable in the caller to which the callee writes a result.
    fn bind_result(&mut self, caller: &mut Function, formal: &ParamDecl, actual: &Operand) {
        match (formal.register, actual) {
            (Some(_), _) => {}
            (None, Operand::Symbol(name, 0)) => {
                self.names.insert(formal.name.clone(), name.clone());
            }
            (None, _) => drop(self.variable(caller, formal)),
        }
    }

    /// Copies a result to the operand of the call, unless the callee already wrote it there.
    fn copy_result(&mut self, caller: &mut Function, call: &Call<'_>, formal: &ParamDecl, actual: &Operand) {
        let result = formal.register.map(|register| Operand::Reg(self.registers + register));
        let copy = match (result, actual) {
            (None, Operand::Symbol(..)) | (_, Operand::Sink) => return,
            (None, register) => {
                let name = self.names.get(&formal.name).cloned().unwrap_or_default();
                call.copy("ld", formal, vec![register.clone(), address(name)])
            }
            (Some(result), Operand::Symbol(name, _)) => {
                call.copy("st", formal, vec![address(name.clone()), result])
            }
            (Some(result), register) => call.copy("mov", formal, vec![register.clone(), result]),
        };
        caller.body.push(copy);
    }

    /// Adds the callee's variables to the caller.
    fn variables(&mut self, caller: &mut Function, callee: &Function) {
        for variable in &callee.locals {
            let name = format!("{}@call{}", variable.name, self.number);
            self.names.insert(variable.name.clone(), name.clone());
            caller.locals.push(Variable { name, ..variable.clone() });
        }
        // All calls of a function use the same `.shared` variables.
        for variable in &callee.shared {
            let name = format!("{}@{}", variable.name, callee.name);
            self.names.insert(variable.name.clone(), name.clone());
            if !caller.shared.iter().any(|known| known.name == name) {
                caller.shared.push(Variable { name, ..variable.clone() });
            }
        }
    }

    /// Adds the callee's instructions to the caller. `returned` is the label after them, the target of `ret`.
    fn body(&self, caller: &mut Function, callee: &Function, scope: usize, returned: &str) {
        let start = caller.body.len();
        // Leaves out the last instruction, the `exit` that the parser adds to every body.
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
                (copy.opcode, copy.operands) = ("bra".into(), vec![Operand::Symbol(returned.to_string(), 0)]);
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
            Operand::Tensor(map, coordinates) => {
                self.rename(map);
                coordinates.iter_mut().for_each(|coordinate| self.rename(coordinate));
            }
            Operand::Pair(a, b) => {
                self.rename(a);
                self.rename(b);
            }
            Operand::Not(inner) => self.rename(inner),
            Operand::Special(_)
            | Operand::Int(_)
            | Operand::F32(_)
            | Operand::F64(_)
            | Operand::Sink
            | Operand::Prototype(_) => {}
        }
    }
}

fn address(name: String) -> Operand {
    Operand::Address(Box::new(Operand::Symbol(name, 0)), 0)
}
