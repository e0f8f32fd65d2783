//! Output files and folders that are complete or absent, and scratch files. Every output of every command goes through
//! this package.
//!
//! - An output is written under a random temporary name beside its target, `bespoke-RANDOM.partial`, which is created
//!   exclusively: no other process writes to it, and a link of that name is not followed.
//! - A complete output gets its name by a rename. With [`Replace::Never`] the rename fails if the name exists by then,
//!   also as a dangling link. With [`Replace::Allowed`] a link is replaced itself; the file that it names is unchanged.
//! - An output that is dropped unfinished is removed. A process that ends without destructors, as after a signal, calls
//!   [`remove_unfinished`].
//! - A [`LineFile`] is the exception: it grows line by line and stays, so that an interrupted command can be continued.
//!
//! Builds with debug assertions have the module `faults`, which makes operations fail on purpose, for tests.

mod error;
#[cfg(debug_assertions)]
pub mod faults;
#[cfg(not(debug_assertions))]
mod faults;
mod file;
mod folder;
mod journal;
mod lines;
mod lock;
mod scratch;
#[cfg(all(test, debug_assertions))]
mod tests;
mod unfinished;

pub use error::FileError;
pub use file::OutputFile;
pub use folder::OutputFolder;
pub use lines::LineFile;
pub use scratch::Scratch;
pub use unfinished::remove_unfinished;

use std::io;

/// Whether an output may replace what has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// A file or link of that name is an error.
    Never,
    /// Files and links of that name are replaced.
    Allowed,
}

/// Start of the name of every temporary file and folder.
const PREFIX: &str = "bespoke-";
/// End of the name of every temporary file and folder beside a target.
const SUFFIX: &str = ".partial";

/// The folder of a path: `.` for a plain name.
fn parent(path: &std::path::Path) -> &std::path::Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => std::path::Path::new("."),
    }
}

/// The error of creating a temporary file or folder in `folder`, without its name, which the user did not choose.
fn without_temporary_name(error: io::Error, folder: &std::path::Path) -> io::Error {
    let (kind, folder) = (error.kind(), folder.display());
    let reason = match kind {
        io::ErrorKind::NotFound => format!("the folder {folder} does not exist"),
        io::ErrorKind::NotADirectory => format!("{folder} is not a folder"),
        io::ErrorKind::PermissionDenied => format!("no permission to write to the folder {folder}"),
        _ => return error,
    };
    io::Error::new(kind, reason)
}
