//! Ranges of global memory that bulk copies in flight write.
//!
//! A write is in flight until its thread has waited for the copy's group. Many kernels never do: they wait with `.read`
//! before they write the source again, and otherwise rely on the end of the kernel. So a cluster may have thousands of
//! writes in flight, and they are found by address.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pages::PageMap;
use super::ranges::{Ranges, overlap};
use super::stamp::Stamp;

/// Bytes of a block, the unit of the index by address.
const BLOCK: u64 = 1024;

/// A range of global memory that a bulk copy in flight writes.
pub(super) struct CopyTarget {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Stamp of the copy's issue.
    pub(super) issued: Stamp,
    /// Number of the copy's group among those of its thread.
    pub(super) group: u32,
    /// Address of the source in shared memory.
    pub(super) shared: u64,
    /// Whether the copy is a reduction, each of whose elements is updated atomically.
    pub(super) is_atomic: bool,
    /// The parts of the range that are copied, if not all of it is.
    pub(super) parts: Option<Arc<[(u64, u64)]>>,
}

impl CopyTarget {
    /// The ranges that the copy writes: address and size.
    pub(super) fn ranges(&self) -> Ranges<'_> {
        match &self.parts {
            Some(parts) => Ranges::Parts(parts),
            None => Ranges::One((self.address, self.bytes)),
        }
    }

    /// Whether both copies are by the same thread and instruction, and write the same bytes.
    fn writes_as(&self, other: &CopyTarget) -> bool {
        (self.issued.number(), self.issued.pc) == (other.issued.number(), other.issued.pc)
            && (self.address, self.bytes, self.is_atomic) == (other.address, other.bytes, other.is_atomic)
            && self.parts == other.parts
    }
}

/// Number of the thread that issued a copy, and position of the copy in the order of issue.
type Key = (usize, u64);

/// The keys of a thread.
fn keys_of(thread: usize) -> std::ops::RangeInclusive<Key> {
    (thread, 0)..=(thread, u64::MAX)
}

/// An entry of the index by address.
struct IndexedRange {
    range: (u64, u64),
    key: Key,
    issued: Stamp,
    is_atomic: bool,
}

/// Targets of the bulk copies of a cluster whose writes are in flight.
#[derive(Default)]
pub(super) struct CopyTargets {
    /// Targets whose sources no thread has waited for.
    unread: BTreeMap<Key, CopyTarget>,
    /// Targets whose sources have been read, by a wait with `.read`. No two of them write the same bytes by the same instruction
    /// of a thread: a kernel may add to the same sums in every iteration.
    read: BTreeMap<Key, CopyTarget>,
    /// Ranges of all targets, by the number of each block that they overlap.
    blocks: PageMap<Vec<IndexedRange>>,
    /// Number of copies issued so far.
    issued: u64,
}

