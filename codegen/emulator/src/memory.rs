//! Global memory: sparse 64-bit addresses, guarded allocations, initialisation tracked per byte.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::finding::Neighbour;

/// The first device address handed out.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
/// Every allocation starts at a multiple of this.
const ALIGNMENT: u64 = 256;
/// Unmapped bytes, at least, between two allocations.
const GUARD: u64 = 1 << 20;
/// Initialisation is summarised per page of this many bytes.
const PAGE: u64 = 4096;

/// The device's global memory.
///
/// Addresses are never reused, so an access to freed memory is found as such. All methods take
/// `&self`; launches running at the same time see each other's stores as CTAs of one grid do, and a
/// data race between them leaves unspecified bytes, as it does on a device.
///
/// An allocation's bytes and its initialisation map are zeroed lazily by the operating system: a
/// large allocation costs memory only where it is touched.
#[derive(Default)]
pub struct Memory {
    table: RwLock<Arc<Table>>,
    /// Where each module's `.global` and `.const` variables were placed.
    modules: Mutex<HashMap<u64, u64>>,
}

/// A host access that no allocation covers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The range leaves its allocation, or touches none.
    #[error("{bytes} bytes at {address:#x} are outside every allocation{}", near(.nearest))]
    OutOfBounds {
        /// First byte of the range.
        address: u64,
        /// Its length.
        bytes: u64,
        /// The closest allocation.
        nearest: Option<Neighbour>,
    },
    /// `free` of an address that `alloc` did not return, or that was freed before.
    #[error("{address:#x} is not the start of an allocation{}", near(.nearest))]
    NotAllocated {
        /// The address given.
        address: u64,
        /// The closest allocation.
        nearest: Option<Neighbour>,
    },
}

fn near(nearest: &Option<Neighbour>) -> String {
    nearest.as_ref().map_or(String::new(), |n| format!(": {n}"))
}

impl Memory {
    /// An empty memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Reserves `bytes` bytes, uninitialised, and returns their device address (a multiple of 256).
    /// `name` is what findings call the allocation.
    pub fn alloc(&self, name: &str, bytes: u64) -> u64 {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut *table);
        let base = table.next.max(FIRST_ADDRESS);
        let end = base + bytes.max(1);
        table.next = (end + GUARD).next_multiple_of(ALIGNMENT);
        table.live.push(Arc::new(Allocation::new(name, base, bytes)));
        base
    }

    /// Returns the allocation at `address`.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`] if no allocation starts there.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = table.find(address).filter(|&index| table.live[index].base == address) else {
            return Err(MemoryError::NotAllocated { address, nearest: table.nearest(address, 1) });
        };
        let table = Arc::make_mut(&mut *table);
        let gone = table.live.remove(index);
        table.freed.push((gone.name.clone(), gone.base, gone.bytes));
        Ok(())
    }

    /// Copies `data` to `address` and marks it initialised.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let allocation = self.range(address, data.len() as u64)?;
        // SAFETY: `range` checked that the whole range lies inside the allocation.
        unsafe { allocation.pointer(address).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        allocation.mark(address - allocation.base, data.len() as u64);
        Ok(())
    }

    /// Copies from `address` to `data`. Bytes that were never written read as zeros.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<(), MemoryError> {
        let allocation = self.range(address, data.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { allocation.pointer(address).copy_to_nonoverlapping(data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    /// Sets `bytes` bytes from `address` to `byte` and marks them initialised.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn fill(&self, address: u64, bytes: u64, byte: u8) -> Result<(), MemoryError> {
        let allocation = self.range(address, bytes)?;
        // SAFETY: as in `write`.
        unsafe { allocation.pointer(address).write_bytes(byte, bytes as usize) };
        allocation.mark(address - allocation.base, bytes);
        Ok(())
    }

    /// The live allocations as they are now.
    pub(crate) fn snapshot(&self) -> Arc<Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The address of module `id`'s variables, placed on first use by `place`.
    pub(crate) fn module_base(&self, id: u64, place: impl FnOnce(&Memory) -> u64) -> u64 {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        *modules.entry(id).or_insert_with(|| place(self))
    }

    fn range(&self, address: u64, bytes: u64) -> Result<Arc<Allocation>, MemoryError> {
        let table = self.snapshot();
        match table.find(address) {
            Some(index) if table.live[index].contains(address, bytes) => Ok(table.live[index].clone()),
            _ => Err(MemoryError::OutOfBounds { address, bytes, nearest: table.nearest(address, bytes) }),
        }
    }
}

/// The allocations at one moment, in the order of their addresses.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) live: Vec<Arc<Allocation>>,
    freed: Vec<(String, u64, u64)>,
    next: u64,
}

