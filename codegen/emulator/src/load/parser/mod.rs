//! Tokens to [`Ast`]: directives here, what a text begins with in [`header`], function bodies in [`body`], and who has
//! taken which name in [`names`].

mod body;
mod header;
mod names;

use std::collections::HashMap;

use crate::load::ast::{Ast, Function, Instruction, ParamDecl, RegId, Register, Variable};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::{Spanned, Token, lex};
use crate::load::requirement::Platform;
use crate::load::types::Ty;
use crate::load::unsupported;
use names::Names;

/// The largest alignment and variable that a declaration may ask for.
const MAX_ALIGN: u64 = 1024;
const MAX_VARIABLE: u64 = 1 << 32;

/// Parses a text; what is wrong with single instructions and names is in [`Ast::errors`].
///
/// # Errors
/// A mistake that leaves the rest of the text without meaning, and all before it.
pub(crate) fn parse(text: &str) -> Result<Ast, Vec<ParseError>> {
    let tokens = lex(text).map_err(|error| vec![error])?;
    let mut parser = Parser {
        tokens,
        at: 0,
        ast: Ast::default(),
        platform: Platform::default(),
        names: Names::default(),
        forms: HashMap::new(),
    };
    match parser.text() {
        Ok(()) => Ok(parser.ast),
        Err(last) => {
            let mut errors = parser.ast.errors;
            errors.push(last);
            Err(errors)
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Spanned<'a>>,
    at: usize,
    ast: Ast,
    /// What the text is for.
    platform: Platform,
    /// What the module declares.
    names: Names,
    /// What was found out about opcodes with their modifiers, since the last `.target`.
    forms: HashMap<String, Form>,
}

/// What is wrong with an opcode and its modifiers, whatever the operands are.
#[derive(Clone, Default)]
struct Form {
    /// The emulator lacks it.
    lacked: bool,
    /// The text's target or version does, in words.
    refused: Option<String>,
}

/// What stands before a variable's or function's name.
#[derive(Default)]
struct Linking {
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

    fn peek(&self) -> Token<'a> {
        self.tokens[self.at].token
    }

    fn peek_ahead(&self, ahead: usize) -> Token<'a> {
        self.tokens.get(self.at + ahead).map_or(Token::End, |spanned| spanned.token)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    /// What is wrong with an instruction of which the operands are not known yet.
    fn form(&mut self, instruction: &Instruction) -> Form {
        let text = instruction.text();
        if let Some(known) = self.forms.get(&text) {
            return known.clone();
        }
        let form = Form {
            lacked: unsupported::instruction(&instruction.opcode, &instruction.modifiers),
            refused: self.platform.refuses_form(instruction),
        };
        self.forms.insert(text, form.clone());
        form
    }

    /// Line and column of the next token.
    fn here(&self) -> (u32, u32) {
        let Spanned { line, column, .. } = self.tokens[self.at];
        (line, column)
    }

    /// A syntax error at the next token.
    fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_of(ParseErrorKind::Syntax, message)
    }

    fn error_of(&self, kind: ParseErrorKind, message: impl Into<String>) -> ParseError {
        ParseError::new(kind, self.here(), message)
    }

    /// An error about which the rest of the text can be read.
    fn report(&mut self, error: ParseError) {
        self.ast.errors.push(error);
    }

    /// The error for a word behind a dot, the next token, that is not known there: `what word`.
    fn unknown_word(&self, what: &str, word: &str) -> ParseError {
        let kind = unsupported::directive(word);
        let unknown = if kind == ParseErrorKind::Unsupported { "the emulator lacks the" } else { "unknown" };
        self.error_of(kind, format!("{unknown} {what}"))
    }

    fn expected<T>(&self, what: &str) -> Result<T, ParseError> {
        let found = match self.peek() {
            Token::Ident(name) => format!("`{name}`"),
            Token::Dot(name) => format!("`.{name}`"),
            Token::Int(value) => format!("`{value}`"),
            Token::F32(_) | Token::F64(_) => "a floating-point literal".to_string(),
            Token::Text(_) => "a string".to_string(),
            Token::Punct(mark) => format!("`{mark}`"),
            Token::End => "the end of the text".to_string(),
        };
        Err(self.error(format!("expected {what}, found {found}")))
    }

    /// Goes past the next `;`.
    fn skip_statement(&mut self) -> Result<(), ParseError> {
        // The error may have been found at the end, or at a brace that the statement lacks.
        if self.at > 0 && self.tokens[self.at - 1].token == Token::Punct(';') {
            return Ok(());
        }
        loop {
            match self.peek() {
                // The end of operands that the error was among, not that of the body.
                Token::Punct('}') if matches!(self.peek_ahead(1), Token::Punct(',' | ';' | ']')) => {
                    self.at += 1
                }
                Token::End | Token::Punct('}') => return self.expected("`;`"),
                _ if self.take(';') => return Ok(()),
                Token::Punct('{') => while !matches!(self.next(), Token::Punct('}') | Token::End) {},
                _ => self.at += 1,
            }
        }
    }

    /// An error if what has been read is part of an expression that only an assembler computes.
    fn refuse_expression(&self) -> Result<(), ParseError> {
        let constant = |token| matches!(token, Token::Int(_) | Token::F32(_) | Token::F64(_));
        let read = self.at > 0 && constant(self.tokens[self.at - 1].token);
        match self.peek() {
            Token::Punct('+' | '-' | '*' | '/' | '<' | '>' | '&' | '|' | '^' | '?' | '=' | '!')
            | Token::Ident("%")
                if read =>
            {
                Err(self.expression())
            }
            _ => Ok(()),
        }
    }

    /// The error for an expression in place of a constant, at the next token.
    fn expression(&self) -> ParseError {
        self.error_of(ParseErrorKind::Unsupported, "the emulator lacks constant expressions")
    }

    fn take(&mut self, mark: char) -> bool {
        let found = self.peek() == Token::Punct(mark);
        self.at += found as usize;
        found
    }

    fn take_dot(&mut self, name: &str) -> bool {
        let found = self.peek() == Token::Dot(name);
        self.at += found as usize;
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), ParseError> {
        if self.take(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    fn ident(&mut self, what: &str) -> Result<&'a str, ParseError> {
        match self.peek() {
            Token::Ident(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.expected(what),
        }
    }

    fn int(&mut self, what: &str) -> Result<u64, ParseError> {
        match self.peek() {
            Token::Int(value) => {
                self.at += 1;
                Ok(value)
            }
            _ => self.expected(what),
        }
    }

    fn int_u32(&mut self, what: &str) -> Result<u32, ParseError> {
        let value = self.int(what)?;
        u32::try_from(value).map_err(|_| self.error(format!("{value} is too large for {what}")))
    }

    /// File index, line and column of a `.loc`.
    fn position(&mut self) -> Result<(u32, u32, u32), ParseError> {
        Ok((self.int_u32("a file index")?, self.int_u32("a line")?, self.int_u32("a column")?))
    }

    fn top_level(&mut self) -> Result<(), ParseError> {
        let Token::Dot(directive) = self.peek() else { return self.expected("a directive") };
        match directive {
            "version" => {
                let again = self.error("`.version` stands at the beginning of a text alone");
                self.report(again);
                self.version()?;
            }
            "target" => self.target()?,
            "address_size" => {
                self.at += 1;
                if self.int("the address size")? != 64 {
                    self.at -= 1;
                    let message = "the emulator lacks addresses of other than 64 bits";
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

    fn declaration(&mut self) -> Result<(), ParseError> {
        let mut linking = Linking::default();
        loop {
            let Token::Dot(directive) = self.peek() else { return self.expected("a declaration") };
            match directive {
                "visible" | "weak" | "common" => {}
                "extern" => linking.external = true,
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
                    let (variable, at) = self.variable(&linking)?;
                    // What has no size of its own may be named again.
                    if !linking.external {
                        self.declare("variable", &variable.name, at);
                    }
                    self.ast.shared.push(variable);
                    return Ok(());
                }
                "global" | "const" => {
                    self.at += 1;
                    if linking.external {
                        let message = "the emulator lacks external variables";
                        return Err(self.error_of(ParseErrorKind::Unsupported, message));
                    }
                    let (variable, at) = self.variable(&linking)?;
                    self.declare("variable", &variable.name, at);
                    self.ast.globals.push(variable);
                    return Ok(());
                }
                other => return Err(self.unknown_word(&format!("directive `.{other}`"), other)),
            }
            self.at += 1;
        }
    }

    /// Takes a name of the module.
    fn declare(&mut self, what: &str, name: &str, at: (u32, u32)) {
        if let Err(error) = self.names.declare(what, name, at) {
            self.report(error);
        }
    }

    fn align(&mut self) -> Result<u32, ParseError> {
        let align = self.int("an alignment")?;
        if !align.is_power_of_two() || align > MAX_ALIGN {
            self.at -= 1;
            return Err(self.error(format!("{align} is not a power of two up to {MAX_ALIGN}")));
        }
        Ok(align as u32)
    }

    /// `.align 16 .b8 name[64] = {…};` after the space, and where its name stands.
    fn variable(&mut self, linking: &Linking) -> Result<(Variable, (u32, u32)), ParseError> {
        let mut align = None;
        let mut ty = None;
        let mut vector = 1;
        while let Token::Dot(word) = self.peek() {
            self.at += 1;
            match word {
                "align" => align = Some(self.align()?),
                "v2" => vector = 2,
                "v4" => vector = 4,
                _ => match Ty::parse(word) {
                    Some(found) if found != Ty::Pred => ty = Some(found),
                    _ => {
                        self.at -= 1;
                        return Err(self.unknown_word(&format!("attribute `.{word}` of a variable"), word));
                    }
                },
            }
        }
        let Some(ty) = ty else { return self.expected("the variable's type") };
        let at = self.here();
        let name = self.ident("the variable's name")?.to_string();
        let element = ty.bytes() as u64 * vector;
        let mut bytes = Some(element);
        let (mut dynamic, mut unsized_at) = (false, None);
        while self.take('[') {
            if self.take(']') {
                dynamic = linking.external;
                unsized_at = unsized_at.or(Some(self.here()).filter(|_| !dynamic));
                continue;
            }
            let count = self.array_size()?;
            bytes = bytes.and_then(|bytes| bytes.checked_mul(count));
            self.expect(']')?;
        }
        if let Some(at) = unsized_at {
            let sized_by_values = self.peek() == Token::Punct('=');
            let (kind, message) = match sized_by_values {
                true => (
                    ParseErrorKind::Unsupported,
                    "the emulator lacks arrays that only their values give a size",
                ),
                false => (ParseErrorKind::Syntax, &*format!("`{name}` has no size")),
            };
            self.report(ParseError::new(kind, at, message));
            bytes = Some(MAX_VARIABLE);
        }
        let bytes = match bytes {
            Some(bytes) if bytes <= MAX_VARIABLE => bytes,
            _ => {
                let message = format!("`{name}` is too large");
                return Err(self.error_of(ParseErrorKind::Unsupported, message));
            }
        };
        let mut init = if self.take('=') { self.known_initialiser(ty, bytes)? } else { Vec::new() };
        self.expect(';')?;
        if unsized_at.is_some() {
            init.clear();
        }
        let variable = Variable {
            name,
            bytes: if dynamic || unsized_at.is_some() { 0 } else { bytes },
            align: align.unwrap_or(element.next_power_of_two() as u32),
            init,
            dynamic,
        };
        Ok((variable, at))
    }

    /// The number in brackets; one, up to the `]`, where that is an expression.
    fn array_size(&mut self) -> Result<u64, ParseError> {
        let known = match self.peek() {
            Token::Punct('(') => Err(self.expression()),
            _ => {
                let size = self.int("an array size")?;
                self.refuse_expression().map(|()| size)
            }
        };
        known.or_else(|error| {
            self.report(error);
            while !matches!(self.peek(), Token::Punct(']' | ';') | Token::End) {
                self.at += 1;
            }
            Ok(1)
        })
    }

    /// The bytes behind `=`; zeros, up to the `;`, where the emulator lacks what stands there.
    fn known_initialiser(&mut self, ty: Ty, bytes: u64) -> Result<Vec<u8>, ParseError> {
        let error = match self.initialiser(ty, bytes) {
            Err(error) if error.kind == ParseErrorKind::Unsupported => error,
            known => return known,
        };
        self.report(error);
        while !matches!(self.peek(), Token::Punct(';') | Token::End) {
            self.at += 1;
        }
        Ok(Vec::new())
    }

    fn initialiser(&mut self, ty: Ty, bytes: u64) -> Result<Vec<u8>, ParseError> {
        let mut init = Vec::new();
        let mut depth = 0;
        loop {
            if self.take('{') {
                depth += 1;
                continue;
            }
            let negative = self.take('-');
            let bits = match self.peek() {
                Token::Int(value) if negative => value.wrapping_neg(),
                Token::Int(value) => value,
                Token::F32(bits) => bits as u64 ^ (negative as u64) << 31,
                Token::F64(bits) => {
                    let value = f64::from_bits(bits ^ (negative as u64) << 63);
                    if ty == Ty::F32 { (value as f32).to_bits() as u64 } else { value.to_bits() }
                }
                Token::Ident(_) => {
                    let message = "the emulator lacks addresses as initial values";
                    return Err(self.error_of(ParseErrorKind::Unsupported, message));
                }
                Token::Punct('(' | '-' | '~' | '!') => return Err(self.expression()),
                _ => return self.expected("a constant"),
            };
            self.at += 1;
            self.refuse_expression()?;
            init.extend_from_slice(&bits.to_le_bytes()[..ty.bytes() as usize]);
            while depth > 0 && self.take('}') {
                depth -= 1;
            }
            if init.len() as u64 > bytes {
                return Err(self.error("more initial values than elements"));
            }
            if depth == 0 {
                return Ok(init);
            }
            self.expect(',')?;
        }
    }

    fn entry(&mut self) -> Result<(), ParseError> {
        let at = self.here();
        let mut function = Function { name: self.ident("a kernel name")?.to_string(), ..Function::default() };
        self.declare("kernel", &function.name, at);
        let mut names = Names::default();
        function.params = self.params(&mut function, &mut names)?;
        self.attributes(&mut function)?;
        body::parse(self, &mut function, names)?;
        self.ast.functions.push(function);
        Ok(())
    }

    /// `.func (results) name (parameters)` with a body, or `;` where it is only declared.
    fn device_function(&mut self) -> Result<(), ParseError> {
        let mut function = Function::default();
        let mut names = Names::default();
        self.attributes(&mut function)?;
        function.returns = self.params(&mut function, &mut names)?;
        let at = self.here();
        function.name = self.ident("a function name")?.to_string();
        function.params = self.params(&mut function, &mut names)?;
        self.attributes(&mut function)?;
        let name = function.name.clone();
        if self.take(';') {
            self.ast.device.entry(name).or_insert(None);
            return Ok(());
        }
        self.declare("function", &name, at);
        body::parse(self, &mut function, names)?;
        self.ast.device.insert(name, Some(function));
        Ok(())
    }

    /// The list in parentheses, if there is one.
    fn params(&mut self, function: &mut Function, names: &mut Names) -> Result<Vec<ParamDecl>, ParseError> {
        let mut params = Vec::new();
        if self.take('(') {
            while !self.take(')') {
                if !params.is_empty() {
                    self.expect(',')?;
                }
                let (param, at) = self.param(function)?;
                // Prototypes may leave all names away by `_`.
                if param.name != "_"
                    && let Err(error) = names.declare("parameter", &param.name, at)
                {
                    self.report(error);
                }
                params.push(param);
            }
        }
        Ok(params)
    }

    /// The directives between a function's head and its body.
    fn attributes(&mut self, function: &mut Function) -> Result<(), ParseError> {
        loop {
            match self.peek() {
                Token::Dot("reqntid") => function.reqntid = Some(self.dimensions()?),
                Token::Dot("maxntid") => function.maxntid = Some(self.dimensions()?),
                Token::Dot(directive @ ("reqnctapercluster" | "explicitcluster" | "maxclusterrank")) => {
                    if let Some(message) = self.platform.refuses_clusters(directive) {
                        let error = self.error_of(ParseErrorKind::Target, message);
                        self.report(error);
                    }
                    self.clusters(directive, function)?;
                }
                Token::Dot("minnctapersm" | "maxnctapersm" | "maxnreg" | "noreturn") => {
                    self.at += 1;
                    if let Token::Int(_) = self.peek() {
                        self.at += 1;
                    }
                }
                Token::Dot("pragma") => {
                    self.at += 1;
                    self.next();
                    self.expect(';')?;
                }
                Token::Dot(other) => return Err(self.unknown_word(&format!("directive `.{other}`"), other)),
                _ => return Ok(()),
            }
        }
    }

    fn clusters(&mut self, directive: &str, function: &mut Function) -> Result<(), ParseError> {
        match directive {
            "reqnctapercluster" => function.clusters.required = Some(self.dimensions()?),
            "explicitcluster" => {
                self.at += 1;
                function.clusters.explicit = true;
            }
            _ => {
                self.at += 1;
                function.clusters.most = Some(self.int_u32("a number of CTAs")?);
            }
        }
        Ok(())
    }

    fn dimensions(&mut self) -> Result<[u32; 3], ParseError> {
        self.at += 1;
        let mut dimensions = [self.int_u32("a dimension")?, 1, 1];
        for dimension in &mut dimensions[1..] {
            if !self.take(',') {
                break;
            }
            *dimension = self.int_u32("a dimension")?;
        }
        Ok(dimensions)
    }

    /// `.param .u64 .ptr .global .align 16 name` or `.param .align 8 .b8 name[64]`; of functions also
    /// `.reg .b32 name`. Also where the name stands.
    fn param(&mut self, function: &mut Function) -> Result<(ParamDecl, (u32, u32)), ParseError> {
        let in_register = self.take_dot("reg");
        if !in_register && !self.take_dot("param") {
            return self.expected("`.param`");
        }
        let (mut align, mut ty, mut pointer) = (None, None, false);
        while let Token::Dot(word) = self.peek() {
            self.at += 1;
            match word {
                // `.ptr … .align` is the alignment of what the pointer points at.
                "align" if pointer => drop(self.align()?),
                "align" => align = Some(self.align()?),
                "ptr" => pointer = true,
                "global" | "shared" | "const" | "local" if pointer => {}
                _ => match Ty::parse(word) {
                    Some(found) if found != Ty::Pred => ty = Some(found),
                    _ => {
                        self.at -= 1;
                        return Err(self.unknown_word(&format!("attribute `.{word}` of a parameter"), word));
                    }
                },
            }
        }
        let Some(ty) = ty else { return self.expected("the parameter's type") };
        let at = self.here();
        let name = self.ident("the parameter's name")?.to_string();
        let mut bytes = ty.bytes();
        let register = in_register.then(|| {
            function.registers.push(Register { name: name.clone(), ty });
            function.registers.len() as RegId - 1
        });
        if self.take('[') {
            let count = self.int_u32("the parameter's size")?;
            bytes = match bytes.checked_mul(count) {
                Some(bytes) if bytes <= 32764 => bytes,
                _ => {
                    let message = format!("parameter `{name}` is larger than 32764 bytes");
                    return Err(self.error_of(ParseErrorKind::Target, message));
                }
            };
            self.expect(']')?;
        }
        Ok((ParamDecl { name, ty, bytes, align: align.unwrap_or(ty.bytes()), register }, at))
    }
}
