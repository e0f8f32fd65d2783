//! Kernels, launches of them, and sequences of launches.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::signature::KernelSignature;
use super::{CodeOrigin, Error, Result};

/// Threads a block may have on every target of the project, and in x, y, z; then blocks a grid may have in x, y, z
/// (CUDA C++ Programming Guide, technical specifications).
const MAX_THREADS_PER_BLOCK: u64 = 1024;
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// What a kernel takes of a multiprocessor, as the assembler reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// 32-bit registers a thread.
    pub registers: u32,
    /// Bytes of statically allocated shared memory a block.
    pub static_shared: u32,
    /// Bytes of local memory a thread: spills and arrays that are not in registers.
    pub local: u32,
    /// Threads a block can have at that register count.
    pub max_threads: u32,
}

/// A kernel of a loaded module; keeps the module loaded.
#[derive(Clone)]
pub struct Kernel(Arc<KernelInner>);

struct KernelInner {
    module: Arc<str>,
    entry: KernelSignature,
    resources: Option<Resources>,
    origin: Option<CodeOrigin>,
    /// The device's own handle.
    handle: Box<dyn Any + Send + Sync>,
}

impl Kernel {
    /// The kernel's name in the PTX.
    pub fn name(&self) -> &str {
        &self.0.entry.name
    }

    /// The name of the module it comes from.
    pub fn module(&self) -> &str {
        &self.0.module
    }

    /// Its declaration: name and parameters.
    pub fn signature(&self) -> &KernelSignature {
        &self.0.entry
    }

    /// What it takes, where an assembler has said so.
    pub fn resources(&self) -> Option<Resources> {
        self.0.resources
    }

    /// Where its machine code came from; none where there is no machine.
    pub fn origin(&self) -> Option<CodeOrigin> {
        self.0.origin
    }

    /// The device's handle, if it is of the type `T`.
    pub(super) fn handle<T: 'static>(&self) -> Option<&T> {
        self.0.handle.downcast_ref()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.module(), self.name())
    }
}

/// A loaded module: PTX that the device can run.
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

    /// The name it was loaded under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.kernels.get(name).cloned().ok_or_else(|| Error::KernelNotFound {
            module: self.name.to_string(),
            kernel: name.to_owned(),
            available: self.kernels.keys().cloned().collect(),
        })
    }

    /// Its kernels, by name.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.values()
    }

    /// What the assembler said while accepting it; often empty.
    pub fn log(&self) -> &str {
        &self.log
    }
}

/// One launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory a block.
    pub dynamic_shared: u32,
    /// The parameters, laid out as the kernel declares them: each at its natural alignment, little-endian.
    pub params: Vec<u8>,
    /// Whether it may start before the launch ahead of it ends (programmatic dependent launch): the kernel then
    /// says `griddepcontrol.wait` before it touches what earlier launches wrote. Ignored on the first launch of a
    /// sequence and on targets below sm_90, where every launch waits for the one ahead.
    pub programmatic: bool,
}

impl Launch {
    /// Checks what holds on every device: sizes are not zero, and the parameters fill the kernel's declaration.
    pub(super) fn check(&self, index: usize) -> Result<()> {
        let fail = |why: String| Err(self.error(index, why));
        if self.grid.contains(&0) || self.block.contains(&0) {
            return fail(format!("a grid of {:?} of blocks of {:?} has no threads", self.grid, self.block));
        }
        let exceeds =
            |sizes: [u32; 3], limits: [u32; 3]| sizes.iter().zip(&limits).any(|(size, limit)| size > limit);
        if exceeds(self.grid, MAX_GRID) {
            return fail(format!("a grid of {:?}; {MAX_GRID:?} is the most", self.grid));
        }
        if exceeds(self.block, MAX_BLOCK) {
            return fail(format!("blocks of {:?}; {MAX_BLOCK:?} is the most", self.block));
        }
        let threads: u64 = self.block.iter().map(|&size| u64::from(size)).product();
        if threads > MAX_THREADS_PER_BLOCK {
            return fail(format!("blocks of {threads} threads; {MAX_THREADS_PER_BLOCK} is the most"));
        }
        let declared = self.kernel.signature().parameter_bytes();
        let given = self.params.len();
        // A parameter struct on the host is padded to its alignment; PTX's declaration is not.
        if given != declared && given != declared.next_multiple_of(8) {
            return fail(format!("{given} bytes of parameters for a kernel that declares {declared}"));
        }
        Ok(())
    }

    pub(super) fn error(&self, index: usize, why: String) -> Error {
        Error::Launch { index, kernel: self.kernel.name().to_owned(), why }
    }
}

/// A captured graph as read back from the device, for comparison with the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphReport {
    /// Nodes of any type.
    pub nodes: usize,
    /// What each node runs, in dependency order: a kernel's name, or `(type of node)` for any other node.
    pub kernels: Vec<String>,
    /// Dependencies between nodes.
    pub edges: usize,
    /// How many of those are programmatic.
    pub programmatic_edges: usize,
}

/// Launches bound to a device, in order.
pub trait LaunchSequence: Send {
    /// Enqueues every launch.
    fn run_eager(&mut self) -> Result<()>;

    /// Makes the launches a graph and reads it back; once captured, only reports. After an error the launches can
    /// still be run eagerly.
    fn capture(&mut self) -> Result<GraphReport>;

    /// Enqueues the captured graph: one call, without allocation or waiting.
    fn replay(&mut self) -> Result<()>;

    /// Waits for all work enqueued on the device.
    fn wait(&mut self) -> Result<()>;

    /// Runs every launch once, eagerly, and returns each one's time in microseconds. A launch's time includes the
    /// gap ahead of it, so it bounds the kernel's own time from above, and launches do not overlap.
    fn profile(&mut self) -> Result<Vec<f64>>;

    /// Replays the graph `count` times and returns the mean time of one in milliseconds, as the device measures it.
    fn time_replays(&mut self, count: u32) -> Result<f64>;
}
