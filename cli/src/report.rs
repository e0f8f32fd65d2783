//! Format of error messages: what failed, why, and what to do, without line breaks at the terminal's width.

use std::error::Error;
use std::fmt::{self, Formatter};

use miette::{Diagnostic, ReportHandler};

/// Format of error messages: `error: …`, then a line for each cause, then the help text.
pub(super) struct Plain {
    /// Whether to print colours.
    pub color: bool,
}

impl ReportHandler for Plain {
    fn debug(&self, error: &dyn Diagnostic, f: &mut Formatter<'_>) -> fmt::Result {
        let (start, end) = if self.color { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        let mut said = error.to_string();
        write!(f, "{start}error:{end} {said}")?;
        let mut cause: Option<&dyn Error> = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many error messages already contain the message of their cause.
            if !said.contains(&text) {
                write!(f, "\n  because {text}")?;
                said = text;
            }
            cause = error.source();
        }
        if let Some(help) = error.help() {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use miette::{IntoDiagnostic, WrapErr, miette};

    use super::*;

    struct Shown<'a>(&'a dyn Diagnostic);

    impl fmt::Debug for Shown<'_> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            Plain { color: false }.debug(self.0, f)
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x.gguf: {source}")]
    struct Unreadable {
        source: io::Error,
    }

    #[test]
    fn each_cause_is_printed_once() {
        let error = Unreadable { source: io::Error::other("disk on fire") };
        let report = Err::<(), _>(error).into_diagnostic().wrap_err("cannot load x.gguf").unwrap_err();
        assert_eq!(
            format!("{:?}", Shown(report.as_ref())),
            "error: cannot load x.gguf\n  because cannot read x.gguf: disk on fire"
        );
    }

    #[test]
    fn help_comes_last() {
        let report = miette!(help = "try again", "it failed");
        assert_eq!(format!("{:?}", Shown(report.as_ref())), "error: it failed\n  help: try again");
    }
}
