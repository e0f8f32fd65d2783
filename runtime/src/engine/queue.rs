//! Decoding with the host behind the device: steps are enqueued before the tokens of earlier ones are known.
//!
//! A step needs nothing from the host, so the device never has to wait for it: up to [`AHEAD`] steps are under way
//! while the host reads the tokens that became known, prints them and decides whether to stop. It learns of a token
//! by looking at the word of host-visible memory that the step's last launch writes; no call waits for the device.
//! Whoever stops early leaves steps behind whose tokens nobody asks for: the next start of a sequence runs after them.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

use super::EngineError;

/// Steps that may be under way beyond the last token taken. Enough for the device to go on while the host prints or
/// is not scheduled for some milliseconds; what a stop wastes is at most this.
pub const AHEAD: u32 = 8;

/// Where decoding is, by positions of the sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Tokens that the prompt gives: positions below this are not chosen.
    pub given: u32,
    /// Steps enqueued: the position that the next one processes.
    pub enqueued: u32,
    /// The position of the last token taken, or seen as part of the prompt.
    pub taken: u32,
}

/// What [`Tokens`] drives: steps, each of which makes the token of the position after its own known.
pub trait Steps {
    /// Where decoding is. [`Tokens`] moves `taken`.
    fn place(&mut self) -> &mut Place;

    /// Enqueues the step of position `enqueued`, and moves that on. Does not wait.
    fn enqueue(&mut self) -> Result<(), EngineError>;

    /// The token at a position, if it is known.
    fn known(&self, position: u32) -> Result<Option<u32>, EngineError>;

    /// Whether the device has yet to finish what was enqueued; an error if a kernel faulted. Does not wait.
    fn busy(&self) -> Result<bool, EngineError>;

    /// Told that the prompt's token at a position went by.
    fn given(&mut self, _position: u32) {}
}

impl<S: Steps> Steps for &mut S {
    fn place(&mut self) -> &mut Place {
        (**self).place()
    }
    fn enqueue(&mut self) -> Result<(), EngineError> {
        (**self).enqueue()
    }
    fn known(&self, position: u32) -> Result<Option<u32>, EngineError> {
        (**self).known(position)
    }
    fn busy(&self) -> Result<bool, EngineError> {
        (**self).busy()
    }
    fn given(&mut self, position: u32) {
        (**self).given(position);
    }
}

/// The tokens that a model chooses, as they become known. Dropped early, it loses nothing: the next one for the same
/// steps goes on where it ended.
pub struct Tokens<S> {
    steps: S,
    /// The position of the last token to take.
    last: u32,
}

impl<S: Steps> Tokens<S> {
    /// The next `n` tokens that are chosen, not given. Steps are enqueued by [`Iterator::next`] alone.
    pub fn new(mut steps: S, n: u32) -> Tokens<S> {
        let place = steps.place();
        let before_first = place.taken.max(place.given.saturating_sub(1));
        Tokens { steps, last: before_first.saturating_add(n) }
    }

    /// Takes the token after the last one taken.
    fn take(&mut self) -> Result<(u32, Place), EngineError> {
        let position = self.steps.place().taken + 1;
        // One step for the token that is taken now keeps the number under way; more only while the host would have to
        // wait anyway. A device that runs steps as they are enqueued is never ahead.
        while self.may_enqueue() {
            self.steps.enqueue()?;
            if self.steps.known(position)?.is_some() {
                break;
            }
        }
        let token = self.wait_for(position)?;
        let place = self.steps.place();
        place.taken = position;
        Ok((token, *place))
    }

    fn may_enqueue(&mut self) -> bool {
        let place = self.steps.place();
        place.enqueued < self.last && place.enqueued - place.taken < AHEAD
    }

    /// Looks at the token's word until it is there. A fault of the device is an error, and so is a device that has
    /// nothing left to do and has not written it.
    fn wait_for(&self, position: u32) -> Result<u32, EngineError> {
        let patience = Patience::new();
        loop {
            if let Some(token) = self.steps.known(position)? {
                return Ok(token);
            }
            if patience.is_over() && !self.steps.busy()? {
                // It may have become known between the two questions.
                return self.steps.known(position)?.ok_or(EngineError::NoToken { position });
            }
        }
    }
}

