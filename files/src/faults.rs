//! Faults on purpose, in builds with debug assertions. In other builds nothing fails on purpose and nothing is counted.
//! This is no feature of the package, because all packages would then be compiled twice, with it and without.
//!
//! A test calls [`inject`], or sets the environment variable [`VARIABLE`] for a process that it starts. To try every
//! fault of a run, count up until the run succeeds:
//!
//! ```no_run
//! # #[cfg(debug_assertions)] {
//! use bespoke_files::faults::{Faults, inject};
//!
//! for rename in 1.. {
//!     let _faults = inject(Faults { rename: Some(rename), ..Faults::default() });
//!     // Write something; stop when nothing fails any more.
//! }
//! # }
//! ```

use std::fs::File;
use std::io::{self, Write};

/// An operation that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Sync,
    Rename,
}

#[cfg(not(debug_assertions))]
pub(crate) fn point(_: Operation) -> io::Result<()> {
    Ok(())
}

#[cfg(not(debug_assertions))]
pub(crate) fn write(mut file: &File, bytes: &[u8]) -> io::Result<usize> {
    file.write(bytes)
}

#[cfg(debug_assertions)]
pub use injected::{Faults, Guard, VARIABLE, inject};
#[cfg(debug_assertions)]
pub(crate) use injected::{point, write};

#[cfg(debug_assertions)]
mod injected {
    use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

    use super::*;

    /// Environment variable with faults, such as `space=1000` or `short=7,rename=2`.
    pub const VARIABLE: &str = "BESPOKE_FAULTS";

    /// Faults of this process. Operations count from 1.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Faults {
        /// The n-th creation of a file or folder fails.
        pub create: Option<u64>,
        /// The n-th write of a file's data to the disk fails.
        pub sync: Option<u64>,
        /// The n-th rename to a final name fails.
        pub rename: Option<u64>,
        /// Bytes that fit on the disk, in all files together.
        pub space: Option<u64>,
        /// A write accepts at most this number of bytes.
        pub short: Option<u64>,
    }

    /// Faults, and what was done since they were injected.
    #[derive(Clone, Copy, Default)]
    struct State {
        faults: Faults,
        done: [u64; 3],
        bytes: u64,
    }

    fn state() -> MutexGuard<'static, State> {
        static STATE: OnceLock<Mutex<State>> = OnceLock::new();
        let of_environment = || Mutex::new(State { faults: from_environment(), ..State::default() });
        STATE.get_or_init(of_environment).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets operations of this process fail until the guard is dropped. Only one guard exists at a time; a second call
    /// waits.
    pub fn inject(faults: Faults) -> Guard {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        *state() = State { faults, ..State::default() };
        Guard { _one: one }
    }

    /// Ends the faults when it is dropped.
    pub struct Guard {
        _one: MutexGuard<'static, ()>,
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            *state() = State::default();
        }
    }

    /// Reads [`VARIABLE`].
    fn from_environment() -> Faults {
        let mut faults = Faults::default();
        let text = std::env::var(VARIABLE).unwrap_or_default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, number) = part.split_once('=').unwrap_or((part, ""));
            let field = match name {
                "create" => &mut faults.create,
                "sync" => &mut faults.sync,
                "rename" => &mut faults.rename,
                "space" => &mut faults.space,
                "short" => &mut faults.short,
                _ => panic!("{VARIABLE}: `{name}` is no fault"),
            };
            let number = number.parse().unwrap_or_else(|_| panic!("{VARIABLE}: `{part}` has no number"));
            *field = Some(number);
        }
        faults
    }

    pub(crate) fn point(operation: Operation) -> io::Result<()> {
        let mut state = state();
        let Faults { create, sync, rename, .. } = state.faults;
        let (index, nth) = match operation {
            Operation::Create => (0, create),
            Operation::Sync => (1, sync),
            Operation::Rename => (2, rename),
        };
        state.done[index] += 1;
        if nth == Some(state.done[index]) {
            return Err(io::Error::other(format!("injected fault: {operation:?} {}", state.done[index])));
        }
        Ok(())
    }

    pub(crate) fn write(mut file: &File, bytes: &[u8]) -> io::Result<usize> {
        let mut state = state();
        let mut most = bytes.len() as u64;
        if let Some(short) = state.faults.short {
            most = most.min(short);
        }
        if let Some(space) = state.faults.space {
            let left = space - state.bytes;
            if left == 0 && most > 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            most = most.min(left);
        }
        let written = file.write(&bytes[..most as usize])?;
        state.bytes += written as u64;
        Ok(written)
    }
}
