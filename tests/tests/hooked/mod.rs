//! The emulator as a device whose results a test changes by hooks.

use std::borrow::Cow;
use std::sync::Arc;

use bespoke::device::{
    self, Address, Allocation, Device, DeviceInfo, GraphReport, HostVisible, Launch, LaunchSequence,
    MemoryInfo, Module, ModuleSource, Selector,
};

/// Changes to the results of the emulator; by default nothing is changed.
pub trait Hooks: Send + Sync {
    /// Changes the reported device memory.
    fn memory(&self, real: MemoryInfo) -> MemoryInfo {
        real
    }
    /// May fail an allocation.
    fn alloc(&self, _name: &str, _bytes: u64) -> device::Result<()> {
        Ok(())
    }
    /// Changes downloaded bytes.
    fn downloaded(&self, _out: &mut [u8]) {}
    /// Changes the report of a captured graph, or refuses the capture.
    fn captured(&self, report: GraphReport) -> device::Result<GraphReport> {
        Ok(report)
    }
    /// Changes the PTX that is loaded.
    fn ptx<'t>(&self, ptx: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(ptx)
    }
    /// Replays the graph.
    fn replay(&self, real: &mut dyn LaunchSequence) -> device::Result<()> {
        real.replay()
    }
}

/// The emulator with hooks.
pub struct Hooked<H> {
    device: Box<dyn Device>,
    hooks: Arc<H>,
}

impl<H: Hooks + 'static> Hooked<H> {
    pub fn new(hooks: H) -> Hooked<H> {
        Hooked { device: emulator(), hooks: Arc::new(hooks) }
    }
}

pub fn emulator() -> Box<dyn Device> {
    device::open(Selector::Emulator).expect("the emulator always opens").device
}

impl<H: Hooks + 'static> Device for Hooked<H> {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }
    fn memory(&self) -> device::Result<MemoryInfo> {
        Ok(self.hooks.memory(self.device.memory()?))
    }
    fn alloc(&self, name: &str, bytes: u64) -> device::Result<Allocation> {
        self.hooks.alloc(name, bytes)?;
        self.device.alloc(name, bytes)
    }
    fn alloc_host_visible(&self, name: &str, bytes: u64) -> device::Result<HostVisible> {
        self.hooks.alloc(name, bytes)?;
        self.device.alloc_host_visible(name, bytes)
    }
    fn upload(&self, to: Address, bytes: &[u8]) -> device::Result<()> {
        self.device.upload(to, bytes)
    }
    fn download(&self, from: Address, out: &mut [u8]) -> device::Result<()> {
        self.device.download(from, out)?;
        self.hooks.downloaded(out);
        Ok(())
    }
    fn fill(&self, to: Address, bytes: u64, value: u8) -> device::Result<()> {
        self.device.fill(to, bytes, value)
    }
    fn load_source(&self, source: &ModuleSource<'_>) -> device::Result<Module> {
        self.device.load(source.name, &self.hooks.ptx(source.ptx))
    }
    fn sequence(&self, launches: Vec<Launch>) -> device::Result<Box<dyn LaunchSequence>> {
        Ok(Box::new(HookedSequence { real: self.device.sequence(launches)?, hooks: self.hooks.clone() }))
    }
    fn wait(&self) -> device::Result<()> {
        self.device.wait()
    }
    fn busy(&self) -> device::Result<bool> {
        self.device.busy()
    }
}

struct HookedSequence<H> {
    real: Box<dyn LaunchSequence>,
    hooks: Arc<H>,
}

impl<H: Hooks> LaunchSequence for HookedSequence<H> {
    fn run_eager(&mut self) -> device::Result<()> {
        self.real.run_eager()
    }
    fn capture(&mut self) -> device::Result<GraphReport> {
        self.hooks.captured(self.real.capture()?)
    }
    fn replay(&mut self) -> device::Result<()> {
        self.hooks.replay(&mut *self.real)
    }
    fn wait(&mut self) -> device::Result<()> {
        self.real.wait()
    }
    fn profile(&mut self) -> device::Result<Vec<f64>> {
        self.real.profile()
    }
    fn time_replays(&mut self, count: u32) -> device::Result<f64> {
        self.real.time_replays(count)
    }
}
