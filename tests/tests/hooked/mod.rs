//! The emulator as a device whose calls a test fails and whose results it changes.

#![allow(dead_code, reason = "each test uses a part")]

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use bespoke::device::{
    self, Address, Allocation, Device, DeviceInfo, Error, GraphReport, HostMemory, HostVisible, Launch,
    LaunchSequence, MemoryInfo, Module, ModuleSource, Selector, TENSOR_MAP_BYTES,
};
use bespoke_codegen::launch::DriverArguments;

/// Kind of a call of a device or of its memory and sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Memory,
    Alloc,
    Upload,
    Download,
    Fill,
    Load,
    Bind,
    Capture,
    Replay,
    RunEager,
    Profile,
    TimeReplays,
    Wait,
    Busy,
    /// Read of host-visible memory.
    Read,
}

/// A call of a device or of its memory and sequences.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub operation: Operation,
    /// Name of an allocation or a module; empty for other calls.
    pub name: &'a str,
    /// Size of an allocation; 0 for other calls.
    pub bytes: u64,
}

impl Call<'_> {
    fn unnamed(operation: Operation) -> Call<'static> {
        Call { operation, name: "", bytes: 0 }
    }
}

/// What a hook makes of a call.
pub enum Verdict {
    /// The call runs.
    Run,
    /// The call does nothing and succeeds.
    Skip,
    /// The call does nothing and fails.
    Fail(Error),
    /// The call does its work and fails.
    RunThenFail(Error),
    /// The call does half of its work and fails. Launches stop in the middle of a kernel, whose counters are left above
    /// zero.
    HalfThenFail(Error),
}

/// Changes to the calls and results of the emulator; by default nothing is changed.
pub trait Hooks: Send + Sync {
    /// Decides over each call.
    fn before(&self, _call: Call<'_>) -> Verdict {
        Verdict::Run
    }
    /// Changes the reported device memory.
    fn memory(&self, real: MemoryInfo) -> MemoryInfo {
        real
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
    /// Changes whether enqueued work is unfinished.
    fn busy(&self, real: bool) -> bool {
        real
    }
    /// The device is given up.
    fn abandoned(&self) {}
}

/// The emulator with hooks.
pub struct Hooked<H>(Arc<Inner<H>>);

struct Inner<H> {
    device: Arc<dyn Device>,
    hooks: Arc<H>,
    /// Addresses and sizes of the live counters.
    counters: Mutex<Vec<(Address, u64)>>,
}

impl<H: Hooks + 'static> Hooked<H> {
    pub fn new(hooks: H) -> Hooked<H> {
        Hooked::over(emulator().into(), Arc::new(hooks))
    }

    pub fn over(device: Arc<dyn Device>, hooks: Arc<H>) -> Hooked<H> {
        Hooked(Arc::new(Inner { device, hooks, counters: Mutex::default() }))
    }
}

pub fn emulator() -> Box<dyn Device> {
    device::open(Selector::Emulator).expect("the emulator always opens").device
}

impl<H: Hooks> Inner<H> {
    /// Runs a call as the hook decides. `half` does half of the call's work.
    fn call<T: Default>(
        &self,
        call: Call<'_>,
        half: impl FnOnce() -> device::Result<()>,
        run: impl FnOnce() -> device::Result<T>,
    ) -> device::Result<T> {
        match self.hooks.before(call) {
            Verdict::Run => run(),
            Verdict::Skip => Ok(T::default()),
            Verdict::Fail(error) => Err(error),
            Verdict::RunThenFail(error) => run().and(Err(error)),
            Verdict::HalfThenFail(error) => half().and(Err(error)),
        }
    }

    /// Runs a call whose result cannot be skipped and that has no half.
    fn make<T>(&self, call: Call<'_>, run: impl FnOnce() -> device::Result<T>) -> device::Result<T> {
        let mut made = None;
        self.call(
            call,
            || Ok(()),
            || {
                made = Some(run()?);
                Ok(())
            },
        )?;
        Ok(made.expect("the call was not skipped"))
    }
}

