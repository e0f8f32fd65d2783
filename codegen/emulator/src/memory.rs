//! Global memory: allocations with guard gaps in a 64-bit address space, and initialisation tracked for each byte.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::finding::Neighbour;

/// Device address of the first allocation.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
/// Alignment of allocations in bytes.
const ALIGNMENT: u64 = 256;
/// Alignment in bytes of the variables of a module: the largest that PTX allows.
pub(crate) const VARIABLE_ALIGNMENT: u64 = 1024;
/// Minimum number of unmapped bytes between two allocations.
pub(crate) const GUARD: u64 = 1 << 20;
/// Bytes of a page, the unit in which initialisation is summarised.
const PAGE: u64 = 4096;

/// The device's global memory.
///
/// Addresses are never reused, so findings recognise accesses to freed memory. All methods take `&self`. Concurrent
/// launches see each other's stores as CTAs of one grid do; a data race between launches leaves unspecified bytes, as
/// on a device.
///
/// The operating system zeroes an allocation's bytes and its initialisation map lazily, so a large allocation uses host
/// memory only where it is accessed.
#[derive(Default)]
pub struct Memory {
    table: RwLock<Arc<AllocationTable>>,
    /// Address of each module's `.global` and `.const` variables, by module id.
    modules: Mutex<HashMap<u64, u64>>,
}

/// Failed host access to a [`Memory`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The range is not inside one allocation.
    #[error("{bytes} bytes at {address:#x} are not inside one allocation{}", near(.nearest))]
    OutOfBounds {
        /// Address of the first byte of the range.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// The nearest allocation.
        nearest: Option<Neighbour>,
    },
    /// `free` of an address that `alloc` did not return, or that is already freed.
    #[error("{address:#x} is not the start of an allocation{}", near(.nearest))]
    NotAllocated {
        /// Address passed to `free`.
        address: u64,
        /// The nearest allocation.
        nearest: Option<Neighbour>,
    },
}

fn near(nearest: &Option<Neighbour>) -> String {
    nearest.as_ref().map_or(String::new(), |n| format!(": {n}"))
}

