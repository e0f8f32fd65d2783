//! Temporary files and folders of this process.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A temporary file or folder.
pub(crate) struct Unfinished {
    pub path: PathBuf,
    /// Folders that were created for the output, outermost first; they are removed with it if they are empty.
    pub created: Vec<PathBuf>,
}

static UNFINISHED: Mutex<Vec<Unfinished>> = Mutex::new(Vec::new());

/// The list of temporary files and folders. Whoever creates or renames one holds the lock meanwhile, so that
/// [`remove_unfinished`] sees either the temporary name in the list or the final name on disk.
pub(crate) struct List(MutexGuard<'static, Vec<Unfinished>>);

impl List {
    /// Locks the list.
    pub fn lock() -> List {
        List(UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a temporary file or folder.
    pub fn add(&mut self, unfinished: Unfinished) {
        self.0.push(unfinished);
    }

    /// Takes a temporary file or folder off the list.
    pub fn take(&mut self, path: &std::path::Path) -> Option<Unfinished> {
        let index = self.0.iter().position(|unfinished| unfinished.path == path)?;
        Some(self.0.swap_remove(index))
    }
}

/// Removes folders that were created for an output, except those that are not empty.
pub(crate) fn remove_created(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        // Another process may have put files there.
        let _ = std::fs::remove_dir(folder);
    }
}

/// Removes all temporary files and folders, for a process that ends without running destructors. Returns whether there
/// were any. The lock stays held: no other thread creates or renames a file afterwards, and threads that try to wait for
/// the end of the process.
pub fn remove_unfinished() -> bool {
    let list = List::lock();
    for unfinished in list.0.iter() {
        let path = &unfinished.path;
        let is_folder = path.symlink_metadata().is_ok_and(|data| data.is_dir());
        // Errors are ignored: the process is about to end.
        let _ = if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        remove_created(&unfinished.created);
    }
    let some = !list.0.is_empty();
    std::mem::forget(list);
    some
}
