//! Handling of Ctrl-C (SIGINT).
//!
//! While a command loads or measures, Ctrl-C clears the progress bar and ends the process. While text is streamed, the
//! first Ctrl-C requests a stop after the current token, so that the line is complete; the second ends the process.
//! `chat` resets this for each answer. Incomplete files are removed.

use std::io::{IsTerminal, stderr};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::partial;

/// Exit code after Ctrl-C: 128 + SIGINT, as in shells.
pub const EXIT_CODE: u8 = 130;

static DEFER_FIRST: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler for Ctrl-C.
pub fn install_handler() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let installed = ctrlc::set_handler(|| {
            if DEFER_FIRST.load(Ordering::Relaxed) && !REQUESTED.swap(true, Ordering::Relaxed) {
                return;
            }
            let removed = partial::remove_unfinished();
            clear_line();
            if removed {
                eprintln!("interrupted: nothing was written");
            }
            exit_now();
        });
        // Without the handler, Ctrl-C ends the process, as by default.
        if let Err(error) = installed {
            tracing::debug!("cannot install a handler for Ctrl-C: {error}");
        }
    });
}

/// Makes the first Ctrl-C only request a stop, from now on: see [`requested`].
pub fn defer_first() {
    DEFER_FIRST.store(true, Ordering::Relaxed);
}

/// Forgets an earlier request, and lets the next Ctrl-C end the process: while the user is asked for input.
pub fn end_on_next() {
    DEFER_FIRST.store(false, Ordering::Relaxed);
    REQUESTED.store(false, Ordering::Relaxed);
}

/// Whether Ctrl-C requested a stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Ends the process immediately, without destructors and exit handlers: other threads may be inside the CUDA driver,
/// which would crash in its own exit handlers.
fn exit_now() -> ! {
    #[cfg(unix)]
    {
        unsafe extern "C" {
            fn _exit(code: i32) -> !;
        }
        // SAFETY: POSIX's `_exit` can be called at any time, on any thread.
        unsafe { _exit(EXIT_CODE.into()) }
    }
    #[cfg(not(unix))]
    std::process::exit(EXIT_CODE.into())
}

/// Clears a progress bar's line and shows the cursor, on a terminal.
fn clear_line() {
    if stderr().is_terminal() {
        eprint!("\x1b[?25h\r\x1b[K");
    }
}
