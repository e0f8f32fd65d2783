//! Equality of bits: the outputs of a matrix product do not depend on how the work is divided.

use bespoke::device::Device;
use bespoke::engine::{EngineError, target_for};
use bespoke_kernels::kernels::gemm::{GemmShape, Tiling};
use bespoke_kernels::kernels::gemv::{GemvShape, Schedule};
use bespoke_kernels::spec::KernelSpec;

use super::case::{Case, Content, POISON};
use super::cases;
use super::runner::Runner;

/// Runs a matrix product of several tokens, and `one`, the product of one token, on each token; describes the first output
/// whose bits differ.
///
/// # Errors
/// If no target runs on the device.
pub fn differing_token(
    device: &dyn Device,
    several: &GemvShape,
    one: &GemvShape,
) -> Result<Option<String>, EngineError> {
    let mut runner = Runner::new(device, target_for(device)?);
    let case = cases::matrix::gemv(several);
    let (name, y) = (KernelSpec::Gemv(several.clone()).name(), case.buffer_named("y"));
    let found = match runner.outputs(&case) {
        Ok(mut buffers) => buffers.swap_remove(y),
        Err(failure) => return Ok(Some(format!("{name}: {failure}"))),
    };
    for token in 0..several.tokens as usize {
        let row_of = |buffer: &str| match &case.buffers[case.buffer_named(buffer)].content {
            Content::Bytes(bytes) => {
                let row = bytes.len() / several.tokens as usize;
                bytes[token * row..][..row].to_vec()
            }
            Content::Poison(bytes) => vec![POISON; bytes / several.tokens as usize],
        };
        let mut single = Case::new("one token");
        let Content::Bytes(w) = &case.buffers[case.buffer_named("w")].content else { continue };
        let buffers =
            [single.input("w", w.clone()), single.input("x", row_of("x")), single.input("y", row_of("y"))];
        single.launch(KernelSpec::Gemv(one.clone()), &buffers);
        single.may_change([buffers[2]]);
        let expected = match runner.outputs(&single) {
            Ok(mut outputs) => outputs.swap_remove(buffers[2]),
            Err(failure) => return Ok(Some(failure.to_string())),
        };
        let row = &found[token * expected.len()..][..expected.len()];
        if let Some(at) = row.chunks(4).zip(expected.chunks(4)).position(|(a, b)| a != b) {
            return Ok(Some(format!("{name}: output {at} of token {token} has other bits")));
        }
    }
    Ok(None)
}

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
    let specs = schedules.iter().map(|&schedule| KernelSpec::Gemv(GemvShape { schedule, ..shape.clone() }));
    Ok(differing(&mut runner, cases::matrix::gemv(shape), specs))
}

/// Runs products that write the inputs of the next one, with different schedules, on the same operands, and a next product; describes
/// the first input, or output of the next product, whose bits differ from those of the first product.
///
/// # Errors
/// If no target runs on the device.
pub fn differing_next(device: &dyn Device, products: &[GemvShape]) -> Result<Option<String>, EngineError> {
    let mut runner = Runner::new(device, target_for(device)?);
    let mut case = cases::matrix::gemv(&products[0]);
    let compared = ["next inputs", "y of the next product"];
    let mut first: Option<Vec<Vec<u8>>> = None;
    for product in products {
        for (spec, _) in &mut case.launches {
            match spec {
                KernelSpec::Prepare(prepare) => *prepare = product.prepare().expect("prepared inputs"),
                KernelSpec::Gemv(gemv) if gemv.next.is_some() => gemv.clone_from(product),
                _ => {}
            }
        }
        let name = KernelSpec::Gemv(product.clone()).name();
        let found = match runner.outputs(&case) {
            Ok(buffers) => compared.map(|buffer| buffers[case.buffer_named(buffer)].clone()).to_vec(),
            Err(failure) => return Ok(Some(format!("{name}: {failure}"))),
        };
        let expected = first.get_or_insert_with(|| found.clone());
        for ((buffer, found), expected) in compared.iter().zip(&found).zip(expected) {
            if let Some(at) = found.chunks(4).zip(expected.chunks(4)).position(|(a, b)| a != b) {
                return Ok(Some(format!("{name}: word {at} of `{buffer}` has other bits")));
            }
        }
    }
    Ok(None)
}

/// As [`differing_schedule`], of a product of many tokens with each division; divisions have equal blocks of tokens, since the
/// inputs are in their order. Some tokens do not exist.
///
/// # Errors
/// If no target runs on the device.
pub fn differing_tiling(
    device: &dyn Device,
    product: &GemvShape,
    tilings: &[Tiling],
) -> Result<Option<String>, EngineError> {
    let mut runner = Runner::new(device, target_for(device)?);
    let shape = |&tiling: &Tiling| GemmShape { product: product.clone(), tiling };
    let specs = tilings.iter().map(|tiling| KernelSpec::Gemm(shape(tiling)));
    let mut cases = cases::matrix::gemm(&shape(&tilings[0])).into_iter();
    Ok(cases.find_map(|case| differing(&mut runner, case, specs.clone())))
}

/// Runs a case with each of `specs` as its last launch, and describes the first output whose bits differ from those with the
/// first one.
fn differing(
    runner: &mut Runner<'_>,
    mut case: Case,
    specs: impl Iterator<Item = KernelSpec>,
) -> Option<String> {
    let y = case.buffer_named("y");
    let mut first: Option<Vec<u8>> = None;
    for spec in specs {
        let name = spec.name();
        case.launches.last_mut().expect("a case has a launch").0 = spec;
        let found = match runner.outputs(&case) {
            Ok(mut buffers) => buffers.swap_remove(y),
            Err(failure) => return Some(format!("{name}: {failure}")),
        };
        let expected = first.get_or_insert_with(|| found.clone());
        if let Some(at) = found.chunks(4).zip(expected.chunks(4)).position(|(a, b)| a != b) {
            return Some(format!("{name}: output {at} has other bits"));
        }
    }
    None
}
