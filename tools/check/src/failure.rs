//! Why there is no report, as data: what `bespoke check --format json` prints instead.

use std::path::{Path, PathBuf};

use bespoke_emulator::ParseError;
use serde::Serialize;

use super::{CheckError, REPORT_VERSION};

/// What stands where a [`Report`](super::Report) would: nothing is known of the kernels.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// What was to be checked.
    pub subject: String,
    /// Why it was not.
    pub error: Reason,
}

/// Why nothing was checked.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    /// What is wrong, with its cause.
    pub message: String,
    /// What to do, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Where, if it is in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Location>,
    /// Everything that is wrong with a PTX text, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// A place in a file that was to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The file.
    pub file: PathBuf,
    /// 1-based.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// 1-based.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Which part of a file of launches, such as ``launch 2 (`vector_add`)``.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// A mistake in a PTX text, or something that the emulator lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// `syntax`, `undefined`, `redefined`, `operand`, `target` or `unsupported`: the emulator's
    /// [`ParseErrorKind`](bespoke_emulator::ParseErrorKind).
    pub kind: &'static str,
    /// 1-based.
    pub line: u32,
    /// 1-based.
    pub column: u32,
    /// What is wrong there.
    pub message: String,
}

impl Failure {
    /// A failure that is known by its message alone.
    pub fn new(subject: &str, message: String, help: Option<String>) -> Failure {
        let error = Reason { message, help, place: None, problems: Vec::new() };
        Failure { version: REPORT_VERSION, subject: subject.to_owned(), error }
    }

    /// The same with what else an error tells; `launches` is the file of launches, if there was one.
    pub fn with_details(mut self, error: &CheckError, launches: Option<&Path>) -> Failure {
        let file = |path: &Path| Location { file: path.to_owned(), line: None, column: None, part: None };
        match error {
            CheckError::Read { path, .. } => self.error.place = Some(file(path)),
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
