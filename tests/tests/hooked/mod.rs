//! The emulator with a test's hands on it.

use bespoke::device::{
    self, Address, Allocation, Device, DeviceInfo, HostVisible, Launch, MemoryInfo, Module, Selector,
    Sequence,
};

/// What a test changes; by default nothing.
pub trait Hooks: Send + Sync {
    /// Changes the memory that the device says it has.
    fn memory(&self, real: MemoryInfo) -> MemoryInfo {
        real
    }
    /// May refuse an allocation.
    fn alloc(&self, _name: &str, _bytes: u64) -> device::Result<()> {
        Ok(())
    }
    /// Changes what a download brought.
    fn downloaded(&self, _out: &mut [u8]) {}
    /// Puts something in a sequence's place.
    fn sequence(&self, real: Box<dyn Sequence>) -> Box<dyn Sequence> {
        real
    }
}

/// The emulator, hooked.
pub struct Hooked<H> {
    device: Box<dyn Device>,
    hooks: H,
}

impl<H: Hooks> Hooked<H> {
    pub fn new(hooks: H) -> Hooked<H> {
        Hooked { device: emulator(), hooks }
    }
}

pub fn emulator() -> Box<dyn Device> {
    device::open(Selector::Emulator).expect("the emulator is always there").device
}

impl<H: Hooks> Device for Hooked<H> {
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
    fn load(&self, name: &str, ptx: &str) -> device::Result<Module> {
        self.device.load(name, ptx)
    }
    fn sequence(&self, launches: Vec<Launch>) -> device::Result<Box<dyn Sequence>> {
        Ok(self.hooks.sequence(self.device.sequence(launches)?))
    }
    fn wait(&self) -> device::Result<()> {
        self.device.wait()
    }
}