impl Table {
    /// The last allocation that starts at or below `address` (which may lie past its end).
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        self.live.partition_point(|allocation| allocation.base <= address).checked_sub(1)
    }

    /// The allocation closest to an access, freed ones included.
    pub(crate) fn nearest(&self, address: u64, bytes: u64) -> Option<Neighbour> {
        let live = self.live.iter().map(|a| (&a.name, a.base, a.bytes, false));
        let freed = self.freed.iter().map(|(name, base, bytes)| (name, *base, *bytes, true));
        live.chain(freed)
            .map(|(name, base, size, freed)| {
                let outside = if address < base {
                    -((base - address) as i64)
                } else {
                    (address.wrapping_add(bytes)).saturating_sub(base + size) as i64
                };
                Neighbour { name: name.clone(), base, bytes: size, outside, access: bytes, freed }
            })
            .min_by_key(|neighbour| (neighbour.outside.unsigned_abs(), neighbour.freed))
    }
}

/// One allocation. Its bytes are shared by all threads of a launch, so they are reached only through
/// raw pointers.
pub(crate) struct Allocation {
    pub(crate) name: String,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    data: Zeroed,
    pub(crate) map: InitMap,
}

impl Allocation {
    fn new(name: &str, base: u64, bytes: u64) -> Allocation {
        Allocation {
            name: name.to_string(),
            base,
            bytes,
            data: Zeroed::new(bytes as usize),
            map: InitMap::shared(bytes),
        }
    }

    #[inline(always)]
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.base);
        offset <= self.bytes && bytes <= self.bytes - offset
    }

    /// The host address of a device address inside (or one past the end of) the allocation.
    #[inline(always)]
    pub(crate) fn pointer(&self, address: u64) -> *mut u8 {
        self.data.pointer.as_ptr().wrapping_add(address.wrapping_sub(self.base) as usize)
    }

    #[inline(always)]
    pub(crate) fn mark(&self, offset: u64, bytes: u64) {
        self.map.mark(offset, bytes);
    }

    #[inline(always)]
    pub(crate) fn is_initialised(&self, offset: u64, bytes: u64) -> bool {
        self.map.is_initialised(offset, bytes)
    }
}

/// Which bytes of a range were written: one bit a byte, and one bit a page for pages written whole.
pub(crate) struct InitMap {
    bytes: u64,
    /// Whether one thread alone uses the map, so that words need not be changed in one step.
    private: bool,
    pages: Zeroed,
    bits: Zeroed,
}

impl InitMap {
    /// A map that several threads use.
    fn shared(bytes: u64) -> InitMap {
        InitMap { private: false, ..InitMap::private(bytes) }
    }

    /// A map that one thread uses at a time.
    pub(crate) fn private(bytes: u64) -> InitMap {
        let words = |bits: u64| (bits.div_ceil(64) * 8) as usize;
        let (pages, bits) = (Zeroed::new(words(bytes.div_ceil(PAGE))), Zeroed::new(words(bytes)));
        InitMap { bytes, private: true, pages, bits }
    }

    #[inline(always)]
    fn set(&self, word: &AtomicU64, mask: u64) {
        match word.load(Relaxed) {
            old if old & mask == mask => {}
            old if self.private => word.store(old | mask, Relaxed),
            _ => _ = word.fetch_or(mask, Relaxed),
        }
    }

