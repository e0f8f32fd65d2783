//! Primary context of a GPU, with its stream, memory and events.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use super::super::{Error, HostMemory, MemoryInfo, Result};
use super::driver::{Driver, Status, call};

/// Retained primary context of a GPU, with the stream on which all work runs.
pub(super) struct Context {
    pub driver: &'static Driver,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    stream: Mutex<Stream>,
    /// Whether a kernel hangs, so that the context must not be used or destroyed.
    abandoned: AtomicBool,
}

// SAFETY: driver handles may be used from any thread on which the context is current, which `enter` ensures; the stream
// is behind a lock.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the context, makes it current and creates the stream.
    pub fn new(driver: &'static Driver, device: sys::CUdevice) -> Result<Arc<Context>> {
        let mut raw = ptr::null_mut();
        call!(driver, cuDevicePrimaryCtxRetain(&mut raw, device), "opening GPU {device}")?;
        let stream = Mutex::new(Stream { driver, raw: ptr::null_mut() });
        let context = Context { driver, device, raw, stream, abandoned: AtomicBool::new(false) };
        context.enter()?;
        *context.stream() = Stream::new(driver)?;
        Ok(Arc::new(context))
    }

    /// Makes the context current on this thread, which every driver call requires. Fails in an abandoned context.
    pub fn enter(&self) -> Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(Error::Abandoned);
        }
        call!(self.driver, cuCtxSetCurrent(self.raw), "making the GPU's context current")
    }

    /// Stops the use of the context: a kernel hangs, and most driver calls would wait for it.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// The stream, locked. The lock keeps work from being interleaved with that of other threads.
    pub fn stream(&self) -> MutexGuard<'_, Stream> {
        // A panic of another thread does not invalidate the handle.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// PCI bus id, such as `0000:3B:00.0`, if the driver reports it.
    pub fn pci_bus_id(&self) -> Option<CString> {
        let mut id = [0u8; 32];
        call!(
            self.driver,
            cuDeviceGetPCIBusId(id.as_mut_ptr().cast(), id.len() as c_int, self.device),
            "reading the GPU's PCI bus id"
        )
        .ok()?;
        Some(CStr::from_bytes_until_nul(&id).ok()?.to_owned())
    }

    /// Free and total device memory.
    pub fn memory(&self) -> Result<MemoryInfo> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        call!(self.driver, cuMemGetInfo_v2(&mut free, &mut total), "reading the free memory")?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if *self.abandoned.get_mut() {
            return;
        }
        if self.enter().is_ok() {
            self.stream().destroy();
        }
        // A failure cannot be handled here.
        let _ = call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.device), "closing the GPU");
    }
}

/// A stream that does not synchronise with the legacy default stream.
pub(super) struct Stream {
    driver: &'static Driver,
    raw: sys::CUstream,
}

impl Stream {
    fn new(driver: &'static Driver) -> Result<Stream> {
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        call!(driver, cuStreamCreate(&mut raw, flags), "creating a stream")?;
        Ok(Stream { driver, raw })
    }

    /// Handle, valid while the stream's lock is held.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Waits for all enqueued work.
    pub fn wait(&self) -> Result<()> {
        call!(self.driver, cuStreamSynchronize(self.raw), "waiting for the GPU")
    }

    /// Whether enqueued work is unfinished.
    pub fn busy(&self) -> Result<bool> {
        // SAFETY: the handle lives as long as `self`.
        match unsafe { (self.driver.cuStreamQuery)(self.raw) } {
            Status::SUCCESS => Ok(false),
            Status::NOT_READY => Ok(true),
            status => Err(self.driver.failure("cuStreamQuery", status, "querying the stream".to_owned())),
        }
    }

    /// Replaces the stream, which a failed capture can leave unusable.
    pub fn recreate(&mut self) -> Result<()> {
        self.destroy();
        *self = Stream::new(self.driver)?;
        Ok(())
    }

    fn destroy(&mut self) {
        if !self.raw.is_null() {
            // A failure cannot be handled here.
            let _ = call!(self.driver, cuStreamDestroy_v2(self.raw), "destroying a stream");
            self.raw = ptr::null_mut();
        }
    }
}

/// Device memory, freed on drop.
pub(super) struct DeviceMemory {
    context: Arc<Context>,
    pub address: sys::CUdeviceptr,
}

