//! Progress bars on standard error.

use std::cell::OnceCell;
use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Delay before a bar or spinner appears.
const DELAY: Duration = Duration::from_secs(1);

/// Progress bar on standard error, hidden if standard error is not a terminal.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over `total` bytes, with rate and time left.
    pub fn bytes(label: &str, total: u64) -> Progress {
        Progress::new(label, total, "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {left}")
    }

    /// A bar over `total` items, with rate and time left.
    pub fn count(label: &str, total: u64) -> Progress {
        Progress::new(label, total, "{prefix} {wide_bar} {pos}/{len} {per_sec} {left}")
    }

    /// A bar over a few long steps, with the elapsed time.
    pub fn steps(label: &str, total: u64) -> Progress {
        let steps = Progress::new(label, total, "{prefix} {wide_bar} {pos}/{len} {elapsed} {left}");
        steps.bar.enable_steady_tick(Duration::from_millis(200));
        steps
    }

    /// A spinner, for work of unknown length.
    pub fn spinner(label: &str) -> Progress {
        let spinner = Progress::new(label, 0, "{prefix} {spinner} {elapsed}");
        spinner.bar.enable_steady_tick(Duration::from_millis(100));
        spinner
    }

    fn new(label: &str, total: u64, template: &str) -> Progress {
        let style = ProgressStyle::with_template(template).expect("the templates above are valid");
        let style = style.with_key("left", left);
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        Progress { bar: bar.with_style(style).with_prefix(label.to_owned()) }
    }

    /// Sets the progress to `done`.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Sets the progress and the total, for a total that is unknown when the bar is created.
    pub fn update(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Writes the estimated time left, once there is progress to estimate it from.
fn left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        // `indicatif` gives no way to report an error here.
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}

impl Drop for Progress {
    /// Removes the bar, so that an error message starts on an empty line.
    fn drop(&mut self) {
        self.finish();
    }
}

/// Spinner on its own thread, which appears after [`DELAY`] and disappears when dropped.
pub struct DelayedSpinner {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl DelayedSpinner {
    /// Starts the delay before the spinner appears.
    pub fn new(label: &'static str) -> DelayedSpinner {
        let (over, told) = mpsc::channel();
        let turn = move || {
            if told.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                let _spinner = Progress::spinner(label);
                // The receiver sees an error when the sender is dropped.
                let _ = told.recv();
            }
        };
        DelayedSpinner { over: Some(over), thread: Some(thread::spawn(turn)) }
    }
}

impl Drop for DelayedSpinner {
    /// Waits until the spinner has cleared its line.
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has printed its own message.
            let _ = thread.join();
        }
    }
}

/// Progress bar that appears after [`DELAY`].
pub struct DelayedBar {
    label: &'static str,
    since: Instant,
    bar: OnceCell<Progress>,
}

impl DelayedBar {
    /// Starts the delay before the bar appears.
    pub fn new(label: &'static str) -> DelayedBar {
        DelayedBar { label, since: Instant::now(), bar: OnceCell::new() }
    }

    /// Sets progress and total.
    pub fn update(&self, done: u64, total: u64) {
        if self.bar.get().is_some() || self.since.elapsed() > DELAY {
            self.bar.get_or_init(|| Progress::count(self.label, total)).set(done);
        }
    }

    /// Removes the bar, if it has appeared.
    pub fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish();
        }
    }
}
