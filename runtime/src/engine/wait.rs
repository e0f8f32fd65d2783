//! Back-off between polls of the device, and the largest number of steps in flight.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

/// Largest number of steps in flight beyond the last token that the host has read. Large enough to keep the device busy
/// while the host prints or is descheduled for some milliseconds. At most this many steps are wasted by a stop.
pub const MAX_STEPS_AHEAD: u32 = 8;

/// Waiting strategy of a poll loop: spin, then yield to other threads, then sleep between polls.
pub(crate) struct Backoff {
    since: Instant,
}

/// Kind of pause between two polls.
#[derive(PartialEq, Eq)]
pub(crate) enum Pause {
    Short,
    /// Pause long enough to ask the device for its state, which costs more than polling for the token.
    Long,
}

impl Backoff {
    /// Time spent spinning. A yield could take longer than this.
    const SPIN: Duration = Duration::from_micros(20);
    /// Time after which the thread sleeps instead of yielding. Most steps take less.
    const YIELD: Duration = Duration::from_millis(3);
    /// Time between polls while sleeping, much less than [`MAX_STEPS_AHEAD`] steps of that length take.
    const SLEEP: Duration = Duration::from_micros(50);

    pub fn new() -> Backoff {
        Backoff { since: Instant::now() }
    }

    /// Time since the loop began.
    pub fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Pauses between two polls; pauses grow with the time since the loop began.
    pub fn pause(&self) -> Pause {
        let waited = self.waited();
        if waited < Backoff::SPIN {
            spin_loop();
        } else if waited < Backoff::YIELD {
            thread::yield_now();
        } else {
            thread::sleep(Backoff::SLEEP);
            return Pause::Long;
        }
        Pause::Short
    }
}