impl CopyTargets {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.unread.clear();
        self.read.clear();
        self.blocks.clear();
    }

    /// Adds the target of a copy that a thread has issued.
    pub(super) fn add(&mut self, target: CopyTarget) {
        let key = (target.issued.number(), self.issued);
        self.issued += 1;
        let (issued, is_atomic) = (target.issued, target.is_atomic);
        for &range in target.ranges().as_slice() {
            for block in blocks_of(range) {
                let entry = IndexedRange { range, key, issued, is_atomic };
                self.blocks.entry(block).or_default().push(entry);
            }
        }
        self.unread.insert(key, target);
    }

    /// Whether a target that contains the byte at `address` is wanted, among those whose sources no thread has waited for.
    pub(super) fn has_unread(&self, address: u64, is_wanted: impl Fn(&CopyTarget) -> bool) -> bool {
        let entries = self.blocks.get(&(address / BLOCK)).into_iter().flatten();
        let mut targets = entries.filter_map(|entry| self.unread.get(&entry.key));
        targets.any(is_wanted)
    }

    /// Whether a target may overlap a range; always true for a long range.
    pub(super) fn may_overlap(&self, range: (u64, u64)) -> bool {
        let mut blocks = blocks_of(range);
        !self.is_empty()
            && (blocks.end - blocks.start > 8 || blocks.any(|block| self.blocks.contains_key(&block)))
    }

    /// Stamp of the earliest copy that an access of a range conflicts with.
    pub(super) fn find_conflict(&self, range: (u64, u64), is_atomic: bool) -> Option<Stamp> {
        if self.is_empty() {
            return None;
        }
        let entries = blocks_of(range).filter_map(|block| self.blocks.get(&block)).flatten();
        let conflicts =
            entries.filter(|entry| !(entry.is_atomic && is_atomic) && overlap(range, entry.range));
        conflicts.min_by_key(|entry| entry.key.1).map(|entry| entry.issued)
    }

    /// Records that the sources of a thread's copies in groups below `limit` have been read.
    pub(super) fn mark_read(&mut self, thread: usize, limit: u32) {
        for (key, target) in take_below(&mut self.unread, thread, limit) {
            if let Some(earlier) = self.find_read(&target)
                && let Some(earlier_target) = self.read.remove(&earlier)
            {
                self.remove_ranges(earlier, &earlier_target);
            }
            self.read.insert(key, target);
        }
    }

    /// Takes the targets of a thread's copies in groups below `limit`.
    pub(super) fn take_written(&mut self, thread: usize, limit: u32) -> Vec<CopyTarget> {
        let mut written = take_below(&mut self.read, thread, limit);
        written.extend(take_below(&mut self.unread, thread, limit));
        written.iter().for_each(|(key, target)| self.remove_ranges(*key, target));
        written.into_iter().map(|(_, target)| target).collect()
    }

    /// Takes all targets, in the order of issue.
    pub(super) fn take_all(&mut self) -> Vec<CopyTarget> {
        let [unread, read] = [&mut self.unread, &mut self.read].map(std::mem::take);
        self.blocks.clear();
        let mut all: Vec<_> = unread.into_iter().chain(read).collect();
        all.sort_unstable_by_key(|((_, position), _)| *position);
        all.into_iter().map(|(_, target)| target).collect()
    }

    /// Key of a copy whose source has been read, and that writes the same bytes as another copy by the same instruction of its
    /// thread.
    fn find_read(&self, target: &CopyTarget) -> Option<Key> {
        let &(address, _) = target.ranges().as_slice().first()?;
        let mut entries = self.blocks.get(&(address / BLOCK))?.iter();
        let is_same = |key: &Key| self.read.get(key).is_some_and(|earlier| earlier.writes_as(target));
        entries.find(|entry| is_same(&entry.key)).map(|entry| entry.key)
    }

    /// Removes the ranges of a target from the index.
    fn remove_ranges(&mut self, key: Key, target: &CopyTarget) {
        for block in target.ranges().as_slice().iter().flat_map(|&range| blocks_of(range)) {
            if let Some(entries) = self.blocks.get_mut(&block) {
                entries.retain(|entry| entry.key != key);
                if entries.is_empty() {
                    self.blocks.remove(&block);
                }
            }
        }
    }
}

/// Numbers of the blocks that a range overlaps.
fn blocks_of((address, bytes): (u64, u64)) -> std::ops::Range<u64> {
    address / BLOCK..(address + bytes).div_ceil(BLOCK)
}

/// Removes the targets of a thread's copies in groups below `limit`: its first ones, as groups are numbered in order.
fn take_below(targets: &mut BTreeMap<Key, CopyTarget>, thread: usize, limit: u32) -> Vec<(Key, CopyTarget)> {
    let mut taken = Vec::new();
    while let Some((&key, target)) = targets.range(keys_of(thread)).next()
        && target.group < limit
        && let Some(target) = targets.remove(&key)
    {
        taken.push((key, target));
    }
    taken
}
