//! Function bodies: declarations, labels, scopes and instructions.

use std::collections::HashMap;

use super::names::Names;
use super::{Linking, Parser};
use crate::load::ast::{Function, Guard, Instruction, Location, Operand, RegId, Register, Special};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::Token;
use crate::load::types::Ty;
use crate::load::unsupported;

/// A function with more registers than this is refused.
const MAX_REGISTERS: usize = 1 << 20;

/// Registers that one `{ }` scope declares.
#[derive(Default)]
struct Scope {
    id: usize,
    /// What it declares, of whatever kind.
    names: Names,
    named: HashMap<String, RegId>,
    /// `.reg .b32 %r<12>`: prefix to (type, count). Registers are made when first used.
    ranges: HashMap<String, (Ty, u64)>,
    /// `.local` and `.param` variables, by the name that is theirs alone in the function.
    variables: HashMap<String, String>,
    /// `.branchtargets` lists.
    targets: HashMap<String, Vec<String>>,
}

struct Body<'p, 'a> {
    parser: &'p mut Parser<'a>,
    function: &'p mut Function,
    scopes: Vec<Scope>,
    source: Option<u32>,
    /// The last location of every place: that is the one an `inlined_at` means.
    said: HashMap<(u32, u32, u32), u32>,
}

/// Parses a body in which the parameters have taken these names.
pub(super) fn parse(
    parser: &mut Parser<'_>,
    function: &mut Function,
    names: Names,
) -> Result<(), ParseError> {
    parser.expect('{')?;
    function.scopes.push(0);
    let mut outer = Scope { names, ..Scope::default() };
    for formal in function.params.iter().chain(&function.returns) {
        if let Some(register) = formal.register {
            outer.named.insert(formal.name.clone(), register);
        }
    }
    let mut body = Body { parser, function, scopes: vec![outer], source: None, said: HashMap::new() };
    while !body.scopes.is_empty() {
        body.statement()?;
    }
    let last = &body.parser.tokens[body.parser.at - 1];
    // Control that falls off the end leaves the kernel.
    let end = Instruction {
        guard: None,
        opcode: "exit".into(),
        modifiers: Vec::new(),
        operands: Vec::new(),
        line: last.line,
        column: last.column,
        source: body.source,
        scope: 0,
    };
    function.body.push(end);
    Ok(())
}

impl Body<'_, '_> {
    fn statement(&mut self) -> Result<(), ParseError> {
        let p = &mut *self.parser;
        match (p.peek(), p.peek_ahead(1)) {
            (Token::Punct('{'), _) => {
                p.at += 1;
                let parent = self.scopes.last().map_or(0, |scope| scope.id);
                let id = self.function.scopes.len();
                self.function.scopes.push(parent);
                self.scopes.push(Scope { id, ..Scope::default() });
                Ok(())
            }
            (Token::Punct('}'), _) => {
                p.at += 1;
                self.scopes.pop();
                Ok(())
            }
            (Token::Punct(';'), _) => {
                p.at += 1;
                Ok(())
            }
            (Token::Ident(label), Token::Punct(':'))
                if matches!(p.peek_ahead(2), Token::Dot("branchtargets")) =>
            {
                let at = p.here();
                p.at += 3;
                self.branch_targets(label, at)
            }
            (Token::Ident(name), Token::Punct(':'))
                if matches!(p.peek_ahead(2), Token::Dot("callprototype" | "calltargets")) =>
            {
                // Calls through pointers are refused where they stand.
                let at = p.here();
                self.declare("label", name, at);
                let p = &mut *self.parser;
                while !p.take(';') {
                    if p.next() == Token::End {
                        return p.expected("`;`");
                    }
                }
                Ok(())
            }
            (Token::Ident(label), Token::Punct(':')) => {
                let place = p.here();
                p.at += 2;
                self.declare("label", label, place);
                let scope = self.scopes.last().map_or(0, |scope| scope.id);
                let at = self.function.body.len();
                self.function.labels.entry((scope, label.to_string())).or_insert(at);
                Ok(())
            }
            (Token::Dot("reg"), _) => self.registers(),
            (Token::Dot("shared"), _) => {
                p.at += 1;
                let (variable, at) = p.variable(&Linking::default())?;
                self.declare("variable", &variable.name, at);
                self.function.shared.push(variable);
                Ok(())
            }
            (Token::Dot("local" | "param"), _) => self.variable(),
            (Token::Dot("loc"), _) => self.location(),
            (Token::Dot("pragma"), _) => {
                p.at += 2;
                p.expect(';')
            }
            (Token::Dot(other), _) => Err(p.unknown_word(&format!("directive `.{other}`"), other)),
            (Token::Ident(_) | Token::Punct('@'), _) => {
                if let Err(error) = self.instruction() {
                    self.parser.report(error);
                    self.parser.skip_statement()?;
                }
                Ok(())
            }
            _ => p.expected("an instruction, a label or `}`"),
        }
    }

