//! Errors of devices, with advice.

use std::fmt;

use bespoke_codegen::ptx::Target;
use miette::Diagnostic;
use thiserror::Error;

use super::Bytes;

/// Error of a device. `Debug` shows the message and the advice, because that is what a `main` that returns the error
/// prints.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested device is not available.
    #[error("{what}")]
    Unavailable {
        /// Why the device is not available.
        what: String,
        /// How to make the device available, or what to use instead.
        help: String,
    },
    /// Not enough free memory for an allocation.
    #[error(
        "out of memory on {device}: `{name}` needs {}, and {} of {} is free",
        Bytes(*needed), Bytes(*free), Bytes(*total)
    )]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// Name of the allocation.
        name: String,
        /// Size of the allocation in bytes.
        needed: u64,
        /// Free bytes of device memory.
        free: u64,
        /// Total bytes of device memory.
        total: u64,
    },
    /// The assembler rejected a module's PTX.
    #[error("module `{module}`: {message}")]
    Assembly {
        /// The module's name.
        module: String,
        /// The assembler's message, with the PTX lines that it refers to.
        message: String,
        /// Advice, where there is any.
        help: Option<String>,
    },
    /// A module has no kernel with the requested name.
    #[error("module `{module}` has no kernel `{kernel}`; it has {}", list(available))]
    KernelNotFound {
        /// The module's name.
        module: String,
        /// Requested name of the kernel.
        kernel: String,
        /// Names of the module's kernels.
        available: Vec<String>,
    },
    /// A stub's kernel was emitted only for targets that the device does not run.
    #[error(
        "kernel `{kernel}` was emitted for {}; {device} (compute capability {}.{}) runs none of these targets",
        targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", "), compute.0, compute.1
    )]
    NotEmitted {
        /// The kernel's name.
        kernel: String,
        /// Targets of the kernel.
        targets: Vec<Target>,
        /// The device's name.
        device: String,
        /// Compute capability of the device: major, minor.
        compute: (u32, u32),
    },
    /// A launch that the device cannot run, detected before it is enqueued.
    #[error("launch {index} (`{kernel}`): {why}")]
    Launch {
        /// Position of the launch in its sequence.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// Why the device cannot run the launch.
        why: String,
    },
    /// A finding of the emulator stopped a kernel.
    #[error("launch {index} (`{kernel}`): {finding}")]
    Fault {
        /// Position of the launch in its sequence.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// Text of the finding.
        finding: String,
    },
    /// Enqueued work did not complete within a time limit.
    #[error("{what} did not complete within {seconds} s: a kernel hangs")]
    Hung {
        /// Description of the enqueued work.
        what: String,
        /// Time limit in seconds.
        seconds: u64,
    },
    /// The device was given up, because a kernel hangs ([`Device::abandon`](super::Device::abandon)).
    #[error("the device is not used any more, because a kernel on it hangs")]
    Abandoned,
    /// An invalid access of the host to device memory.
    #[error("{0}")]
    Access(String),
    /// A tensor map that the device cannot encode.
    #[error("tensor map: {0}")]
    TensorMap(String),
    /// A sequence was replayed before it was captured.
    #[error("the sequence was replayed before it was captured")]
    NotCaptured,
    /// The launches could not be captured as a graph. They can still run eagerly.
    #[error("the launches could not be captured as a graph: {0}")]
    Capture(Box<Error>),
    /// A driver call failed.
    #[error(transparent)]
    Driver(#[from] Box<DriverFailure>),
}

/// A failed driver call. `Debug` shows the message.
#[derive(Error)]
#[error("{call} failed while {doing}: {name} ({code}): {description}")]
pub struct DriverFailure {
    /// Name of the driver's entry point.
    pub call: &'static str,
    /// What the runtime was doing, such as `uploading a graph`.
    pub doing: String,
    /// Error code as a number (`CUresult`).
    pub code: u32,
    /// Name of the error code.
    pub name: String,
    /// Description of the error code by the driver.
    pub description: String,
    /// Advice, where there is any.
    pub help: Option<String>,
}

impl Error {
    /// Advice to the user, where there is any.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Error::Unavailable { help, .. } => Some(help),
            Error::OutOfMemory { .. } => {
                Some("choose a smaller context or quantisation, or free device memory")
            }
            Error::Assembly { help, .. } => help.as_deref(),
            Error::NotEmitted { .. } => {
                Some("emit it for an older target too: `.target(Target::Sm80)` in the build script")
            }
            Error::Capture(cause) => cause.advice(),
            Error::Hung { .. } | Error::Abandoned => {
                Some("end this process to free the device; the emulator names the kernel and the line")
            }
            Error::Driver(failure) => failure.help.as_deref(),
            Error::KernelNotFound { .. }
            | Error::Launch { .. }
            | Error::Fault { .. }
            | Error::Access(_)
            | Error::TensorMap(_)
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
    fn debug_shows_the_message_and_the_advice() {
        let fault = Error::Fault { index: 0, kernel: "axpy".into(), finding: "out of bounds".into() };
        assert_eq!(format!("{fault:?}"), "launch 0 (`axpy`): out of bounds");
        let missing = Error::Unavailable { what: "there is no GPU".into(), help: "take another".into() };
        assert_eq!(format!("{missing:?}"), "there is no GPU\n  help: take another");
    }
}
