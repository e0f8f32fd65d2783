//! Modules, kernels, launches and sequences of launches.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::signature::KernelSignature;
use super::{CodeOrigin, Error, Result};

/// Largest number of threads per CTA (source of this and the next two constants: CUDA C++ Programming Guide, technical
/// specifications).
const MAX_THREADS_PER_BLOCK: u64 = 1024;
/// Largest size of a CTA in threads along x, y and z.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Largest size of a grid in CTAs along x, y and z.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// Resources of a kernel, as the assembler reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// 32-bit registers per thread.
    pub registers: u32,
    /// Bytes of static shared memory per CTA.
    pub static_shared: u32,
    /// Bytes of local memory per thread: spills, and arrays that are not in registers.
    pub local: u32,
    /// Largest number of threads per CTA with which the kernel's registers fit a multiprocessor.
    pub max_threads: u32,
}

/// Kernel of a loaded module. A `Kernel` keeps its module loaded.
#[derive(Clone)]
pub struct Kernel(Arc<KernelInner>);

struct KernelInner {
    module: Arc<str>,
    entry: KernelSignature,
    resources: Option<Resources>,
    origin: Option<CodeOrigin>,
    /// Device-specific handle, such as a function of the driver.
    handle: Box<dyn Any + Send + Sync>,
}

impl Kernel {
    /// Name of the kernel in the PTX.
    pub fn name(&self) -> &str {
        &self.0.entry.name
    }

    /// Name of the kernel's module.
    pub fn module(&self) -> &str {
        &self.0.module
    }

    /// Name of the kernel, and the layout of its parameters.
    pub fn signature(&self) -> &KernelSignature {
        &self.0.entry
    }

    /// Registers, shared memory and local memory of the kernel; none on the emulator.
    pub fn resources(&self) -> Option<Resources> {
        self.0.resources
    }

    /// Origin of the kernel's machine code; none on the emulator.
    pub fn origin(&self) -> Option<CodeOrigin> {
        self.0.origin
    }

    /// Device-specific handle, if it has the type `T`.
    pub(super) fn handle<T: 'static>(&self) -> Option<&T> {
        self.0.handle.downcast_ref()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.module(), self.name())
    }
}

/// A module loaded on a device, with its kernels.
#[derive(Clone, Debug)]
pub struct Module {
    name: Arc<str>,
    kernels: BTreeMap<String, Kernel>,
    log: String,
    origin: Option<CodeOrigin>,
}

impl Module {
    pub(super) fn new(name: &str, log: String, origin: Option<CodeOrigin>) -> Module {
        Module { name: name.into(), kernels: BTreeMap::new(), log, origin }
    }

    pub(super) fn add(
        &mut self,
        entry: KernelSignature,
        resources: Option<Resources>,
        handle: impl Any + Send + Sync,
    ) {
        let name = entry.name.clone();
        let (module, origin) = (self.name.clone(), self.origin);
        let inner = KernelInner { module, entry, resources, origin, handle: Box::new(handle) };
        self.kernels.insert(name, Kernel(Arc::new(inner)));
    }

    /// Name under which the module was loaded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the module's kernel called `name`.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.kernels.get(name).cloned().ok_or_else(|| Error::KernelNotFound {
            module: self.name.to_string(),
            kernel: name.to_owned(),
            available: self.kernels.keys().cloned().collect(),
        })
    }

    /// Kernels of the module, sorted by name.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.values()
    }

    /// Log of the assembler that produced the module's machine code; often empty.
    pub fn log(&self) -> &str {
        &self.log
    }
}

/// Launch of a kernel: grid, CTA size, shared memory and parameters.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// CTAs of the grid along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per CTA.
    pub dynamic_shared: u32,
    /// Bytes of the parameters, laid out as the kernel declares: each parameter naturally aligned and little-endian.
    pub params: Vec<u8>,
    /// Programmatic dependent launch: the launch may start before the previous one ends, and the kernel executes
    /// `griddepcontrol.wait` before it accesses memory that earlier launches access. Ignored for the first launch of a
    /// sequence and below compute capability 9.0, where every launch waits for the previous one.
    pub programmatic: bool,
}

impl Launch {
    /// Checks the rules common to all devices: the sizes of grid and CTA, and the size of the parameters.
    pub(super) fn check(&self, index: usize) -> Result<()> {
        let fail = |why: String| Err(self.error(index, why));
        if self.grid.contains(&0) || self.block.contains(&0) {
            return fail(format!("a grid of {:?} CTAs of {:?} threads is empty", self.grid, self.block));
        }
        let exceeds =
            |sizes: [u32; 3], limits: [u32; 3]| sizes.iter().zip(&limits).any(|(size, limit)| size > limit);
        if exceeds(self.grid, MAX_GRID) {
            return fail(format!("a grid of {:?} CTAs; {MAX_GRID:?} is the maximum", self.grid));
        }
        if exceeds(self.block, MAX_BLOCK) {
            return fail(format!("CTAs of {:?} threads; {MAX_BLOCK:?} is the maximum", self.block));
        }
        let threads: u64 = self.block.iter().map(|&size| u64::from(size)).product();
        if threads > MAX_THREADS_PER_BLOCK {
            return fail(format!("CTAs of {threads} threads; {MAX_THREADS_PER_BLOCK} is the maximum"));
        }
        let declared = self.kernel.signature().parameter_bytes();
        let given = self.params.len();
        // On the host, the size of a parameter struct is padded to the struct's alignment; in PTX it is not.
        if given != declared && given != declared.next_multiple_of(8) {
            return fail(format!("{given} bytes of parameters for a kernel that declares {declared}"));
        }
        Ok(())
    }

    pub(super) fn error(&self, index: usize, why: String) -> Error {
        Error::Launch { index, kernel: self.kernel.name().to_owned(), why }
    }
}

/// Description of a captured graph, read back from the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphReport {
    /// Number of nodes of any type.
    pub nodes: usize,
    /// Nodes in dependency order: the name of a kernel, or `(type)` for another node.
    pub kernels: Vec<String>,
    /// Number of edges of any type.
    pub edges: usize,
    /// Number of programmatic edges.
    pub programmatic_edges: usize,
}

/// Launches bound to a device, executed in order.
pub trait LaunchSequence: Send {
    /// Enqueues the launches one by one, without a graph.
    fn run_eager(&mut self) -> Result<()>;

    /// Captures the launches as a graph, unless they are captured already, and describes the graph. After an error the
    /// launches can still run eagerly.
    fn capture(&mut self) -> Result<GraphReport>;

    /// Enqueues the captured graph with one driver call. Does not allocate or block.
    fn replay(&mut self) -> Result<()>;

    /// Waits for all work enqueued on the device.
    fn wait(&mut self) -> Result<()>;

    /// Runs every launch once, eagerly, and returns the time of each in microseconds. A time includes the gap before
    /// the launch, so the time is an upper bound of the kernel's time. Launches do not overlap.
    fn profile(&mut self) -> Result<Vec<f64>>;

    /// Replays the graph `count` times and returns the mean time of a replay in milliseconds, by the device's clock.
    fn time_replays(&mut self, count: u32) -> Result<f64>;
}
