//! Errors of a recording, and the panics that become errors.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Once;

use super::{RECORDING, Site};

/// Error of a kernel that cannot be recorded, with the Rust source line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel {kernel}: {message}\n  --> {file}:{line}:{column}{}", called_at(callers))]
pub struct RecordError {
    /// Name of the kernel.
    pub kernel: String,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// Path of the Rust source file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Calls of `#[device]` functions through which recording reached the line, innermost first: `FILE:LINE:COLUMN`.
    pub callers: Vec<String>,
}

/// Lines that name the callers.
fn called_at(callers: &[String]) -> String {
    callers.iter().map(|caller| format!("\n  called at {caller}")).collect()
}

thread_local! {
    /// File, line and column of the last panic in a recording on this thread.
    static PANICKED_AT: RefCell<Option<(String, u32, u32)>> = const { RefCell::new(None) };
}

/// Forgets the last panic. The first call also installs a panic hook that notes where kernels panic while they are
/// recorded, and then calls the previous hook.
pub(super) fn note_panics() {
    static ONCE: Once = Once::new();
    PANICKED_AT.take();
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if RECORDING.try_with(Cell::get).is_ok_and(|recording| recording != 0) {
                let at = info.location().map(|at| (at.file().to_owned(), at.line(), at.column()));
                // A thread that ends has no such place any more.
                let _ = PANICKED_AT.try_with(|last| last.replace(at));
            }
            before(info);
        }));
    });
}

/// The error that the kernel's function panicked with. A panic of the author's code is reported at its line; `site` is the
/// kernel's, for panics of the standard library.
pub(in crate::dsl) fn error_of(payload: Box<dyn Any + Send>, kernel: &str, site: Site) -> RecordError {
    match payload.downcast::<RecordError>() {
        Ok(error) => *error,
        Err(payload) => {
            let message = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(|text| text.to_string()))
                .unwrap_or_else(|| "the kernel panicked while it was recorded".into());
            let error = error_at(kernel, site, message);
            match PANICKED_AT.take().filter(|(file, ..)| !file.starts_with("/rustc/")) {
                Some((file, line, column)) => RecordError { file, line, column, ..error },
                None => error,
            }
        }
    }
}

/// An error at `site`.
pub(in crate::dsl) fn error_at(kernel: &str, site: Site, message: String) -> RecordError {
    let (file, line, column) = (site.file().to_owned(), site.line(), site.column());
    RecordError { kernel: kernel.to_owned(), message, file, line, column, callers: Vec::new() }
}
