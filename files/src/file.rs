//! Output files.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile, TempPath};

use crate::faults::{self, Operation};
use crate::unfinished::{List, Unfinished};
use crate::{FileError, PREFIX, Replace, SUFFIX, parent, without_temporary_name};

/// File that gets its name when it is complete. Dropping it unfinished removes it.
#[derive(Debug)]
pub struct OutputFile {
    /// The open file and its temporary name; `None` once it is finished.
    temporary: Option<NamedTempFile>,
    target: PathBuf,
    replace: Replace,
}

impl OutputFile {
    /// Creates an empty temporary file beside `target`. Fails at once if the folder cannot be written, or if `target`
    /// exists and must not or cannot be replaced.
    pub fn create(target: &Path, replace: Replace) -> Result<OutputFile, FileError> {
        check_target(target, replace)?;
        let failed = || FileError::io(target);
        if target.file_name().is_none() {
            return Err(failed()(io::ErrorKind::InvalidFilename.into()));
        }
        let mut list = List::lock();
        faults::point(Operation::Create).map_err(failed())?;
        let folder = parent(target);
        let temporary =
            builder().tempfile_in(folder).map_err(|error| failed()(without_temporary_name(error, folder)))?;
        list.add(Unfinished { path: temporary.path().to_owned(), created: Vec::new() });
        Ok(OutputFile { temporary: Some(temporary), target: target.to_owned(), replace })
    }

    /// Path of the temporary file, for libraries that write to a path.
    pub fn temporary_path(&self) -> &Path {
        self.temporary.as_ref().map_or(&self.target, |temporary| temporary.path())
    }

    /// Writes the whole content and gives the file its name.
    pub fn write_whole(mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.write_all(bytes).map_err(FileError::io(&self.target))?;
        self.finish()
    }

    /// Writes the file to the disk and gives it its name.
    ///
    /// # Errors
    /// If the disk refuses data that it had accepted before, or if the rename fails: with [`Replace::Never`], because
    /// another process has written a file of this name meanwhile.
    pub fn finish(mut self) -> Result<(), FileError> {
        let failed = || FileError::io(&self.target);
        // Network file systems report a full disk only now.
        let synced = faults::point(Operation::Sync).and_then(|()| self.file()?.sync_all());
        synced.map_err(failed())?;
        let mut list = List::lock();
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        let path = temporary.path().to_owned();
        let outcome = rename(temporary.into_temp_path(), &self.target, self.replace);
        list.take(&path);
        outcome
    }

    /// The target's path.
    pub fn target(&self) -> &Path {
        &self.target
    }

    fn file(&self) -> io::Result<&File> {
        let temporary = self.temporary.as_ref();
        Ok(temporary.ok_or_else(|| io::Error::other("the file is finished"))?.as_file())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        faults::write(self.file()?, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let mut list = List::lock();
            list.take(temporary.path());
            // An error is ignored: the error that caused the drop is being reported.
            let _ = temporary.close();
        }
    }
}

/// Fails if `target` exists and must not be replaced, or is neither a file nor a link.
fn check_target(target: &Path, replace: Replace) -> Result<(), FileError> {
    let Ok(data) = target.symlink_metadata() else { return Ok(()) };
    match replace {
        Replace::Never => Err(FileError::Exists(target.to_owned())),
        Replace::Allowed if data.is_file() || data.is_symlink() => Ok(()),
        Replace::Allowed => Err(FileError::is_not(target, "a regular file")),
    }
}

/// Renames a complete file. If that fails, the temporary file is removed.
pub(crate) fn rename(from: TempPath, to: &Path, replace: Replace) -> Result<(), FileError> {
    faults::point(Operation::Rename).map_err(FileError::io(to))?;
    let renamed = match replace {
        Replace::Never => from.persist_noclobber(to),
        Replace::Allowed => from.persist(to),
    };
    renamed.map_err(|error| match error.error {
        error if replace == Replace::Never && error.kind() == io::ErrorKind::AlreadyExists => {
            FileError::Exists(to.to_owned())
        }
        error => FileError::io(to)(error),
    })
}

/// A builder of temporary files with the permissions of ordinary new files.
fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}
