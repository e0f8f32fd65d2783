//! Errors in a PTX text.

use std::fmt;

/// Category of a [`ParseError`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// Not valid PTX: an unexpected token, directive, instruction or modifier.
    #[default]
    Syntax,
    /// A register, label, variable or function that is not declared.
    Undefined,
    /// A name that is declared twice in one scope.
    Redefined,
    /// A wrong operand: of another kind or width than the instruction takes, missing, or one too many.
    Operand,
    /// Not available for the text's own `.target` or `.version`.
    Target,
    /// Valid PTX that the emulator does not support.
    Unsupported,
}

impl ParseErrorKind {
    /// The category as one word in lower case.
    pub fn name(self) -> &'static str {
        match self {
            ParseErrorKind::Syntax => "syntax",
            ParseErrorKind::Undefined => "undefined",
            ParseErrorKind::Redefined => "redefined",
            ParseErrorKind::Operand => "operand",
            ParseErrorKind::Target => "target",
            ParseErrorKind::Unsupported => "unsupported",
        }
    }
}

impl fmt::Display for ParseErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error in a PTX text, with its position.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}, column {column}: {message}")]
pub struct ParseError {
    /// The category.
    pub kind: ParseErrorKind,
    /// 1-based line of the text.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl ParseError {
    /// An error at a line and column.
    pub(crate) fn new(
        kind: ParseErrorKind,
        (line, column): (u32, u32),
        message: impl Into<String>,
    ) -> ParseError {
        ParseError { kind, line, column, message: message.into() }
    }
}
