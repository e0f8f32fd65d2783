//! mbarrier objects.

/// Upper bound of an mbarrier's arrival count, and of the absolute value of its transaction count.
pub(crate) const MAX_COUNT: u32 = (1 << 20) - 1;
/// Size of an mbarrier object in bytes, and its alignment.
pub(crate) const MBARRIER_BYTES: u64 = 8;

/// An mbarrier object.
#[derive(Clone, Debug)]
pub(crate) struct Mbarrier {
    pub(crate) address: u64,
    /// Number of completed phases; its lowest bit is the parity of the current phase.
    pub(crate) phase: u64,
    /// Arrivals that the next phase needs.
    expected: u32,
    /// Arrivals that the current phase still needs.
    pub(crate) pending: u32,
    /// Transaction count of the current phase: bytes expected minus bytes copied.
    pub(crate) transactions: i64,
    /// Whether a thread that arrived had executed `griddepcontrol.wait`.
    pub(crate) waited: bool,
}

/// The phase whose completion a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The current or the previous phase, whichever has this parity.
    Parity(u32),
    /// The phase in which an arrival returned this state.
    State(u64),
}

impl Mbarrier {
    /// Initialises an mbarrier; a phase completes after `count` arrivals.
    pub(super) fn new(address: u64, count: u32) -> Mbarrier {
        Mbarrier { address, phase: 0, expected: count, pending: count, transactions: 0, waited: false }
    }

    /// The opaque state that arrivals return: phase and pending arrivals.
    pub(crate) fn state(&self) -> u64 {
        self.phase << 20 | self.pending as u64
    }

    /// The pending count in a [`Mbarrier::state`].
    pub(crate) fn pending_in(state: u64) -> u32 {
        state as u32 & MAX_COUNT
    }

    fn complete_if_done(&mut self) {
        if self.pending == 0 && self.transactions == 0 {
            self.phase += 1;
            self.pending = self.expected;
        }
    }

    /// Arrives `count` times; `drop` also lowers the arrival count of later phases.
    pub(crate) fn arrive(&mut self, count: u32, drop: bool) -> Result<(), String> {
        if count == 0 || count > self.pending {
            return Err(format!(
                "{count} arrivals at an mbarrier whose phase {} has {} of {} arrivals pending",
                self.phase, self.pending, self.expected
            ));
        }
        self.pending -= count;
        self.expected -= if drop { count } else { 0 };
        self.complete_if_done();
        Ok(())
    }

    /// Increments the number of arrivals that the current phase still needs.
    pub(crate) fn add_pending_arrival(&mut self) -> Result<(), String> {
        if self.pending == MAX_COUNT {
            return Err(format!("more than {MAX_COUNT} arrivals pending at an mbarrier"));
        }
        self.pending += 1;
        Ok(())
    }

    /// Whether `count` arrivals would complete the phase.
    pub(crate) fn would_complete(&self, count: u32) -> bool {
        self.pending <= count && self.transactions == 0
    }

    /// Adds to the transaction count: positive for bytes expected, negative for bytes copied.
    pub(crate) fn add_transactions(&mut self, bytes: i64) -> Result<(), String> {
        let total = self.transactions + bytes;
        if total.unsigned_abs() > MAX_COUNT as u64 {
            return Err(format!("an mbarrier's transaction count of {total} bytes exceeds ±{MAX_COUNT}"));
        }
        self.transactions = total;
        if bytes < 0 {
            self.complete_if_done();
        }
        Ok(())
    }

    /// Whether an awaited phase is complete.
    pub(crate) fn is_complete(&self, awaited: Awaited) -> Result<bool, String> {
        match awaited {
            Awaited::Parity(parity) => Ok(self.phase as u32 & 1 != parity),
            Awaited::State(state) => match self.phase.checked_sub(state >> 20) {
                Some(since @ 0..=1) => Ok(since == 1),
                _ => Err(format!(
                    "a wait with the state of phase {} at an mbarrier in phase {}: only the current phase and the \
                     previous one can be waited for",
                    state >> 20,
                    self.phase
                )),
            },
        }
    }
}
