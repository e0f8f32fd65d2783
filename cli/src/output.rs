//! Arguments and errors of output files, which [`bespoke_files`] writes. A command creates its output before its work, so
//! that an unwritable path fails early.

use std::path::{Path, PathBuf};

use bespoke_files::{FileError, OutputFile, Replace};
use miette::miette;

/// Argument `--force` of every command that writes a file or a folder.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Force {
    /// Replace an existing file or folder
    #[arg(long)]
    pub force: bool,
}

impl Force {
    /// Whether an output may replace what has its name.
    pub fn replace(self) -> Replace {
        if self.force { Replace::Allowed } else { Replace::Never }
    }
}

/// Creates an output file. `-`, which elsewhere means standard output, is refused: outputs are files, which are complete
/// or absent.
pub fn create(path: &Path, force: Force) -> miette::Result<OutputFile> {
    if path.as_os_str() == "-" {
        return Err(miette!(
            help = "give a file's name; for a file that is called `-`, ./-",
            "this output cannot go to standard output"
        ));
    }
    OutputFile::create(path, force.replace()).map_err(|error| match &error {
        FileError::Exists(path) if path.is_dir() => {
            miette!(help = "give the name of a file", "{} is a folder", path.display())
        }
        _ => file_error(error),
    })
}

/// Writes the content of an output file and completes it.
pub fn write(file: OutputFile, bytes: &[u8]) -> miette::Result<()> {
    file.write_whole(bytes).map_err(file_error)
}

/// Report of an output's error.
pub fn file_error(error: FileError) -> miette::Report {
    match &error {
        FileError::Exists(_) => miette!(help = "--force replaces it", "{error}"),
        _ => miette!("{error}"),
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

/// Report of an error while an output was written in parts.
pub fn cannot_write(path: &Path, source: std::io::Error) -> miette::Report {
    file_error(FileError::Io { path: path.to_owned(), source })
}
