//! Detection of polling loops: a warp that waits for other threads.

#[cfg(test)]
mod tests;

/// Maximum number of strong loads and atomic operations of a polling loop.
const LOOP: usize = 8;

/// The last strong loads and atomic operations of a warp.
///
/// Times count these operations from 1.
#[derive(Debug, Default)]
pub(super) struct Polls {
    last: Vec<Poll>,
    now: u64,
    /// Time of the last operation whose value differed from the previous one of its instruction, or that had no previous one.
    last_change: u64,
    /// Time of the last operation that ended the warp's turn.
    last_yield: u64,
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
        (self.now, self.last_change, self.last_yield) = (0, 0, 0);
    }

    /// Records that the instruction at `pc` returned `value`. Returns whether the warp should yield: no value has changed since the
    /// previous execution of this instruction, and the warp has not yielded since then. It probably polls in a loop.
    pub fn record(&mut self, pc: usize, value: u64) -> bool {
        self.now += 1;
        let Some(poll) = self.last.iter_mut().find(|poll| poll.pc == pc) else {
            self.last_change = self.now;
            if self.last.len() == LOOP {
                let oldest = (0..LOOP).min_by_key(|&index| self.last[index].time);
                self.last.swap_remove(oldest.unwrap_or(0));
            }
            self.last.push(Poll { pc, value, time: self.now });
            return false;
        };
        let before = std::mem::replace(&mut poll.time, self.now);
        if std::mem::replace(&mut poll.value, value) != value {
            self.last_change = self.now;
        }
        let yields = self.last_change <= before && self.last_yield <= before;
        if yields {
            self.last_yield = self.now;
        }
        yields
    }
}
