//! Generated launch stubs on a device.

use std::collections::HashMap;

use bespoke_codegen::launch::{KernelSource, LaunchConfig, Launcher};

use super::{Device, Error, Kernel, Launch};

/// Launches kernels through their generated stubs: each is assembled when it is launched first, and launches run in
/// order. [`Device::wait`] or a download waits for them.
pub struct StubLauncher<'a> {
    device: &'a dyn Device,
    kernels: HashMap<&'static str, Kernel>,
}

impl<'a> StubLauncher<'a> {
    /// A launcher for `device`.
    pub fn new(device: &'a dyn Device) -> StubLauncher<'a> {
        StubLauncher { device, kernels: HashMap::new() }
    }

    fn kernel(&mut self, source: &KernelSource) -> Result<Kernel, Error> {
        if let Some(kernel) = self.kernels.get(source.name) {
            return Ok(kernel.clone());
        }
        let kernel = self.device.load(source.name, source.ptx)?.kernel(source.name)?;
        self.kernels.insert(source.name, kernel.clone());
        Ok(kernel)
    }
}

impl Launcher for StubLauncher<'_> {
    type Error = Error;

    fn launch(&mut self, kernel: &KernelSource, config: LaunchConfig, params: &[u8]) -> Result<(), Error> {
        let launch = Launch {
            kernel: self.kernel(kernel)?,
            grid: config.grid,
            block: config.block,
            dynamic_shared: config.dynamic_shared,
            params: params.to_vec(),
            programmatic: false,
        };
        self.device.sequence(vec![launch])?.run_eager()
    }
}
