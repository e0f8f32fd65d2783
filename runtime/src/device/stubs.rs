//! Launching generated stubs on a device.

use bespoke_codegen::launch::{KernelSource, LaunchConfig, Launcher, newest};

use super::{Device, Error, Kernel, Launch, LaunchSequence, Module, Result};

/// Launches kernels through their generated stubs, in order. A kernel is loaded at its first launch, for the newest of
/// its targets that the device runs. [`Device::wait`] or a download waits for the launches.
pub struct StubLauncher<'a> {
    kernels: Kernels<'a>,
}

impl<'a> StubLauncher<'a> {
    /// Creates a launcher for `device`.
    pub fn new(device: &'a dyn Device) -> StubLauncher<'a> {
        StubLauncher { kernels: Kernels::new(device) }
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

/// Collects the launches of generated stubs for a [`LaunchSequence`], which runs them repeatedly, eagerly or as a
/// graph. Nothing runs while launches are collected.
pub struct StubRecorder<'a> {
    kernels: Kernels<'a>,
    launches: Vec<Launch>,
}

impl<'a> StubRecorder<'a> {
    /// Creates a recorder for `device`.
    pub fn new(device: &'a dyn Device) -> StubRecorder<'a> {
        StubRecorder { kernels: Kernels::new(device), launches: Vec::new() }
    }

    /// Binds the recorded launches to the device, in order.
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

/// Device, and the modules and kernels already loaded for stubs.
struct Kernels<'a> {
    device: &'a dyn Device,
    /// Each module with its PTX text: the sources of its kernels have the same text.
    modules: Vec<(&'static str, Module)>,
    loaded: Vec<(&'static KernelSource, Kernel)>,
}

impl<'a> Kernels<'a> {
    fn new(device: &'a dyn Device) -> Kernels<'a> {
        Kernels { device, modules: Vec::new(), loaded: Vec::new() }
    }

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
        let known = self.modules.iter().position(|&(ptx, _)| ptx == source.ptx);
        let index = match known {
            Some(index) => index,
            None => {
                self.modules.push((source.ptx, self.device.load_source(&source.into())?));
                self.modules.len() - 1
            }
        };
        let kernel = self.modules[index].1.kernel(source.name)?;
        self.loaded.push((source, kernel.clone()));
        Ok(kernel)
    }
}
