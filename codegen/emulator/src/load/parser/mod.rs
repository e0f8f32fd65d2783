//! Parser: converts tokens to an [`Ast`].
//!
//! This file parses module-level directives. [`header`] parses `.version` and `.target`, [`variable`] and [`function`]
//! declarations, [`body`] the statements of a function body, [`instruction`] its instructions, and [`expression`] constant
//! expressions.

mod body;
mod expression;
mod function;
mod header;
mod instruction;
mod names;
mod tokens;
mod variable;
mod wide;

use std::collections::HashMap;

use crate::load::ast::{Ast, Instruction};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::{Spanned, Token, lex};
use crate::load::requirement::{LookUp, Platform};
use names::Names;

/// Parses a PTX text. Errors in single instructions and declarations are in [`Ast::errors`]. `look_up` finds an
/// instruction in the opcode table.
///
/// # Errors
/// An error after which parsing cannot continue, as the last, and all errors before it.
pub(crate) fn parse(text: &str, look_up: LookUp) -> Result<Ast, Vec<ParseError>> {
    let tokens = lex(text).map_err(|error| vec![error])?;
    let mut parser = Parser {
        tokens,
        at: 0,
        ast: Ast::default(),
        platform: Platform::default(),
        names: Names::default(),
        look_up,
        form_errors: HashMap::new(),
    };
    match parser.text() {
        Ok(()) => Ok(parser.ast),
        Err(last) => {
            let Ast { mut errors, functions, device, .. } = parser.ast;
            let parsed = functions.into_iter().chain(device.into_values().flatten());
            errors.extend(parsed.flat_map(|function| function.errors));
            errors.sort_by_key(|error| (error.line, error.column));
            errors.push(last);
            Err(errors)
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Spanned<'a>>,
    /// Index of the next token.
    at: usize,
    ast: Ast,
    platform: Platform,
    /// Names that the module declares at module level.
    names: Names,
    look_up: LookUp,
    /// Results of [`Parser::form_errors`] since the last `.target`, by opcode and modifiers as written.
    form_errors: HashMap<String, FormErrors>,
}

/// Errors in the opcode and modifiers of an instruction, independent of its operands.
#[derive(Clone, Default)]
struct FormErrors {
    /// Whether the instruction is valid PTX that the emulator does not implement.
    unsupported: bool,
    /// Error message if the text's `.target` or `.version` does not have the instruction.
    target: Option<String>,
}

/// Linking directives before a declaration, such as `.extern`.
#[derive(Default)]
struct Linkage {
    external: bool,
}

impl<'a> Parser<'a> {
    fn text(&mut self) -> Result<(), ParseError> {
        self.header()?;
        while self.peek() != Token::End {
            self.top_level()?;
        }
        Ok(())
    }

    /// Checks the opcode and modifiers of an instruction before its operands are parsed.
    fn form_errors(&mut self, instruction: &Instruction) -> FormErrors {
        let text = instruction.text();
        if let Some(known) = self.form_errors.get(&text) {
            return known.clone();
        }
        let form = (self.look_up)(instruction);
        let errors = FormErrors {
            unsupported: form.unsupported,
            target: self.platform.missing(&text, &form.requirements),
        };
        self.form_errors.insert(text, errors.clone());
        errors
    }

    /// Parses a module-level directive.
    fn top_level(&mut self) -> Result<(), ParseError> {
        let Token::Dot(directive) = self.peek() else { return self.expected("a directive") };
        match directive {
            "version" => {
                let again = self.error("`.version` may only be the first directive");
                self.report(again);
                self.version()?;
            }
            "target" => self.target()?,
            "address_size" => {
                self.at += 1;
                if self.int("the address size")? != 64 {
                    self.at -= 1;
                    let message = "the emulator only supports 64-bit addresses";
                    return Err(self.error_of(ParseErrorKind::Unsupported, message));
                }
            }
            "file" => self.file()?,
            "section" => self.skip_section()?,
            "pragma" => {
                self.at += 1;
                self.next();
                self.expect(';')?;
            }
            _ => self.declaration()?,
        }
        Ok(())
    }

    /// Parses `.file index "path"`.
    fn file(&mut self) -> Result<(), ParseError> {
        self.at += 1;
        let index = self.int_u32("a file index")?;
        let Token::Text(path) = self.peek() else { return self.expected("a path") };
        self.at += 1;
        while self.take(',') {
            self.int("a timestamp or size")?;
        }
        self.ast.files.insert(index, path.to_string());
        Ok(())
    }

    /// Skips a `.section` with debug information.
    fn skip_section(&mut self) -> Result<(), ParseError> {
        self.at += 1;
        while !matches!(self.peek(), Token::Punct('{') | Token::End) {
            self.at += 1;
        }
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Token::Punct('{') => depth += 1,
                Token::Punct('}') => depth -= 1,
                Token::End => return self.expected("`}`"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Parses a kernel, device function or variable, including its linking directives.
    fn declaration(&mut self) -> Result<(), ParseError> {
        let mut linkage = Linkage::default();
        loop {
            let Token::Dot(directive) = self.peek() else { return self.expected("a declaration") };
            match directive {
                "visible" | "weak" | "common" => {}
                "extern" => linkage.external = true,
                "entry" => {
                    self.at += 1;
                    return self.entry();
                }
                "func" => {
                    self.at += 1;
                    return self.device_function();
                }
                "shared" => {
                    self.at += 1;
                    let (variable, at) = self.variable(&linkage)?;
                    // An `.extern` array without a size may be declared again.
                    if !linkage.external {
                        self.declare("variable", &variable.name, at);
                    }
                    self.ast.shared.push(variable);
                    return Ok(());
                }
                "global" | "const" => {
                    self.at += 1;
                    if linkage.external {
                        let message = "the emulator does not support external variables";
                        return Err(self.error_of(ParseErrorKind::Unsupported, message));
                    }
                    let (variable, at) = self.variable(&linkage)?;
                    self.declare("variable", &variable.name, at);
                    self.ast.globals.push(variable);
                    return Ok(());
                }
                other => return Err(self.unknown_word(&format!("directive `.{other}`"), other)),
            }
            self.at += 1;
        }
    }

    /// Declares a name at module level.
    fn declare(&mut self, what: &str, name: &str, at: (u32, u32)) {
        if let Err(error) = self.names.declare(what, name, at) {
            self.report(error);
        }
    }
}
