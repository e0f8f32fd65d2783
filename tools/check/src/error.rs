//! Why a check could not run.

use std::fmt;
use std::path::{Path, PathBuf};

use bespoke::engine::EngineError;
use bespoke_emulator::{ParseError, ParseErrorKind};
use miette::Diagnostic;
use thiserror::Error;

/// Why a check could not run: nothing is known of the kernels.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The PTX has mistakes, or instructions that the emulator lacks: all of them.
    #[error("{name}: {}", count(problems))]
    Ptx {
        /// The file's name.
        name: String,
        /// The text.
        text: String,
        /// What is wrong, in the order of the text.
        problems: Vec<ParseError>,
    },
    /// A file of launches is no TOML, or has other fields than it may.
    #[error("{}: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// 1-based, where it is known.
        line: Option<u32>,
        /// 1-based, where it is known.
        column: Option<u32>,
        /// Why.
        source: Box<toml::de::Error>,
    },
    /// A file of launches asks for something that cannot be.
    #[error("{place}: {what}")]
    Launches {
        /// Which part, such as `launch 2 (vector_add)`.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// No kernel is left to check.
    #[error("{0}")]
    Nothing(String),
    /// The model or its kernels cannot be made.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// `2 errors and 1 thing that the emulator lacks`.
fn count(problems: &[ParseError]) -> String {
    let some = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let lacks = problems.iter().filter(|problem| problem.kind == ParseErrorKind::Unsupported).count();
    let things = format!("{} that the emulator lacks", some(lacks, "thing"));
    match (some(problems.len() - lacks, "error"), lacks) {
        (errors, 0) => errors,
        (_, lacks) if lacks == problems.len() => things,
        (errors, _) => format!("{errors} and {things}"),
    }
}

impl CheckError {
    /// An error of a file that is no TOML, or has other fields than it may.
    pub(super) fn toml(path: &Path, text: &str, source: toml::de::Error) -> CheckError {
        let before = source.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| before.matches('\n').count() as u32 + 1);
        let column =
            before.map(|before| before.rsplit('\n').next().unwrap_or_default().chars().count() as u32 + 1);
        CheckError::Toml { path: path.to_owned(), line, column, source: Box::new(source) }
    }

    /// An error in a part of a file of launches.
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
                Some(Box::new("`bespoke check FILE.ptx` without --launches prints a file to fill in"))
            }
            _ => None,
        }
    }
}
