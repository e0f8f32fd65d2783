//! Why a check could not run.

use std::fmt;
use std::path::{Path, PathBuf};

use bespoke::engine::EngineError;
use bespoke_emulator::{ParseError, ParseErrorKind};
use miette::Diagnostic;
use thiserror::Error;

/// Why a check could not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The PTX text has errors, or features that the emulator does not support: all of them.
    #[error("{name}: {}{}", launch.as_ref().map_or(String::new(), |launch| format!("{launch}: ")), count(problems))]
    Ptx {
        /// The file's name.
        name: String,
        /// Text of the PTX file.
        text: String,
        /// The launch that needs a kernel with the problems, such as ``launch 2 (`vector_add`)``; `None` if they are those of
        /// the whole text.
        launch: Option<String>,
        /// Errors and unsupported features, in the order of the text.
        problems: Vec<ParseError>,
    },
    /// A launch file is not TOML, or has unknown fields.
    #[error("{}: {source}", path.display())]
    Toml {
        /// Path of the file.
        path: PathBuf,
        /// Line of the error, 1-based, if known.
        line: Option<u32>,
        /// Column of the error, 1-based, if known.
        column: Option<u32>,
        /// The cause.
        source: Box<toml::de::Error>,
    },
    /// A launch file has an invalid value.
    #[error("{place}: {what}")]
    Launches {
        /// Part of the file with the invalid value, such as `launch 2 (vector_add)`.
        place: String,
        /// Description of the problem.
        what: String,
    },
    /// There is no kernel to check.
    #[error("{0}")]
    Nothing(String),
    /// The model or its kernels cannot be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Counts the problems by kind, as in `2 errors and 1 unsupported feature`.
fn count(problems: &[ParseError]) -> String {
    let some = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let unsupported = problems.iter().filter(|problem| problem.kind == ParseErrorKind::Unsupported).count();
    let features = some(unsupported, "unsupported feature");
    match (some(problems.len() - unsupported, "error"), unsupported) {
        (errors, 0) => errors,
        (_, unsupported) if unsupported == problems.len() => features,
        (errors, _) => format!("{errors} and {features}"),
    }
}

impl CheckError {
    /// Error for a file that is not TOML, or has unknown fields.
    pub(super) fn toml(path: &Path, text: &str, source: toml::de::Error) -> CheckError {
        let before = source.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| before.matches('\n').count() as u32 + 1);
        let column =
            before.map(|before| before.rsplit('\n').next().unwrap_or_default().chars().count() as u32 + 1);
        CheckError::Toml { path: path.to_owned(), line, column, source: Box::new(source) }
    }

    /// Error in a part of a launch file.
    pub(super) fn launches(place: impl Into<String>, what: impl Into<String>) -> CheckError {
        CheckError::Launches { place: place.into(), what: what.into() }
    }
}

impl Diagnostic for CheckError {
    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        match self {
            CheckError::Engine(error) => {
                error.advice().map(|advice| Box::new(advice) as Box<dyn fmt::Display>)
            }
            CheckError::Launches { .. } => {
                Some(Box::new("`bespoke check FILE.ptx` without --launches prints a template"))
            }
            _ => None,
        }
    }
}