impl DeviceMemory {
    /// Allocates at least one byte, because the driver rejects a size of 0.
    pub fn new(context: &Arc<Context>, device: &str, name: &str, bytes: u64) -> Result<DeviceMemory> {
        context.enter()?;
        let mut address = 0;
        let needed = bytes.max(1) as usize;
        // SAFETY: `address` is valid for the result.
        let status = unsafe { (context.driver.cuMemAlloc_v2)(&mut address, needed) };
        match status {
            Status::SUCCESS => Ok(DeviceMemory { context: context.clone(), address }),
            Status::OUT_OF_MEMORY => {
                let MemoryInfo { free, total } = context.memory()?;
                let (device, name) = (device.to_owned(), name.to_owned());
                Err(Error::OutOfMemory { device, name, needed: bytes, free, total })
            }
            status => Err(context.driver.failure(
                "cuMemAlloc",
                status,
                format!("allocating {bytes} bytes for `{name}`"),
            )),
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // Waits for the GPU if necessary. A failure cannot be handled here.
            let _ = call!(self.context.driver, cuMemFree_v2(self.address), "freeing GPU memory");
        }
    }
}

/// Page-locked host memory, freed on drop.
pub(super) struct PinnedMemory {
    context: Arc<Context>,
    raw: *mut u8,
    bytes: usize,
}

// SAFETY: a buffer whose bytes are accessed through `&mut` or atomically.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates zeroed memory. `mapped` memory also has a device address.
    pub fn new(context: &Arc<Context>, name: &str, bytes: u64, mapped: bool) -> Result<PinnedMemory> {
        context.enter()?;
        // Whole words, because `read` loads words.
        let size = (bytes.max(1) as usize).next_multiple_of(WORD);
        let flags = if mapped { sys::CU_MEMHOSTALLOC_DEVICEMAP } else { 0 };
        let mut raw: *mut c_void = ptr::null_mut();
        call!(
            context.driver,
            cuMemHostAlloc(&mut raw, size, flags),
            "page-locking {size} bytes of host memory for `{name}`"
        )?;
        let raw = raw.cast::<u8>();
        // SAFETY: a new allocation of `size` bytes.
        unsafe { raw.write_bytes(0, size) };
        Ok(PinnedMemory { context: context.clone(), raw, bytes: size })
    }

    /// Device address, if the memory is mapped.
    pub fn device_address(&self) -> Result<sys::CUdeviceptr> {
        let mut address = 0;
        call!(
            self.context.driver,
            cuMemHostGetDevicePointer_v2(&mut address, self.raw.cast(), 0),
            "mapping host memory into the GPU"
        )?;
        Ok(address)
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.raw
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.raw
    }

    /// The bytes. No copy that is in flight may write them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `bytes` initialised bytes that live as long as `self`; the caller excludes device writes.
        unsafe { std::slice::from_raw_parts(self.raw, self.bytes) }
    }

    /// The bytes. No copy that is in flight may access them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.raw, self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // A failure cannot be handled here.
            let _ = call!(self.context.driver, cuMemFreeHost(self.raw.cast()), "freeing host memory");
        }
    }
}

/// Size of the atomic loads in [`HostMemory::read`].
const WORD: usize = size_of::<u32>();

impl HostMemory for PinnedMemory {
    /// Loads atomic words, because kernels may write concurrently.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let (mut at, mut out) = (offset as usize, out);
        while !out.is_empty() {
            let within = at % WORD;
            let count = (WORD - within).min(out.len());
            // SAFETY: the word is inside the allocation, which is page-aligned and consists of whole words.
            let word = unsafe { &*self.raw.add(at - within).cast::<AtomicU32>() };
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            let (head, tail) = out.split_at_mut(count);
            head.copy_from_slice(&bytes[within..within + count]);
            (at, out) = (at + count, tail);
        }
        fence(Ordering::Acquire);
        Ok(())
    }
}

/// An event, destroyed on drop.
pub(super) struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: driver handles may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event. Elapsed time requires `timing`.
    pub fn new(context: &Arc<Context>, timing: bool) -> Result<Event> {
        context.enter()?;
        let flags = match timing {
            true => sys::CUevent_flags::CU_EVENT_DEFAULT,
            false => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        let mut raw = ptr::null_mut();
        call!(context.driver, cuEventCreate(&mut raw, flags as c_uint), "creating an event")?;
        Ok(Event { context: context.clone(), raw })
    }

    /// Records the event on the stream.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        call!(self.context.driver, cuEventRecord(self.raw, stream.raw()), "recording an event")
    }

    /// Waits for the recorded event; returns at once if the event was not recorded.
    pub fn wait(&self) -> Result<()> {
        call!(self.context.driver, cuEventSynchronize(self.raw), "waiting for an event")
    }

    /// Milliseconds from `start` to this event, both completed.
    pub fn milliseconds_since(&self, start: &Event) -> Result<f64> {
        let mut milliseconds = 0.0f32;
        call!(
            self.context.driver,
            cuEventElapsedTime(&mut milliseconds, start.raw, self.raw),
            "reading the time between events"
        )?;
        Ok(f64::from(milliseconds))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // A failure cannot be handled here.
            let _ = call!(self.context.driver, cuEventDestroy_v2(self.raw), "destroying an event");
        }
    }
}
