//! Instructions and their operands.

use super::body::{Body, MAX_REGISTERS};
use crate::load::ast::{Guard, Instruction, Operand, RegId, Register, Special};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::Token;
use crate::load::types::Ty;
use crate::load::unsupported;

/// Largest number of instructions to which the `brx.idx` instructions of a function expand.
const MAX_EXPANDED: usize = 1 << 18;

impl Body<'_, '_> {
    /// Parses an instruction with its guard and operands.
    pub(super) fn instruction(&mut self) -> Result<(), ParseError> {
        let guard = if self.parser.take('@') { Some(self.guard()?) } else { None };
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
        // Checked before the operands are parsed, because unsupported instructions may have their own operand syntax.
        let errors = self.parser.form_errors(&instruction);
        if errors.unsupported {
            let message = format!("the emulator does not support `{}`", instruction.text());
            return Err(instruction.error(ParseErrorKind::Unsupported, message));
        }
        if let Some(error) = self.parser.platform.refuse_without_sync(&instruction) {
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
        if let Some(name) = self.kernel_address(&instruction) {
            let message = format!("the emulator does not support addresses of kernels, such as `{name}`");
            return Err(instruction.error(ParseErrorKind::Unsupported, message));
        }
        if instruction.opcode == "call"
            && let Some(Operand::Symbol(label, 0)) = instruction.operands.last()
            && let Some(found) = self.scopes.iter().rev().find_map(|scope| scope.prototypes.get(label))
        {
            let prototype = Operand::Prototype(Box::new(found.clone()));
            instruction.operands.pop();
            instruction.operands.push(prototype);
        }
        let platform = &self.parser.platform;
        if let Some(message) = errors.target.or_else(|| platform.missing_for_operands(&instruction)) {
            self.parser.report(instruction.error(ParseErrorKind::Target, message));
        }
        if instruction.opcode == "brx" {
            return self.indexed_branch(instruction);
        }
        let split = self.split_wide(instruction)?;
        self.function.body.extend(split);
        Ok(())
    }

    /// Parses the guard predicate after `@`.
    fn guard(&mut self) -> Result<Guard, ParseError> {
        let negated = self.parser.take('!');
        let name = self.parser.ident("a predicate")?;
        let register = self.find_register(name);
        match register {
            Some(register) if self.function.registers[register as usize].ty == Ty::Pred => {
                Ok(Guard { register, negated })
            }
            _ => {
                self.parser.at -= 1;
                Err(match register {
                    None => self.unknown_register(name, None),
                    Some(_) => {
                        let message = format!("`{name}` is not a predicate register");
                        self.parser.error_of(ParseErrorKind::Operand, message)
                    }
                })
            }
        }
    }

    /// Name of a kernel whose address is an operand of the instruction.
    fn kernel_address<'i>(&self, instruction: &'i Instruction) -> Option<&'i str> {
        if matches!(instruction.opcode.as_str(), "call" | "bra" | "brx") {
            return None;
        }
        instruction.operands.iter().find_map(|operand| match operand {
            Operand::Symbol(name, _) if !self.scopes.iter().any(|scope| scope.names.contains(name)) => {
                let kernel = self.parser.ast.functions.iter().any(|kernel| kernel.name == *name);
                (kernel || self.is_kernel && self.function.name == *name).then_some(name.as_str())
            }
            _ => None,
        })
    }

    /// Creates the error for an undeclared register, which is the next token.
    fn unknown_register(&self, name: &str, component: Option<&str>) -> ParseError {
        if component.is_none() && Special::parse(name, Some("x")).is_some() {
            return self.parser.error(format!("`{name}` has components: `{name}.x`, `.y` and `.z`"));
        }
        let component = component.map(|c| format!(".{c}")).unwrap_or_default();
        match unsupported::register_error(name) {
            kind @ ParseErrorKind::Unsupported => {
                self.parser.error_of(kind, format!("the emulator does not support `{name}{component}`"))
            }
            kind => self.parser.error_of(kind, format!("unknown register `{name}{component}`")),
        }
    }

    /// Expands `brx.idx index, list` to one comparison and branch per target, so that diverged lanes reconverge as in a
    /// chain of branches.
    fn indexed_branch(&mut self, brx: Instruction) -> Result<(), ParseError> {
        let [index, Operand::Symbol(list, 0)] = &brx.operands[..] else {
            let message = "`brx.idx` takes an index and a list of targets";
            return Err(brx.error(ParseErrorKind::Operand, message));
        };
        if brx.guard.is_some() {
            let message = "the emulator does not support `brx.idx` with a guard";
            return Err(brx.error(ParseErrorKind::Unsupported, message));
        }
        let found = self.scopes.iter().rev().find_map(|scope| scope.targets.get(list));
        let Some(labels) = found.cloned() else {
            return Err(brx.error(ParseErrorKind::Undefined, format!("unknown list of targets `{list}`")));
        };
        // Branches with long lists multiply the instructions of the text.
        self.expanded += 2 * labels.len();
        if self.expanded > MAX_EXPANDED {
            let message =
                format!("the emulator expands `brx.idx` to up to {MAX_EXPANDED} instructions in a function");
            return Err(brx.error(ParseErrorKind::Unsupported, message));
        }
        let mut register = |ty| {
            self.function.registers.push(Register { name: "the test of `brx`".to_string(), ty });
            self.function.registers.len() as RegId - 1
        };
        let (in_range, chosen) = (register(Ty::Pred), register(Ty::Pred));
        let unguarded = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| Instruction {
            opcode: opcode.into(),
            modifiers: modifiers.iter().map(|&modifier| modifier.to_string()).collect(),
            operands,
            ..brx.clone()
        };
        let compare = |relation, target, with: usize| {
            let operands = vec![Operand::Reg(target), index.clone(), Operand::Int(with as u64)];
            unguarded("setp", &[relation, "u32"], operands)
        };
        let branch = |predicate, label: &String| Instruction {
            guard: Some(Guard { register: predicate, negated: false }),
            ..unguarded("bra", &[], vec![Operand::Symbol(label.clone(), 0)])
        };
        let out_of_range = Some(Guard { register: in_range, negated: true });
        let (last, others) = labels
            .split_last()
            .ok_or_else(|| brx.error(ParseErrorKind::Syntax, "the list of targets is empty"))?;
        let body = &mut self.function.body;
        body.push(compare("lt", in_range, labels.len()));
        body.push(Instruction { guard: out_of_range, ..unguarded("trap", &["brx"], Vec::new()) });
        for (at, label) in others.iter().enumerate() {
            body.push(compare("eq", chosen, at));
            body.push(branch(chosen, label));
        }
        body.push(unguarded("bra", &[], vec![Operand::Symbol(last.clone(), 0)]));
        Ok(())
    }

    /// Parses an assumption `//@ assume.le.u32 %r1, 1024;`. Expands it to instructions that trap if it is false.
    pub(super) fn assumption(&mut self) -> Result<(), ParseError> {
        let at = self.parser.here();
        self.parser.at += 1;
        let mut word = || match self.parser.peek() {
            Token::Dot(word) => {
                self.parser.at += 1;
                word
            }
            _ => "",
        };
        let (relation, ty) = (word(), word());
        let base = Instruction {
            guard: None,
            opcode: "trap".into(),
            modifiers: vec!["assume".to_owned()],
            operands: Vec::new(),
            line: at.0,
            column: at.1,
            source: self.source,
            scope: self.scopes.last().map_or(0, |scope| scope.id),
        };
        let known = matches!(relation, "eq" | "ne" | "lt" | "le" | "multiple_of");
        let number = Ty::parse(ty).filter(|ty| matches!(ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64));
        let Some(number) = number.filter(|_| known) else {
            let message = format!("unknown assumption `assume.{relation}.{ty}`");
            return Err(base.error(ParseErrorKind::Syntax, message));
        };
        let left = self.element()?;
        self.parser.expect(',')?;
        let right = self.element()?;
        self.parser.expect(';')?;
        let registers = &mut self.function.registers;
        let mut register = |ty| {
            registers.push(Register { name: "the test of an assumption".to_string(), ty });
            registers.len() as RegId - 1
        };
        let (holds, remainder) = (register(Ty::Pred), register(number));
        let unguarded = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| Instruction {
            opcode: opcode.into(),
            modifiers: modifiers.iter().map(|&modifier| modifier.to_string()).collect(),
            operands,
            ..base.clone()
        };
        let mut made = Vec::new();
        if relation == "multiple_of" {
            made.push(unguarded("rem", &[ty], vec![Operand::Reg(remainder), left, right]));
            let zero = vec![Operand::Reg(holds), Operand::Reg(remainder), Operand::Int(0)];
            made.push(unguarded("setp", &["eq", ty], zero));
        } else {
            made.push(unguarded("setp", &[relation, ty], vec![Operand::Reg(holds), left, right]));
        }
        made.push(Instruction { guard: Some(Guard { register: holds, negated: true }), ..base });
        self.function.body.extend(made);
        Ok(())
    }

    /// Parses an operand.
    fn operand(&mut self, opcode: &str) -> Result<Operand, ParseError> {
        match self.parser.peek() {
            Token::Punct('[') => {
                self.parser.at += 1;
                let base = match self.element()? {
                    Operand::Symbol(name, offset) => (Operand::Symbol(name, 0), offset),
                    other => (other, 0),
                };
                let offset = base.1.wrapping_add(self.offset()?);
                let address = Operand::Address(Box::new(base.0), offset);
                if !self.parser.take(',') {
                    self.parser.expect(']')?;
                    return Ok(address);
                }
                self.parser.expect('{')?;
                let mut coordinates = vec![self.element()?];
                while self.parser.take(',') {
                    coordinates.push(self.element()?);
                }
                self.parser.expect('}')?;
                self.parser.expect(']')?;
                Ok(Operand::Tensor(Box::new(address), coordinates))
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
            // Results or arguments of a call, in parentheses.
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
            Token::Punct('!') if matches!(self.parser.peek_ahead(1), Token::Ident(_)) => {
                self.parser.at += 1;
                Ok(Operand::Not(Box::new(self.element()?)))
            }
            _ => {
                let first = self.element()?;
                if self.parser.take('|') {
                    let second = self.element()?;
                    return Ok(Operand::Pair(Box::new(first), Box::new(second)));
                }
                Ok(first)
            }
        }
    }

    /// Parses the offset of an address: `+4`, `-4`, `+` with a constant expression, or nothing.
    fn offset(&mut self) -> Result<i64, ParseError> {
        if self.parser.take('+') {
            return Ok(self.parser.integer_constant("an offset")? as i64);
        }
        let minus = self.parser.take('-');
        Ok(if minus { (self.parser.int("an offset")? as i64).wrapping_neg() } else { 0 })
    }

    /// Parses a constant expression, register, special register, `_` or symbol.
    fn element(&mut self) -> Result<Operand, ParseError> {
        if self.parser.starts_constant() {
            return self.parser.constant();
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
        if let Some(id) = self.find_register(name) {
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
