//! Bytes of global memory that a launch reads with `ld.global.nc`, and bytes that it writes.
//!
//! `.nc` reads through a cache that is not coherent with writes, so the bytes must not change while the kernel runs. A write by
//! the same launch is a finding whether it is ordered with the read or not. Only kernels with `ld.global.nc` are checked.

use std::sync::{Mutex, PoisonError};

use super::races::{LaneAddresses, PageMap};
use crate::lanes::lanes_of;

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
    /// Adds accesses of the bytes of a mask; `by` is the access of its first byte. Returns the first byte, with the earlier
    /// access, that is both read and written.
    fn add(
        &mut self,
        bytes: u128,
        writes: bool,
        by: impl FnOnce() -> AccessedBy,
    ) -> Option<(u32, AccessedBy)> {
        let (own, other) =
            if writes { (&mut self.written, self.read) } else { (&mut self.read, self.written) };
        if own.0 == 0 {
            own.1 = by();
        }
        own.0 |= bytes;
        let both = bytes & other.0;
        (both != 0).then(|| (both.trailing_zeros(), other.1))
    }
}

/// Reads with `.nc` and writes of a cluster.
#[derive(Default)]
pub(crate) struct ReadOnlyAccesses(PageMap<Block>);

impl ReadOnlyAccesses {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records an access of a range; `by` is the access of the byte at an address. Returns a conflict with an earlier access.
    pub(crate) fn record(
        &mut self,
        (address, bytes): (u64, u64),
        writes: bool,
        by: impl Fn(u64) -> AccessedBy,
    ) -> Option<ReadOnlyConflict> {
        let end = address + bytes;
        let mut conflict = None;
        for block in address / BLOCK..end.div_ceil(BLOCK) {
            let first = address.saturating_sub(block * BLOCK);
            let last = (end - block * BLOCK).min(BLOCK);
            let found = self.record_block(block, bytes_between(first, last), writes, &by);
            conflict = conflict.or(found);
        }
        conflict
    }

    /// Records an access of `bytes` bytes by each of `lanes`; `by` is the access of a lane. Returns a conflict with an earlier
    /// access.
    ///
    /// Adjacent lanes often access the same block, so their bytes are combined before the block is looked up.
    pub(crate) fn record_lanes(
        &mut self,
        lanes: u32,
        (addresses, bytes): (&LaneAddresses<'_>, u64),
        writes: bool,
        by: impl Fn(usize) -> AccessedBy,
    ) -> Option<ReadOnlyConflict> {
        let addresses = match *addresses {
            LaneAddresses::Run(start) => {
                let range = (start, bytes * u64::from(lanes.count_ones()));
                return self.record(range, writes, |address| by(((address - start) / bytes) as usize));
            }
            LaneAddresses::Same(address) => {
                let first = lanes.trailing_zeros() as usize;
                return self.record((address, bytes), writes, |_| by(first));
            }
            LaneAddresses::Each(addresses) => addresses,
        };
        let of_byte = |byte: u64| {
            let accesses = |lane: &usize| byte.wrapping_sub(addresses[*lane]) < bytes;
            by(lanes_of(lanes).find(accesses).unwrap_or_default())
        };
        let (mut conflict, mut combined) = (None, (0, 0));
        for lane in lanes_of(lanes) {
            let (mut address, end) = (addresses[lane], addresses[lane] + bytes);
            while address < end {
                let block = address / BLOCK;
                let last = end.min((block + 1) * BLOCK);
                let mask = bytes_between(address - block * BLOCK, last - block * BLOCK);
                if block != combined.0 {
                    conflict =
                        conflict.or_else(|| self.record_block(combined.0, combined.1, writes, &of_byte));
                    combined = (block, 0);
                }
                combined.1 |= mask;
                address = last;
            }
        }
        conflict.or_else(|| self.record_block(combined.0, combined.1, writes, &of_byte))
    }

    /// Records an access of bytes of a block.
    fn record_block(
        &mut self,
        block: u64,
        bytes: u128,
        writes: bool,
        by: &impl Fn(u64) -> AccessedBy,
    ) -> Option<ReadOnlyConflict> {
        if bytes == 0 {
            return None;
        }
        let address = |byte: u32| block * BLOCK + u64::from(byte);
        let first = || by(address(bytes.trailing_zeros()));
        let (byte, earlier) = self.0.entry(block).or_default().add(bytes, writes, first)?;
        Some(ReadOnlyConflict { address: address(byte), earlier, later: by(address(byte)), writes })
    }
}

/// Mask of the bytes of a block from `first` to before `last`, which is greater.
fn bytes_between(first: u64, last: u64) -> u128 {
    (u128::MAX << first) & (u128::MAX >> (BLOCK - last))
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
                let Some((byte, earlier)) = known.add(bytes, writes, || later) else { continue };
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
