//! Reads the text form that [`super::print`] writes.
//!
//! Values, blocks and shared variables keep their numbers; numbers that the text leaves out become entities that
//! are in no block, as removed ones are. The results of one instruction are numbered consecutively. What an
//! instruction's operands must be is the verifier's business: text that parses may still be rejected there.

mod build;
mod lex;
mod ops;

use std::fmt::Display;
use std::str::FromStr;

use lex::{Kind, Token};

use super::{Function, Op, Param, Shared, SourceLoc, Type};

/// Why and where a text is not a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was expected or is wrong.
    pub message: String,
}

impl ParseError {
    fn new(line: u32, column: u32, message: impl Into<String>) -> ParseError {
        ParseError { line, column, message: message.into() }
    }
}

/// The function that the text describes.
pub fn parse(text: &str) -> Result<Function, ParseError> {
    let mut parser = Parser { tokens: lex::tokens(text)?, at: 0 };
    let kernel = parser.kernel()?;
    build::function(kernel)
}

/// The largest number of a value or block, so that a hostile text cannot ask for all memory.
const MAX_NUMBER: u32 = 1 << 22;

/// A number with where it was written.
#[derive(Clone, Copy, Debug)]
struct Name {
    number: u32,
    line: u32,
    column: u32,
}

impl Name {
    fn error(self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.line, self.column, message)
    }
}

/// A kernel as written, names unresolved.
struct Kernel {
    name: String,
    params: Vec<Param>,
    threads: Option<u32>,
    min_blocks: Option<u32>,
    cluster: Option<u32>,
    allow_spills: u32,
    shared: Vec<Shared>,
    blocks: Vec<BlockText>,
}

struct BlockText {
    name: Name,
    params: Vec<(Name, Type)>,
    insts: Vec<InstText>,
}

struct InstText {
    op: Op,
    ty: Type,
    results: Vec<Name>,
    args: Vec<Name>,
    dests: Vec<(Name, Vec<Name>)>,
    /// Innermost first; `inlined_at` is the next one.
    locs: Vec<SourceLoc>,
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn kernel(&mut self) -> Result<Kernel, ParseError> {
        self.keyword("kernel")?;
        self.punct('@')?;
        let name = self.word("the kernel's name")?;
        let params = self.kernel_params()?;
        let threads = if self.eat_word("threads") { Some(self.parsed("a number of threads")?) } else { None };
        let min_blocks =
            if self.eat_word("min_blocks") { Some(self.parsed("a number of CTAs")?) } else { None };
        let cluster = if self.eat_word("cluster") { Some(self.parsed("a number of CTAs")?) } else { None };
        let allow_spills = if self.eat_word("allow_spills") { self.parsed("a number of bytes")? } else { 0 };
        self.punct('{')?;
        self.newline()?;
        let mut shared = Vec::new();
        while self.peek_word().is_some_and(|word| word.starts_with("shared")) {
            shared.push(self.shared(shared.len())?);
        }
        let mut blocks = Vec::new();
        while !self.eat('}') {
            blocks.push(self.block()?);
        }
        if self.kind() == &Kind::Newline {
            self.at += 1;
        }
        if self.kind() != &Kind::End {
            return Err(self.error("expected nothing after the kernel's closing brace"));
        }
        Ok(Kernel { name, params, threads, min_blocks, cluster, allow_spills, shared, blocks })
    }

    fn kernel_params(&mut self) -> Result<Vec<Param>, ParseError> {
        let mut params = Vec::new();
        self.punct('(')?;
        while !self.eat(')') {
            if !params.is_empty() {
                self.punct(',')?;
            }
            let name = self.word("a parameter's name")?;
            self.punct(':')?;
            let ty = self.parsed("a type")?;
            let typed = self.peek_word().is_some_and(|word| word != "align");
            let element = if typed { Some(self.parsed("a type")?) } else { None };
            let align = if self.eat_word("align") { Some(self.parsed("a number of bytes")?) } else { None };
            params.push(Param { name, ty, element, align });
        }
        Ok(params)
    }

    fn shared(&mut self, index: usize) -> Result<Shared, ParseError> {
        let name = self.name("shared")?;
        if name.number as usize != index {
            return Err(name.error(format!("shared variables are numbered in order: expected shared{index}")));
        }
        self.punct('=')?;
        let element = self.parsed("a type")?;
        self.keyword("x")?;
        let count = self.parsed("a number of elements")?;
        self.keyword("align")?;
        let align = self.parsed("an alignment")?;
        self.newline()?;
        Ok(Shared { element, count, align })
    }

    fn block(&mut self) -> Result<BlockText, ParseError> {
        let name = self.name("block")?;
        let mut params = Vec::new();
        if self.eat('(') {
            while !self.eat(')') {
                if !params.is_empty() {
                    self.punct(',')?;
                }
                let value = self.name("v")?;
                self.punct(':')?;
                params.push((value, self.parsed("a type")?));
            }
        }
        self.punct(':')?;
        self.newline()?;
        let mut insts = Vec::new();
        while self.kind() != &Kind::Punct('}') && !self.at_block() {
            insts.push(self.inst()?);
        }
        Ok(BlockText { name, params, insts })
    }