    #[inline(always)]
    fn unset(&self, word: &AtomicU64, mask: u64) {
        match self.private {
            true => word.store(word.load(Relaxed) & !mask, Relaxed),
            false => _ = word.fetch_and(!mask, Relaxed),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.bits.clear();
    }

    #[inline(always)]
    fn page_is_full(&self, page: u64) -> bool {
        self.pages.word(page / 64).load(Relaxed) >> (page % 64) & 1 != 0
    }

    #[inline(always)]
    pub(crate) fn is_initialised(&self, offset: u64, bytes: u64) -> bool {
        if bytes == 0 {
            return true;
        }
        let (first, last) = (offset / PAGE, (offset + bytes - 1) / PAGE);
        if first == last && self.page_is_full(first) {
            return true;
        }
        self.bits_are_set(offset, bytes)
    }

    /// Whether all of a range is known to be initialised without looking at single bytes.
    #[inline(always)]
    pub(crate) fn is_full(&self, offset: u64, bytes: u64) -> bool {
        // Lanes further apart than this are rare, and looked at one by one.
        const PAGES: u64 = 16;
        let (first, last) = (offset / PAGE, (offset + bytes - 1) / PAGE);
        last - first < PAGES && (first..=last).all(|page| self.page_is_full(page))
    }

    /// Of at least one byte.
    fn bits_are_set(&self, offset: u64, bytes: u64) -> bool {
        let end = offset + bytes - 1;
        let (first, last) = (offset / 64, end / 64);
        let (head, tail) = (u64::MAX << (offset % 64), u64::MAX >> (63 - end % 64));
        let is_set = |word: u64, mask: u64| {
            self.bits.word(word).load(Relaxed) & mask == mask || self.page_is_full(word * 64 / PAGE)
        };
        match first == last {
            true => is_set(first, head & tail),
            false => {
                is_set(first, head)
                    && is_set(last, tail)
                    && (first + 1..last).all(|word| is_set(word, u64::MAX))
            }
        }
    }

    #[inline(always)]
    pub(crate) fn mark(&self, offset: u64, bytes: u64) {
        let page = offset / PAGE;
        let known = bytes == 0 || (offset + bytes - 1) / PAGE == page && self.page_is_full(page);
        if !known {
            self.mark_slowly(offset, bytes);
        }
    }

    /// Forgets that a range was written. Nobody else may use the map meanwhile.
    pub(crate) fn unmark(&self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        for page in offset / PAGE..end.div_ceil(PAGE) {
            if self.page_is_full(page) {
                self.unset(self.pages.word(page / 64), 1 << (page % 64));
                // What lies in the page but not in the range stays written.
                let start = page * PAGE;
                let after = (start + PAGE).min(self.bytes).max(end);
                self.mark_bits(start, offset.saturating_sub(start));
                self.mark_bits(end, after - end);
            }
        }
        for (word, mask) in words(offset, bytes) {
            self.unset(self.bits.word(word), mask);
        }
    }

    fn mark_slowly(&self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        let first = offset.div_ceil(PAGE);
        // The last page may be shorter than the others.
        let last = if end == self.bytes { end.div_ceil(PAGE) } else { end / PAGE };
        if first >= last {
            return self.mark_bits(offset, bytes);
        }
        for (word, mask) in words(first, last - first) {
            self.set(self.pages.word(word), mask);
        }
        self.mark_bits(offset, first * PAGE - offset);
        let tail = (last * PAGE).min(end);
        self.mark_bits(tail, end - tail);
    }

    fn mark_bits(&self, offset: u64, bytes: u64) {
        for (word, mask) in words(offset, bytes) {
            self.set(self.bits.word(word), mask);
        }
    }
}

/// The 64-bit words that hold bits `start .. start + count`, each with the mask of those bits.
#[inline(always)]
fn words(start: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = start + count;
    let last = if count == 0 { start / 64 } else { end.div_ceil(64) };
    (start / 64..last).map(move |word| {
        let low = start.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word, (u64::MAX << low) & (u64::MAX >> (64 - high)))
    })
}

/// Bytes that the operating system zeroes when they are first touched.
pub(crate) struct Zeroed {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes are plain data with no thread affinity.
unsafe impl Send for Zeroed {}
// SAFETY: shared access goes through raw pointers or atomics only.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    pub(crate) fn new(bytes: usize) -> Zeroed {
        // The allocator hands out zero pages unread only up to this alignment; it also suffices for
        // 16-byte vectors and atomics, device addresses being at least as aligned.
        const HOST_ALIGN: usize = 16;
        let rounded = bytes.max(1).next_multiple_of(HOST_ALIGN);
        let Ok(layout) = Layout::from_size_align(rounded, HOST_ALIGN) else {
            handle_alloc_error(Layout::new::<u8>())
        };
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        Zeroed { pointer, layout }
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    pub(crate) fn clear(&mut self) {
        // SAFETY: the whole allocation is ours, and `&mut self` excludes other users.
        unsafe { self.pointer.as_ptr().write_bytes(0, self.layout.size()) };
    }

    #[inline(always)]
    pub(crate) fn word32(&self, index: u64) -> &AtomicU32 {
        assert!((index as usize) < self.layout.size() / 4);
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.pointer.as_ptr().cast::<u32>().add(index as usize)) }
    }

    #[inline(always)]
    fn word(&self, index: u64) -> &AtomicU64 {
        assert!((index as usize) < self.layout.size() / 8);
        // SAFETY: inside the allocation by the line above, and aligned; all access is atomic.
        unsafe { AtomicU64::from_ptr(self.pointer.as_ptr().cast::<u64>().add(index as usize)) }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) };
    }
}
