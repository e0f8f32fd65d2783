//! Ctrl-C.
//!
//! While a command loads or measures, it ends the process, with the progress bar's line removed. While text streams,
//! the first one asks for an end after the present token, so that the line is finished and the terminal clean; the
//! second does not wait for that. A file that is not complete is removed.

use std::io::{IsTerminal, stderr};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::partial;

/// 128 + SIGINT, as shells report it.
pub const EXIT_CODE: u8 = 130;

static GENTLE: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Catches Ctrl-C from now on.
pub fn catch() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let caught = ctrlc::set_handler(|| {
            if GENTLE.load(Ordering::Relaxed) && !ASKED.swap(true, Ordering::Relaxed) {
                return;
            }
            let removed = partial::remove_unfinished();
            clear_line();
            if removed {
                eprintln!("interrupted: nothing was written");
            }
            leave();
        });
        // Without it, Ctrl-C ends the process as it ends any other.
        if let Err(error) = caught {
            tracing::debug!("cannot catch Ctrl-C: {error}");
        }
    });
}

/// From now on the first Ctrl-C only asks: see [`asked`].
pub fn be_gentle() {
    GENTLE.store(true, Ordering::Relaxed);
}

/// Whether Ctrl-C asked for an end.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Ends the process at once, without destructors: other threads may be inside the driver, which would not survive its
/// own.
fn leave() -> ! {
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

/// Removes a progress bar's line and shows the cursor again, on a terminal.
fn clear_line() {
    if stderr().is_terminal() {
        eprint!("\x1b[?25h\r\x1b[K");
    }
}
