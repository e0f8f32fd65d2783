//! The GPU that an engine plans for.

use bespoke_codegen::ptx::Target;
use bespoke_kernels::plan::Gpu;

use super::{EngineError, EngineOptions};
use crate::device::Device;

/// The GPU that plans for a device are made for: its multiprocessors, their limits and its memory bandwidth.
///
/// # Errors
/// If no target supports the device.
pub fn gpu_for(device: &dyn Device) -> Result<Gpu, EngineError> {
    let info = device.info();
    let typical = Gpu::typical(target_for(device)?);
    let same_share = typical.with_multiprocessors(info.multiprocessors);
    Ok(Gpu {
        threads_per_multiprocessor: info.threads_per_multiprocessor,
        shared_per_multiprocessor: info.shared_per_multiprocessor,
        shared_per_cta: info.shared_per_block_optin,
        bandwidth: info.peak_bandwidth.unwrap_or(same_share.bandwidth),
        warpgroups: typical.warpgroups && info.compute == (9, 0),
        ..same_share
    })
}

/// GPU for which an engine makes its plans: the device, with the options' number of multiprocessors if they give one. Under
/// `--no-jit`, if no kernels for the device are built in, it is the GPU whose kernels are built in by default.
pub(super) fn planned(
    device: &dyn Device,
    options: &EngineOptions,
    is_built_in: impl Fn(Gpu) -> bool,
) -> Result<Gpu, EngineError> {
    let own = gpu_for(device)?;
    if let Some(multiprocessors) = options.multiprocessors {
        return Ok(own.with_multiprocessors(multiprocessors.get()));
    }
    let typical = Gpu { warpgroups: own.warpgroups, ..Gpu::typical(own.target) };
    if !options.no_jit || is_built_in(own) || !is_built_in(typical) {
        return Ok(own);
    }
    tracing::warn!(
        "the built-in kernels are for {} multiprocessors, and this device has {}: kernels that fit it may be faster, but compiling is forbidden (`no_jit`)",
        typical.multiprocessors,
        own.multiprocessors
    );
    Ok(typical)
}

/// Target of the kernels for a device: the newest supported target that has built-in kernels, else the newest supported
/// target.
///
/// # Errors
/// If no target supports the device.
pub fn target_for(device: &dyn Device) -> Result<Target, EngineError> {
    let (major, minor) = device.info().compute;
    // Built-in kernels for an older target are preferred to kernels for a newer target that must be compiled.
    let newest = Target::for_device(major, minor).ok_or_else(|| EngineError::TooOld {
        name: device.info().name.clone(),
        major,
        minor,
    })?;
    let best = crate::builtin::targets().iter().copied().filter(|target| *target <= newest).max();
    Ok(best.unwrap_or(newest))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::device::emulator_with_info;

    #[test]
    fn the_emulator_is_a_typical_gpu() {
        let device = emulator_with_info(|_| {});
        let gpu = gpu_for(&*device).unwrap();
        assert_eq!(gpu, Gpu::typical(gpu.target));
    }

    #[test]
    fn plans_are_for_the_device_unless_options_say_otherwise() {
        let device = emulator_with_info(|info| {
            info.multiprocessors = 58;
            info.shared_per_multiprocessor = 100 << 10;
            info.shared_per_block_optin = 99 << 10;
            info.threads_per_multiprocessor = 1536;
            info.peak_bandwidth = Some(300_000_000_000);
        });
        let planned = |multiprocessors: Option<u32>, no_jit, built_in: &[u32]| {
            let multiprocessors = multiprocessors.and_then(NonZeroU32::new);
            let options = EngineOptions { multiprocessors, no_jit, ..EngineOptions::default() };
            planned(&*device, &options, |gpu| built_in.contains(&gpu.multiprocessors)).unwrap()
        };
        let own = planned(None, false, &[132]);
        assert_eq!((own.multiprocessors, own.shared_per_cta, own.bandwidth), (58, 99 << 10, 300_000_000_000));
        let half = Gpu { multiprocessors: 29, bandwidth: 150_000_000_000, ..own };
        assert_eq!(planned(Some(29), false, &[132]), half);
        assert_eq!(planned(None, true, &[58]), own);
        assert_eq!(planned(None, true, &[]), own);
        assert_eq!(planned(None, true, &[132]), Gpu::typical(own.target));
    }
}