    /// Takes a name in the innermost scope.
    fn declare(&mut self, what: &str, name: &str, at: (u32, u32)) {
        if let Some(scope) = self.scopes.last_mut()
            && let Err(error) = scope.names.declare(what, name, at)
        {
            self.parser.report(error);
        }
    }

    fn registers(&mut self) -> Result<(), ParseError> {
        let p = &mut *self.parser;
        p.at += 1;
        let Token::Dot(word) = p.peek() else { return p.expected("the registers' type") };
        let Some(ty) = Ty::parse(word) else {
            return Err(p.unknown_word(&format!("register type `.{word}`"), word));
        };
        p.at += 1;
        loop {
            let at = self.parser.here();
            let name = self.parser.ident("a register name")?;
            let Some(scope) = self.scopes.last_mut() else { return self.parser.expected("`}`") };
            if self.parser.take('<') {
                let count = self.parser.int("the number of registers")?;
                self.parser.expect('>')?;
                match scope.names.declare_range(name, count, at) {
                    Ok(()) => drop(scope.ranges.insert(name.to_string(), (ty, count))),
                    Err(error) => self.parser.report(error),
                }
            } else if let Err(error) = scope.names.declare("register", name, at) {
                self.parser.report(error);
            } else {
                let id = self.function.registers.len();
                self.function.registers.push(Register { name: name.to_string(), ty });
                scope.named.insert(name.to_string(), id as RegId);
            }
            if self.function.registers.len() > MAX_REGISTERS {
                return Err(self.parser.error_of(ParseErrorKind::Unsupported, "too many registers"));
            }
            if !self.parser.take(',') {
                break;
            }
        }
        self.parser.expect(';')
    }

    /// A variable that each thread has for itself.
    fn variable(&mut self) -> Result<(), ParseError> {
        self.parser.at += 1;
        let (mut variable, at) = self.parser.variable(&Linking::default())?;
        self.declare("variable", &variable.name, at);
        if let Some(scope) = self.scopes.last_mut() {
            let unique = match scope.id {
                0 => variable.name.clone(),
                id => format!("{}@{id}", variable.name),
            };
            scope.variables.insert(std::mem::replace(&mut variable.name, unique.clone()), unique);
        }
        self.function.locals.push(variable);
        Ok(())
    }

    /// `name: .branchtargets a, b;`
    fn branch_targets(&mut self, name: &str, at: (u32, u32)) -> Result<(), ParseError> {
        self.declare("label", name, at);
        let mut labels = Vec::new();
        loop {
            labels.push(self.parser.ident("a label")?.to_string());
            if !self.parser.take(',') {
                break;
            }
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.targets.insert(name.to_string(), labels);
        }
        self.parser.expect(';')
    }

