//! NVIDIA GPUs through the CUDA driver. Code outside this folder does not use the driver.

mod assembler;
mod context;
mod driver;
mod graph;
mod launch_sequence;
mod module;
mod nvml;
mod staging;
mod tensor_map;

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bespoke_codegen::launch::DriverArguments;
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute as Attribute;

use self::context::{Context, DeviceMemory, PinnedMemory};
use self::driver::{Driver, call};
use self::launch_sequence::CudaSequence;
use self::nvml::Nvml;
use self::staging::Staging;
use super::module_loader::ModuleLoader;
use super::{
    Address, Allocation, Clocks, Device, DeviceInfo, Error, HostVisible, Kind, Launch, LaunchSequence,
    MAX_STAGED_BYTES, MemoryInfo, Module, ModuleSource, Result, TENSOR_MAP_BYTES,
};

/// Lowest supported compute capability.
const LOWEST_COMPUTE: (u32, u32) = (8, 0);

/// All GPUs of the driver.
pub(super) fn devices() -> Result<Vec<DeviceInfo>> {
    let driver = Driver::get()?;
    (0..count(driver)?).map(|ordinal| describe(driver, ordinal)).collect()
}

/// A GPU as a device of the runtime: context, properties and staging buffers.
pub(super) struct CudaDevice {
    context: Arc<Context>,
    info: DeviceInfo,
    loader: ModuleLoader,
    /// Page-locked buffers for copies, allocated by the first copy.
    staging: Mutex<Option<Staging>>,
    /// Management library (NVML), opened by the first call of `clocks`; none if NVML is not available.
    management: OnceLock<Option<Nvml>>,
}

impl CudaDevice {
    /// Opens the GPU with this ordinal.
    pub fn open(ordinal: u32) -> Result<CudaDevice> {
        let driver = Driver::get()?;
        let count = count(driver)?;
        if ordinal >= count {
            let what = match count {
                0 => "the NVIDIA driver finds no GPU".to_owned(),
                1 => format!("there is no GPU cuda:{ordinal}: the driver finds one, cuda:0"),
                count => format!(
                    "there is no GPU cuda:{ordinal}: the driver finds {count}, cuda:0 to cuda:{}",
                    count - 1
                ),
            };
            let help = "check CUDA_VISIBLE_DEVICES and `nvidia-smi`, or use the device `emulator`".to_owned();
            return Err(Error::Unavailable { what, help });
        }
        let info = describe(driver, ordinal)?;
        if info.compute < LOWEST_COMPUTE {
            let (major, minor) = info.compute;
            return Err(Error::Unavailable {
                what: format!(
                    "{} has compute capability {major}.{minor}; kernels need 8.0 or higher",
                    info.name
                ),
                help: "use an Ampere or later GPU, or the device `emulator`".to_owned(),
            });
        }
        let context = Context::new(driver, handle(driver, ordinal)?)?;
        let loader = ModuleLoader::new(info.compute, info.driver.as_deref().unwrap_or_default());
        Ok(CudaDevice { context, info, loader, staging: Mutex::new(None), management: OnceLock::new() })
    }

    /// Runs `copy` with the staging buffers and the stream.
    fn stage(&self, copy: impl FnOnce(&mut Staging, &context::Stream) -> Result<()>) -> Result<()> {
        self.context.enter()?;
        // The buffers stay usable after a panic in a copy: each use waits for earlier copies.
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(Staging::new(&self.context)?),
        };
        copy(staging, &self.context.stream())
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.context.memory()
    }

    fn alloc(&self, name: &str, bytes: u64) -> Result<Allocation> {
        let memory = DeviceMemory::new(&self.context, &self.info.name, name, bytes)?;
        Ok(Allocation::new(Address(memory.address), bytes, memory))
    }

    fn alloc_host_visible(&self, name: &str, bytes: u64) -> Result<HostVisible> {
        let memory = PinnedMemory::new(&self.context, name, bytes, true)?;
        let address = Address(memory.device_address()?);
        Ok(HostVisible::new(address, bytes, memory))
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()> {
        self.stage(|staging, stream| staging.upload(stream, to, bytes))
    }

    fn upload_filled(&self, to: Address, bytes: u64, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        if bytes > MAX_STAGED_BYTES {
            let mut content = vec![0; bytes as usize];
            fill(&mut content);
            return self.upload(to, &content);
        }
        self.stage(|staging, stream| staging.upload_filled(stream, to, bytes as usize, fill))
    }

    fn download(&self, from: Address, out: &mut [u8]) -> Result<()> {
        self.stage(|staging, stream| staging.download(stream, from, out))
    }

    fn fill(&self, to: Address, bytes: u64, value: u8) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.enter()?;
        let stream = self.context.stream();
        call!(
            self.context.driver,
            cuMemsetD8Async(to.0, value, bytes as usize, stream.raw()),
            "filling {bytes} bytes at {to} on the GPU"
        )
    }

    fn store(&self, to: Address, word: u32) -> Result<()> {
        self.context.enter()?;
        let stream = self.context.stream();
        call!(
            self.context.driver,
            cuMemsetD32Async(to.0, word, 1, stream.raw()),
            "writing a word at {to} on the GPU"
        )
    }

    fn load_source(&self, source: &ModuleSource<'_>) -> Result<Module> {
        module::load(&self.context, &self.loader, source)
    }

    fn encode_tensor_map(&self, arguments: &DriverArguments) -> Result<[u8; TENSOR_MAP_BYTES]> {
        tensor_map::encode(self.context.driver, arguments)
    }

    fn sequence(&self, launches: Vec<Launch>) -> Result<Box<dyn LaunchSequence>> {
        Ok(Box::new(CudaSequence::new(&self.context, &self.info, launches)?))
    }

    fn wait(&self) -> Result<()> {
        self.context.enter()?;
        self.context.stream().wait()
    }

    fn busy(&self) -> Result<bool> {
        self.context.enter()?;
        self.context.stream().busy()
    }

    fn abandon(&self) {
        self.context.abandon();
    }

    fn clocks(&self) -> Option<Clocks> {
        let open = || Nvml::open(&self.context.pci_bus_id()?);
        self.management.get_or_init(open).as_ref()?.clocks()
    }
}

