//! Read bandwidth of device memory, as an upper bound for decoding.

use bespoke_kernels::kernels::probe::ProbeShape;
use bespoke_kernels::spec::KernelSpec;

use super::median;
use crate::builtin;
use crate::device::{Bytes, Device, Kernel, Kind, Launch};
use crate::engine::{EngineError, target_for};

/// Number of timed passes over the memory; the median counts.
const PASSES: usize = 15;

/// Measures the read bandwidth in bytes per second: the median of several passes, timed by the device, over memory
/// several times the size of the L2 cache.
pub fn read_bandwidth(device: &dyn Device) -> Result<f64, EngineError> {
    // Bytes much larger than any L2 cache on a GPU, few on the emulator.
    let (bytes, passes) = match device.info().kind {
        Kind::Cuda { .. } => ((4u64 << 30).min(device.memory()?.free / 2), PASSES),
        Kind::Emulator => (16 << 20, 3),
    };
    if bytes < 4 * device.info().l2_bytes.max(1 << 20) {
        return Err(EngineError::NoRoomForProbe { free: Bytes(device.memory()?.free).to_string() });
    }
    let units = bytes / 16;
    let spec = KernelSpec::ReadProbe(ProbeShape::default());
    let kernel = probe_kernel(device, &spec)?;
    let data = device.alloc("read probe", units * 16)?;
    device.fill(data.address(), units * 16, 0x5A)?;
    let out = device.alloc("read probe result", 4)?;
    let mut params = data.address().0.to_le_bytes().to_vec();
    params.extend((units as u32).to_le_bytes());
    params.extend([0; 4]);
    params.extend(out.address().0.to_le_bytes());
    Ok((units * 16) as f64 / median_seconds(device, kernel, &spec, params, passes)?)
}

/// Median time of a launch of a measurement's kernel in seconds, by the device's clock, over `passes` launches.
pub(super) fn median_seconds(
    device: &dyn Device,
    kernel: Kernel,
    spec: &KernelSpec,
    params: Vec<u8>,
    passes: usize,
) -> Result<f64, EngineError> {
    let geometry = spec.geometry();
    let launch = Launch {
        kernel,
        grid: geometry.grid,
        block: [geometry.threads, 1, 1],
        dynamic_shared: 0,
        params,
        programmatic: false,
    };
    let mut sequence = device.sequence(vec![launch])?;
    sequence.capture()?;
    // The first replay loads code and raises the clocks.
    sequence.time_replays(1)?;
    let times = (0..passes).map(|_| sequence.time_replays(1)).collect::<Result<Vec<f64>, _>>()?;
    Ok(median(&times) * 1e-3)
}

/// Loads the kernel of a measurement: the built-in one, or one compiled for the device.
pub(super) fn probe_kernel(device: &dyn Device, spec: &KernelSpec) -> Result<Kernel, EngineError> {
    let (target, name) = (target_for(device)?, spec.name());
    let module = match builtin::ptx(target, &name) {
        Some(text) => device.load_source(&builtin::source(target, &name, &text))?,
        None => {
            let made = bespoke_kernels::emit::compile(std::slice::from_ref(spec), target)?;
            device.load(&name, &made[0].compiled.ptx)?
        }
    };
    Ok(module.kernel(&name)?)
}
