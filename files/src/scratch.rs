//! Scratch folders.

use std::io;
use std::path::Path;

use tempfile::{Builder, TempDir};

use crate::PREFIX;
use crate::faults::{self, Operation};
use crate::unfinished::{List, Unfinished};

/// Folder among the system's temporary files, with a random name and no access for other users, for the input and output
/// of other programs. Dropping it removes it with its files; so does [`remove_unfinished`](crate::remove_unfinished).
#[derive(Debug)]
pub struct Scratch {
    folder: Option<TempDir>,
}

impl Scratch {
    /// Creates an empty folder.
    pub fn create() -> io::Result<Scratch> {
        let mut list = List::lock();
        faults::point(Operation::Create)?;
        let folder = Builder::new().prefix(PREFIX).tempdir()?;
        list.add(Unfinished { path: folder.path().to_owned(), created: Vec::new() });
        Ok(Scratch { folder: Some(folder) })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), TempDir::path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            let mut list = List::lock();
            list.take(folder.path());
            // What cannot be removed is among the system's temporary files.
            let _ = folder.close();
        }
    }
}
