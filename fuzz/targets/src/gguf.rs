//! GGUF: the header of a file, up to the decode plans of the model.
//!
//! The input is a header; equal bytes stand for the tensors' data. Properties: a file that was read can be written and is
//! then the same; the plans of an accepted model are consistent.

use bespoke_codegen::ptx::Target;
use bespoke_gguf::{Gguf, Writer};
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::plan::{Plan, PlanParams, Sampling};
use bespoke_kernels::shape::ModelShape;

/// Number of bytes behind the header.
const DATA: usize = 1 << 20;
/// Each of these bytes; four are the F32 0.747, a valid divisor of RoPE's frequencies.
const BYTE: u8 = 0x3f;

pub fn run(data: &[u8]) {
    let file = match Gguf::from_bytes(with_data(data)) {
        Ok(file) => file,
        Err(error) => return drop(error.to_string()),
    };
    written_and_read(&file);
    for info in file.tensors() {
        assert_eq!(file.data(info).expect("in memory").len() as u64, info.bytes);
    }
    let shape = match ModelShape::from_gguf(&file, "fuzzed") {
        Ok(shape) => shape,
        Err(error) => return drop(error.to_string()),
    };
    plans(&shape);
}

fn with_data(header: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes.resize(header.len() + DATA, BYTE);
    bytes
}

/// Writes the header again, and compares what is read.
fn written_and_read(file: &Gguf) {
    let mut writer = Writer::new();
    for (key, _) in file.metadata() {
        writer.copy(file, key).expect("a key of the file");
    }
    for info in file.tensors() {
        // Offsets of the writer's are in the directory's order, so a directory may be too long for it.
        if writer.tensor(&info.name, &info.dims, info.ty).is_err() {
            return;
        }
    }
    let Ok(again) = Gguf::with_source(&writer, NoData) else { return };
    assert!(file.metadata().map(format).eq(again.metadata().map(format)));
    let directory = |file: &Gguf| -> Vec<_> {
        file.tensors()
            .iter()
            .map(|info| (info.name.clone(), info.dims.clone(), info.ty, info.bytes))
            .collect()
    };
    assert_eq!(directory(file), directory(&again));
}

/// A key with its value; as text, since NaN is not equal to itself.
fn format((key, value): (&str, bespoke_gguf::Value<'_>)) -> String {
    format!("{key}: {value:?}")
}

struct NoData;

impl bespoke_gguf::TensorSource for NoData {
    fn data(
        &self,
        info: &bespoke_gguf::TensorInfo,
    ) -> Result<bespoke_gguf::TensorData<'_>, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("{} has no data", info.name).into())
    }
}

fn plans(shape: &ModelShape) {
    let context = shape.dimensions.context.clamp(1, PlanParams::MAX_CONTEXT);
    for target in [Target::Sm80, Target::Sm90] {
        for params in [
            PlanParams::single(context),
            PlanParams::single(1).with_kv(KvType::Q8_0).with_sampling(Sampling::Sampled),
        ] {
            match Plan::new(shape, target, params) {
                Ok(plan) => plan.check().expect("the plan is consistent"),
                Err(error) => drop(error.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_models() {
        for entry in std::fs::read_dir("../seeds/gguf").expect("the seeds") {
            let path = entry.expect("a seed").path();
            let file = Gguf::from_bytes(with_data(&std::fs::read(&path).expect("a seed")));
            let shape = ModelShape::from_gguf(&file.expect("a header"), "seed");
            let plan = Plan::new(&shape.expect("a model"), Target::Sm90, PlanParams::single(64));
            assert!(plan.expect("a plan").launches.len() > 10, "{}", path.display());
        }
    }
}
