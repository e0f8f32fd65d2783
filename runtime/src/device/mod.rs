//! Devices that run PTX: NVIDIA GPUs through the driver, and the project's emulator.
//!
//! A [`Device`] owns memory, loads PTX into [`Module`]s and binds [`Launch`]es into a [`LaunchSequence`], which runs
//! eagerly, or is captured into a graph once and replayed. Work is ordered: everything enqueued on one device runs
//! in the order in which it was asked for, uploads and downloads included. Both devices take the same launches,
//! hold them to the same rules and report the same names, so that a plan is checked on either.
//!
//! A launch names raw device addresses. The caller keeps the [`Allocation`]s behind them alive until the device has
//! been waited for.
//!
//! # Your own kernels
//!
//! Kernels that a build script emitted ([`bespoke_codegen::emit`]) are launched through their generated stubs, by a
//! [`StubLauncher`], or collected for a [`LaunchSequence`] by a [`StubRecorder`]; the package `own-kernel` in the repository
//! is a whole program that does. A kernel may also be recorded, compiled and launched by one program:
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
//! // A GPU if there is one, else the emulator; `Selector` also reads "cuda:1" or "emulator".
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

use std::fmt;

pub use bespoke_emulator::Checks;
pub use buffer::{Buffer, Element};
use serde::{Serialize, Serializer};

pub use emulator::checking;
#[cfg(test)]
pub(crate) use emulator::with as emulator_with;
pub use error::{DriverFailure, Error};
pub use journal::{Journal, JournalEntries};
pub use launch::{GraphReport, Kernel, Launch, LaunchSequence, Module, Resources};
pub use module_loader::{CACHE_VARIABLE, CodeOrigin, MachineCode, ModuleSource, cache};
pub use selector::{Opened, Selector, SelectorError, list, open, open_with};
pub use signature::{KernelSignature, Parameter};
pub use stubs::{StubLauncher, StubRecorder};

/// What a device's calls return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which sort of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An NVIDIA GPU, by its position among those the driver shows.
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
    /// As the command line names it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What does not change about a device while it is open.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceInfo {
    /// Which sort, and which one.
    pub kind: Kind,
    /// The device's own name.
    pub name: String,
    /// Compute capability: major, minor.
    pub compute: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of device memory.
    pub memory_total: u64,
    /// Bytes of L2 cache; 0 where there is none.
    pub l2_bytes: u64,
    /// Bytes of shared memory a block may have, static and dynamic together.
    pub shared_per_block_optin: u32,
    /// Peak memory bandwidth in bytes a second, from clock and bus width, where the driver tells them.
    pub peak_bandwidth: Option<u64>,
    /// The driver, in words.
    pub driver: Option<String>,
}

/// Device memory at one moment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that can still be allocated.
    pub free: u64,
    /// Bytes there are.
    pub total: u64,
}

/// The clocks that a device runs at, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clocks {
    /// Of the multiprocessors, in MHz.
    pub sm_mhz: u32,
    /// Of the memory, in MHz.
    pub memory_mhz: u32,
}

/// An address in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further on.
    pub fn offset(self, bytes: u64) -> Address {
        Address(self.0 + bytes)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Device memory that is freed when this is dropped. Its content is undefined until it is written.
pub struct Allocation {
    address: Address,
    bytes: u64,
    _owner: Box<dyn Send + Sync>,
}

impl Allocation {
    /// Memory at `address` that `owner` frees when dropped.
    fn new(address: Address, bytes: u64, owner: impl Send + Sync + 'static) -> Allocation {
        Allocation { address, bytes, _owner: Box::new(owner) }
    }

    /// Where it starts, aligned to at least 256 bytes.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", Bytes(self.bytes), self.address)
    }
}

/// The host's way into memory that kernels write.
trait HostMemory: Send + Sync {
    /// Copies out `out.len()` bytes from `offset`, which the caller has checked to be inside.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()>;
}

/// Memory that kernels write and the host reads without a copy; zero at first.
pub struct HostVisible {
    address: Address,
    bytes: u64,
    memory: Box<dyn HostMemory>,
}

impl HostVisible {
    /// Where kernels find it.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies out `out.len()` bytes from `offset`. What a kernel wrote is there once the device was waited for;
    /// before that a read returns old or new bytes, aligned words untorn.
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

/// Something that runs PTX.
pub trait Device: Send + Sync {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Its memory now.
    fn memory(&self) -> Result<MemoryInfo>;

    /// Allocates device memory; `name` says in errors and findings what it is for.
    fn alloc(&self, name: &str, bytes: u64) -> Result<Allocation>;

    /// Allocates memory that kernels write and the host reads.
    fn alloc_host_visible(&self, name: &str, bytes: u64) -> Result<HostVisible>;

    /// Copies to the device, after all work enqueued so far. `bytes` may be reused on return.
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()>;

    /// Copies from the device, after all work enqueued so far.
    fn download(&self, from: Address, out: &mut [u8]) -> Result<()>;

    /// Sets `bytes` bytes of device or host-visible memory to `value`, after all work enqueued so far. Does not wait.
    fn fill(&self, to: Address, bytes: u64, value: u8) -> Result<()>;

    /// Loads a module: from its machine code if the device takes that, else from its PTX.
    fn load_source(&self, source: &ModuleSource<'_>) -> Result<Module>;

    /// Loads a module from its PTX alone. `name` stands for the text in messages.
    fn load(&self, name: &str, ptx: &str) -> Result<Module> {
        self.load_source(&ModuleSource::ptx(name, ptx))
    }

    /// Binds launches of this device's kernels, checking each against its kernel and the device.
    fn sequence(&self, launches: Vec<Launch>) -> Result<Box<dyn LaunchSequence>>;

    /// Waits for all work enqueued so far.
    fn wait(&self) -> Result<()>;

    /// Whether work enqueued is not finished, without waiting for it; an error if a kernel faulted.
    fn busy(&self) -> Result<bool>;

    /// The clocks now, where there are any and something tells them.
    fn clocks(&self) -> Option<Clocks> {
        None
    }
}

/// Bytes in words: `4.08 GiB`.
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
    fn bytes_are_said_in_the_largest_unit_that_fits() {
        let said = [0, 1023, 1024, 1536, 5 << 30, 3 << 40, u64::MAX].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(
            said,
            ["0 bytes", "1023 bytes", "1.00 KiB", "1.50 KiB", "5.00 GiB", "3.00 TiB", "16.00 EiB"]
        );
    }
}
