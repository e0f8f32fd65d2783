//! Decoding with steps enqueued ahead of the host.
//!
//! A step needs no input from the host, so the device never has to wait for it: up to [`MAX_STEPS_AHEAD`] steps are in
//! flight while the host reads earlier tokens, prints them and decides whether to stop. The last launch of a step
//! writes its token to host-visible memory, which the host polls; no call blocks. If the caller stops early, enqueued
//! steps still run and their tokens are discarded; the next start of a sequence is ordered after them.

use std::hint::spin_loop;
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use super::EngineError;

/// Largest number of steps in flight beyond the last token that the host has read. Large enough to keep the device busy
/// while the host prints or is descheduled for some milliseconds. At most this many steps are wasted by a stop.
pub const MAX_STEPS_AHEAD: u32 = 8;

/// Progress of a sequence, in positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeCursor {
    /// Length of the prompt: tokens at smaller positions are given, not chosen.
    pub prompt: u32,
    /// Number of steps enqueued; the next step processes this position.
    pub enqueued: u32,
    /// Position of the last token that the host has read, prompt tokens included.
    pub read: u32,
}

/// A queue of decode steps, driven by [`Tokens`]. The step at a position produces the token at the next one.
pub trait StepQueue {
    /// The sequence's progress, for reading and updating. [`Tokens`] advances `DecodeCursor::read`;
    /// `StepQueue::enqueue` advances `DecodeCursor::enqueued`.
    fn cursor(&mut self) -> &mut DecodeCursor;

    /// Enqueues the step at position `enqueued`, and advances `enqueued`. Does not block.
    fn enqueue(&mut self) -> Result<(), EngineError>;

    /// Token at a position; `None` if the device has not written the token yet.
    fn token_at(&self, position: u32) -> Result<Option<u32>, EngineError>;

    /// Whether enqueued work is unfinished after the caller has waited for a token for `waited`; an error if a kernel
    /// faulted or hangs. Does not block.
    fn busy(&self, waited: Duration) -> Result<bool, EngineError>;

    /// Largest number of steps beyond the last token that was read: one if a step is complete when it is enqueued, since further
    /// ones would only delay the token, and are wasted by a stop.
    fn most_ahead(&self) -> u32 {
        MAX_STEPS_AHEAD
    }

    /// Called when the device has become idle without writing a token.
    fn token_lost(&mut self) {}

    /// Adds what can be found out about an error of [`StepQueue::token_at`], which ends the iterator. Nothing by default.
    fn explain(&mut self, error: EngineError) -> EngineError {
        error
    }

    /// Called when the prompt token at `_position` has been processed; a break ends the iterator. Continues by default.
    fn prompt_token_done(&mut self, _position: u32) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Iterator over the tokens that a model chooses. Dropping the iterator early loses no token: the next iterator over
/// the same queue continues after the last token read.
pub struct Tokens<S> {
    queue: S,
    /// Position of the last token that the iterator returns.
    last: u32,
}

impl<S: StepQueue> Tokens<S> {
    /// The next `n` chosen tokens. Only [`Iterator::next`] enqueues steps.
    pub fn new(mut queue: S, n: u32) -> Tokens<S> {
        let cursor = queue.cursor();
        let before_first = cursor.read.max(cursor.prompt.saturating_sub(1));
        Tokens { queue, last: before_first.saturating_add(n) }
    }

    /// The queue, for another iterator.
    pub fn into_queue(self) -> S {
        self.queue
    }

    /// Reads the token after the last one read.
    fn read_next(&mut self) -> Result<(u32, DecodeCursor), EngineError> {
        let position = self.queue.cursor().read + 1;
        // One step replaces the step whose token is read now. More are enqueued only while that token is not there yet,
        // when the host would have to wait anyway; so a device that runs steps synchronously is at most one step ahead.
        while self.may_enqueue() {
            self.queue.enqueue()?;
            if self.queue.token_at(position)?.is_some() {
                break;
            }
        }
        let token = self.wait_for(position)?;
        let cursor = self.queue.cursor();
        cursor.read = position;
        Ok((token, *cursor))
    }

