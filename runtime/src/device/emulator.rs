//! The project's PTX emulator as a device: runs launches on the CPU and checks them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bespoke_codegen::launch::DriverArguments;
use bespoke_emulator as emulator;

use super::signature::{KernelSignature, Parameter};
use super::system_memory::SystemMemory;
use super::{
    Address, Allocation, Checks, Device, DeviceInfo, Error, GraphReport, HostMemory, HostVisible, Journal,
    Kernel, Kind, Launch, LaunchSequence, MemoryInfo, Module, ModuleSource, Result, assembler_log,
};

/// Compute capability of the emulated device: sm_90 has every instruction that the kernels use.
const COMPUTE: (u32, u32) = (9, 0);
/// Multiprocessors, their shared memory and threads, and the largest shared memory per CTA: those of an H100 or H200
/// (CUDA C++ Programming Guide, technical specifications). Plans for the emulator are those for these GPUs.
const MULTIPROCESSORS: u32 = 132;
const SHARED_PER_MULTIPROCESSOR: u32 = 228 << 10;
const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
const SHARED_PER_BLOCK: u32 = 227 << 10;
/// Bytes of host memory assumed if the size is unknown.
const ASSUMED_MEMORY: u64 = 8 << 30;

/// Properties of the emulator.
pub(super) fn info() -> DeviceInfo {
    DeviceInfo {
        kind: Kind::Emulator,
        name: "bespoke PTX emulator".to_owned(),
        compute: COMPUTE,
        multiprocessors: MULTIPROCESSORS,
        memory_total: memory(SystemMemory::read()),
        l2_bytes: 0,
        shared_per_block_optin: SHARED_PER_BLOCK,
        shared_per_multiprocessor: SHARED_PER_MULTIPROCESSOR,
        threads_per_multiprocessor: THREADS_PER_MULTIPROCESSOR,
        peak_bandwidth: None,
        driver: None,
    }
}

/// Bytes of memory that the emulator may use: half of the host's memory.
pub fn memory_total() -> u64 {
    info().memory_total
}

/// An emulator with changed properties.
#[cfg(test)]
pub(crate) fn with_info(change: impl FnOnce(&mut DeviceInfo)) -> Box<dyn Device> {
    let mut info = info();
    change(&mut info);
    Box::new(EmulatorDevice::with_info(info, Checks::ALL, None))
}

/// Bytes of device memory that the emulator offers: half of the host's memory, and at most seven eighths of what is
/// available, since the host needs memory for reading the model, too.
fn memory(host: Option<SystemMemory>) -> u64 {
    let assumed = SystemMemory { total: ASSUMED_MEMORY, available: ASSUMED_MEMORY };
    let SystemMemory { total, available } = host.unwrap_or(assumed);
    (total / 2).min(available - available / 8)
}

/// An emulator that records findings in a journal and continues with the next launch.
pub fn checking(journal: Arc<Journal>, checks: Checks) -> Box<dyn Device> {
    Box::new(EmulatorDevice::with_info(info(), checks, Some(journal)))
}

/// Number of warp instructions of running CTAs after which a launch is considered hung: some minutes of emulation, and
/// far more than a decoder's kernels execute.
const INSTRUCTION_LIMIT: u64 = 1 << 32;

/// The emulator as a device.
pub(super) struct EmulatorDevice {
    info: DeviceInfo,
    state: Arc<State>,
}

/// State shared by the device, its allocations and its sequences.
struct State {
    memory: emulator::Memory,
    used: AtomicU64,
    /// Checks that the emulator makes during launches.
    checks: Checks,
    /// Lock held while launches run: sequences run one at a time, as on a stream.
    running: Mutex<()>,
    /// Journal that records findings; without a journal, a finding stops the sequence.
    journal: Option<Arc<Journal>>,
}

impl EmulatorDevice {
    /// An emulator with empty memory and these checks.
    pub fn new(checks: Checks) -> EmulatorDevice {
        EmulatorDevice::with_info(info(), checks, None)
    }

    fn with_info(info: DeviceInfo, checks: Checks, journal: Option<Arc<Journal>>) -> EmulatorDevice {
        let memory = emulator::Memory::new();
        let state = State { memory, used: AtomicU64::new(0), checks, running: Mutex::new(()), journal };
        EmulatorDevice { info, state: Arc::new(state) }
    }

    fn allocate(&self, name: &str, bytes: u64) -> Result<EmulatedMemory> {
        let total = self.info.memory_total;
        let claim = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= total);
        match self.state.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim) {
            Ok(_) => {
                let address = self.state.memory.alloc(name, bytes);
                Ok(EmulatedMemory { state: self.state.clone(), address, bytes })
            }
            Err(used) => Err(Error::OutOfMemory {
                device: self.info.name.clone(),
                name: name.to_owned(),
                needed: bytes,
                free: total.saturating_sub(used),
                total,
            }),
        }
    }
}

