//! Bytes of shared memory that ordinary accesses must not use.

use super::copy::AsyncCopy;
use crate::memory::InitMap;

/// What reserves a byte of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservedBy {
    Mbarrier,
    /// The copy issued at this instruction writes the byte.
    CopyTarget(usize),
    /// The copy issued at this instruction reads the byte.
    CopySource(usize),
    /// The `wgmma` issued at this instruction reads the byte.
    Wgmma(usize),
}

/// Granularity of reservations in bytes: the size of the smallest copy.
const UNIT: u64 = 4;

/// Bitmap of reserved shared memory, one bit per 4 bytes; empty until the first reservation.
#[derive(Default)]
pub(crate) struct Reservations(Vec<u64>);

impl Reservations {
    /// Removes all reservations.
    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Whether the bitmap is empty: neither this cluster nor an earlier cluster has reserved a byte.
    #[inline(always)]
    pub(crate) fn unused(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any byte of a range is reserved. The range may reach past the end.
    #[inline(always)]
    pub(crate) fn any(&self, address: u64, bytes: u64) -> bool {
        !self.0.is_empty() && units(address, bytes).any(|(word, mask)| self.0[word] & mask != 0)
    }

    fn set(&mut self, address: u64, bytes: u64, value: bool) {
        for (word, mask) in units(address, bytes) {
            self.0[word] = if value { self.0[word] | mask } else { self.0[word] & !mask };
        }
    }
}

/// Indices of the bitmap words that cover a range of addresses, each with a mask of the range's bits in the word.
#[inline(always)]
fn units(address: u64, bytes: u64) -> impl Iterator<Item = (usize, u64)> {
    let (first, end) = (address / UNIT, (address + bytes).div_ceil(UNIT));
    (first / 64..end.div_ceil(64)).map(move |word| {
        let low = first.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word as usize, (u64::MAX << low) & (u64::MAX >> (64 - high)))
    })
}

/// Reservations and initialisation of a cluster's shared memory.
pub(crate) struct Reserved<'a> {
    pub(crate) bytes: u64,
    pub(crate) map: &'a InitMap,
    pub(crate) reservations: &'a mut Reservations,
    /// Whether memory is checked; nothing is reserved otherwise.
    pub(crate) checks: bool,
    /// Receives completed copies, if races are checked.
    pub(crate) completed: Option<&'a mut Vec<AsyncCopy>>,
}

impl Reserved<'_> {
    /// Forbids writes to a range. With `uninitialised`, reads of the range are findings as well.
    pub(crate) fn reserve(&mut self, address: u64, bytes: u64, uninitialised: bool) {
        if !self.checks {
            return;
        }
        if self.reservations.unused() {
            self.reservations.0 = vec![0; self.bytes.div_ceil(UNIT * 64) as usize];
        }
        self.reservations.set(address, bytes, true);
        if uninitialised {
            self.map.unmark(address, bytes);
        }
    }

    /// Ends the reservation of a range, which counts as initialised if `written`.
    pub(crate) fn release(&mut self, address: u64, bytes: u64, written: bool) {
        if !self.checks {
            return;
        }
        self.reservations.set(address, bytes, false);
        if written {
            self.map.mark(address, bytes);
        }
    }

    /// Performs a copy and ends the reservations of its source and target.
    pub(super) fn complete(&mut self, copy: &AsyncCopy) {
        copy.execute();
        self.release(copy.shared, copy.bytes as u64, copy.into_shared);
        if let Some(from) = copy.from_shared {
            self.release(from, copy.bytes as u64, false);
        }
        if let Some(completed) = &mut self.completed {
            completed.push(copy.clone());
        }
    }
}
