//! Output folders.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::{Builder, TempDir};

use crate::faults::{self, Operation};
use crate::journal::Journal;
use crate::unfinished::{List, Unfinished, remove_created};
use crate::{FileError, PREFIX, Replace, SUFFIX, without_temporary_name};

/// Files for a folder, which appear in it together: they are written to a temporary folder inside it, and moved when all
/// are complete. Dropping it unfinished removes them, and folders that were created for them.
#[derive(Debug)]
pub struct OutputFolder {
    /// `None` once the folder is finished.
    temporary: Option<TempDir>,
    target: PathBuf,
    replace: Replace,
    /// Paths of the files, relative to the target, in the order in which they were written.
    files: Mutex<Vec<PathBuf>>,
}

/// Name of the folder of new files in the temporary folder.
const NEW: &str = "new";
/// Name of the folder of replaced files in the temporary folder.
const OLD: &str = "old";

impl OutputFolder {
    /// Creates the temporary folder in `target`, and `target` itself if necessary.
    pub fn create(target: &Path, replace: Replace) -> Result<OutputFolder, FileError> {
        let failed = || FileError::io(target);
        let mut list = List::lock();
        faults::point(Operation::Create).map_err(failed())?;
        let created = create_all(target).map_err(failed())?;
        let temporary =
            Builder::new().prefix(PREFIX).suffix(SUFFIX).tempdir_in(target).map_err(|source| {
                remove_created(&created);
                failed()(without_temporary_name(source, target))
            })?;
        list.add(Unfinished { path: temporary.path().to_owned(), created });
        let files = Mutex::new(Vec::new());
        Ok(OutputFolder { temporary: Some(temporary), target: target.to_owned(), replace, files })
    }

    /// Writes a file, `file` being its path in the folder. Threads may write files at once.
    pub fn write(&self, file: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let target = self.target.join(file);
        let write = || -> io::Result<()> {
            let inside = file.components().all(|component| matches!(component, Component::Normal(_)));
            let Some(temporary) = self.temporary.as_ref().filter(|_| inside) else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not inside the folder"));
            };
            let path = temporary.path().join(NEW).join(file);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            faults::point(Operation::Create)?;
            Checked(&File::create_new(&path)?).write_all(bytes)?;
            faults::point(Operation::Sync)?;
            File::open(&path)?.sync_all()
        };
        // Under the lock: a process that receives a signal creates no file while it removes the folder.
        let _list = List::lock();
        write().map_err(FileError::io(&target))?;
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(file.to_owned());
        Ok(())
    }

    /// Removes the files `earlier`, paths in the folder, and moves the new files to their names. If that fails, all files
    /// are as before. Other files stay; links to folders are not followed.
    pub fn finish(mut self, earlier: &[PathBuf]) -> Result<(), FileError> {
        // Under the lock: a process that receives a signal has moved all files or none.
        let mut list = List::lock();
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        let mut journal = Journal::new(&self.target, temporary.path().join(OLD));
        let files = std::mem::take(&mut self.files).into_inner().unwrap_or_else(PoisonError::into_inner);
        let new = temporary.path().join(NEW);
        let moved = earlier.iter().try_for_each(|file| journal.set_aside(file)).and_then(|()| {
            files.iter().try_for_each(|file| {
                if self.replace == Replace::Allowed {
                    journal.set_aside(file)?;
                }
                journal.move_in(&new.join(file), file)
            })
        });
        let unfinished = list.take(temporary.path());
        match moved {
            Ok(()) => {
                journal.remove_empty_folders();
                // The replaced files, which nobody needs.
                let _ = temporary.close();
                Ok(())
            }
            Err(error) => {
                let restored = journal.undo();
                let error = match (restored, error) {
                    (false, FileError::Io { path, source }) => {
                        FileError::Stranded { path, kept: temporary.keep().join(OLD), source }
                    }
                    (false, error) => {
                        let source = io::Error::other(error.to_string());
                        FileError::Stranded {
                            path: self.target.clone(),
                            kept: temporary.keep().join(OLD),
                            source,
                        }
                    }
                    (true, error) => {
                        // An error is ignored: another one is being reported.
                        let _ = temporary.close();
                        error
                    }
                };
                remove_created(&unfinished.map_or(Vec::new(), |unfinished| unfinished.created));
                Err(error)
            }
        }
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let mut list = List::lock();
            let unfinished = list.take(temporary.path());
            // Errors are ignored: the error that caused the drop is being reported.
            let _ = temporary.close();
            remove_created(&unfinished.map_or(Vec::new(), |unfinished| unfinished.created));
        }
    }
}

/// A file whose writes may fail on purpose.
struct Checked<'a>(&'a File);

impl Write for Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        faults::write(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Creates a folder and its missing parents. Returns those that were missing, outermost first; after an error none of
/// them is left.
fn create_all(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let missing = folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    if missing.is_empty() && !folder.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it exists and is not a folder"));
    }
    for (index, folder) in missing.iter().enumerate() {
        if let Err(error) = fs::create_dir(folder) {
            remove_created(&missing[..index]);
            return Err(error);
        }
    }
    Ok(missing)
}
