//! Equality of bits: the outputs of a matrix product do not depend on how the work is divided.

use bespoke::device::Device;
use bespoke::engine::{EngineError, target_for};
use bespoke_kernels::kernels::gemv::{GemvShape, Schedule};
use bespoke_kernels::spec::KernelSpec;

use super::cases;
use super::runner::Runner;

/// Runs a matrix product with each schedule, on the same operands, and describes the first output whose bits differ from
/// those with the first schedule.
///
/// # Errors
/// If no target runs on the device.
pub fn differing_schedule(
    device: &dyn Device,
    shape: &GemvShape,
    schedules: &[Schedule],
) -> Result<Option<String>, EngineError> {
    let mut runner = Runner::new(device, target_for(device)?);
    let mut case = cases::matrix::gemv(shape);
    let y = case.buffer_named("y");
    let mut first: Option<Vec<u8>> = None;
    for &schedule in schedules {
        let spec = KernelSpec::Gemv(GemvShape { schedule, ..shape.clone() });
        let name = spec.name();
        case.launches[0].0 = spec;
        let found = match runner.outputs(&case) {
            Ok(mut buffers) => buffers.swap_remove(y),
            Err(failure) => return Ok(Some(format!("{name}: {failure}"))),
        };
        let expected = first.get_or_insert_with(|| found.clone());
        if let Some(at) = found.chunks(4).zip(expected.chunks(4)).position(|(a, b)| a != b) {
            return Ok(Some(format!("{name}: output {at} has other bits")));
        }
    }
    Ok(None)
}
