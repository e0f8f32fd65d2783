//! Reading of files at offsets.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// A file that is read at offsets, from any thread.
///
/// Files are not mapped: access to a mapped page behind the end of a file that was truncated kills the process
/// (SIGBUS), whereas a read past the end is an error.
#[derive(Debug)]
pub struct RandomAccessFile {
    file: File,
    path: PathBuf,
    len: u64,
}

impl RandomAccessFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it cannot be opened, or is a folder, a pipe or a device.
    pub fn open(path: &Path) -> Result<Self> {
        // Before it is opened: opening a pipe waits for a writer.
        let metadata = std::fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            let message = "it is a pipe or a device, and parts of a model are read in any order: write it to a file first";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Self { file, path: path.into(), len })
    }

    /// Length in bytes when the file was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file was empty when it was opened.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If the read fails, or the file has become shorter than at [`RandomAccessFile::open`].
    pub fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, offset, out).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Error::new(
                ErrorKind::UnexpectedEof,
                format!(
                    "the file had {} bytes and has become shorter: it was truncated while in use",
                    self.len
                ),
            ),
            _ => error,
        })
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, out: &mut [u8]) -> Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut out: &mut [u8]) -> Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                offset += count as u64;
                out = &mut out[count..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