fn count(driver: &Driver) -> Result<u32> {
    let mut count = 0;
    call!(driver, cuDeviceGetCount(&mut count), "counting GPUs")?;
    Ok(count.max(0) as u32)
}

fn handle(driver: &Driver, ordinal: u32) -> Result<sys::CUdevice> {
    let mut device = 0;
    call!(driver, cuDeviceGet(&mut device, ordinal as c_int), "opening cuda:{ordinal}")?;
    Ok(device)
}

/// Reads the properties of a GPU, without a context on it.
fn describe(driver: &Driver, ordinal: u32) -> Result<DeviceInfo> {
    let device = handle(driver, ordinal)?;
    let attribute = |attribute: Attribute| {
        let mut value = 0;
        call!(
            driver,
            cuDeviceGetAttribute(&mut value, attribute, device),
            "reading {attribute:?} of cuda:{ordinal}"
        )?;
        Ok::<_, Error>(value.max(0) as u32)
    };
    let mut name = [0u8; 128];
    call!(
        driver,
        cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int, device),
        "reading the name of cuda:{ordinal}"
    )?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let mut memory = 0;
    call!(driver, cuDeviceTotalMem_v2(&mut memory, device), "reading the memory of cuda:{ordinal}")?;
    // Newer drivers may not report the clock.
    let clock = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0);
    let bus = attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).unwrap_or(0);
    Ok(DeviceInfo {
        kind: Kind::Cuda { ordinal },
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
        compute: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory_total: memory as u64,
        l2_bytes: u64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        shared_per_block_optin: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_per_multiprocessor: attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        )?,
        threads_per_multiprocessor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        peak_bandwidth: peak_bandwidth(clock, bus),
        driver: Some(driver_versions(driver)),
    })
}

/// Bandwidth in bytes per second of a double data rate bus of `bus` bits at `clock` kHz; none if either is 0.
fn peak_bandwidth(clock: u32, bus: u32) -> Option<u64> {
    let bandwidth = 2 * u64::from(clock) * 1000 * u64::from(bus) / 8;
    (bandwidth > 0).then_some(bandwidth)
}

/// CUDA version that the driver supports and, on Linux, the driver's version, as text.
fn driver_versions(driver: &Driver) -> String {
    let (major, minor) = driver.version();
    match std::fs::read_to_string("/sys/module/nvidia/version") {
        Ok(version) => format!("CUDA {major}.{minor}, driver {}", version.trim()),
        Err(_) => format!("CUDA {major}.{minor}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_two_transfers_per_clock() {
        // H200: HBM3e at 3201 MHz on 6144 bits, 4.9 TB/s.
        assert_eq!(peak_bandwidth(3_201_000, 6144), Some(4_916_736_000_000));
        assert_eq!(peak_bandwidth(0, 6144), None);
    }

    /// Without a driver: an error, not a panic. With a driver: a list.
    #[test]
    fn a_missing_driver_is_an_error_with_advice() {
        match devices() {
            Ok(devices) => assert!(devices.iter().all(|device| !device.name.is_empty())),
            Err(error @ Error::Unavailable { .. }) => {
                assert!(error.advice().is_some_and(|advice| advice.contains("device `emulator`")), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