/// Memory of the emulator, freed on drop.
struct EmulatedMemory {
    state: Arc<State>,
    address: u64,
    bytes: u64,
}

impl Drop for EmulatedMemory {
    fn drop(&mut self) {
        // Fails only for an address that is not allocated.
        let _ = self.state.memory.free(self.address);
        self.state.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl HostMemory for EmulatedMemory {
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.state.memory.read(self.address + offset, out).map_err(access)
    }
}

fn access(error: emulator::MemoryError) -> Error {
    Error::Access(error.to_string())
}

impl Device for EmulatorDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let total = self.info.memory_total;
        Ok(MemoryInfo { free: total.saturating_sub(self.state.used.load(Ordering::Relaxed)), total })
    }

    fn alloc(&self, name: &str, bytes: u64) -> Result<Allocation> {
        let memory = self.allocate(name, bytes)?;
        Ok(Allocation::new(Address(memory.address), bytes, memory))
    }

    fn alloc_host_visible(&self, name: &str, bytes: u64) -> Result<HostVisible> {
        let memory = self.allocate(name, bytes)?;
        self.state.memory.fill(memory.address, bytes, 0).map_err(access)?;
        Ok(HostVisible::new(Address(memory.address), bytes, memory))
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()> {
        self.state.memory.write(to.0, bytes).map_err(access)
    }

    fn download(&self, from: Address, out: &mut [u8]) -> Result<()> {
        self.state.memory.read(from.0, out).map_err(access)
    }

    fn fill(&self, to: Address, bytes: u64, value: u8) -> Result<()> {
        self.state.memory.fill(to.0, bytes, value).map_err(access)
    }

    fn store(&self, to: Address, word: u32) -> Result<()> {
        self.upload(to, &word.to_le_bytes())
    }

    fn load_source(&self, &ModuleSource { name, ptx, .. }: &ModuleSource<'_>) -> Result<Module> {
        let refused = |message: String| Error::Assembly { module: name.to_owned(), message, help: None };
        let parsed = emulator::Module::parse(ptx).map_err(|error| refused(parse_message(&error, ptx)))?;
        let parsed = Arc::new(parsed);
        if let Some(journal) = &self.state.journal {
            journal.loaded(parsed.kernels().map(emulator::Kernel::name), ptx);
        }
        let mut module = Module::new(name, String::new(), None);
        for (position, kernel) in parsed.kernels().enumerate() {
            let parameter = |param: &emulator::Param| Parameter {
                offset: param.offset as usize,
                bytes: param.size as usize,
            };
            let parameters = kernel.params().iter().map(parameter).collect();
            let signature = KernelSignature { name: kernel.name().to_owned(), parameters };
            module.add(signature, None, EmulatedKernel { module: parsed.clone(), position });
        }
        Ok(module)
    }

    fn encode_tensor_map(&self, arguments: &DriverArguments) -> Result<[u8; emulator::TENSOR_MAP_BYTES]> {
        let map = emulator::TensorMap::from_driver(&emulator::DriverTensorMap {
            data_type: arguments.data_type,
            address: arguments.address,
            sizes: &arguments.sizes,
            strides: &arguments.strides,
            box_sizes: &arguments.tile,
            steps: &arguments.steps,
            interleave: arguments.interleave,
            swizzle: arguments.swizzle,
            fill: arguments.fill,
        });
        map.and_then(|map| map.encode()).map_err(|error| Error::TensorMap(error.to_string()))
    }

    fn sequence(&self, launches: Vec<Launch>) -> Result<Box<dyn LaunchSequence>> {
        let bind = |(index, launch)| bind(&self.info, index, launch);
        let launches = launches.into_iter().enumerate().map(bind).collect::<Result<_>>()?;
        let state = self.state.clone();
        Ok(Box::new(EmulatorSequence { state, launches, order: Mutex::default(), captured: false }))
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn busy(&self) -> Result<bool> {
        Ok(false)
    }
}

/// Device-specific handle inside a [`Kernel`] of the emulator.
struct EmulatedKernel {
    module: Arc<emulator::Module>,
    /// Index among the module's kernels.
    position: usize,
}

impl EmulatedKernel {
    fn get(&self) -> Option<&emulator::Kernel> {
        self.module.kernels().nth(self.position)
    }
}

/// A checked launch, ready to run.
struct BoundLaunch {
    kernel: Kernel,
    config: emulator::LaunchConfig,
    params: Vec<u8>,
    programmatic: bool,
}

/// Checks a launch against its kernel and the device.
fn bind(info: &DeviceInfo, index: usize, launch: Launch) -> Result<BoundLaunch> {
    launch.check(index)?;
    let Some(kernel) = launch.kernel.handle::<EmulatedKernel>().and_then(EmulatedKernel::get) else {
        return Err(launch.error(index, "the kernel was loaded on another device".to_owned()));
    };
    let shared = u64::from(launch.dynamic_shared) + kernel.static_shared_bytes();
    if shared > u64::from(info.shared_per_block_optin) {
        let why = format!(
            "{shared} bytes of shared memory for each CTA ({} dynamic); {} has {}",
            launch.dynamic_shared, info.name, info.shared_per_block_optin
        );
        return Err(launch.error(index, why));
    }
    let mut params = launch.params;
    params.truncate(launch.kernel.signature().parameter_bytes());
    let config = emulator::LaunchConfig {
        grid: launch.grid,
        block: launch.block,
        dynamic_shared: launch.dynamic_shared,
        // The kernel's own cluster dimensions apply.
        cluster: None,
        cooperative: false,
    };
    Ok(BoundLaunch { kernel: launch.kernel, config, params, programmatic: launch.programmatic && index > 0 })
}

/// Launches in order. To enqueue a launch is to run the launch, so there is nothing to wait for, and the list serves as
/// the graph.
struct EmulatorSequence {
    state: Arc<State>,
    launches: Vec<BoundLaunch>,
    /// Detects programmatic launches that access memory of earlier launches without waiting.
    order: Mutex<emulator::ProgrammaticOrder>,
    captured: bool,
}

impl EmulatorSequence {
    /// Runs launch `index`. `order` checks that a programmatic launch waits before it accesses memory of earlier
    /// launches.
    fn run(&self, index: usize, order: Option<&mut emulator::ProgrammaticOrder>) -> Result<()> {
        let launch = &self.launches[index];
        let fault = |finding: String| {
            let kernel = launch.kernel.name().to_owned();
            Error::Fault { index, kernel, finding }
        };
        let Some(kernel) = launch.kernel.handle().and_then(EmulatedKernel::get) else {
            return Err(fault("the kernel was loaded on another device".to_owned()));
        };
        let journal = self.state.journal.as_deref();
        let profile = journal.is_some_and(Journal::profiles);
        let options = emulator::Options {
            checks: self.state.checks,
            profile,
            instruction_limit: INSTRUCTION_LIMIT,
            ..emulator::Options::default()
        };
        let (memory, config, params) = (&self.state.memory, &launch.config, &launch.params);
        let outcome = match order {
            Some(order) if launch.programmatic => {
                order.run_programmatic(kernel, memory, config, params, &options)
            }
            Some(order) => order.run(kernel, memory, config, params, &options),
            None => emulator::run(kernel, memory, config, params, &options),
        };
        match journal {
            Some(journal) => {
                journal.record(outcome);
                Ok(())
            }
            None => outcome.map(|_| ()).map_err(|finding| fault(finding.to_string())),
        }
    }

    fn run_all(&self) -> Result<()> {
        let _running = self.state.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let launches = self.launches.iter().map(|launch| launch.programmatic);
        let followed = launches.clone().skip(1).chain([false]);
        // Only launches with a programmatic edge before or after them need the check.
        let checked = self.state.checks != Checks::NONE;
        let ordered = launches.zip(followed).map(|(from, to)| checked && (from || to));
        ordered.enumerate().try_for_each(|(index, ordered)| self.run(index, ordered.then_some(&mut *order)))
    }
}

impl LaunchSequence for EmulatorSequence {
    fn run_eager(&mut self) -> Result<()> {
        self.run_all()
    }

    fn capture(&mut self) -> Result<GraphReport> {
        self.captured = true;
        Ok(GraphReport {
            nodes: self.launches.len(),
            kernels: self.launches.iter().map(|launch| launch.kernel.name().to_owned()).collect(),
            edges: self.launches.len().saturating_sub(1),
            programmatic_edges: self.launches.iter().filter(|launch| launch.programmatic).count(),
        })
    }

    fn replay(&mut self) -> Result<()> {
        match self.captured {
            true => self.run_all(),
            false => Err(Error::NotCaptured),
        }
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn profile(&mut self) -> Result<Vec<f64>> {
        let _running = self.state.running.lock().unwrap_or_else(PoisonError::into_inner);
        (0..self.launches.len())
            .map(|index| {
                let start = Instant::now();
                self.run(index, None)?;
                Ok(start.elapsed().as_secs_f64() * 1e6)
            })
            .collect()
    }

    fn time_replays(&mut self, count: u32) -> Result<f64> {
        let start = Instant::now();
        (0..count).try_for_each(|_| self.replay())?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / f64::from(count.max(1)))
    }
}

/// The parser's error with the PTX lines around it.
fn parse_message(error: &emulator::ParseError, ptx: &str) -> String {
    format!("the emulator cannot parse the PTX: {error}{}", assembler_log::excerpt(ptx, error.line as usize))
}

#[cfg(test)]
mod tests;
