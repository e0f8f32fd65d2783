//! Standard output and standard error. Everything that a command prints goes through this module.
//!
//! - Results: [`out!`], [`outln!`] and [`json`] for text that this program words, [`TextStream`] and [`exact`] for text
//!   that must arrive unchanged in a pipe or a file, such as a model's answer or PTX. A closed pipe and a full disk are
//!   errors; see [`Unwritable`].
//! - Notes: [`note!`], and [`Stderr`] for the log. They never stop a command, but a full disk becomes the exit code; see
//!   [`notes_lost`].
//!
//! Control characters of models and folders must not drive a terminal: [`escape`] has the rules.

mod count;
pub mod escape;
mod text;

use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use miette::Diagnostic;
use serde::Serialize;

use escape::{Colors, escaped, escaped_json};

pub use count::counted;
pub use text::{TextStream, exact};

/// Exit code after a write to a closed pipe: 128 + SIGPIPE, as in shells.
pub const CLOSED_PIPE: u8 = 141;

/// Why standard output cannot be written.
#[derive(Debug, Diagnostic, thiserror::Error)]
pub enum Unwritable {
    /// The reader has closed the pipe. The program ends without a message.
    #[error("standard output is closed")]
    Closed,
    /// Another error, such as a full disk.
    #[error("cannot write to standard output: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for Unwritable {
    fn from(error: io::Error) -> Unwritable {
        match error.kind() {
            ErrorKind::BrokenPipe => Unwritable::Closed,
            _ => Unwritable::Failed(error),
        }
    }
}

/// Prints text to standard output, with the arguments of `format!`.
macro_rules! out {
    ($($arg:tt)*) => { $crate::console::print(format_args!($($arg)*)) };
}

/// Prints a line to standard output, with the arguments of `format!`.
macro_rules! outln {
    ($($arg:tt)*) => { $crate::console::print(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Prints a line to standard error, with the arguments of `format!`.
macro_rules! note {
    ($($arg:tt)*) => { $crate::console::print_note(format_args!($($arg)*)) };
}

pub(crate) use {note, out, outln};

/// Prints text to standard output, with escapes for control characters.
pub fn print(text: Arguments<'_>) -> Result<(), Unwritable> {
    write_all(&escaped(&text.to_string(), Colors::on(stdout().is_terminal())))
}

/// Prints a value as indented JSON.
pub fn json(value: &impl Serialize) -> miette::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| miette::miette!("{error}"))?;
    Ok(write_all(&format!("{}\n", escaped_json(&text)))?)
}

/// Prints a value as a line of JSON.
pub fn json_line(value: &impl Serialize) -> miette::Result<()> {
    let text = serde_json::to_string(value).map_err(|error| miette::miette!("{error}"))?;
    Ok(write_all(&format!("{}\n", escaped_json(&text)))?)
}

/// Prints a line to standard error, with escapes for control characters.
pub fn print_note(text: Arguments<'_>) {
    // `Stderr` remembers errors.
    let _ = Stderr.write_all(format!("{text}\n").as_bytes());
}

/// Whether a note or a log line was lost, for another reason than a closed pipe.
pub fn notes_lost() -> bool {
    NOTES_LOST.load(Ordering::Relaxed)
}

static NOTES_LOST: AtomicBool = AtomicBool::new(false);

/// Standard error with escapes for control characters. A write always succeeds; see [`notes_lost`].
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let text = escaped(&text, Colors::on(stderr().is_terminal()));
        match stderr().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => NOTES_LOST.store(true, Ordering::Relaxed),
            _ => {}
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes text to standard output as it is.
fn write_all(text: &str) -> Result<(), Unwritable> {
    let mut out = stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}
