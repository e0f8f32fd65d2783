//! Code that the test cases share: the generated stubs, and a launcher that launches nothing.

use bespoke_codegen::launch::{DevicePointer, KernelSource, LaunchConfig, Launcher};

pub mod kernels {
    include!("emitted/kernels.rs");
}

pub struct Device;

impl Launcher for Device {
    type Error = std::convert::Infallible;

    fn launch(
        &mut self,
        _: &[&'static KernelSource],
        _: LaunchConfig,
        _: &[u8],
    ) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[allow(dead_code)]
pub fn floats() -> DevicePointer<f32> {
    DevicePointer::new(0)
}

#[allow(dead_code)]
pub fn bytes() -> DevicePointer<i8> {
    DevicePointer::new(0)
}
