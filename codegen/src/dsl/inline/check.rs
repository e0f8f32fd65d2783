//! Check of inline PTX while it is recorded.
//!
//! The check knows the lexical structure of PTX, statements and blocks, the names of instructions, types and special
//! registers, and the operand types of instructions whose operands all have one type. Other rules of instructions are left
//! to the emulator and to the driver.

use std::collections::{HashMap, HashSet};

use super::lex::{Kind, Token, tokens};
use super::words::{
    is_opcode, is_special_register, is_type, looks_like_type, similar_opcode, uniform_operands,
};
use crate::ir::Type;

/// Type of a register, as far as instructions distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    Predicate,
    /// A register of so many bits that instructions of any type take.
    Bits(u32),
    Integer(u32),
    Float(u32),
}

impl Register {
    /// The register that holds a value of the IR type `ty`.
    fn of(ty: Type) -> Register {
        match ty {
            Type::Pred => Register::Predicate,
            Type::F32 | Type::F64 => Register::Float(ty.bits()),
            // 8-bit integers are in 32-bit registers.
            ty if ty.bits() == 8 => Register::Bits(32),
            ty => Register::Bits(ty.bits()),
        }
    }

    /// The register that `.reg .u32` declares, given `u32`.
    fn declared(ty: &str) -> Option<Register> {
        let bits = || ty.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().ok();
        Some(match ty {
            "pred" => Register::Predicate,
            "f32" | "f64" => Register::Float(bits()?),
            "f16x2" | "bf16x2" => Register::Bits(32),
            _ if ty.starts_with(['u', 's']) => Register::Integer(bits()?),
            _ => Register::Bits(bits()?),
        })
    }

    /// Whether an instruction of type `ty`, such as `u32`, takes the register.
    fn fits(self, ty: &str) -> bool {
        let Some(wanted) = Register::declared(ty) else { return true };
        match (self, wanted) {
            (Register::Predicate, _) | (_, Register::Predicate) => self == wanted,
            (Register::Bits(bits), other) | (other, Register::Bits(bits)) => bits == other.bits(),
            _ => self == wanted,
        }
    }

    fn bits(self) -> u32 {
        match self {
            Register::Predicate => 1,
            Register::Bits(bits) | Register::Integer(bits) | Register::Float(bits) => bits,
        }
    }

    fn describe(self) -> String {
        match self {
            Register::Predicate => "a predicate".into(),
            Register::Bits(bits) => format!("a register of {bits} bits"),
            Register::Integer(bits) => format!("an integer of {bits} bits"),
            Register::Float(bits) => format!("a float of {bits} bits"),
        }
    }
}

/// Position of an error and its message.
type Fault = (usize, String);

/// Checks the text; the error has the place and what is wrong there. `operands` are the results and inputs.
pub fn check(ptx: &str, operands: &[(&str, Type)]) -> Result<(), String> {
    run(ptx, operands).map_err(|(at, message)| {
        let before = &ptx[..at.min(ptx.len())];
        let line = before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let shown = ptx.lines().nth(line).unwrap_or_default();
        let (number, column) =
            (line + 1, ptx[start..].chars().count() - ptx[at.min(ptx.len())..].chars().count() + 1);
        format!("inline PTX, line {number}, column {column}: {message}, in `{}`", shown.trim())
    })
}

fn run(ptx: &str, operands: &[(&str, Type)]) -> Result<(), Fault> {
    let tokens = tokens(ptx)?;
    let labels = labels(&tokens);
    let operands = operands.iter().map(|&(name, ty)| (name, Register::of(ty))).collect();
    let mut check = Check { tokens: &tokens, next: 0, end: ptx.len(), operands, labels, scopes: Vec::new() };
    while check.next < tokens.len() {
        check.statement()?;
    }
    match check.scopes.last() {
        Some(scope) => Err((scope.open, "the block that starts here is not closed".into())),
        None => Ok(()),
    }
}

/// Names before a colon.
fn labels<'a>(tokens: &[Token<'a>]) -> HashSet<&'a str> {
    let pairs = tokens.windows(2).filter(|pair| pair[0].kind == Kind::Word && pair[1].is(':'));
    pairs.map(|pair| pair[0].text).collect()
}

/// A block `{ … }`: where it opens, and the names declared in it. Variables have no register.
struct NameScope<'a> {
    open: usize,
    names: HashMap<&'a str, Option<Register>>,
    /// Names such as `r` of `.reg .b32 r<4>`, with the number of registers.
    families: Vec<(&'a str, u32, Register)>,
}

struct Check<'t, 'a> {
    tokens: &'t [Token<'a>],
    next: usize,
    /// Length of the text.
    end: usize,
    operands: HashMap<&'a str, Register>,
    labels: HashSet<&'a str>,
    scopes: Vec<NameScope<'a>>,
}

