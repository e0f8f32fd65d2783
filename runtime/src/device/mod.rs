//! Devices that run PTX: NVIDIA GPUs through the driver, and the project's emulator.
//!
//! A [`Device`] owns memory, loads PTX into [`Module`]s and binds [`Launch`]es into a [`LaunchSequence`], which runs
//! eagerly, or is captured as a graph once and replayed. A device executes all enqueued work in order, uploads and
//! downloads included. Both kinds of device accept the same launches, check them by the same rules and report the same
//! kernel names.
//!
//! A launch holds raw device addresses. The caller keeps the [`Allocation`]s alive until the launch has completed
//! ([`Device::wait`]).
//!
//! # Launching your own kernels
//!
//! Kernels that a build script emitted ([`bespoke_codegen::emit`]) are launched through their generated stubs by a
//! [`StubLauncher`], or collected for a [`LaunchSequence`] by a [`StubRecorder`]. The package `own-kernel` in the
//! repository is an example. A program can also record, compile and launch a kernel itself:
//!
//! ```
//! use bespoke::device::{self, Launch, Selector};
//! use bespoke_codegen::launch::params;
//! use bespoke_codegen::prelude::*;
//!
//! /// y[i] += a · x[i] for i < n.
//! #[kernel(threads = 128)]
//! fn axpy(x: Ptr<Global, f32>, y: Ptr<Global, f32>, a: Val<f32>, n: Val<u32>) {
//!     let i = block_index() * 128 + thread_index();
//!     if i < n {
//!         y.at(i).store(fma(a, x.at(i).load(), y.at(i).load()));
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A GPU if there is one, else the emulator. `Selector` also parses "cuda:1" and "emulator".
//! let device = device::open(Selector::Auto)?.device;
//! let (major, minor) = device.info().compute;
//! let target = Target::for_device(major, minor).ok_or("the GPU is too old")?;
//! let module = device.load("axpy", &axpy()?.compile(target)?.ptx)?;
//!
//! let x = device.buffer_of("x", &[1.0f32; 300])?;
//! let y = device.buffer_of("y", &[0.5f32; 300])?;
//! let launch = Launch {
//!     kernel: module.kernel("axpy")?,
//!     grid: [3, 1, 1],
//!     block: [128, 1, 1],
//!     dynamic_shared: 0,
//!     params: params(&[&x.pointer(), &y.pointer(), &2.0f32, &300u32]),
//!     programmatic: false,
//! };
//! device.sequence(vec![launch])?.run_eager()?;
//! assert_eq!(device.read(&y)?, [2.5; 300]);
//! # Ok(())
//! # }
//! ```

mod assembler_log;
mod buffer;
mod cuda;
mod emulator;
mod error;
mod journal;
mod launch;
mod module_loader;
mod selector;
mod signature;
mod stubs;
mod system_memory;
mod tensor_map;

use std::fmt;

use bespoke_codegen::launch::DriverArguments;
use serde::{Serialize, Serializer};

pub use bespoke_emulator::{Checks, TENSOR_MAP_BYTES};
pub use buffer::{Buffer, Element};
#[cfg(test)]
pub(crate) use emulator::with_info as emulator_with_info;
pub use emulator::{checking, memory_total as emulator_memory};
pub use error::{DriverFailure, Error};
pub use journal::{Journal, JournalEntries};
pub use launch::{GraphReport, Kernel, Launch, LaunchSequence, Module, Resources};
pub use module_loader::{CACHE_VARIABLE, CodeOrigin, MachineCode, ModuleSource, cache};
pub use selector::{Opened, Selector, SelectorError, list, open, open_with};
pub use signature::{KernelSignature, Parameter};
pub use stubs::{StubLauncher, StubRecorder};

/// Result of a device call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An NVIDIA GPU.
    Cuda {
        /// The driver's device ordinal.
        ordinal: u32,
    },
    /// The project's PTX emulator.
    Emulator,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Cuda { ordinal } => write!(f, "cuda:{ordinal}"),
            Kind::Emulator => f.write_str("emulator"),
        }
    }
}

impl Serialize for Kind {
    /// Serialises as the command line spells it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Constant properties of a device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceInfo {
    /// Kind of the device, with the ordinal of a GPU.
    pub kind: Kind,
    /// Name of the device.
    pub name: String,
    /// Compute capability: major, minor.
    pub compute: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of device memory.
    pub memory_total: u64,
    /// Bytes of L2 cache; 0 on the emulator.
    pub l2_bytes: u64,
    /// Largest shared memory per CTA in bytes, static and dynamic together.
    pub shared_per_block_optin: u32,
    /// Shared memory of a multiprocessor in bytes.
    pub shared_per_multiprocessor: u32,
    /// Maximum resident threads of a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Peak memory bandwidth in bytes per second, computed from memory clock and bus width if the driver reports both.
    pub peak_bandwidth: Option<u64>,
    /// Versions of CUDA and the driver, as text.
    pub driver: Option<String>,
}

/// Current use of device memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free device memory in bytes.
    pub free: u64,
    /// Total device memory in bytes.
    pub total: u64,
}

/// Current clocks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clocks {
    /// Clock of the multiprocessors in MHz.
    pub sm_mhz: u32,
    /// Clock of the memory in MHz.
    pub memory_mhz: u32,
}