    /// `.loc file line column [, function_name label [+ n], inlined_at file line column]`.
    fn location(&mut self) -> Result<(), ParseError> {
        let p = &mut *self.parser;
        p.at += 1;
        let at = p.position()?;
        let mut caller = None;
        while p.take(',') {
            match p.ident("`function_name` or `inlined_at`")? {
                "function_name" => {
                    p.ident("a label")?;
                    if p.take('+') {
                        p.int("an offset")?;
                    }
                }
                "inlined_at" => caller = Some(p.position()?),
                other => return Err(p.error(format!("unsupported `.loc` attribute `{other}`"))),
            }
        }
        let inlined_at = caller.map(|at| match self.said.get(&at) {
            Some(&known) => known,
            None => self.say(Location { at, inlined_at: None }),
        });
        self.source = Some(self.say(Location { at, inlined_at }));
        Ok(())
    }

    fn say(&mut self, location: Location) -> u32 {
        let index = self.function.locations.len() as u32;
        self.function.locations.push(location);
        self.said.insert(location.at, index);
        index
    }

    fn lookup(&mut self, name: &str) -> Option<RegId> {
        for scope in self.scopes.iter_mut().rev() {
            if let Some(&id) = scope.named.get(name) {
                return Some(id);
            }
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let index = name[prefix.len()..].parse::<u64>();
            if let (Some(&(ty, count)), Ok(index)) = (scope.ranges.get(prefix), index)
                && index < count
            {
                let id = self.function.registers.len() as RegId;
                self.function.registers.push(Register { name: name.to_string(), ty });
                scope.named.insert(name.to_string(), id);
                return Some(id);
            }
        }
        None
    }

    /// The error for a register, the next token, that is not declared.
    fn unknown_register(&self, name: &str, component: Option<&str>) -> ParseError {
        if component.is_none() && Special::parse(name, Some("x")).is_some() {
            return self.parser.error(format!("`{name}` has components: `{name}.x`, `.y` and `.z`"));
        }
        let component = component.map(|c| format!(".{c}")).unwrap_or_default();
        match unsupported::register(name) {
            kind @ ParseErrorKind::Unsupported => {
                self.parser.error_of(kind, format!("the emulator lacks `{name}{component}`"))
            }
            kind => self.parser.error_of(kind, format!("unknown register `{name}{component}`")),
        }
    }

    fn instruction(&mut self) -> Result<(), ParseError> {
        let guard = if self.parser.take('@') {
            let negated = self.parser.take('!');
            let name = self.parser.ident("a predicate")?;
            match self.lookup(name) {
                Some(register) if self.function.registers[register as usize].ty == Ty::Pred => {
                    Some(Guard { register, negated })
                }
                found => {
                    self.parser.at -= 1;
                    return Err(match found {
                        None => self.unknown_register(name, None),
                        Some(_) => {
                            let message = format!("`{name}` is not a predicate register");
                            self.parser.error_of(ParseErrorKind::Operand, message)
                        }
                    });
                }
            }
        } else {
            None
        };
        let at = self.parser.here();
        let opcode = self.parser.ident("an instruction")?.to_string();
        let mut modifiers = Vec::new();
        while let Token::Dot(modifier) = self.parser.peek() {
            modifiers.push(modifier.to_string());
            self.parser.at += 1;
        }
        let mut instruction = Instruction {
            guard,
            opcode,
            modifiers,
            operands: Vec::new(),
            line: at.0,
            column: at.1,
            source: self.source,
            scope: self.scopes.last().map_or(0, |scope| scope.id),
        };
        // Its operands may be of a kind that no other instruction has.
        let form = self.parser.form(&instruction);
        if form.lacked {
            let message = format!("the emulator lacks `{}`", instruction.text());
            return Err(instruction.error(ParseErrorKind::Unsupported, message));
        }
        if let Some(error) = self.parser.platform.refuses_unsynchronised(&instruction) {
            return Err(error);
        }
        if !self.parser.take(';') {
            loop {
                let operand = self.operand(&instruction.opcode).map_err(|error| {
                    let message = format!("in `{}`: {}", instruction.text(), error.message);
                    ParseError { message, ..error }
                })?;
                instruction.operands.push(operand);
                if !self.parser.take(',') {
                    break;
                }
            }
            self.parser.expect(';')?;
        }
        if self.function.registers.len() > MAX_REGISTERS {
            return Err(self.parser.error_of(ParseErrorKind::Unsupported, "too many registers"));
        }
        if let Some(name) = self.function_address(&instruction) {
            let message = format!("the emulator lacks addresses of functions, such as `{name}`");
            return Err(instruction.error(ParseErrorKind::Unsupported, message));
        }
        let refused = form.refused.or_else(|| self.parser.platform.refuses_operands(&instruction));
        if let Some(message) = refused {
            self.parser.report(instruction.error(ParseErrorKind::Target, message));
        }
        if instruction.opcode == "brx" {
            return self.indexed_branch(instruction);
        }
        self.function.body.push(instruction);
        Ok(())
    }