impl<S: Steps> Iterator for Tokens<S> {
    type Item = Result<u32, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.steps.place().taken < self.last {
            match self.take() {
                // The prompt's tokens become known as well.
                Ok((_, place)) if place.taken < place.given => self.steps.given(place.taken),
                Ok((token, _)) => return Some(Ok(token)),
                Err(error) => {
                    self.last = 0;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// How long the host has looked for a token: first it only looks again, then it lets other threads run, then it
/// sleeps between looks, with the device working through its queue meanwhile.
struct Patience {
    since: Instant,
}

impl Patience {
    /// Until here it looks again at once: another thread's turn could take longer.
    const SPIN: Duration = Duration::from_micros(20);
    /// Until here it gives way to other threads. Most steps take less.
    const YIELD: Duration = Duration::from_millis(3);
    /// Between looks from then on; far less than what [`AHEAD`] such steps take.
    const SLEEP: Duration = Duration::from_micros(50);

    fn new() -> Patience {
        Patience { since: Instant::now() }
    }

    /// Gives the device time. Returns whether it has had so much that it should be asked too, which costs more than a
    /// look.
    fn is_over(&self) -> bool {
        let waited = self.since.elapsed();
        if waited < Patience::SPIN {
            spin_loop();
        } else if waited < Patience::YIELD {
            thread::yield_now();
        } else {
            thread::sleep(Patience::SLEEP);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::device;

    /// A device of which every look at a token that is not known finishes `speed` steps: 0 is a device that hangs on
    /// to its work, and `fails` one that loses it. The token at position `p` is `100 + p`.
    struct Fake {
        place: Place,
        finished: Cell<u32>,
        speed: u32,
        most_ahead: u32,
        fails: bool,
        forgets: bool,
        told: Vec<u32>,
    }

    fn fake(prompt: u32, speed: u32) -> Fake {
        Fake {
            place: Place { given: prompt, ..Place::default() },
            finished: Cell::new(0),
            speed,
            most_ahead: 0,
            fails: false,
            forgets: false,
            told: Vec::new(),
        }
    }

    impl Steps for Fake {
        fn place(&mut self) -> &mut Place {
            &mut self.place
        }
        fn enqueue(&mut self) -> Result<(), EngineError> {
            self.place.enqueued += 1;
            self.most_ahead = self.most_ahead.max(self.place.enqueued - self.place.taken);
            Ok(())
        }
        fn known(&self, position: u32) -> Result<Option<u32>, EngineError> {
            if position <= self.finished.get() {
                return Ok(Some(100 + position));
            }
            if !self.fails && !self.forgets {
                self.finished.set((self.finished.get() + self.speed).min(self.place.enqueued));
            }
            Ok(None)
        }
        fn busy(&self) -> Result<bool, EngineError> {
            if self.fails {
                return Err(device::Error::Access("the kernel faulted".to_owned()).into());
            }
            Ok(!self.forgets)
        }
        fn given(&mut self, position: u32) {
            self.told.push(position);
        }
    }

    fn tokens(steps: &mut Fake, n: u32) -> Vec<u32> {
        Tokens::new(steps, n).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn tokens_after_the_prompt_come_in_order() {
        for (prompt, n) in [(1, 1), (1, 20), (3, 5), (30, 1), (30, 30), (5, 0)] {
            for speed in [1, 3, 100] {
                let mut steps = fake(prompt, speed);
                let expected: Vec<u32> = (0..n).map(|i| 100 + prompt + i).collect();
                assert_eq!(tokens(&mut steps, n), expected, "prompt {prompt}, n {n}, speed {speed}");
                // The last token needs no step of its own, and a prompt without a token after it none at all but
                // those that make it known.
                assert_eq!(steps.place.enqueued, prompt + n - 1);
                assert!(steps.most_ahead <= AHEAD);
                assert_eq!(
                    steps.told,
                    (1..prompt).collect::<Vec<_>>(),
                    "every token of the prompt goes by once"
                );
            }
        }
    }

    #[test]
    fn a_slow_device_is_kept_busy_and_a_fast_one_is_not_ahead() {
        let mut slow = fake(2, 1);
        tokens(&mut slow, 40);
        assert_eq!(slow.most_ahead, AHEAD);

        /// Runs steps as they are enqueued.
        struct Immediate(Fake);
        impl Steps for Immediate {
            fn place(&mut self) -> &mut Place {
                &mut self.0.place
            }
            fn enqueue(&mut self) -> Result<(), EngineError> {
                self.0.enqueue()?;
                self.0.finished.set(self.0.place.enqueued);
                Ok(())
            }
            fn known(&self, position: u32) -> Result<Option<u32>, EngineError> {
                self.0.known(position)
            }
            fn busy(&self) -> Result<bool, EngineError> {
                Ok(false)
            }
        }
        let mut immediate = Immediate(fake(2, 0));
        let mut tokens = Tokens::new(&mut immediate, 40);
        assert_eq!(tokens.next().unwrap().unwrap(), 102);
        assert_eq!(tokens.nth(3).unwrap().unwrap(), 106);
        assert_eq!((immediate.0.most_ahead, immediate.0.place.enqueued), (1, 6));
    }

    #[test]
    fn who_stops_early_goes_on_without_a_loss() {
        let mut steps = fake(3, 1);
        let first: Vec<u32> = Tokens::new(&mut steps, 50).take(4).map(Result::unwrap).collect();
        assert_eq!(first, [103, 104, 105, 106]);
        assert!(steps.place.enqueued > steps.place.taken, "nothing was under way");
        assert_eq!(tokens(&mut steps, 3), [107, 108, 109]);
    }

    #[test]
    fn a_fault_ends_the_wait() {
        let mut steps = Fake { fails: true, ..fake(1, 1) };
        let mut tokens = Tokens::new(&mut steps, 5);
        assert_eq!(tokens.next().unwrap().unwrap_err().to_string(), "the kernel faulted");
        assert!(tokens.next().is_none());
    }

    #[test]
    fn an_idle_device_without_the_token_ends_the_wait() {
        let mut steps = Fake { forgets: true, ..fake(4, 1) };
        let error = Tokens::new(&mut steps, 5).next().unwrap().unwrap_err();
        assert!(matches!(error, EngineError::NoToken { position: 1 }), "{error}");
    }
}