/// An address in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The address plus `bytes`.
    pub fn offset(self, bytes: u64) -> Address {
        Address(self.0 + bytes)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Device memory, freed on drop. Its content is undefined until it is written.
pub struct Allocation {
    address: Address,
    bytes: u64,
    _owner: Box<dyn Send + Sync>,
}

impl Allocation {
    /// Memory at `address` that is freed when `owner` is dropped. For implementations of [`Device`].
    pub fn new(address: Address, bytes: u64, owner: impl Send + Sync + 'static) -> Allocation {
        Allocation { address, bytes, _owner: Box::new(owner) }
    }

    /// Start address, aligned to at least 256 bytes.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", Bytes(self.bytes), self.address)
    }
}

/// Host access to memory that kernels write. For implementations of [`Device`].
pub trait HostMemory: Send + Sync {
    /// Copies `out.len()` bytes from `offset`. The caller checks the bounds.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()>;
}

/// Memory that kernels write and the host reads directly, initially zero.
pub struct HostVisible {
    address: Address,
    bytes: u64,
    memory: Box<dyn HostMemory>,
}

impl HostVisible {
    /// Memory of `bytes` bytes at `address`, which the host reads through `memory`. For implementations of [`Device`].
    pub fn new(address: Address, bytes: u64, memory: impl HostMemory + 'static) -> HostVisible {
        HostVisible { address, bytes, memory: Box::new(memory) }
    }

    /// Address of the memory on the device.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies `out.len()` bytes from `offset`. Writes of a kernel are visible once the kernel has completed; before
    /// that a read returns old or new values, but never a torn aligned word.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let length = out.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err(Error::Access(format!(
                "read of {length} bytes at {offset} of host-visible memory that has {}",
                self.bytes
            )));
        }
        self.memory.read(offset, out)
    }
}

/// Maximum size in bytes for which [`Device::upload_filled`] avoids another copy on the host.
pub const MAX_STAGED_BYTES: u64 = 32 << 20;

/// A device that runs PTX.
pub trait Device: Send + Sync {
    /// Constant properties of the device.
    fn info(&self) -> &DeviceInfo;

    /// Current use of the device's memory.
    fn memory(&self) -> Result<MemoryInfo>;

    /// Allocates device memory. `name` appears in errors and findings.
    fn alloc(&self, name: &str, bytes: u64) -> Result<Allocation>;

    /// Allocates memory that kernels write and the host reads.
    fn alloc_host_visible(&self, name: &str, bytes: u64) -> Result<HostVisible>;

    /// Copies to the device, ordered after all enqueued work. `bytes` may be reused on return.
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()>;

    /// Copies `bytes` bytes that `fill` writes to the device, ordered after all enqueued work. Up to [`MAX_STAGED_BYTES`] bytes are
    /// written where the device copies them from, without another copy on the host. The copy may still run on return, and
    /// work that is enqueued later waits for it.
    fn upload_filled(&self, to: Address, bytes: u64, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let mut content = vec![0; bytes as usize];
        fill(&mut content);
        self.upload(to, &content)
    }

    /// Copies from the device, ordered after all enqueued work.
    fn download(&self, from: Address, out: &mut [u8]) -> Result<()>;

    /// Sets `bytes` bytes of device or host-visible memory to `value`, ordered after all enqueued work. Does not block.
    fn fill(&self, to: Address, bytes: u64, value: u8) -> Result<()>;

    /// Writes a word of device memory, aligned to 4 bytes, ordered after all enqueued work. Does not block.
    fn store(&self, to: Address, word: u32) -> Result<()>;

    /// Loads a module: from the machine code in `source` if the code matches the device, else from the PTX.
    fn load_source(&self, source: &ModuleSource<'_>) -> Result<Module>;

    /// Loads a module from PTX. `name` identifies the module in messages.
    fn load(&self, name: &str, ptx: &str) -> Result<Module> {
        self.load_source(&ModuleSource::ptx(name, ptx))
    }

    /// Encodes a tensor map of this device's memory. [`tensor_map`](#method.tensor_map) of `dyn Device` has a typed form.
    fn encode_tensor_map(&self, arguments: &DriverArguments) -> Result<[u8; TENSOR_MAP_BYTES]>;

    /// Binds launches of this device's kernels, after checking each against its kernel and the device.
    fn sequence(&self, launches: Vec<Launch>) -> Result<Box<dyn LaunchSequence>>;

    /// Waits for all enqueued work.
    fn wait(&self) -> Result<()>;

    /// Whether enqueued work is unfinished; an error if a kernel faulted. Does not block.
    fn busy(&self) -> Result<bool>;

    /// Gives up a device on which a kernel hangs. Every later call fails with [`Error::Abandoned`], and dropping the
    /// device and its resources frees nothing, because that would wait for the kernel. The end of the process frees
    /// them. A device that never hangs does nothing.
    fn abandon(&self) {}

    /// Current clocks; none if the device does not report clocks.
    fn clocks(&self) -> Option<Clocks> {
        None
    }
}

/// Displays a number of bytes, such as `4.08 GiB`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let power = (self.0.ilog2() / 10).min(UNITS.len() as u32);
        let scaled = self.0 as f64 / (1u64 << (10 * power)) as f64;
        write!(f, "{scaled:.2} {}", UNITS[power as usize - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_fits() {
        let shown = [0, 1023, 1024, 1536, 5 << 30, 3 << 40, u64::MAX].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(
            shown,
            ["0 bytes", "1023 bytes", "1.00 KiB", "1.50 KiB", "5.00 GiB", "3.00 TiB", "16.00 EiB"]
        );
    }
}
