//! Progress bars on standard error.

use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Delay before a bar or spinner appears.
const DELAY: Duration = Duration::from_secs(1);
/// Time between two drawings of a bar without progress.
const TICK: Duration = Duration::from_millis(100);

/// Progress bar on standard error, hidden if standard error is not a terminal.
pub struct Progress {
    bar: ProgressBar,
    ticker: Option<Ticker>,
}

impl Progress {
    /// A bar over `total` bytes, with rate and time left.
    pub fn bytes(label: &str, total: u64) -> Progress {
        Progress::new(label, total, "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {left}")
    }

    /// A bar over `total` items, with rate and time left.
    pub fn count(label: &str, total: u64) -> Progress {
        Progress::new(label, total, "{prefix} {wide_bar} {pos}/{len} {rate} {left}")
    }

    /// A bar over a few long steps, with the elapsed time.
    pub fn steps(label: &str, total: u64) -> Progress {
        let steps = Progress::new(label, total, "{prefix} {wide_bar} {pos}/{len} {elapsed} {left}");
        steps.ticking(Duration::ZERO)
    }

    /// A spinner, for work of unknown length.
    pub fn spinner(label: &str) -> Progress {
        Progress::new(label, 0, "{prefix} {spinner} {elapsed}").ticking(Duration::ZERO)
    }

    /// A spinner that appears after [`DELAY`].
    pub fn delayed_spinner(label: &str) -> Progress {
        Progress::new(label, 0, "{prefix} {spinner} {elapsed}").ticking(DELAY)
    }

    fn new(label: &str, total: u64, template: &str) -> Progress {
        let style = ProgressStyle::with_template(template).expect("the templates above are valid");
        let style = style.with_key("left", left).with_key("rate", rate);
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        Progress { bar: bar.with_style(style).with_prefix(label.to_owned()), ticker: None }
    }

    /// Draws the bar from now on also without progress, after a delay.
    fn ticking(mut self, delay: Duration) -> Progress {
        if !self.bar.is_hidden() {
            self.ticker = Ticker::start(self.bar.clone(), delay);
        }
        self
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
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
    }
}

/// Writes the estimated time left, once there is progress to estimate it from.
fn left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        // `indicatif` gives no way to report an error here.
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}

/// Writes the number of items per second; nothing before the first item.
fn rate(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        // As in `left`.
        let _ = write!(out, "{:.1}/s", state.per_sec());
    }
}

impl Drop for Progress {
    /// Removes the bar, so that an error message starts on an empty line.
    fn drop(&mut self) {
        drop(self.ticker.take());
        self.finish();
    }
}

/// Thread that draws a bar again and again. Unlike `indicatif`'s own, it does not panic if the system refuses a thread:
/// then there is none.
struct Ticker {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts the thread.
    fn start(bar: ProgressBar, delay: Duration) -> Option<Ticker> {
        let (over, told) = mpsc::channel();
        let tick = move || {
            let mut wait = delay;
            while told.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) && !bar.is_finished() {
                bar.tick();
                wait = TICK;
            }
        };
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(tick).ok()?;
        Some(Ticker { over: Some(over), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    /// Waits until the thread draws no more.
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has printed its own message.
            let _ = thread.join();
        }
    }
}

/// Progress bar of a few long steps that appears after [`DELAY`], with the elapsed time.
pub struct DelayedBar {
    since: Instant,
    bar: Progress,
}

impl DelayedBar {
    /// Starts the delay before the bar appears, also if there is no progress.
    pub fn new(label: &str, total: u64) -> DelayedBar {
        let bar = Progress::new(label, total, "{prefix} {wide_bar} {pos}/{len} {elapsed}");
        DelayedBar { since: Instant::now(), bar: bar.ticking(DELAY) }
    }

    /// Sets the progress.
    pub fn update(&self, done: u64) {
        // Setting it draws the bar.
        if self.since.elapsed() > DELAY {
            self.bar.set(done);
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish();
    }
}