impl<'a> Check<'_, 'a> {
    fn peek(&self, ahead: usize) -> Option<Token<'a>> {
        self.tokens.get(self.next + ahead).copied()
    }

    fn statement(&mut self) -> Result<(), Fault> {
        let Some(token) = self.peek(0) else { return Ok(()) };
        match token.kind {
            Kind::Mark(';') => self.next += 1,
            Kind::Mark('{') => {
                self.scopes.push(NameScope { open: token.at, names: HashMap::new(), families: Vec::new() });
                self.next += 1;
            }
            Kind::Mark('}') => {
                if self.scopes.pop().is_none() {
                    return Err((token.at, "`}` closes no block".into()));
                }
                self.next += 1;
            }
            Kind::Directive => self.directive(token)?,
            Kind::Word if self.peek(1).is_some_and(|next| next.is(':')) => {
                self.declare_in_block(token)?;
                self.next += 2;
            }
            Kind::Word | Kind::Mark('@') => self.instruction()?,
            _ => return Err((token.at, format!("expected an instruction, found `{}`", token.text))),
        }
        Ok(())
    }

    /// The tokens up to the `;` of a statement that starts at `first`.
    fn until_semicolon(&mut self, first: Token<'a>) -> Result<Vec<Token<'a>>, Fault> {
        let mut open: Vec<Token<'a>> = Vec::new();
        let mut tokens = Vec::new();
        while let Some(token) = self.peek(0) {
            let closes = match token.kind {
                Kind::Mark(';') if open.is_empty() => {
                    self.next += 1;
                    return Ok(tokens);
                }
                Kind::Mark(mark @ ('{' | '[' | '(')) => {
                    open.push(Token { kind: Kind::Mark(mark), ..token });
                    None
                }
                Kind::Mark('}') => Some('{'),
                Kind::Mark(']') => Some('['),
                Kind::Mark(')') => Some('('),
                _ => None,
            };
            if let Some(opening) = closes {
                match open.pop() {
                    Some(token) if token.is(opening) => {}
                    Some(other) => return Err((other.at, format!("`{}` is not closed", other.text))),
                    None if opening == '{' => {
                        return Err((first.at, format!("`{}` has no `;` at its end", first.text)));
                    }
                    None => return Err((token.at, format!("`{}` closes nothing", token.text))),
                }
            }
            if token.is(';') {
                let unclosed = open.last().copied().unwrap_or(token);
                return Err((unclosed.at, format!("`{}` is not closed", unclosed.text)));
            }
            tokens.push(token);
            self.next += 1;
        }
        match open.last() {
            Some(token) => Err((token.at, format!("`{}` is not closed", token.text))),
            None => Err((self.end, format!("`{}` has no `;` at its end", first.text))),
        }
    }

    fn declare_in_block(&self, token: Token<'_>) -> Result<(), Fault> {
        match self.scopes.is_empty() {
            true => Err((
                token.at,
                format!(
                    "`{}` is declared outside of a block: write `{{ … }}` around the text, because it may occur several \
                     times in a kernel",
                    token.text
                ),
            )),
            false => Ok(()),
        }
    }

    fn directive(&mut self, directive: Token<'a>) -> Result<(), Fault> {
        let declares =
            matches!(directive.text, ".reg" | ".shared" | ".local" | ".const" | ".global" | ".param");
        let other = [".loc", ".pragma", ".branchtargets", ".calltargets", ".callprototype"];
        if !declares && !other.contains(&directive.text) {
            return Err((directive.at, format!("inline PTX has no directive `{}`", directive.text)));
        }
        if declares {
            self.declare_in_block(directive)?;
        }
        self.next += 1;
        let tokens = self.until_semicolon(directive)?;
        if !declares {
            return Ok(());
        }
        let types = tokens.iter().filter(|token| token.kind == Kind::Directive);
        let mut register = None;
        for token in types {
            let name = token.text.trim_start_matches('.');
            if name == "pred" || is_type(name) {
                register = Register::declared(name);
            } else if looks_like_type(name) {
                return Err((token.at, format!("PTX has no type `{}`", token.text)));
            }
        }
        let is_register = directive.text == ".reg";
        if is_register && register.is_none() {
            return Err((directive.at, "`.reg` needs a type, such as `.b32`".into()));
        }
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Word) {
            let family = tokens.get(index + 1).is_some_and(|next| next.is('<'));
            let count = tokens.get(index + 2).and_then(|count| count.text.parse().ok());
            match (register, count) {
                (Some(register), Some(count)) if is_register && family => {
                    scope.families.push((token.text, count, register));
                }
                _ => {
                    scope.names.insert(token.text, register.filter(|_| is_register));
                }
            }
        }
        Ok(())
    }

    fn instruction(&mut self) -> Result<(), Fault> {
        if let Some(guard) = self.peek(0).filter(|token| token.is('@')) {
            self.next += 1;
            if self.peek(0).is_some_and(|token| token.is('!')) {
                self.next += 1;
            }
            let Some(predicate) = self.peek(0) else {
                return Err((guard.at, "`@` needs a predicate".into()));
            };
            match self.register(predicate)? {
                Some(Register::Predicate) | None => self.next += 1,
                Some(other) => {
                    let what = format!("`{}` is {}, not a predicate", predicate.text, other.describe());
                    return Err((predicate.at, what));
                }
            }
        }
        let Some(word) = self.peek(0).filter(|token| token.kind == Kind::Word) else {
            return Err((self.peek(0).map_or(self.end, |token| token.at), "expected an instruction".into()));
        };
        let mut parts = word.text.split('.');
        let opcode = parts.next().unwrap_or_default();
        if !is_opcode(opcode) {
            let hint =
                similar_opcode(opcode).map_or(String::new(), |known| format!("; did you mean `{known}`?"));
            return Err((word.at, format!("PTX has no instruction `{opcode}`{hint}")));
        }
        let modifiers: Vec<&str> = parts.collect();
        if let Some(wrong) = modifiers.iter().find(|modifier| looks_like_type(modifier) && !is_type(modifier))
        {
            return Err((word.at, format!("PTX has no type `.{wrong}`")));
        }
        self.next += 1;
        let tokens = self.until_semicolon(word)?;
        // The operands of calls and textures are names of the module.
        if matches!(opcode, "call" | "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq") {
            return Ok(());
        }
        for &token in &tokens {
            self.register(token)?;
        }
        self.types(word, opcode, &modifiers, &tokens)
    }

    /// The register that the token names, if it names one; an error if the name is not declared.
    fn register(&self, token: Token<'_>) -> Result<Option<Register>, Fault> {
        match token.kind {
            Kind::Operand => Ok(self.operands.get(token.text).copied()),
            Kind::Word => self.named(token),
            _ => Ok(None),
        }
    }

    fn named(&self, token: Token<'_>) -> Result<Option<Register>, Fault> {
        // Components of a vector: `v.x`.
        let name = token.text.split('.').next().unwrap_or_default();
        for scope in self.scopes.iter().rev() {
            if let Some(&register) = scope.names.get(name) {
                return Ok(register);
            }
            let of_family = |&&(stem, count, _): &&(&str, u32, Register)| {
                name.strip_prefix(stem)
                    .and_then(|number| number.parse::<u32>().ok())
                    .is_some_and(|n| n < count)
            };
            if let Some(&(_, _, register)) = scope.families.iter().find(of_family) {
                return Ok(Some(register));
            }
        }
        if matches!(name, "_" | "WARP_SZ") || self.labels.contains(name) {
            return Ok(None);
        }
        if name.starts_with('%') {
            return match is_special_register(name) {
                true => Ok(None),
                false => Err((
                    token.at,
                    format!(
                        "`{name}` is neither declared here nor a special register of PTX: values of the kernel are inputs"
                    ),
                )),
            };
        }
        Err((
            token.at,
            format!(
                "`{name}` is not declared: declare it by `.reg` in a block, or write `{{{name}}}` for an operand"
            ),
        ))
    }

    /// Checks number and types of the operands, if all have the type of the instruction.
    fn types(
        &self,
        word: Token<'_>,
        opcode: &str,
        modifiers: &[&str],
        tokens: &[Token<'_>],
    ) -> Result<(), Fault> {
        let types: Vec<&str> =
            modifiers.iter().copied().filter(|&modifier| modifier == "pred" || is_type(modifier)).collect();
        let (Some(count), &[ty]) = (uniform_operands(opcode), &types[..]) else { return Ok(()) };
        if modifiers.contains(&"wide") {
            return Ok(());
        }
        let operands: Vec<&[Token<'_>]> = split(tokens);
        if operands.len() != count {
            let text = word.text;
            return Err((word.at, format!("`{text}` has {count} operands, not {}", operands.len())));
        }
        for operand in operands {
            // Vectors and addresses have types of their own.
            let &[token] = operand else { continue };
            if let Some(register) = self.register(token)?
                && !register.fits(ty)
            {
                let what =
                    format!("`{}` is {}, but the instruction is `.{ty}`", token.text, register.describe());
                return Err((token.at, what));
            }
        }
        Ok(())
    }
}

/// Splits the tokens at commas outside of brackets.
fn split<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let mut depth = 0;
    let is_comma = move |token: &Token<'_>| {
        match token.kind {
            Kind::Mark('{' | '[' | '(') => depth += 1,
            Kind::Mark('}' | ']' | ')') => depth -= 1,
            _ => {}
        }
        depth == 0 && token.is(',')
    };
    let operands: Vec<_> = tokens.split(is_comma).collect();
    if tokens.is_empty() { Vec::new() } else { operands }
}

#[cfg(test)]
mod tests;
