//! Reading of tokens: look-ahead, expected tokens and errors.

use super::Parser;
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::{Spanned, Token};
use crate::load::unsupported;

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> Token<'a> {
        self.tokens[self.at].token
    }

    pub(super) fn peek_ahead(&self, ahead: usize) -> Token<'a> {
        self.tokens.get(self.at + ahead).map_or(Token::End, |spanned| spanned.token)
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    /// Line and column of the next token.
    pub(super) fn here(&self) -> (u32, u32) {
        let Spanned { line, column, .. } = self.tokens[self.at];
        (line, column)
    }

    /// Creates a syntax error at the next token.
    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_of(ParseErrorKind::Syntax, message)
    }

    /// Creates an error at the next token.
    pub(super) fn error_of(&self, kind: ParseErrorKind, message: impl Into<String>) -> ParseError {
        ParseError::new(kind, self.here(), message)
    }

    /// Records an error after which the parser continues.
    pub(super) fn report(&mut self, error: ParseError) {
        self.ast.errors.push(error);
    }

    /// Creates the error for the next token, a word after a dot that is unknown here. `what` describes the kind of
    /// word.
    pub(super) fn unknown_word(&self, what: &str, word: &str) -> ParseError {
        let kind = unsupported::directive_error(word);
        let message = match kind {
            ParseErrorKind::Unsupported => format!("the emulator does not support the {what}"),
            _ => format!("unknown {what}"),
        };
        self.error_of(kind, message)
    }

    /// Returns a syntax error that names what was expected and the next token.
    pub(super) fn expected<T>(&self, what: &str) -> Result<T, ParseError> {
        let found = match self.peek() {
            Token::Ident(name) => format!("`{name}`"),
            Token::Dot(name) => format!("`.{name}`"),
            Token::Int(value) | Token::Unsigned(value) => format!("`{value}`"),
            Token::F32(_) | Token::F64(_) => "a floating-point literal".to_string(),
            Token::Text(_) => "a string".to_string(),
            Token::Punct(mark) => format!("`{mark}`"),
            Token::Assume => "an assumption".to_string(),
            Token::End => "the end of the text".to_string(),
        };
        Err(self.error(format!("expected {what}, found {found}")))
    }

    /// Skips past the next `;`, to resume after an error.
    pub(super) fn skip_statement(&mut self) -> Result<(), ParseError> {
        // The error may have been found after the `;`, which is then already read.
        if self.at > 0 && self.tokens[self.at - 1].token == Token::Punct(';') {
            return Ok(());
        }
        loop {
            match self.peek() {
                // This brace closes a vector operand, not the function body.
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

    /// Skips the next token if it is the punctuation mark `mark`; returns whether a token was skipped.
    pub(super) fn take(&mut self, mark: char) -> bool {
        let found = self.peek() == Token::Punct(mark);
        self.at += found as usize;
        found
    }

    /// Skips the next token if it is `.name`; returns whether a token was skipped.
    pub(super) fn take_dot(&mut self, name: &str) -> bool {
        let found = self.peek() == Token::Dot(name);
        self.at += found as usize;
        found
    }

    pub(super) fn expect(&mut self, mark: char) -> Result<(), ParseError> {
        if self.take(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    pub(super) fn ident(&mut self, what: &str) -> Result<&'a str, ParseError> {
        match self.peek() {
            Token::Ident(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.expected(what),
        }
    }

    pub(super) fn int(&mut self, what: &str) -> Result<u64, ParseError> {
        match self.peek() {
            Token::Int(value) | Token::Unsigned(value) => {
                self.at += 1;
                Ok(value)
            }
            _ => self.expected(what),
        }
    }

    pub(super) fn int_u32(&mut self, what: &str) -> Result<u32, ParseError> {
        let value = self.int(what)?;
        u32::try_from(value).map_err(|_| self.error(format!("{value} is too large for {what}")))
    }

    /// Parses the file index, line and column of a `.loc`.
    pub(super) fn position(&mut self) -> Result<(u32, u32, u32), ParseError> {
        Ok((self.int_u32("a file index")?, self.int_u32("a line")?, self.int_u32("a column")?))
    }
}
