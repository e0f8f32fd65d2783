//! Errors in a PTX text.

use std::fmt;

/// Category of an error in a PTX text.
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
    /// A wrong operand: not of the kind or width that the instruction takes, missing, or superfluous.
    Operand,
    /// An instruction or directive that is not available for the text's `.target` or `.version`.
    Target,
    /// Valid PTX that the emulator does not support.
    Unsupported,
}

impl ParseErrorKind {
    /// Name of the category: one word in lower case.
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

/// Error in a PTX text, with its position.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Category of the error.
    pub kind: ParseErrorKind,
    /// Line in the PTX text, 1-based.
    pub line: u32,
    /// Column in the line, 1-based.
    pub column: u32,
    /// Message that says what is wrong.
    pub message: String,
}

impl ParseError {
    /// Creates an error at a line and column.
    pub(crate) fn new(
        kind: ParseErrorKind,
        (line, column): (u32, u32),
        message: impl Into<String>,
    ) -> ParseError {
        ParseError { kind, line, column, message: message.into() }
    }
}
