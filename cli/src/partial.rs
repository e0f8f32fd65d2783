//! Files that get their final name only when they are complete, even if the process is interrupted.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Paths of the temporary files and folders being written.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// File with a temporary name in the folder of its final one. Dropping it removes the file.
pub struct Partial {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Partial {
    /// Creates an empty temporary file beside `target`, which may exist.
    pub fn create(target: &Path) -> io::Result<Self> {
        if target.exists() && !target.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a regular file"));
        }
        let mut name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_os_string();
        name.push(format!(".{}.partial", std::process::id()));
        let path = target.with_file_name(name);
        let mut unfinished = unfinished();
        let file = File::create(&path)?;
        unfinished.push(path.clone());
        Ok(Self { file, path, target: target.to_owned() })
    }

    /// The open temporary file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Renames the file to its final name.
    pub fn finish(self) -> io::Result<()> {
        // Under the lock: an interrupted process either keeps the renamed file or removes the temporary one.
        let mut unfinished = unfinished();
        std::fs::rename(&self.path, &self.target)?;
        unfinished.retain(|path| *path != self.path);
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let mut unfinished = unfinished();
        if let Some(index) = unfinished.iter().position(|path| *path == self.path) {
            unfinished.swap_remove(index);
            // Errors are ignored: the error that caused the drop is being reported.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Files for a target folder, written to a temporary folder inside the target and moved to their final names together.
pub struct PartialFolder {
    path: PathBuf,
    target: PathBuf,
}

impl PartialFolder {
    /// Creates the temporary folder in `target`, and `target` itself if necessary.
    pub fn create(target: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(target)?;
        let path = target.join(format!(".{}.partial", std::process::id()));
        let mut unfinished = unfinished();
        std::fs::create_dir(&path)?;
        unfinished.push(path.clone());
        Ok(Self { path, target: target.to_owned() })
    }

    /// Path of the temporary folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the files to `target`, replacing files of the same names.
    pub fn finish(self) -> io::Result<()> {
        // Under the lock: an interrupted process has moved all files or none.
        let _unfinished = unfinished();
        move_into(&self.path, &self.target)
    }
}

fn move_into(from: &Path, to: &Path) -> io::Result<()> {
    for entry in from.read_dir()? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&target)?;
            move_into(&entry.path(), &target)?;
        } else {
            std::fs::rename(entry.path(), target)?;
        }
    }
    Ok(())
}

impl Drop for PartialFolder {
    fn drop(&mut self) {
        let mut unfinished = unfinished();
        unfinished.retain(|path| *path != self.path);
        // Errors are ignored: the error that caused the drop is being reported.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes all temporary files and folders, for a process that ends without running destructors. Returns whether there
/// were any. The lock stays held, so that no other thread renames a file afterwards.
pub fn remove_unfinished() -> bool {
    let unfinished = unfinished();
    for path in unfinished.iter() {
        // Errors are ignored: the process is about to end.
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
    let some = !unfinished.is_empty();
    std::mem::forget(unfinished);
    some
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let names = || folder.path().read_dir().unwrap().count();

        let given_up = Partial::create(&target).unwrap();
        assert_eq!((target.exists(), names()), (false, 1));
        drop(given_up);
        assert_eq!(names(), 0);

        let partial = Partial::create(&target).unwrap();
        partial.file().write_all(b"content").unwrap();
        assert!(!target.exists());
        partial.finish().unwrap();
        assert_eq!((std::fs::read(&target).unwrap().as_slice(), names()), (&b"content"[..], 1));

        assert!(Partial::create(folder.path()).is_err());
        assert!(Partial::create(Path::new("..")).is_err());
    }

    #[test]
    fn a_folder_s_files_appear_together() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        let names = || {
            let mut names: Vec<_> =
                target.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };

        let given_up = PartialFolder::create(&target).unwrap();
        std::fs::write(given_up.path().join("lost"), "").unwrap();
        assert_eq!(names().len(), 1);
        drop(given_up);
        assert!(names().is_empty());

        std::fs::create_dir(target.join("inner")).unwrap();
        std::fs::write(target.join("inner/mine"), "kept").unwrap();
        std::fs::write(target.join("one"), "old").unwrap();
        let partial = PartialFolder::create(&target).unwrap();
        std::fs::create_dir(partial.path().join("inner")).unwrap();
        for file in ["one", "inner/two"] {
            std::fs::write(partial.path().join(file), "new").unwrap();
        }
        assert!(!target.join("inner/two").exists());
        partial.finish().unwrap();
        assert_eq!(names(), ["inner", "one"]);
        let text = |file| std::fs::read_to_string(target.join(file)).unwrap();
        assert_eq!([text("one"), text("inner/two"), text("inner/mine")], ["new", "new", "kept"]);
    }
}
