//! What is wrong with a PTX text.

use std::fmt;

/// What kind of thing is wrong with a PTX text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// It is not written as PTX is: a mark, a directive, an instruction or a modifier that does not belong there.
    #[default]
    Syntax,
    /// A register, label, variable or function that nothing declares.
    Undefined,
    /// A name that is declared twice in one scope.
    Redefined,
    /// An operand that the instruction does not take: of another kind or width, missing, or one too many.
    Operand,
    /// What the `.target` or the `.version` that the text names does not have.
    Target,
    /// Valid PTX that the emulator lacks.
    Unsupported,
}

impl ParseErrorKind {
    /// One word for it, in lower case.
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

/// Why a PTX text cannot be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}, column {column}: {message}")]
pub struct ParseError {
    /// What kind of thing is wrong.
    pub kind: ParseErrorKind,
    /// 1-based line of the text.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
    /// What is wrong there.
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
