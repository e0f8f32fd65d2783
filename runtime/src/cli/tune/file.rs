//! Writing the rules: all of the file, or nothing.

use std::fs;
use std::path::{Path, PathBuf};

use miette::{IntoDiagnostic, WrapErr, miette};

/// Checks that `path` may be written later.
pub(super) fn check(path: &Path) -> miette::Result<()> {
    let folder = folder(path);
    if path.is_dir() || path.file_name().is_none() {
        return Err(miette!("cannot write {}: it is a folder", path.display()));
    }
    if !folder.is_dir() {
        return Err(miette!("cannot write {}: {} is no folder", path.display(), folder.display()));
    }
    let trial = beside(path);
    let written = fs::write(&trial, "").and_then(|()| fs::remove_file(&trial));
    written.into_diagnostic().wrap_err_with(|| format!("cannot write {}", path.display()))
}

/// Writes `text` to a file beside `path`, which then takes its place.
pub(super) fn write(path: &Path, text: &str) -> miette::Result<()> {
    let new = beside(path);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // What is left of an attempt that failed is of no use; that it cannot be removed is no news.
        let _ = fs::remove_file(&new);
    }
    written.into_diagnostic().wrap_err_with(|| format!("cannot write {}", path.display()))
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A name in the same folder that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    folder(path).join(format!(".{name}.{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        for text in ["version = 1\n", "version = 1\n[[rule]]\nrole = 'output'\n"] {
            check(&path).unwrap();
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "something was left behind");
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(folder.path()).unwrap_err().to_string().ends_with("it is a folder"));
        let missing = check(&folder.path().join("no/rules.toml")).unwrap_err().to_string();
        assert!(missing.ends_with("no is no folder"), "{missing}");
        assert!(write(&folder.path().join("no/rules.toml"), "").is_err());
    }
}
