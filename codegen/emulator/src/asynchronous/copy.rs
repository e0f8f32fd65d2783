//! Asynchronous copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use super::tile::Tile;
use crate::lanes::lanes_of;

/// How the completion of a copy is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// By transaction bytes at the mbarrier at this address.
    Mbarrier(u64),
    /// By a wait of the issuing thread for its copy group of this number.
    Group(u32),
}

/// An asynchronous copy in flight, of one lane or of several lanes that copy equally many consecutive bytes each.
#[derive(Clone)]
pub(crate) struct AsyncCopy {
    /// Warp that issued the copy; `lanes` and `pc` are the issuing lanes and instruction.
    pub(crate) warp: usize,
    pub(crate) lanes: u32,
    pub(crate) pc: usize,
    /// Position in issue order among the warp's copies of the same kind, `cp.async` or bulk.
    pub(crate) sequence: u64,
    pub(crate) signal: Signal,
    pub(crate) source: *const u8,
    pub(crate) target: *mut u8,
    /// First shared memory address of the target, or of the source if the target is in global memory.
    pub(crate) shared: u64,
    /// Bytes written. The first `copied` bytes come from the source, the rest are zeros.
    pub(crate) bytes: u32,
    pub(crate) copied: u32,
    /// Whether the target is shared memory.
    pub(crate) into_shared: bool,
    /// Address of the source, if source and target are both in shared memory.
    pub(crate) from_shared: Option<u64>,
    pub(crate) content: Content,
    /// For `cp.reduce.async.bulk`: how the target's elements are combined with the source's.
    pub(crate) reduction: Option<Reduction>,
    /// Whether a wait for the copy has failed; the next wait completes it.
    pub(crate) is_due: bool,
}

/// What an asynchronous copy moves.
#[derive(Clone)]
pub(crate) enum Content {
    /// The bytes at `source`.
    Bytes,
    /// The operand of `st.async` and `red.async`, which have no source in memory.
    Value(Box<StoredValue>),
    /// A box of a tensor. The pointer into global memory, `source` or `target`, is not used.
    Tile(Arc<Tile>),
}

/// Operation of a reduction: computes the new bits of an element from the old ones and the source's.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    /// Bytes of an element: 2, 4 or 8.
    pub(crate) bytes: usize,
    pub(crate) update: fn(u64, u64, u64) -> u64,
}

impl Reduction {
    /// Combines the elements at `target`, `bytes` bytes in total, with those at `source`, each atomically.
    ///
    /// # Safety
    /// Both must be allocated, and `target` aligned to an element.
    unsafe fn apply(self, source: *const u8, target: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(self.bytes) {
            let mut operand = [0; 8];
            // SAFETY: inside the source.
            unsafe { operand.as_mut_ptr().copy_from_nonoverlapping(source.add(at), self.bytes) };
            let operand = u64::from_le_bytes(operand);
            let update = |old: u64| (self.update)(old, operand, 0);
            // SAFETY: inside the target; other threads access the memory by raw pointers or atomics.
            let target = unsafe { target.add(at) };
            match self.bytes {
                2 => {
                    // SAFETY: as above.
                    let cell = unsafe { AtomicU16::from_ptr(target.cast()) };
                    let _ = cell.fetch_update(SeqCst, SeqCst, |old| Some(update(old.into()) as u16));
                }
                4 => {
                    // SAFETY: as above.
                    let cell = unsafe { AtomicU32::from_ptr(target.cast()) };
                    let _ = cell.fetch_update(SeqCst, SeqCst, |old| Some(update(old.into()) as u32));
                }
                _ => {
                    // SAFETY: as above.
                    let cell = unsafe { AtomicU64::from_ptr(target.cast()) };
                    let _ = cell.fetch_update(SeqCst, SeqCst, |old| Some(update(old)));
                }
            }
        }
    }
}