impl<H: Hooks + 'static> Device for Hooked<H> {
    fn info(&self) -> &DeviceInfo {
        self.0.device.info()
    }
    fn memory(&self) -> device::Result<MemoryInfo> {
        let memory = self.0.make(Call::unnamed(Operation::Memory), || self.0.device.memory())?;
        Ok(self.0.hooks.memory(memory))
    }
    fn alloc(&self, name: &str, bytes: u64) -> device::Result<Allocation> {
        let memory = self
            .0
            .make(Call { operation: Operation::Alloc, name, bytes }, || self.0.device.alloc(name, bytes))?;
        if name.ends_with("counters") {
            self.0.counters.lock().unwrap().push((memory.address(), bytes));
        }
        Ok(memory)
    }
    fn alloc_host_visible(&self, name: &str, bytes: u64) -> device::Result<HostVisible> {
        let real = self.0.make(Call { operation: Operation::Alloc, name, bytes }, || {
            self.0.device.alloc_host_visible(name, bytes)
        })?;
        Ok(HostVisible::new(real.address(), bytes, HookedMemory { real, inner: self.0.clone() }))
    }
    fn upload(&self, to: Address, bytes: &[u8]) -> device::Result<()> {
        let device = &self.0.device;
        let half = || device.upload(to, &bytes[..bytes.len() / 2]);
        self.0.call(Call::unnamed(Operation::Upload), half, || device.upload(to, bytes))
    }
    fn download(&self, from: Address, out: &mut [u8]) -> device::Result<()> {
        self.0.call(Call::unnamed(Operation::Download), || Ok(()), || self.0.device.download(from, out))?;
        self.0.hooks.downloaded(out);
        Ok(())
    }
    fn fill(&self, to: Address, bytes: u64, value: u8) -> device::Result<()> {
        let device = &self.0.device;
        let half = || device.fill(to, bytes / 2, value);
        self.0.call(Call::unnamed(Operation::Fill), half, || device.fill(to, bytes, value))
    }
    fn store(&self, to: Address, word: u32) -> device::Result<()> {
        let store = || self.0.device.store(to, word);
        self.0.call(Call::unnamed(Operation::Fill), || Ok(()), store)
    }
    fn load_source(&self, source: &ModuleSource<'_>) -> device::Result<Module> {
        let ptx = self.0.hooks.ptx(source.ptx);
        self.0.make(Call { operation: Operation::Load, name: source.name, bytes: 0 }, || {
            self.0.device.load(source.name, &ptx)
        })
    }
    fn encode_tensor_map(&self, arguments: &DriverArguments) -> device::Result<[u8; TENSOR_MAP_BYTES]> {
        // No command makes tensor maps, so no hook changes them.
        self.0.device.encode_tensor_map(arguments)
    }
    fn sequence(&self, launches: Vec<Launch>) -> device::Result<Box<dyn LaunchSequence>> {
        let half = launches[..launches.len() / 2].to_vec();
        let real = self.0.make(Call::unnamed(Operation::Bind), || self.0.device.sequence(launches))?;
        Ok(Box::new(HookedSequence { real, half, inner: self.0.clone() }))
    }
    fn wait(&self) -> device::Result<()> {
        self.0.call(Call::unnamed(Operation::Wait), || Ok(()), || self.0.device.wait())
    }
    fn busy(&self) -> device::Result<bool> {
        let real = self.0.make(Call::unnamed(Operation::Busy), || self.0.device.busy())?;
        Ok(self.0.hooks.busy(real))
    }
    fn abandon(&self) {
        self.0.hooks.abandoned();
    }
}

struct HookedMemory<H> {
    real: HostVisible,
    inner: Arc<Inner<H>>,
}

impl<H: Hooks> HostMemory for HookedMemory<H> {
    fn read(&self, offset: u64, out: &mut [u8]) -> device::Result<()> {
        self.inner.call(Call::unnamed(Operation::Read), || Ok(()), || self.real.read(offset, out))
    }
}

struct HookedSequence<H> {
    real: Box<dyn LaunchSequence>,
    /// The first half of the launches.
    half: Vec<Launch>,
    inner: Arc<Inner<H>>,
}

impl<H: Hooks> HookedSequence<H> {
    fn call<T: Default>(
        &mut self,
        operation: Operation,
        run: impl FnOnce(&mut dyn LaunchSequence) -> device::Result<T>,
    ) -> device::Result<T> {
        let HookedSequence { real, half, inner } = self;
        let interrupted = || {
            let device = &inner.device;
            device.sequence(half.clone())?.run_eager()?;
            for &(address, bytes) in &*inner.counters.lock().unwrap() {
                // Memory that was freed since is left out.
                let _ = device.upload(address, &1u32.to_le_bytes().repeat(bytes as usize / 4));
            }
            Ok(())
        };
        inner.call(Call::unnamed(operation), interrupted, || run(&mut **real))
    }
}

impl<H: Hooks> LaunchSequence for HookedSequence<H> {
    fn run_eager(&mut self) -> device::Result<()> {
        self.call(Operation::RunEager, |real| real.run_eager())
    }
    fn capture(&mut self) -> device::Result<GraphReport> {
        let mut report = None;
        self.call(Operation::Capture, |real| {
            report = Some(real.capture()?);
            Ok(())
        })?;
        self.inner.hooks.captured(report.expect("a capture is not skipped"))
    }
    fn replay(&mut self) -> device::Result<()> {
        self.call(Operation::Replay, |real| real.replay())
    }
    fn wait(&mut self) -> device::Result<()> {
        self.call(Operation::Wait, |real| real.wait())
    }
    fn profile(&mut self) -> device::Result<Vec<f64>> {
        self.call(Operation::Profile, |real| real.profile())
    }
    fn time_replays(&mut self, count: u32) -> device::Result<f64> {
        self.call(Operation::TimeReplays, |real| real.time_replays(count))
    }
}
