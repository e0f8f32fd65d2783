//! Generated launch stubs on a device.

use bespoke_codegen::launch::{KernelSource, LaunchConfig, Launcher, newest};

use super::{Device, Error, Kernel, Launch, LaunchSequence, Result};

/// Launches kernels through their generated stubs: each is assembled when it is launched first, and launches run in
/// order. [`Device::wait`] or a download waits for them.
///
/// Of the targets that a kernel was emitted for, the newest that the device runs is taken.
pub struct StubLauncher<'a> {
    kernels: Kernels<'a>,
}

impl<'a> StubLauncher<'a> {
    /// A launcher for `device`.
    pub fn new(device: &'a dyn Device) -> StubLauncher<'a> {
        StubLauncher { kernels: Kernels { device, loaded: Vec::new() } }
    }
}

impl Launcher for StubLauncher<'_> {
    type Error = Error;

    fn launch(
        &mut self,
        sources: &[&'static KernelSource],
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<()> {
        let launch = self.kernels.bind(sources, config, params)?;
        self.kernels.device.sequence(vec![launch])?.run_eager()
    }
}

/// Collects what stubs launch, for a [`LaunchSequence`]: launches that run together many times, as a graph or one by one.
/// Nothing runs while they are collected.
pub struct StubRecorder<'a> {
    kernels: Kernels<'a>,
    launches: Vec<Launch>,
}

impl<'a> StubRecorder<'a> {
    /// A recorder of launches on `device`.
    pub fn new(device: &'a dyn Device) -> StubRecorder<'a> {
        StubRecorder { kernels: Kernels { device, loaded: Vec::new() }, launches: Vec::new() }
    }

    /// The launches so far, bound to the device in the order in which they were recorded.
    pub fn sequence(self) -> Result<Box<dyn LaunchSequence>> {
        self.kernels.device.sequence(self.launches)
    }
}

impl Launcher for StubRecorder<'_> {
    type Error = Error;

    fn launch(
        &mut self,
        sources: &[&'static KernelSource],
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<()> {
        self.launches.push(self.kernels.bind(sources, config, params)?);
        Ok(())
    }
}

/// The kernels that stubs have launched so far, loaded.
struct Kernels<'a> {
    device: &'a dyn Device,
    loaded: Vec<(&'static KernelSource, Kernel)>,
}

impl Kernels<'_> {
    fn bind(
        &mut self,
        sources: &[&'static KernelSource],
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<Launch> {
        Ok(Launch {
            kernel: self.kernel(sources)?,
            grid: config.grid,
            block: config.block,
            dynamic_shared: config.dynamic_shared,
            params: params.to_vec(),
            programmatic: false,
        })
    }

    fn kernel(&mut self, sources: &[&'static KernelSource]) -> Result<Kernel> {
        let info = self.device.info();
        let Some(source) = newest(sources, info.compute) else {
            return Err(Error::NotEmitted {
                kernel: sources.first().map_or_else(String::new, |source| source.name.to_owned()),
                targets: sources.iter().map(|source| source.target).collect(),
                device: info.name.clone(),
                compute: info.compute,
            });
        };
        if let Some((_, kernel)) = self.loaded.iter().find(|(known, _)| std::ptr::eq(*known, source)) {
            return Ok(kernel.clone());
        }
        let kernel = self.device.load_source(&source.into())?.kernel(source.name)?;
        self.loaded.push((source, kernel.clone()));
        Ok(kernel)
    }
}
