//! Files of an emitted folder. Any program may have written them, so a path must stay within the folder, and a file must
//! be an ordinary one of a bounded size.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path};

use crate::folder::FolderError;

/// Largest file of a folder, in bytes.
const LARGEST: u64 = 64 << 20;

/// Reads the text file `path` of `folder`.
pub(crate) fn read(folder: &Path, path: &Path) -> Result<String, FolderError> {
    if !path.components().all(|component| matches!(component, Component::Normal(_))) {
        let source = io::Error::other(format!("the path {} leads out of the folder", path.display()));
        return Err(FolderError::Io { path: folder.to_owned(), source });
    }
    let whole = folder.join(path);
    let read = || -> io::Result<String> {
        // Resolves links: one may lead to a file of the folder, but not out of it.
        let resolved = whole.canonicalize()?;
        if !resolved.starts_with(folder.canonicalize()?) {
            return Err(io::Error::other("a link leads out of the folder"));
        }
        // Opening a pipe would wait for a writer.
        let data = fs::metadata(&resolved)?;
        if !data.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut text = String::new();
        File::open(&resolved)?.take(LARGEST + 1).read_to_string(&mut text)?;
        if text.len() as u64 > LARGEST {
            return Err(io::Error::other(format!("it has more than {LARGEST} bytes")));
        }
        Ok(text)
    };
    read().map_err(|source| FolderError::Io { path: whole.clone(), source })
}