    /// The function, declared before, that an instruction takes the address of.
    fn function_address<'i>(&self, instruction: &'i Instruction) -> Option<&'i str> {
        if matches!(instruction.opcode.as_str(), "call" | "bra" | "brx") {
            return None;
        }
        instruction.operands.iter().find_map(|operand| match operand {
            Operand::Symbol(name, _) if !self.scopes.iter().any(|scope| scope.names.has(name)) => {
                let ast = &self.parser.ast;
                let kernel = ast.functions.iter().any(|kernel| kernel.name == *name);
                let own = self.function.name == *name;
                (kernel || own || ast.device.contains_key(name)).then_some(name.as_str())
            }
            _ => None,
        })
    }

    /// `brx.idx index, list` becomes a comparison and a branch for each target: lanes whose targets
    /// differ meet again where those of a chain of branches do.
    fn indexed_branch(&mut self, brx: Instruction) -> Result<(), ParseError> {
        let [index, Operand::Symbol(list, 0)] = &brx.operands[..] else {
            let message = "`brx.idx` takes an index and a list of targets";
            return Err(brx.error(ParseErrorKind::Operand, message));
        };
        if brx.guard.is_some() {
            let message = "`brx.idx` under a predicate is not supported";
            return Err(brx.error(ParseErrorKind::Unsupported, message));
        }
        let found = self.scopes.iter().rev().find_map(|scope| scope.targets.get(list));
        let Some(labels) = found.cloned() else {
            return Err(brx.error(ParseErrorKind::Undefined, format!("unknown list of targets `{list}`")));
        };
        let mut register = |ty| {
            self.function.registers.push(Register { name: "the test of `brx`".to_string(), ty });
            self.function.registers.len() as RegId - 1
        };
        let (within, chosen) = (register(Ty::Pred), register(Ty::Pred));
        let plain = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| Instruction {
            opcode: opcode.into(),
            modifiers: modifiers.iter().map(|&modifier| modifier.to_string()).collect(),
            operands,
            ..brx.clone()
        };
        let compare = |relation, target, with: usize| {
            let operands = vec![Operand::Reg(target), index.clone(), Operand::Int(with as u64)];
            plain("setp", &[relation, "u32"], operands)
        };
        let branch = |predicate, label: &String| Instruction {
            guard: Some(Guard { register: predicate, negated: false }),
            ..plain("bra", &[], vec![Operand::Symbol(label.clone(), 0)])
        };
        let outside = Some(Guard { register: within, negated: true });
        let (last, others) = labels
            .split_last()
            .ok_or_else(|| brx.error(ParseErrorKind::Syntax, "an empty list of targets"))?;
        let body = &mut self.function.body;
        body.push(compare("lt", within, labels.len()));
        body.push(Instruction { guard: outside, ..plain("trap", &["brx"], Vec::new()) });
        for (at, label) in others.iter().enumerate() {
            body.push(compare("eq", chosen, at));
            body.push(branch(chosen, label));
        }
        body.push(plain("bra", &[], vec![Operand::Symbol(last.clone(), 0)]));
        Ok(())
    }

    /// One operand of an instruction.
    fn operand(&mut self, opcode: &str) -> Result<Operand, ParseError> {
        match self.parser.peek() {
            Token::Punct('[') => {
                self.parser.at += 1;
                let base = match self.simple()? {
                    Operand::Symbol(name, offset) => (Operand::Symbol(name, 0), offset),
                    other => (other, 0),
                };
                let offset = base.1.wrapping_add(self.offset()?);
                self.parser.refuse_expression()?;
                self.parser.expect(']')?;
                Ok(Operand::Address(Box::new(base.0), offset))
            }
            Token::Punct('{') => {
                self.parser.at += 1;
                let mut elements = vec![self.element()?];
                while self.parser.take(',') {
                    elements.push(self.element()?);
                }
                self.parser.expect('}')?;
                Ok(Operand::Vector(elements))
            }
            // The results and arguments of a call.
            Token::Punct('(') if opcode == "call" => {
                self.parser.at += 1;
                let mut elements = Vec::new();
                while !self.parser.take(')') {
                    if !elements.is_empty() {
                        self.parser.expect(',')?;
                    }
                    elements.push(self.element()?);
                }
                Ok(Operand::Vector(elements))
            }
            Token::Punct('!') => {
                self.parser.at += 1;
                if let Token::Int(_) | Token::Punct('(') = self.parser.peek() {
                    return Err(self.parser.expression());
                }
                Ok(Operand::Not(Box::new(self.simple()?)))
            }
            _ => {
                let first = self.element()?;
                if self.parser.take('|') {
                    let second = self.simple()?;
                    return Ok(Operand::Pair(Box::new(first), Box::new(second)));
                }
                Ok(first)
            }
        }
    }

    /// `+4`, `-4`, `+-4` or nothing.
    fn offset(&mut self) -> Result<i64, ParseError> {
        let plus = self.parser.take('+');
        let minus = self.parser.take('-');
        if !plus && !minus {
            return Ok(0);
        }
        if self.parser.peek() == Token::Punct('(') {
            return Err(self.parser.expression());
        }
        let value = self.parser.int("an offset")? as i64;
        Ok(if minus { value.wrapping_neg() } else { value })
    }

    /// [`Body::simple`] that is not the beginning of an expression.
    fn element(&mut self) -> Result<Operand, ParseError> {
        let operand = self.simple()?;
        self.parser.refuse_expression()?;
        Ok(operand)
    }

    fn simple(&mut self) -> Result<Operand, ParseError> {
        let negative = self.parser.take('-');
        let complement = !negative && self.parser.take('~');
        let constant = match self.parser.peek() {
            Token::Int(value) if negative => Some(Operand::Int(value.wrapping_neg())),
            Token::Int(value) if complement => Some(Operand::Int(!value)),
            Token::Int(value) => Some(Operand::Int(value)),
            Token::F32(bits) if !complement => Some(Operand::F32(bits ^ (negative as u32) << 31)),
            Token::F64(bits) if !complement => Some(Operand::F64(bits ^ (negative as u64) << 63)),
            Token::Punct('(') => return Err(self.parser.expression()),
            Token::Punct('-' | '~' | '!') if negative || complement => return Err(self.parser.expression()),
            _ if negative || complement => return self.parser.expected("a constant"),
            _ => None,
        };
        if let Some(constant) = constant {
            self.parser.at += 1;
            return Ok(constant);
        }
        let name = self.parser.ident("an operand")?;
        if name == "_" {
            return Ok(Operand::Sink);
        }
        let component = match self.parser.peek() {
            Token::Dot(component) => Some(component),
            _ => None,
        };
        if let Some(special) = Special::parse(name, component) {
            self.parser.at += component.is_some() as usize;
            return Ok(Operand::Special(special));
        }
        if let Some(id) = self.lookup(name) {
            return Ok(Operand::Reg(id));
        }
        if name.starts_with('%') {
            self.parser.at -= 1;
            return Err(self.unknown_register(name, component));
        }
        let offset = self.offset()?;
        let unique = self.scopes.iter().rev().find_map(|scope| scope.variables.get(name));
        Ok(Operand::Symbol(unique.map_or(name, String::as_str).to_string(), offset))
    }
}
