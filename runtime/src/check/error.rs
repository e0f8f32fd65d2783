//! Why a check could not run.

use std::fmt;
use std::path::PathBuf;

use bespoke_emulator::ParseError;
use miette::Diagnostic;
use thiserror::Error;

use crate::engine::EngineError;

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
    /// The PTX has syntax errors, or instructions that the emulator does not implement: all of them.
    #[error("{name}: the emulator cannot run this PTX")]
    Ptx {
        /// The file's name.
        name: String,
        /// What it does not understand, in the order of the text.
        problems: Vec<ParseError>,
    },
    /// A file of launches is no TOML, or has other fields than it may.
    #[error("{}: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
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

impl CheckError {
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
