//! Output files. A command opens them before its work, so that an unwritable path fails early. A file is complete or
//! absent, and replaces another only with `--force`.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use miette::miette;

use crate::partial::Partial;

/// Argument `--force` of every command that writes a file or a folder.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Force {
    /// Replace an existing file or folder
    #[arg(long, short)]
    pub force: bool,
}

impl Force {
    /// Fails if `out` exists and `--force` was not given.
    pub fn check(self, out: &Path) -> miette::Result<()> {
        if out.exists() && !self.force {
            return Err(miette!(help = "--force replaces it", "{} already exists", out.display()));
        }
        Ok(())
    }
}

/// Output file with a temporary name, which gets its final name when it is complete.
pub struct Output {
    partial: Partial,
    path: PathBuf,
}

impl Output {
    /// Opens the file; fails if `path` cannot be written, or exists and `force` is not set.
    pub fn create(path: &Path, force: Force) -> miette::Result<Output> {
        force.check(path)?;
        let partial = Partial::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Output { partial, path: path.to_owned() })
    }

    /// Writes the whole content and renames the file.
    pub fn write(self, bytes: &[u8]) -> miette::Result<()> {
        self.file().write_all(bytes).map_err(|error| cannot_write(&self.path, &error))?;
        self.finish()
    }

    /// The open file, for writing in parts.
    pub fn file(&self) -> &File {
        self.partial.file()
    }

    /// Renames the complete file to its final name.
    pub fn finish(self) -> miette::Result<()> {
        let Output { partial, path } = self;
        partial.finish().map_err(|error| cannot_write(&path, &error))
    }
}

/// Fails if an output would replace one of the files that the command reads, also through a link.
pub fn check_distinct(out: &Path, inputs: &[PathBuf]) -> miette::Result<()> {
    // An output that does not exist is none of the inputs.
    let Ok(real) = out.canonicalize() else { return Ok(()) };
    match inputs.iter().find(|input| input.canonicalize().is_ok_and(|input| input == real)) {
        Some(input) => Err(miette!(
            help = "write to another file",
            "the output {} is also an input ({})",
            out.display(),
            input.display()
        )),
        None => Ok(()),
    }
}

/// The error for a file that cannot be written.
pub fn cannot_write(path: &Path, error: &io::Error) -> miette::Report {
    miette!("cannot write {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_only_with_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let (force, keep) = (Force { force: true }, Force { force: false });
        for (text, force) in [("version = 1\n", keep), ("version = 1\n[[rule]]\n", force)] {
            Output::create(&path, force).unwrap().write(text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let error = Output::create(&path, keep).err().unwrap().to_string();
        assert!(error.ends_with("rules.toml already exists"), "{error}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "a temporary file is left");
    }

    #[test]
    fn an_unwritable_path_fails_on_creation() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("no/rules.toml")] {
            let error = Output::create(&path, Force { force: true }).err().unwrap().to_string();
            assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        }
    }
}
