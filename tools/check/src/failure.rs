//! Failure of a check as data: the JSON that `bespoke check --format json` prints instead of a report.

use std::path::{Path, PathBuf};

use bespoke_emulator::ParseError;
use serde::Serialize;

use super::{CheckError, REPORT_VERSION};

/// A check that could not run: printed instead of a [`Report`](super::Report).
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// Version of the JSON: [`REPORT_VERSION`].
    pub version: u32,
    /// The subject of the check.
    pub subject: String,
    /// Error because of which nothing was checked.
    pub error: Reason,
}

/// Error because of which nothing was checked: message, advice, and position.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    /// Message of the error, with the messages of its causes.
    pub message: String,
    /// Advice to the user, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Position of the error in a file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Location>,
    /// All problems of a PTX text, in the order of the text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// Position in an input file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    /// Path of the file.
    pub file: PathBuf,
    /// Line, 1-based.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column, 1-based.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Part of a launch file, such as ``launch 2 (`vector_add`)``.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// Problem of a PTX text: an error, or a feature that the emulator does not support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// `syntax`, `undefined`, `redefined`, `operand`, `target` or `unsupported`: the emulator's
    /// [`ParseErrorKind`](bespoke_emulator::ParseErrorKind).
    pub kind: &'static str,
    /// Line, 1-based.
    pub line: u32,
    /// Column, 1-based.
    pub column: u32,
    /// Message of the problem.
    pub message: String,
}

impl Failure {
    /// Failure with a message only.
    pub fn new(subject: &str, message: String, help: Option<String>) -> Failure {
        let error = Reason { message, help, place: None, problems: Vec::new() };
        Failure { version: REPORT_VERSION, subject: subject.to_owned(), error }
    }

    /// Adds the details of an error; `launches` is the launch file, if there is one.
    pub fn with_details(mut self, error: &CheckError, launches: Option<&Path>) -> Failure {
        let file = |path: &Path| Location { file: path.to_owned(), line: None, column: None, part: None };
        match error {
            CheckError::Read { path, .. } | CheckError::Write { path, .. } => {
                self.error.place = Some(file(path))
            }
            CheckError::Toml { path, line, column, .. } => {
                self.error.place = Some(Location { line: *line, column: *column, ..file(path) });
            }
            CheckError::Launches { place, .. } => {
                self.error.place = launches.map(|path| Location { part: Some(place.clone()), ..file(path) });
            }
            CheckError::Ptx { problems, .. } => {
                self.error.problems = problems.iter().map(Problem::from).collect();
            }
            CheckError::Nothing(_) | CheckError::Engine(_) => {}
        }
        self
    }
}

impl From<&ParseError> for Problem {
    fn from(error: &ParseError) -> Problem {
        let ParseError { kind, line, column, message } = error;
        Problem { kind: kind.name(), line: *line, column: *column, message: message.clone() }
    }
}
