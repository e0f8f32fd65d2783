//! Errors of templates.

use std::fmt;

use crate::limits;

/// Error of parsing or rendering a template. Lines are the template's, from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The source is not a template.
    #[error("chat template, line {line}: {message}")]
    Syntax {
        /// Line of the error.
        line: usize,
        /// Description of the error.
        message: String,
    },
    /// The source is too long.
    #[error("the chat template has {bytes} bytes; at most {} are accepted", limits::SOURCE)]
    TooLarge {
        /// Length of the source.
        bytes: usize,
    },
    /// The template called `raise_exception`: it does not accept the conversation.
    #[error("the chat template refuses the conversation: {message} (line {line})")]
    Raised {
        /// Line of the call.
        line: usize,
        /// The template's message.
        message: String,
    },
    /// Rendering took too many steps, or made too much text.
    #[error("chat template, line {line}: stopped at the limit of steps or of text; use another template")]
    OutOfFuel {
        /// Line that was executed.
        line: usize,
    },
    /// An operation failed, such as an access to an undefined value.
    #[error("chat template, line {line}: {message}")]
    Failed {
        /// Line of the operation.
        line: usize,
        /// Description of the error.
        message: String,
    },
}

impl TemplateError {
    /// Line of the template, from 1; none if the error has no line.
    pub fn line(&self) -> Option<usize> {
        match self {
            TemplateError::Syntax { line, .. }
            | TemplateError::Raised { line, .. }
            | TemplateError::OutOfFuel { line }
            | TemplateError::Failed { line, .. } => Some(*line).filter(|&line| line > 0),
            TemplateError::TooLarge { .. } => None,
        }
    }
}

/// Message of `raise_exception`, as the source of minijinja's error.
#[derive(Debug)]
pub(crate) struct RaisedMessage(pub String);

impl fmt::Display for RaisedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RaisedMessage {}

impl From<minijinja::Error> for TemplateError {
    fn from(error: minijinja::Error) -> TemplateError {
        // The outermost error has the line of a call, its sources the lines inside.
        let (mut line, mut message) = (error.line().unwrap_or(0), describe(&error));
        let mut kind = error.kind();
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            if let Some(raised) = inner.downcast_ref::<RaisedMessage>() {
                return TemplateError::Raised { line, message: raised.0.clone() };
            }
            if let Some(inner) = inner.downcast_ref::<minijinja::Error>() {
                line = inner.line().unwrap_or(line);
                message = describe(inner);
                kind = inner.kind();
            }
            source = inner.source();
        }
        match kind {
            minijinja::ErrorKind::OutOfFuel => TemplateError::OutOfFuel { line },
            minijinja::ErrorKind::SyntaxError | minijinja::ErrorKind::BadEscape => {
                TemplateError::Syntax { line, message }
            }
            _ => TemplateError::Failed { line, message },
        }
    }
}

fn describe(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}
