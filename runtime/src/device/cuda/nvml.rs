//! Clocks of a GPU, from NVIDIA's management library (NVML), which is part of the driver but not always installed.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::super::Clocks;

#[cfg(unix)]
const NAME: &str = "libnvidia-ml.so.1";
#[cfg(not(unix))]
const NAME: &str = "nvml.dll";

/// `NVML_SUCCESS`, and `nvmlClockType_t`'s `NVML_CLOCK_SM` and `NVML_CLOCK_MEM`.
const SUCCESS: c_int = 0;
const CLOCK_SM: c_uint = 1;
const CLOCK_MEMORY: c_uint = 2;

type Init = unsafe extern "C" fn() -> c_int;
type HandleByPciBusId = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type ClockInfo = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;

/// Handle of a GPU in NVML, for reading its clocks.
pub(super) struct Nvml {
    device: *mut c_void,
    clock_info: ClockInfo,
    /// Library that contains the code of `clock_info`; never closed while `clock_info` is in use.
    _library: Library,
}

// SAFETY: the library is thread-safe, and its device handles are valid for the whole process.
unsafe impl Send for Nvml {}
// SAFETY: as above.
unsafe impl Sync for Nvml {}

impl Nvml {
    /// The GPU with this PCI bus id; none if the library is missing or does not find the GPU.
    pub fn open(pci_bus_id: &CStr) -> Option<Nvml> {
        // SAFETY: the library's initialisers have no precondition; the signatures are those of nvml.h for these
        // versioned names.
        unsafe {
            let library = Library::new(NAME).ok()?;
            let init = library.get::<Init>(b"nvmlInit_v2").ok()?;
            let find = library.get::<HandleByPciBusId>(b"nvmlDeviceGetHandleByPciBusId_v2").ok()?;
            let clock_info = *library.get::<ClockInfo>(b"nvmlDeviceGetClockInfo").ok()?;
            let mut device = std::ptr::null_mut();
            let found = init() == SUCCESS && find(pci_bus_id.as_ptr(), &mut device) == SUCCESS;
            found.then_some(Nvml { device, clock_info, _library: library })
        }
    }

    /// Current clocks of the multiprocessors and of the memory.
    pub fn clocks(&self) -> Option<Clocks> {
        let clock = |kind| {
            let mut megahertz = 0;
            // SAFETY: the handle comes from the library, and `megahertz` is valid for the result.
            let status = unsafe { (self.clock_info)(self.device, kind, &mut megahertz) };
            (status == SUCCESS).then_some(megahertz)
        };
        Some(Clocks { sm_mhz: clock(CLOCK_SM)?, memory_mhz: clock(CLOCK_MEMORY)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_gpu_is_not_opened() {
        assert!(Nvml::open(c"ffff:ff:1f.7").is_none());
    }
}
