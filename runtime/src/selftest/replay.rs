//! A captured graph against the same launches one by one.

use std::collections::HashMap;

use bespoke_kernels::kernels::rope::frequencies;
use bespoke_kernels::plan::{Buffer, BufferKind, PartKind, Plan, PlanParams};
use bespoke_kernels::shape::{Architecture, Dimensions, Mix, ModelShape};
use bespoke_kernels::weights::Layout;

use super::inputs::{Noise, f32s, state_record, u32s};
use super::report::Row;
use super::runner::{ptx_of, target_of};
use crate::device::{Allocation, Device, Launch};

/// Positions that the model's cache has.
const CONTEXT: u32 = 24;
/// The prompt.
const PROMPT: [u32; 3] = [1, 2, 3];
/// Tokens that are processed: the prompt, and what is chosen after it.
const STEPS: usize = 12;

/// Models of two layers, small enough for the emulator: biases and a tied head of Q8_0, and norms of queries and keys
/// with mixed K-quants.
pub fn replay_shapes() -> Vec<ModelShape> {
    let dimensions = |heads, kv_heads, vocab| Dimensions {
        hidden: 256,
        layers: 2,
        heads,
        kv_heads,
        head_dim: 64,
        rotated: 64,
        ffn: 512,
        vocab,
        context: 2048,
        eps: 1e-5,
    };
    [
        ("small-qwen2-q8_0", "qwen2", dimensions(4, 2, 320), Mix::Pure(bespoke_gguf::GgmlType::Q8_0), true),
        ("small-qwen3-q4_k_m", "qwen3", dimensions(6, 2, 321), Mix::Q4KM, false),
    ]
    .map(|(name, architecture, dimensions, mix, tied)| {
        let architecture = Architecture::named(architecture).expect("one of GGUF's");
        ModelShape::from_mix(name, architecture, dimensions, mix, tied)
            .expect("dimensions that fit the types")
    })
    .into()
}

/// Decodes some tokens with random weights, launch by launch and then by replaying the captured graph, and compares
/// every buffer bit for bit; also the graph's kernels with the plan's.
pub fn replay_equals_eager(device: &dyn Device, shape: &ModelShape) -> Row {
    let what = format!("{STEPS} tokens, replay against eager");
    match decode_twice(device, shape) {
        Ok(()) => Row {
            kernel: shape.name.clone(),
            what,
            output: "all buffers".to_owned(),
            nmse: 0.0,
            max: 0.0,
            limit: 0.0,
            reason: "bits must be equal",
            microseconds: None,
            failure: None,
        },
        Err(failure) => Row::failed(shape.name.clone(), what, failure),
    }
}

fn decode_twice(device: &dyn Device, shape: &ModelShape) -> Result<(), String> {
    let words = |error: crate::device::Error| error.to_string();
    let target = target_of(device).map_err(words)?;
    let plan = Plan::new(shape, target, PlanParams::single(CONTEXT)).map_err(|error| error.to_string())?;
    let mut kernels = HashMap::new();
    for kernel in &plan.kernels {
        let module = device.load(&kernel.name, &ptx_of(&kernel.spec, target)?).map_err(words)?;
        kernels.insert(kernel.name.clone(), module.kernel(&kernel.name).map_err(words)?);
    }
    let mut buffers = Vec::new();
    for buffer in &plan.buffers {
        buffers.push(device.alloc(&buffer.name, buffer.bytes).map_err(words)?);
    }
    let launches = plan.launches.iter().map(|launch| Launch {
        kernel: kernels[&plan.kernels[launch.kernel].name].clone(),
        grid: launch.grid,
        block: [launch.threads, 1, 1],
        dynamic_shared: launch.dynamic_shared,
        params: launch
            .args
            .iter()
            .flat_map(|arg| buffers[arg.buffer].address().offset(arg.offset).0.to_le_bytes())
            .collect(),
        programmatic: launch.programmatic,
    });
    let mut sequence = device.sequence(launches.collect()).map_err(words)?;

    fill(device, &plan.buffers, &buffers)?;
    for _ in 0..STEPS {
        sequence.run_eager().map_err(words)?;
    }
    let eager = contents(device, &buffers)?;

    fill(device, &plan.buffers, &buffers)?;
    let graph = sequence.capture().map_err(words)?;
    let planned: Vec<&String> =
        plan.launches.iter().map(|launch| &plan.kernels[launch.kernel].name).collect();
    if graph.kernels.iter().ne(planned.iter().copied()) {
        return Err(format!("the graph runs {:?} where the plan has {planned:?}", graph.kernels));
    }
    for _ in 0..STEPS {
        sequence.replay().map_err(words)?;
    }
    let replayed = contents(device, &buffers)?;

    for ((buffer, eager), replayed) in plan.buffers.iter().zip(&eager).zip(&replayed) {
        if let Some(at) = (0..eager.len()).find(|&at| eager[at] != replayed[at]) {
            return Err(format!(
                "`{}` differs at byte {at}: {} and {}",
                buffer.name, eager[at], replayed[at]
            ));
        }
    }
    let position = plan.buffer("state").map(|state| eager[state][..4].to_vec());
    if position != Some((STEPS as u32).to_le_bytes().to_vec()) {
        return Err(format!("the position is {position:?} after {STEPS} tokens"));
    }
    Ok(())
}

/// Random weights; an empty cache; the prompt.
fn fill(device: &dyn Device, plan: &[Buffer], buffers: &[Allocation]) -> Result<(), String> {
    for (buffer, allocation) in plan.iter().zip(buffers) {
        let mut bytes = vec![0; buffer.bytes as usize];
        let mut noise = Noise::new(&buffer.name);
        match &buffer.kind {
            BufferKind::Weights { parts } => {
                for part in parts {
                    let out = &mut bytes[part.offset as usize..];
                    match part.kind {
                        PartKind::Matrix { ty, rows, cols } => {
                            let layout =
                                Layout::new(ty, rows, cols).ok_or("a width that is no whole blocks")?;
                            noise.matrix(layout).repack_to(out);
                        }
                        PartKind::Vector { elements } => {
                            let values = f32s(&noise.uniform(elements as usize, 0.5, 1.5));
                            out[..values.len()].copy_from_slice(&values);
                        }
                    }
                }
            }
            BufferKind::RopeTable => bytes = f32s(&frequencies(1e6, (buffer.bytes / 4) as u32, &[])),
            BufferKind::State => bytes = state_record(0, PROMPT.len() as u32),
            BufferKind::Tokens => bytes[..4 * PROMPT.len()].copy_from_slice(&u32s(&PROMPT)),
            BufferKind::Activation | BufferKind::KvCache | BufferKind::Finished => {}
        }
        device.upload(allocation.address(), &bytes).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn contents(device: &dyn Device, buffers: &[Allocation]) -> Result<Vec<Vec<u8>>, String> {
    buffers
        .iter()
        .map(|buffer| {
            let mut out = vec![0; buffer.bytes() as usize];
            device.download(buffer.address(), &mut out).map_err(|error| error.to_string())?;
            Ok(out)
        })
        .collect()
}
