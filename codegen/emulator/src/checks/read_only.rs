//! Bytes of global memory that a launch reads with `ld.global.nc`, and bytes that it writes.
//!
//! `.nc` reads through a cache that is not coherent with writes, so the bytes must not change while the kernel runs. A write by
//! the same launch is a finding whether it is ordered with the read or not. Only kernels with `ld.global.nc` are checked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes of a block, the unit for which accesses are recorded: one bit per byte.
const BLOCK: u64 = 128;

/// Instruction and thread of an access.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct AccessedBy {
    /// Position of the thread's cluster in the grid.
    pub(crate) cluster: u64,
    /// Number of the thread in its cluster.
    pub(crate) thread: u32,
    pub(crate) pc: u32,
}

/// A read with `.nc` and a write of the same byte, in the order in which they were recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReadOnlyConflict {
    /// Address of the first such byte.
    pub(crate) address: u64,
    pub(crate) earlier: AccessedBy,
    pub(crate) later: AccessedBy,
    /// Whether the later access is the write.
    pub(crate) writes: bool,
}

/// Accesses of one block: for reads with `.nc` and for writes, the bytes and the first access.
#[derive(Clone, Copy, Default)]
struct Block {
    read: (u128, AccessedBy),
    written: (u128, AccessedBy),
}

impl Block {
    /// Adds accesses of the bytes of a mask. Returns the first byte, with the earlier access, that is both read and written.
    fn add(&mut self, bytes: u128, writes: bool, by: AccessedBy) -> Option<(u32, AccessedBy)> {
        let (own, other) =
            if writes { (&mut self.written, self.read) } else { (&mut self.read, self.written) };
        if own.0 == 0 {
            own.1 = by;
        }
        own.0 |= bytes;
        let both = bytes & other.0;
        (both != 0).then(|| (both.trailing_zeros(), other.1))
    }
}

/// Reads with `.nc` and writes of a cluster.
#[derive(Default)]
pub(crate) struct ReadOnlyAccesses(HashMap<u64, Block>);

impl ReadOnlyAccesses {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records an access of a range. Returns a conflict with an earlier access.
    pub(crate) fn record(
        &mut self,
        (address, bytes): (u64, u64),
        writes: bool,
        by: AccessedBy,
    ) -> Option<ReadOnlyConflict> {
        let (mut conflict, end) = (None, address + bytes);
        for block in address / BLOCK..end.div_ceil(BLOCK) {
            let first = address.saturating_sub(block * BLOCK);
            let last = (end - block * BLOCK).min(BLOCK);
            let mask = (u128::MAX << first) & (u128::MAX >> (BLOCK - last));
            let found = self.0.entry(block).or_default().add(mask, writes, by);
            conflict = conflict.or_else(|| {
                let (byte, earlier) = found?;
                let address = block * BLOCK + u64::from(byte);
                Some(ReadOnlyConflict { address, earlier, later: by, writes })
            });
        }
        conflict
    }
}

/// Reads with `.nc` and writes of the clusters of a launch that have ended.
#[derive(Default)]
pub(crate) struct ReadOnlyGrid(Mutex<ReadOnlyAccesses>);

impl ReadOnlyGrid {
    /// Adds the accesses of a cluster that ends. Returns a conflict with a cluster that ended before.
    pub(crate) fn merge(&self, cluster: &ReadOnlyAccesses) -> Option<ReadOnlyConflict> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut first: Option<ReadOnlyConflict> = None;
        for (&number, block) in &cluster.0 {
            let known = all.0.entry(number).or_default();
            for ((bytes, later), writes) in [(block.read, false), (block.written, true)] {
                if bytes == 0 {
                    continue;
                }
                let Some((byte, earlier)) = known.add(bytes, writes, later) else { continue };
                let conflict =
                    ReadOnlyConflict { address: number * BLOCK + u64::from(byte), earlier, later, writes };
                // The order of a hash table must not decide which finding is reported.
                if earlier.cluster != later.cluster
                    && first.is_none_or(|first| conflict.address < first.address)
                {
                    first = Some(conflict);
                }
            }
        }
        first
    }
}
