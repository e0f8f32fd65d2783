//! Detection of loops in which a warp waits for other threads.

#[cfg(test)]
mod tests;

/// Maximum number of strong loads and atomic operations in a loop that waits.
const LOOP: usize = 8;

/// The last strong loads and atomic operations of a warp.
///
/// Times count these operations from 1.
#[derive(Debug, Default)]
pub(super) struct Polls {
    last: Vec<Poll>,
    now: u64,
    /// Time of the last operation that returned something else than before at its instruction.
    news: u64,
    /// Time of the last operation that ended the warp's turn.
    yielded: u64,
}

/// The last execution of an instruction.
#[derive(Debug)]
struct Poll {
    pc: usize,
    /// The value that it returned to its first lane.
    value: u64,
    time: u64,
}

impl Polls {
    /// Forgets all operations.
    pub fn clear(&mut self) {
        self.last.clear();
        (self.now, self.news, self.yielded) = (0, 0, 0);
    }

    /// Records that the instruction at `pc` returned `value`. Returns whether the warp should yield: since the last execution of that
    /// instruction no operation has returned anything new, nor yielded, so the warp probably waits in a loop.
    pub fn record(&mut self, pc: usize, value: u64) -> bool {
        self.now += 1;
        let Some(poll) = self.last.iter_mut().find(|poll| poll.pc == pc) else {
            self.news = self.now;
            if self.last.len() == LOOP {
                let oldest = (0..LOOP).min_by_key(|&index| self.last[index].time);
                self.last.swap_remove(oldest.unwrap_or(0));
            }
            self.last.push(Poll { pc, value, time: self.now });
            return false;
        };
        let before = std::mem::replace(&mut poll.time, self.now);
        if std::mem::replace(&mut poll.value, value) != value {
            self.news = self.now;
        }
        let yields = self.news <= before && self.yielded <= before;
        if yields {
            self.yielded = self.now;
        }
        yields
    }
}
