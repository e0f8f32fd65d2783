//! Progress bars on standard error.

use std::cell::OnceCell;
use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// What takes longer is worth a bar.
const LATE: Duration = Duration::from_secs(1);

/// A progress bar on standard error, which hides itself where that is no terminal.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over `total` bytes, with rate and time left.
    pub fn bytes(label: &str, total: u64) -> Progress {
        Progress::new(label, total, "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {left}")
    }

    /// A bar over `total` things, with rate and time left.
    pub fn count(label: &str, total: u64) -> Progress {
        Progress::new(label, total, "{prefix} {wide_bar} {pos}/{len} {per_sec} {left}")
    }

    /// A bar over few things that take long, with the time that went by.
    pub fn steps(label: &str, total: u64) -> Progress {
        let steps = Progress::new(label, total, "{prefix} {wide_bar} {pos}/{len} {elapsed} {left}");
        steps.bar.enable_steady_tick(Duration::from_millis(200));
        steps
    }

    /// Something that turns while work goes on of which nobody knows how much is left.
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

    /// `done` of the total are done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// `done` of `total` are done, for a total that is known only now.
    pub fn update(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The time left, once there is something to tell it from.
fn left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        // The bar has no place for an error of its own text.
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}

impl Drop for Progress {
    /// An error's message should not stand behind half a bar.
    fn drop(&mut self) {
        self.finish();
    }
}

/// Turns, on a thread of its own, while something goes on that takes longer than a second; until it is dropped.
pub struct Working {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Working {
    /// The second begins.
    pub fn new(label: &'static str) -> Working {
        let (over, told) = mpsc::channel();
        let turn = move || {
            if told.recv_timeout(LATE) == Err(RecvTimeoutError::Timeout) {
                let _spinner = Progress::spinner(label);
                // An error is what the end looks like.
                let _ = told.recv();
            }
        };
        Working { over: Some(over), thread: Some(thread::spawn(turn)) }
    }
}

impl Drop for Working {
    /// Nothing may be printed before the line is clear.
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            // What panicked there has said so.
            let _ = thread.join();
        }
    }
}

/// A bar that appears only where something takes longer than a second.
pub struct Late {
    label: &'static str,
    since: Instant,
    bar: OnceCell<Progress>,
}

impl Late {
    /// The second begins.
    pub fn new(label: &'static str) -> Late {
        Late { label, since: Instant::now(), bar: OnceCell::new() }
    }

    /// `done` of `total` things are done.
    pub fn update(&self, done: u64, total: u64) {
        if self.bar.get().is_some() || self.since.elapsed() > LATE {
            self.bar.get_or_init(|| Progress::count(self.label, total)).set(done);
        }
    }

    /// Removes the bar, if there is one.
    pub fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish();
        }
    }
}