    fn inst(&mut self) -> Result<InstText, ParseError> {
        let mut results = Vec::new();
        let assigns = self.tokens.get(self.at + 1).is_some_and(|t| matches!(t.kind, Kind::Punct(',' | '=')));
        if assigns {
            results.push(self.name("v")?);
            while self.eat(',') {
                results.push(self.name("v")?);
            }
            self.punct('=')?;
        }
        let (mut op, ty) = self.op()?;
        let (mut args, mut dests) = (Vec::new(), Vec::new());
        while !matches!(self.kind(), Kind::Newline | Kind::Punct('@')) {
            if args.len() + dests.len() > 0 {
                self.punct(',')?;
            }
            if self.at_block() {
                dests.push(self.block_call()?);
                continue;
            }
            args.push(self.name("v")?);
            if op.offset().is_some() && args.len() == 1 {
                op = op.with_offset(self.offset()?);
            }
        }
        let locs = if self.eat('@') { self.locs()? } else { Vec::new() };
        self.newline()?;
        Ok(InstText { op, ty, results, args, dests, locs })
    }

    fn block_call(&mut self) -> Result<(Name, Vec<Name>), ParseError> {
        let block = self.name("block")?;
        let mut args = Vec::new();
        if self.eat('(') {
            while !self.eat(')') {
                if !args.is_empty() {
                    self.punct(',')?;
                }
                args.push(self.name("v")?);
            }
        }
        Ok((block, args))
    }

    fn offset(&mut self) -> Result<i32, ParseError> {
        let negative = self.eat('-');
        if !negative && !self.eat('+') {
            return Ok(0);
        }
        let size: i64 = self.parsed("an offset")?;
        let offset = if negative { size.checked_neg() } else { Some(size) };
        offset
            .and_then(|o| i32::try_from(o).ok())
            .ok_or_else(|| self.error_before("the offset does not fit i32"))
    }

    fn locs(&mut self) -> Result<Vec<SourceLoc>, ParseError> {
        let mut locs = Vec::new();
        loop {
            let Kind::Text(file) = self.kind().clone() else {
                return Err(self.error("expected a file name in quotation marks"));
            };
            self.at += 1;
            self.punct(':')?;
            let line = self.parsed("a line")?;
            self.punct(':')?;
            let column = self.parsed("a column")?;
            let function = if self.eat_word("in") { Some(self.word("a function's name")?) } else { None };
            locs.push(SourceLoc { file, line, column, function, inlined_at: None });
            if !self.eat('<') {
                return Ok(locs);
            }
        }
    }

    // Tokens.

    fn kind(&self) -> &Kind {
        &self.tokens[self.at].kind
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        let token = &self.tokens[self.at];
        ParseError::new(token.line, token.column, message)
    }

    /// An error at the token that was just taken.
    fn error_before(&self, message: impl Into<String>) -> ParseError {
        let token = &self.tokens[self.at.saturating_sub(1)];
        ParseError::new(token.line, token.column, message)
    }

    fn peek_word(&self) -> Option<&str> {
        match self.kind() {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    fn at_block(&self) -> bool {
        let digits = self.peek_word().and_then(|word| word.strip_prefix("block"));
        digits.is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
    }

    fn word(&mut self, what: &str) -> Result<String, ParseError> {
        let word =
            self.peek_word().map(str::to_owned).ok_or_else(|| self.error(format!("expected {what}")))?;
        self.at += 1;
        Ok(word)
    }

    fn eat(&mut self, punct: char) -> bool {
        let found = self.kind() == &Kind::Punct(punct);
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, expected: &str) -> bool {
        let found = self.peek_word() == Some(expected);
        self.at += usize::from(found);
        found
    }

    fn punct(&mut self, punct: char) -> Result<(), ParseError> {
        if self.eat(punct) { Ok(()) } else { Err(self.error(format!("expected `{punct}`"))) }
    }

    fn keyword(&mut self, expected: &str) -> Result<(), ParseError> {
        if self.eat_word(expected) { Ok(()) } else { Err(self.error(format!("expected `{expected}`"))) }
    }

    fn newline(&mut self) -> Result<(), ParseError> {
        if self.kind() != &Kind::Newline {
            return Err(self.error("expected the end of the line"));
        }
        self.at += 1;
        Ok(())
    }

    fn parsed<T: FromStr>(&mut self, what: &str) -> Result<T, ParseError> {
        let word = self.word(what)?;
        word.parse().map_err(|_| self.error_before(format!("`{word}` is not {what}")))
    }

    /// A name of the form `prefix` and a number.
    fn name(&mut self, prefix: &str) -> Result<Name, ParseError> {
        let number = self.peek_word().and_then(|word| word.strip_prefix(prefix)).and_then(canonical_number);
        let Some(number) = number else {
            return Err(self.error(format!("expected a name of the form {prefix}0")));
        };
        let &Token { line, column, .. } = &self.tokens[self.at];
        if number > MAX_NUMBER {
            return Err(self.error(format!("the number is larger than {MAX_NUMBER}")));
        }
        self.at += 1;
        Ok(Name { number, line, column })
    }

    /// One of the choices, by its text.
    fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, ParseError> {
        let found = self.peek_word().and_then(|word| choices.iter().find(|(text, _)| *text == word));
        let Some(&(_, choice)) = found else {
            let names: Vec<_> = choices.iter().map(|(text, _)| *text).collect();
            return Err(self.error(format!("expected one of {}", names.join(", "))));
        };
        self.at += 1;
        Ok(choice)
    }

    /// A variant of an enumeration that has names.
    fn named<T: FromStr + Display + Copy>(&mut self, all: &[T]) -> Result<T, ParseError> {
        let names: Vec<_> = all.iter().map(|v| v.to_string()).collect();
        let choices: Vec<_> = names.iter().map(String::as_str).zip(all.iter().copied()).collect();
        self.choice(&choices)
    }
}

/// A decimal number without sign and superfluous zeros, so that every entity has one name.
fn canonical_number(digits: &str) -> Option<u32> {
    let canonical = digits == "0" || digits.starts_with(|c: char| ('1'..='9').contains(&c));
    if canonical { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
