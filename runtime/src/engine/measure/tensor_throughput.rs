//! Throughput of the tensor cores, as an upper bound for the matrix products of steps of many rows.

use bespoke_kernels::kernels::probe::MmaProbeShape;
use bespoke_kernels::spec::KernelSpec;

use super::read_bandwidth::{median_seconds, probe_kernel};
use crate::device::{Device, Kind};
use crate::engine::EngineError;

/// Measures the throughput of dense matrix products in floating-point operations per second: the median of several
/// launches, timed by the device. All multiprocessors multiply f16 operands that stay in registers, with f32 sums
/// (`mma.m16n8k16`); a multiplication and an addition count as two operations.
///
/// # Errors
/// If the device fails.
pub fn tensor_throughput(device: &dyn Device) -> Result<f64, EngineError> {
    // Rounds of a few milliseconds on a GPU, and of little work on the emulator.
    let (rounds, passes) = match device.info().kind {
        Kind::Cuda { .. } => (8192, 15),
        Kind::Emulator => (1, 1),
    };
    let shape = MmaProbeShape::filling(device.info().multiprocessors);
    let spec = KernelSpec::MmaProbe(shape.clone());
    let kernel = probe_kernel(device, &spec)?;
    let words = 32 * MmaProbeShape::LANE_WORDS;
    let operands = device.alloc("mma probe", u64::from(words) * 4)?;
    device.upload(operands.address(), &random_halves(words))?;
    let out = device.alloc("mma probe result", u64::from(shape.grid) * u64::from(shape.threads) * 4)?;
    let mut params = operands.address().0.to_le_bytes().to_vec();
    params.extend(u64::from(rounds).to_le_bytes());
    params.extend(out.address().0.to_le_bytes());
    Ok(shape.operations(rounds) as f64 / median_seconds(device, kernel, &spec, params, passes)?)
}

/// `words` pairs of f16 numbers between 0.5 and 1 with random signs and mantissas: a GPU may clock higher when it
/// multiplies zeros.
fn random_halves(words: u32) -> Vec<u8> {
    let word = |i: u32| i.wrapping_mul(0x9E37_79B9).rotate_right(7) & 0x83FF_83FF | 0x3800_3800;
    (1..=words).flat_map(|i| word(i).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::emulator_with_info;

    #[test]
    fn the_emulator_runs_the_products() {
        let device = emulator_with_info(|info| info.multiprocessors = 1);
        let free = device.memory().unwrap().free;
        assert!(tensor_throughput(&*device).unwrap() > 0.0);
        assert_eq!(device.memory().unwrap().free, free);
    }

    #[test]
    fn a_product_has_two_operations_a_term() {
        // One warp, one round: four times two by four products of 16 × 8 × 16 terms.
        let shape = MmaProbeShape { grid: 1, threads: 32 };
        assert_eq!(shape.operations(1), 4 * 2 * 4 * 2 * 16 * 8 * 16);
        assert_eq!(MmaProbeShape::default(), MmaProbeShape::filling(132));
    }
}
