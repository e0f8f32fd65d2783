//! Progress bars on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar on standard error, which hides itself where that is no terminal.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over `total` bytes, with rate and time left.
    pub fn bytes(label: &str, total: u64) -> Progress {
        Progress::new(label, total, "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    }

    /// A bar over `total` things, with rate and time left.
    pub fn count(label: &str, total: u64) -> Progress {
        Progress::new(label, total, "{prefix} {wide_bar} {pos}/{len} {per_sec} {eta}")
    }

    /// Something that turns while work goes on of which nobody knows how much is left.
    pub fn spinner(label: &str) -> Progress {
        let spinner = Progress::new(label, 0, "{prefix} {spinner} {elapsed}");
        spinner.bar.enable_steady_tick(Duration::from_millis(100));
        spinner
    }

    fn new(label: &str, total: u64, template: &str) -> Progress {
        let style = ProgressStyle::with_template(template).expect("the templates above are valid");
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

impl Drop for Progress {
    /// An error's message should not stand behind half a bar.
    fn drop(&mut self) {
        self.finish();
    }
}
