//! Files that appear under their name only when they are complete, whatever ends the process.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The files that are being written.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file under a temporary name beside its final one; removed unless it is renamed.
pub struct Partial {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Partial {
    /// An empty file that is to become `target`, which may be there already.
    pub fn create(target: &Path) -> io::Result<Self> {
        if target.exists() && !target.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is there, and no ordinary file"));
        }
        let mut name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_os_string();
        name.push(format!(".{}.partial", std::process::id()));
        let path = target.with_file_name(name);
        let mut unfinished = unfinished();
        let file = File::create(&path)?;
        unfinished.push(path.clone());
        Ok(Self { file, path, target: target.to_owned() })
    }

    /// The file, for writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name.
    pub fn finish(self) -> io::Result<()> {
        // Under the lock, so that an interrupted process either has the file or has removed it.
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
            // There is no one to tell: the error that brought us here is on its way already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes what is unfinished, for a process that is about to end without destructors, and keeps more from being
/// finished. Returns whether there was something.
pub fn remove_unfinished() -> bool {
    let unfinished = unfinished();
    for path in unfinished.iter() {
        // Whatever cannot be removed is not there yet; there is nobody to tell otherwise.
        let _ = std::fs::remove_file(path);
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
        partial.file().write_all(b"all of it").unwrap();
        assert!(!target.exists());
        partial.finish().unwrap();
        assert_eq!((std::fs::read(&target).unwrap().as_slice(), names()), (&b"all of it"[..], 1));

        assert!(Partial::create(folder.path()).is_err());
        assert!(Partial::create(Path::new("..")).is_err());
    }
}