/// Operand of an asynchronous store or reduction.
#[derive(Clone)]
pub(crate) struct StoredValue {
    pub(crate) value: [u8; 16],
    /// Operation of `red.async`: computes the new value from the old value and the operand, of 4 or 8 bytes. `None` for
    /// a store.
    pub(crate) update: Option<fn(u64, u64, u64) -> u64>,
}

impl AsyncCopy {
    pub(crate) fn reads_global(&self) -> bool {
        self.into_shared && self.from_shared.is_none() && !matches!(self.content, Content::Value(_))
    }

    /// Whether this is a `red.async` or `cp.reduce.async.bulk`.
    pub(crate) fn is_atomic(&self) -> bool {
        self.reduction.is_some() || matches!(&self.content, Content::Value(stored) if stored.update.is_some())
    }

    /// Performs the copy, store or reduction.
    pub(super) fn execute(&self) {
        let bytes = self.bytes as usize;
        // SAFETY: source and target were checked over these lengths when the copy was issued, and live as long as
        // the launch; a stored value has at most as many bytes as its array.
        unsafe {
            match &self.content {
                Content::Bytes if self.reduction.is_some() => {
                    self.reduction.iter().for_each(|one| one.apply(self.source, self.target, bytes));
                }
                Content::Bytes => {
                    self.target.copy_from_nonoverlapping(self.source, self.copied as usize);
                    let rest = self.target.add(self.copied as usize);
                    rest.write_bytes(0, (self.bytes - self.copied) as usize);
                }
                Content::Tile(tile) if self.into_shared => {
                    tile.load(self.target, self.shared, self.bytes as u64);
                }
                Content::Tile(tile) => {
                    tile.store(self.source, self.shared, |from, to, bytes| match self.reduction {
                        Some(reduction) => reduction.apply(from, to, bytes),
                        None => to.copy_from_nonoverlapping(from, bytes),
                    })
                }
                Content::Value(stored) => {
                    let mut value = stored.value;
                    if let Some(update) = stored.update {
                        let mut old = [0; 8];
                        old.as_mut_ptr().copy_from_nonoverlapping(self.target, bytes.min(8));
                        let mut operand = [0; 8];
                        operand.copy_from_slice(&value[..8]);
                        let updated = update(u64::from_le_bytes(old), u64::from_le_bytes(operand), 0);
                        value[..8].copy_from_slice(&updated.to_le_bytes());
                    }
                    self.target.copy_from_nonoverlapping(value.as_ptr(), bytes.min(value.len()));
                }
            }
        }
    }

    /// The range of shared memory that the copy reads: address and size.
    pub(super) fn shared_source(&self) -> Option<(u64, u64)> {
        let address = if self.into_shared { self.from_shared } else { Some(self.shared) };
        address.map(|address| (address, self.bytes as u64))
    }

    /// Whether the copy reads or writes a byte of a range of shared memory.
    pub(super) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let meets = |start: u64| start < address + bytes && address < start + self.bytes as u64;
        meets(self.shared) || self.from_shared.is_some_and(meets)
    }

    /// Whether the copy writes a byte of a range of shared memory.
    pub(super) fn writes(&self, address: u64, bytes: u64) -> bool {
        self.into_shared && self.shared < address + bytes && address < self.shared + self.bytes as u64
    }

    /// Splits the copy into one copy per lane.
    pub(super) fn split(self) -> impl Iterator<Item = AsyncCopy> {
        let count = self.lanes.count_ones();
        let (bytes, copied) = (self.bytes / count, self.copied / count);
        (0..).zip(lanes_of(self.lanes)).map(move |(index, lane): (u32, usize)| {
            let offset = (index * bytes) as usize;
            AsyncCopy {
                lanes: 1 << lane,
                source: self.source.wrapping_add(offset),
                target: self.target.wrapping_add(offset),
                shared: self.shared + offset as u64,
                bytes,
                copied,
                ..self.clone()
            }
        })
    }
}
