//! Handling of signals: Ctrl-C (SIGINT), SIGTERM and SIGHUP. Also as process 1 of a container, for which these signals
//! have no default action.
//!
//! A signal ends the process: incomplete files are removed, the progress bar is cleared, and the exit code is 128 + the
//! signal's number, as in shells. A second signal ends the process at once. While text is streamed, the first Ctrl-C
//! only requests a stop after the current token, so that the line is complete; `chat` resets this for each answer. While
//! a server runs, the first signal of any kind begins its shutdown.
//!
//! The same signal within [`SAME_SIGNAL`] of the first counts as the first: `timeout` sends its signal to the process and to
//! the process's group.
//!
//! A signal that was ignored when the process started stays ignored: SIGHUP after `nohup`, SIGINT in a background job of
//! a script.

use std::io::{self, IsTerminal, Write, stderr};
#[cfg(unix)]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
#[cfg(unix)]
use std::time::{Duration, Instant};

use bespoke_files::remove_unfinished;

use crate::console::note;

/// Time in which a signal's repetition is no second signal: shorter than a person needs for a second Ctrl-C.
#[cfg(unix)]
const SAME_SIGNAL: Duration = Duration::from_millis(80);

/// Exit code after Ctrl-C: 128 + SIGINT.
pub const EXIT_CODE: u8 = 130;

/// What the first signal does in place of ending the process.
static ON_FIRST: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
/// What the second signal does before it ends the process.
static ON_SECOND: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
/// The signal that was taken as the first, and when.
#[cfg(unix)]
static FIRST: Mutex<Option<(i32, Instant)>> = Mutex::new(None);
static DEFER_FIRST: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handlers.
pub fn install_handlers() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        if let Err(error) = install() {
            tracing::debug!("cannot handle signals: {error}");
        }
    });
}

/// Makes the first Ctrl-C only request a stop, from now on: see [`requested`].
pub fn defer_first() {
    DEFER_FIRST.store(true, Ordering::Relaxed);
}

/// Registers a function that the first signal calls. The second signal ends the process.
pub fn on_first(function: impl FnOnce() + Send + 'static) {
    *ON_FIRST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(function));
}

/// Registers a function that the second signal calls before it ends the process.
pub fn on_second(function: impl FnOnce() + Send + 'static) {
    *ON_SECOND.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(function));
}

/// Calls the function for the first signal; returns whether there is one.
fn call_first() -> bool {
    let function = ON_FIRST.lock().unwrap_or_else(PoisonError::into_inner).take();
    function.map(|function| function()).is_some()
}

/// Forgets an earlier request, and lets the next Ctrl-C end the process: while the user is asked for input.
pub fn end_on_next() {
    DEFER_FIRST.store(false, Ordering::Relaxed);
    REQUESTED.store(false, Ordering::Relaxed);
    #[cfg(unix)]
    FIRST.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Whether Ctrl-C requested a stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Takes Ctrl-C as a request to stop; returns whether it is one.
fn request() -> bool {
    DEFER_FIRST.load(Ordering::Relaxed) && !REQUESTED.swap(true, Ordering::Relaxed)
}

/// Removes incomplete files and clears a progress bar's line.
fn clean_up() {
    let function = ON_SECOND.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(function) = function {
        function();
    }
    let removed = remove_unfinished();
    if stderr().is_terminal() {
        // Shows the cursor, too. If the terminal is gone, there is nothing to clear.
        let _ = stderr().write_all(b"\x1b[?25h\r\x1b[K");
    }
    if removed {
        note!("interrupted: nothing was written");
    }
}

#[cfg(unix)]
fn install() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag::register_conditional_shutdown;
    use signal_hook::iterator::Signals;

    let signals: Vec<i32> = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&it| !is_ignored(it)).collect();
    // While its flag is set, a signal ends the process at once: until the thread below runs, and while it cleans up.
    let at_once: Vec<(i32, Arc<AtomicBool>)> =
        signals.iter().map(|&signal| (signal, Arc::new(AtomicBool::new(true)))).collect();
    for (signal, flag) in &at_once {
        register_conditional_shutdown(*signal, 128 + signal, Arc::clone(flag))?;
    }
    let mut received = Signals::new(&signals)?;
    let cleaning_up = at_once.clone();
    let handle = move || {
        for signal in received.forever() {
            if repeats_first(signal) {
                continue;
            }
            if call_first() || (signal == SIGINT && request()) {
                *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = Some((signal, Instant::now()));
                continue;
            }
            for (other, flag) in &cleaning_up {
                if *other == signal {
                    set_later(flag);
                } else {
                    flag.store(true, Ordering::Relaxed);
                }
            }
            clean_up();
            // Without destructors and exit handlers: other threads may be inside the CUDA driver, which would crash in
            // its own exit handlers.
            signal_hook::low_level::exit(128 + signal);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(handle)?;
    at_once.iter().for_each(|(_, flag)| flag.store(false, Ordering::Relaxed));
    Ok(())
}

/// Sets a flag after [`SAME_SIGNAL`]; at once if no thread can be started.
#[cfg(unix)]
fn set_later(flag: &Arc<AtomicBool>) {
    let later = {
        let flag = Arc::clone(flag);
        move || {
            std::thread::sleep(SAME_SIGNAL);
            flag.store(true, Ordering::Relaxed);
        }
    };
    if std::thread::Builder::new().spawn(later).is_err() {
        flag.store(true, Ordering::Relaxed);
    }
}

/// Whether a signal repeats the first one within [`SAME_SIGNAL`].
#[cfg(unix)]
fn repeats_first(signal: i32) -> bool {
    let first = *FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    first.is_some_and(|(same, at)| signal == same && at.elapsed() < SAME_SIGNAL)
}

/// Whether a signal was ignored when the process started.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, `sigaction` only writes the present one to `action`, which has room for it.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(not(unix))]
fn install() -> io::Result<()> {
    let handle = || {
        if !call_first() && !request() {
            clean_up();
            std::process::exit(EXIT_CODE.into());
        }
    };
    ctrlc::set_handler(handle).map_err(io::Error::other)
}

/// Makes a write beyond the limit on a file's size (`ulimit -f`) an error, as on a full disk, instead of the end of the
/// process.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler.
    #[cfg(unix)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