    fn may_enqueue(&mut self) -> bool {
        let most_ahead = self.queue.most_ahead();
        let cursor = self.queue.cursor();
        cursor.enqueued < self.last && cursor.enqueued - cursor.read < most_ahead
    }

    /// Polls for the token at a position. A device that faults or hangs is an error, and so is an idle device that has
    /// not written the token.
    fn wait_for(&mut self, position: u32) -> Result<u32, EngineError> {
        let backoff = Backoff::new();
        loop {
            if let Some(token) = self.queue.token_at(position)? {
                return Ok(token);
            }
            if backoff.pause() == Pause::Long && !self.queue.busy(backoff.waited())? {
                // The token may have been written between the two calls.
                return self.queue.token_at(position)?.ok_or_else(|| {
                    self.queue.token_lost();
                    EngineError::NoToken { position }
                });
            }
        }
    }
}

impl<S: StepQueue> Iterator for Tokens<S> {
    type Item = Result<u32, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.queue.cursor().read < self.last {
            match self.read_next() {
                Ok((_, cursor)) if cursor.read < cursor.prompt => {
                    if self.queue.prompt_token_done(cursor.read).is_break() {
                        self.last = 0;
                    }
                }
                Ok((token, _)) => return Some(Ok(token)),
                Err(error) => {
                    self.last = 0;
                    return Some(Err(self.queue.explain(error)));
                }
            }
        }
        None
    }
}

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

    /// Pauses, for longer the longer the loop has waited.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::device;

    /// A device that finishes `speed` steps at every poll for a token that is not written yet. The token at position
    /// `p` is `100 + p`.
    struct Fake {
        cursor: DecodeCursor,
        finished: Cell<u32>,
        speed: u32,
        most_ahead: u32,
        /// Whether every kernel faults.
        faults: bool,
        /// Whether the device becomes idle without writing tokens.
        loses_tokens: bool,
        prompt_tokens_done: Vec<u32>,
        /// Position within the prompt at which the caller ends generation.
        breaks_at: Option<u32>,
    }

    fn fake(prompt: u32, speed: u32) -> Fake {
        Fake {
            cursor: DecodeCursor { prompt, ..DecodeCursor::default() },
            finished: Cell::new(0),
            speed,
            most_ahead: 0,
            faults: false,
            loses_tokens: false,
            prompt_tokens_done: Vec::new(),
            breaks_at: None,
        }
    }

    impl StepQueue for Fake {
        fn cursor(&mut self) -> &mut DecodeCursor {
            &mut self.cursor
        }
        fn enqueue(&mut self) -> Result<(), EngineError> {
            self.cursor.enqueued += 1;
            self.most_ahead = self.most_ahead.max(self.cursor.enqueued - self.cursor.read);
            Ok(())
        }
        fn token_at(&self, position: u32) -> Result<Option<u32>, EngineError> {
            if position <= self.finished.get() {
                return Ok(Some(100 + position));
            }
            if !self.faults && !self.loses_tokens {
                self.finished.set((self.finished.get() + self.speed).min(self.cursor.enqueued));
            }
            Ok(None)
        }
        fn busy(&self, _waited: Duration) -> Result<bool, EngineError> {
            if self.faults {
                return Err(device::Error::Access("the kernel faulted".to_owned()).into());
            }
            Ok(!self.loses_tokens)
        }
        fn prompt_token_done(&mut self, position: u32) -> ControlFlow<()> {
            self.prompt_tokens_done.push(position);
            if self.breaks_at == Some(position) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// The next `n` tokens, and the steps after them.
    fn tokens(steps: Fake, n: u32) -> (Vec<u32>, Fake) {
        let mut tokens = Tokens::new(steps, n);
        (tokens.by_ref().collect::<Result<_, _>>().unwrap(), tokens.into_queue())
    }

    #[test]
    fn tokens_after_the_prompt_come_in_order() {
        for (prompt, n) in [(1, 1), (1, 20), (3, 5), (30, 1), (30, 30), (5, 0)] {
            for speed in [1, 3, 100] {
                let (tokens, steps) = tokens(fake(prompt, speed), n);
                let expected: Vec<u32> = (0..n).map(|i| 100 + prompt + i).collect();
                assert_eq!(tokens, expected, "prompt {prompt}, n {n}, speed {speed}");
                // The last token is never processed by a step.
                assert_eq!(steps.cursor.enqueued, prompt + n - 1);
                assert!(steps.most_ahead <= MAX_STEPS_AHEAD);
                assert_eq!(
                    steps.prompt_tokens_done,
                    (1..prompt).collect::<Vec<_>>(),
                    "every prompt token is reported once"
                );
            }
        }
    }

    #[test]
    fn the_queue_is_full_on_a_slow_device_and_empty_on_a_fast_one() {
        let (_, slow) = tokens(fake(2, 1), 40);
        assert_eq!(slow.most_ahead, MAX_STEPS_AHEAD);

        /// A device that completes each step inside `enqueue`.
        struct Synchronous(Fake);
        impl StepQueue for Synchronous {
            fn cursor(&mut self) -> &mut DecodeCursor {
                &mut self.0.cursor
            }
            fn enqueue(&mut self) -> Result<(), EngineError> {
                self.0.enqueue()?;
                self.0.finished.set(self.0.cursor.enqueued);
                Ok(())
            }
            fn token_at(&self, position: u32) -> Result<Option<u32>, EngineError> {
                self.0.token_at(position)
            }
            fn busy(&self, _waited: Duration) -> Result<bool, EngineError> {
                Ok(false)
            }
        }
        let mut tokens = Tokens::new(Synchronous(fake(2, 0)), 40);
        assert_eq!(tokens.next().unwrap().unwrap(), 102);
        assert_eq!(tokens.nth(3).unwrap().unwrap(), 106);
        let synchronous = tokens.into_queue();
        assert_eq!((synchronous.0.most_ahead, synchronous.0.cursor.enqueued), (1, 6));
    }

    #[test]
    fn a_stopped_iterator_can_be_continued() {
        let mut stopped = Tokens::new(fake(3, 1), 50);
        let first: Vec<u32> = stopped.by_ref().take(4).map(Result::unwrap).collect();
        assert_eq!(first, [103, 104, 105, 106]);
        let steps = stopped.into_queue();
        assert!(steps.cursor.enqueued > steps.cursor.read, "no step is in flight");
        assert_eq!(tokens(steps, 3).0, [107, 108, 109]);
    }

    #[test]
    fn a_break_within_the_prompt_ends_the_iterator() {
        let (tokens, steps) = tokens(Fake { breaks_at: Some(3), ..fake(9, 1) }, 5);
        assert!(tokens.is_empty());
        assert_eq!((steps.cursor.read, &steps.prompt_tokens_done[..]), (3, &[1, 2, 3][..]));
    }

    #[test]
    fn a_fault_ends_the_wait() {
        let mut tokens = Tokens::new(Fake { faults: true, ..fake(1, 1) }, 5);
        assert_eq!(tokens.next().unwrap().unwrap_err().to_string(), "the kernel faulted");
        assert!(tokens.next().is_none());
    }

    #[test]
    fn an_idle_device_without_the_token_ends_the_wait() {
        let steps = Fake { loses_tokens: true, ..fake(4, 1) };
        let error = Tokens::new(steps, 5).next().unwrap().unwrap_err();
        assert!(matches!(error, EngineError::NoToken { position: 1 }), "{error}");
    }
}
