//! The error of outputs.

use std::io;
use std::path::{Path, PathBuf};

/// Why an output cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Something has the output's name, and must not be replaced.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// Another process writes the same [`LineFile`](crate::LineFile).
    #[error("another process is writing {}", .0.display())]
    Locked(PathBuf),
    /// An operation failed.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// Path of the output.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A folder could not be completed, and its earlier files could not be moved back.
    #[error("cannot write {}: {source}; its earlier files are in {}", path.display(), kept.display())]
    Stranded {
        /// Path of the file that could not be written.
        path: PathBuf,
        /// The folder with the earlier files.
        kept: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl FileError {
    /// The error of an operation on `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError::Io { path, source }
    }

    /// The error for a path that is something else than `wanted`, such as "a regular file".
    pub(crate) fn is_not(path: &Path, wanted: &str) -> FileError {
        let source = io::Error::new(io::ErrorKind::InvalidInput, format!("it exists and is not {wanted}"));
        FileError::Io { path: path.to_owned(), source }
    }
}
