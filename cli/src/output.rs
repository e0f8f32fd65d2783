//! Files that commands write: known to be writable before the work, never half of one, and none replaced unasked.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use miette::miette;

use crate::partial::Partial;

/// The argument of every command that writes a file or a folder.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Force {
    /// Replace what is there
    #[arg(long, short)]
    pub force: bool,
}

impl Force {
    /// Checks that `out` is not there, or may be replaced.
    pub fn check(self, out: &Path) -> miette::Result<()> {
        if out.exists() && !self.force {
            return Err(miette!(help = "--force replaces it", "{} is there already", out.display()));
        }
        Ok(())
    }
}

/// A file that will be written; until then nothing stands under its name.
pub struct Output {
    partial: Partial,
    path: PathBuf,
}

impl Output {
    /// Fails now if `path` cannot be written, or is there and may not be replaced.
    pub fn create(path: &Path, force: Force) -> miette::Result<Output> {
        force.check(path)?;
        let partial = Partial::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Output { partial, path: path.to_owned() })
    }

    /// Writes all of it.
    pub fn write(self, bytes: &[u8]) -> miette::Result<()> {
        self.file().write_all(bytes).map_err(|error| cannot_write(&self.path, &error))?;
        self.finish()
    }

    /// The file, for writing in parts.
    pub fn file(&self) -> &File {
        self.partial.file()
    }

    /// Gives the file its name.
    pub fn finish(self) -> miette::Result<()> {
        let Output { partial, path } = self;
        partial.finish().map_err(|error| cannot_write(&path, &error))
    }
}

/// How every command says that a file cannot be written.
pub fn cannot_write(path: &Path, error: &io::Error) -> miette::Report {
    miette!("cannot write {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_only_if_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let (force, keep) = (Force { force: true }, Force { force: false });
        for (text, force) in [("version = 1\n", keep), ("version = 1\n[[rule]]\n", force)] {
            Output::create(&path, force).unwrap().write(text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let error = Output::create(&path, keep).err().unwrap().to_string();
        assert!(error.ends_with("rules.toml is there already"), "{error}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "something was left behind");
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("no/rules.toml")] {
            let error = Output::create(&path, Force { force: true }).err().unwrap().to_string();
            assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        }
    }
}
