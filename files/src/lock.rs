//! Locks of files against other processes, by `flock`. On systems without it there are none. `File::try_lock` needs Rust 1.89.

use std::fs::File;
use std::io;
use std::path::Path;

/// Locks a file until it is closed. Returns false if another process has locked it; true also if the file system has no
/// locks.
#[cfg(unix)]
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;

    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error if error.kind() == io::ErrorKind::Unsupported => Ok(true),
        error if error.raw_os_error() == Some(libc::ENOLCK) => Ok(true),
        error => Err(error),
    }
}

/// Whether an open file is the one that has this path.
#[cfg(unix)]
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    let open = file.metadata()?;
    Ok(path.symlink_metadata().is_ok_and(|data| (data.dev(), data.ino()) == (open.dev(), open.ino())))
}

#[cfg(not(unix))]
pub(crate) fn try_lock(_: &File) -> io::Result<bool> {
    Ok(true)
}

#[cfg(not(unix))]
pub(crate) fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}