impl Memory {
    /// Memory without allocations.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Allocates `bytes` uninitialised bytes and returns their device address, a multiple of 256. Findings call the
    /// allocation `name`.
    pub fn alloc(&self, name: &str, bytes: u64) -> u64 {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut *table);
        let base = table.next.max(FIRST_ADDRESS);
        let end = base + bytes.max(1);
        table.next = (end + GUARD).next_multiple_of(ALIGNMENT);
        table.live.push(Arc::new(Allocation::new(name, base, bytes)));
        base
    }

    /// Allocates variables, each at its offset from the address that is returned. Between two variables there must be at
    /// least [`GUARD`] bytes.
    pub(crate) fn alloc_variables(&self, variables: &[PlacedVariable]) -> u64 {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut *table);
        let base = table.next.max(FIRST_ADDRESS).next_multiple_of(VARIABLE_ALIGNMENT);
        for variable in variables {
            let at = base + variable.offset;
            table.next = (at + variable.bytes.max(1) + GUARD).next_multiple_of(ALIGNMENT);
            table.live.push(Arc::new(Allocation::new(&variable.name, at, variable.bytes)));
        }
        base
    }

    /// Frees the allocation at `address`.
    ///
    /// # Errors [`MemoryError::NotAllocated`] if no allocation starts at `address`.
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

    /// Copies `data` to `address` and marks the bytes as initialised.
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

    /// Copies from `address` to `data`. Uninitialised bytes read as zeros.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<(), MemoryError> {
        let allocation = self.range(address, data.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { allocation.pointer(address).copy_to_nonoverlapping(data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    /// The first byte of a range that is uninitialised: nothing has written it, or a kernel has copied an uninitialised byte
    /// to it. Returns its offset in the range.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range is not inside one allocation.
    pub fn first_uninitialised(&self, address: u64, bytes: u64) -> Result<Option<u64>, MemoryError> {
        let allocation = self.range(address, bytes)?;
        let start = address - allocation.base;
        if allocation.is_initialised(start, bytes) {
            return Ok(None);
        }
        Ok((0..bytes).find(|offset| !allocation.is_initialised(start + offset, 1)))
    }

    /// Sets `bytes` bytes from `address` to `byte` and marks them as initialised.
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

    /// The current allocations.
    pub(crate) fn snapshot(&self) -> Arc<AllocationTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The address of module `id`'s variables; `place` allocates them on first use.
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

/// A variable and its place: in the module's variables, a CTA's shared memory, or a thread's local memory.
#[derive(Clone, Debug)]
pub(crate) struct PlacedVariable {
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Snapshot of the allocations, in ascending order of address.
#[derive(Clone, Default)]
pub(crate) struct AllocationTable {
    pub(crate) live: Vec<Arc<Allocation>>,
    /// Name, address and size of freed allocations.
    freed: Vec<(String, u64, u64)>,
    /// Lowest address for the next allocation.
    next: u64,
}

impl AllocationTable {
    /// Index of the last allocation that starts at or below `address`; the allocation may end before `address`.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        self.live.partition_point(|allocation| allocation.base <= address).checked_sub(1)
    }

    /// The allocation nearest to an access, freed allocations included.
    pub(crate) fn nearest(&self, address: u64, bytes: u64) -> Option<Neighbour> {
        let live = self.live.iter().map(|a| (&a.name, a.base, a.bytes, false));
        let freed = self.freed.iter().map(|(name, base, bytes)| (name, *base, *bytes, true));
        live.chain(freed)
            .map(|(name, base, size, freed)| Neighbour {
                freed,
                ..Neighbour::new(name, (base, size), (address, bytes))
            })
            .min_by_key(|neighbour| (neighbour.outside.unsigned_abs(), neighbour.freed))
    }
}

/// One allocation. All threads of a launch share its bytes, so they are accessed through raw pointers only.
pub(crate) struct Allocation {
    pub(crate) name: String,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    data: ZeroedBytes,
    pub(crate) map: InitMap,
}

impl Allocation {
    fn new(name: &str, base: u64, bytes: u64) -> Allocation {
        Allocation {
            name: name.to_string(),
            base,
            bytes,
            data: ZeroedBytes::new(bytes as usize),
            map: InitMap::shared(bytes),
        }
    }

    #[inline(always)]
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.base);
        offset <= self.bytes && bytes <= self.bytes - offset
    }

    /// The host address of a device address inside the allocation or one past its end.
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

/// Held while bytes of full pages are marked as uninitialised.
static UNMARKING: Mutex<()> = Mutex::new(());

/// Bitmap of initialised bytes: one bit per byte, and one bit per page, set if the whole page is initialised.
pub(crate) struct InitMap {
    bytes: u64,
    /// Whether only one host thread uses the map, so that updates need not be atomic.
    is_private: bool,
    /// One bit per page. If a page's bit is set, the bits of the page's bytes in `bits` may be clear.
    pages: ZeroedBytes,
    bits: ZeroedBytes,
}

impl InitMap {
    /// A map that several host threads may update concurrently.
    fn shared(bytes: u64) -> InitMap {
        InitMap { is_private: false, ..InitMap::private(bytes) }
    }

    /// A map that only one host thread uses at a time.
    pub(crate) fn private(bytes: u64) -> InitMap {
        let words = |bits: u64| (bits.div_ceil(64) * 8) as usize;
        let (pages, bits) = (ZeroedBytes::new(words(bytes.div_ceil(PAGE))), ZeroedBytes::new(words(bytes)));
        InitMap { bytes, is_private: true, pages, bits }
    }

    #[inline(always)]
    fn set(&self, word: &AtomicU64, mask: u64) {
        match word.load(Relaxed) {
            old if old & mask == mask => {}
            old if self.is_private => word.store(old | mask, Relaxed),
            _ => _ = word.fetch_or(mask, Relaxed),
        }
    }

    #[inline(always)]
    fn unset(&self, word: &AtomicU64, mask: u64) {
        match self.is_private {
            true => word.store(word.load(Relaxed) & !mask, Relaxed),
            false => _ = word.fetch_and(!mask, Release),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.bits.clear();
    }

    #[inline(always)]
    fn page_is_full(&self, page: u64) -> bool {
        self.pages.word(page / 64).load(Acquire) >> (page % 64) & 1 != 0
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

    /// Whether all pages of a range are initialised completely. False does not imply that a byte is uninitialised.
    #[inline(always)]
    pub(crate) fn is_full(&self, offset: u64, bytes: u64) -> bool {
        // Longer ranges, of lanes far apart, are rare; the caller then checks lane by lane.
        const PAGES: u64 = 16;
        let (first, last) = (offset / PAGE, (offset + bytes - 1) / PAGE);
        last - first < PAGES && (first..=last).all(|page| self.page_is_full(page))
    }

    /// Whether every byte of a range of at least one byte is initialised.
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

    /// Marks a range as initialised.
    #[inline(always)]
    pub(crate) fn mark(&self, offset: u64, bytes: u64) {
        let page = offset / PAGE;
        let is_marked = bytes == 0 || (offset + bytes - 1) / PAGE == page && self.page_is_full(page);
        if !is_marked {
            self.mark_slowly(offset, bytes);
        }
    }

    /// Marks a range as uninitialised. No other thread may access the range at the same time.
    pub(crate) fn unmark(&self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        // Two threads must not both find the page full: the second would mark what the first unmarks.
        let held = (!self.is_private).then(|| UNMARKING.lock().unwrap_or_else(PoisonError::into_inner));
        for page in offset / PAGE..end.div_ceil(PAGE) {
            if self.page_is_full(page) {
                // The rest of the page stays initialised, also for other threads meanwhile.
                let start = page * PAGE;
                let after = (start + PAGE).min(self.bytes).max(end);
                self.mark_bits(start, offset.saturating_sub(start));
                self.mark_bits(end, after - end);
                self.unset(self.pages.word(page / 64), 1 << (page % 64));
            }
        }
        drop(held);
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

/// Indices of the 64-bit words that contain the bits `start .. start + count`, each with a mask of these bits in the
/// word.
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

/// Zeroed bytes; the operating system allocates their memory on first access.
pub(crate) struct ZeroedBytes {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes are plain data with no thread affinity.
unsafe impl Send for ZeroedBytes {}
// SAFETY: shared access goes through raw pointers or atomics only.
unsafe impl Sync for ZeroedBytes {}

impl ZeroedBytes {
    pub(crate) fn new(bytes: usize) -> ZeroedBytes {
        // Up to this alignment the allocator returns zero pages of the operating system without writing them. Device
        // addresses are at least as aligned, so 16-byte vectors and atomics are aligned on the host as well.
        const HOST_ALIGN: usize = 16;
        let rounded = bytes.max(1).next_multiple_of(HOST_ALIGN);
        let Ok(layout) = Layout::from_size_align(rounded, HOST_ALIGN) else {
            handle_alloc_error(Layout::new::<u8>())
        };
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        ZeroedBytes { pointer, layout }
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
        // SAFETY: inside the allocation by the assertion, and aligned; all accesses are atomic.
        unsafe { AtomicU64::from_ptr(self.pointer.as_ptr().cast::<u64>().add(index as usize)) }
    }
}

impl Drop for ZeroedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) };
    }
}
