//! Output files to which whole lines are appended.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::FileError;
use crate::faults::{self, Operation};
use crate::lock::{is_at, try_lock};

/// File that grows by whole lines and outlives its process, so that a later process continues where it ended.
///
/// It keeps results that took long, until an [`OutputFile`](crate::OutputFile) has all of them; then
/// [`LineFile::remove`] deletes it. [`remove_unfinished`](crate::remove_unfinished) does not, and dropping it only if it has
/// no lines. It is locked against other processes, where the system and the file system have locks.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    path: PathBuf,
}

impl LineFile {
    /// Opens the file, or creates it empty, and locks it. Returns the lines that it has. A last line without an end is what a process
    /// left that was killed while it wrote; it is cut off.
    ///
    /// # Errors
    /// If another process has opened it; or the path is no regular file, also if it is a link; or the file is not UTF-8, or
    /// cannot be read or written.
    pub fn open(path: &Path) -> Result<(LineFile, Vec<String>), FileError> {
        if path.symlink_metadata().is_ok_and(|data| !data.is_file()) {
            return Err(FileError::is_not(path, "a regular file"));
        }
        let Some(mut file) = open_locked(path).map_err(FileError::io(path))? else {
            return Err(FileError::Locked(path.to_owned()));
        };
        let mut read = || {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            if whole < bytes.len() {
                bytes.truncate(whole);
                file.set_len(whole as u64)?;
                file.seek(SeekFrom::End(0))?;
            }
            let text = String::from_utf8(bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        let lines = read().map_err(FileError::io(path))?;
        Ok((LineFile { file, path: path.to_owned() }, lines))
    }

    /// Appends a line. `line` has no newline.
    ///
    /// # Errors
    /// If the disk refuses a part of the line: the part that was written is cut off by the next [`LineFile::open`].
    pub fn append(&mut self, line: &str) -> Result<(), FileError> {
        let bytes = [line.as_bytes(), b"\n"].concat();
        let mut left = &bytes[..];
        while !left.is_empty() {
            match faults::write(&self.file, left) {
                Ok(0) => return Err(FileError::io(&self.path)(io::ErrorKind::WriteZero.into())),
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FileError::io(&self.path)(error)),
            }
        }
        Ok(())
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the file.
    pub fn remove(self) -> Result<(), FileError> {
        std::fs::remove_file(&self.path).map_err(FileError::io(&self.path))
    }
}

impl Drop for LineFile {
    fn drop(&mut self) {
        let is_empty = self.file.metadata().is_ok_and(|data| data.len() == 0);
        // After `remove`, another process may have created a file of its own.
        if is_empty && is_at(&self.file, &self.path).unwrap_or(false) {
            // An empty file that stays does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens a file, or creates it empty, and locks it. None if another process has locked it.
fn open_locked(path: &Path) -> io::Result<Option<File>> {
    loop {
        faults::point(Operation::Create)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if !try_lock(&file)? {
            return Ok(None);
        }
        // A process that has ended may have removed the file before this one locked it.
        if is_at(&file, path)? {
            return Ok(Some(file));
        }
    }
}
