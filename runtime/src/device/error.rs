//! What can go wrong on a device, said so that the reader knows what to do next.

use std::fmt;

use bespoke_codegen::ptx::Target;
use miette::Diagnostic;
use thiserror::Error;

use super::Bytes;

/// A failure of a device. `{:?}` is the message, too, with the advice below it: a `main` that returns this prints it so.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// The device asked for cannot be opened here.
    #[error("{what}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// What to do about it.
        help: String,
    },
    /// An allocation does not fit.
    #[error(
        "out of memory on {device}: `{name}` needs {}, and {} of {} is free",
        Bytes(*needed), Bytes(*free), Bytes(*total)
    )]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// What the memory was for.
        name: String,
        /// Bytes asked for.
        needed: u64,
        /// Bytes free at that moment.
        free: u64,
        /// Bytes the device has.
        total: u64,
    },
    /// The device refused a module's PTX.
    #[error("module `{module}`: {message}")]
    Assembly {
        /// The module's name.
        module: String,
        /// The assembler's message with the PTX lines it names.
        message: String,
        /// What to do about it, where known.
        help: Option<String>,
    },
    /// A module has no kernel of that name.
    #[error("module `{module}` has no kernel `{kernel}`; it has {}", list(available))]
    KernelNotFound {
        /// The module's name.
        module: String,
        /// The name asked for.
        kernel: String,
        /// The names it has.
        available: Vec<String>,
    },
    /// A stub's kernel was emitted for newer GPUs alone.
    #[error(
        "kernel `{kernel}` was emitted for {}, none of which {device} (compute capability {}.{}) runs",
        targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", "), compute.0, compute.1
    )]
    NotEmitted {
        /// The kernel's name.
        kernel: String,
        /// What it was emitted for.
        targets: Vec<Target>,
        /// The device's name.
        device: String,
        /// Its compute capability: major, minor.
        compute: (u32, u32),
    },
    /// A launch that the device cannot run, found before it is enqueued.
    #[error("launch {index} (`{kernel}`): {why}")]
    Launch {
        /// Position in the sequence.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// What is wrong with it.
        why: String,
    },
    /// A kernel broke a rule that the emulator checks.
    #[error("launch {index} (`{kernel}`): {finding}")]
    Fault {
        /// Position in the sequence.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// The finding's text.
        finding: String,
    },
    /// Work that should have ended long ago has not: a kernel waits for what never comes.
    #[error("{what} did not end within {seconds} s: a kernel waits for what never comes")]
    Hung {
        /// What was enqueued.
        what: String,
        /// For how long it was waited.
        seconds: u64,
    },
    /// A host access outside device memory, in words.
    #[error("{0}")]
    Access(String),
    /// A sequence was replayed before it was captured.
    #[error("the sequence was replayed before it was captured")]
    NotCaptured,
    /// The launches could not be made a graph; the stream is usable again, so they can still run eagerly.
    #[error("the launches could not be captured as a graph: {0}")]
    Capture(Box<Error>),
    /// A driver call failed.
    #[error(transparent)]
    Driver(#[from] Box<DriverFailure>),
}

/// A driver call that did not return success. `{:?}` is the message, too.
#[derive(Error)]
#[error("{call} failed while {doing}: {name} ({code}): {description}")]
pub struct DriverFailure {
    /// The entry point.
    pub call: &'static str,
    /// What the runtime was doing.
    pub doing: String,
    /// The code's number.
    pub code: u32,
    /// The code's name.
    pub name: String,
    /// The driver's own description of the code.
    pub description: String,
    /// What to do about it, where known.
    pub help: Option<String>,
}

impl Error {
    /// What the reader can do about it, where that is known.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Error::Unavailable { help, .. } => Some(help),
            Error::OutOfMemory { .. } => Some(
                "choose a smaller context, fewer slots or a smaller quantisation, or free the device's memory",
            ),
            Error::Assembly { help, .. } => help.as_deref(),
            Error::NotEmitted { .. } => {
                Some("emit it for an older target, too: `.target(Target::Sm80)` in the build script")
            }
            Error::Capture(cause) => cause.advice(),
            Error::Driver(failure) => failure.help.as_deref(),
            Error::KernelNotFound { .. }
            | Error::Launch { .. }
            | Error::Fault { .. }
            | Error::Hung { .. }
            | Error::Access(_)
            | Error::NotCaptured => None,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self.advice() {
            Some(advice) => write!(f, "\n  help: {advice}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Diagnostic for Error {
    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        self.advice().map(|advice| Box::new(advice) as Box<dyn fmt::Display>)
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_returns_an_error_prints_what_a_reader_needs() {
        let fault = Error::Fault { index: 0, kernel: "axpy".into(), finding: "out of bounds".into() };
        assert_eq!(format!("{fault:?}"), "launch 0 (`axpy`): out of bounds");
        let missing = Error::Unavailable { what: "there is no GPU".into(), help: "take another".into() };
        assert_eq!(format!("{missing:?}"), "there is no GPU\n  help: take another");
    }
}
