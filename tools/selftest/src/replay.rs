//! Compares a captured graph with the same launches run one by one.

use bespoke::builtin;
use bespoke::device::{Device, Kernel, Kind};
use bespoke::engine::bind::{PlanBuffers, launches};
use bespoke::engine::{SamplingParams, target_for};
use bespoke_kernels::kernels::rope::frequencies;
use bespoke_kernels::plan::{BufferKind, BufferName, PartForm, Plan, PlanParams, Sampling};
use bespoke_kernels::shape::{Architecture, Blueprint, Dimensions, Mix, ModelShape};
use bespoke_kernels::weights::Layout;

use super::inputs::{Noise, f32s, state_record, u32s};
use super::report::Row;
use super::runner::ptx_of;

/// Number of positions of the cache, and of tokens that a GPU decodes: enough for several splits of attention.
const CONTEXT: u32 = 256;
/// Number of tokens that the emulator decodes: the prompt, and some generated tokens.
const EMULATED_STEPS: u32 = 8;
/// The prompt.
const PROMPT: [u32; 3] = [1, 2, 3];

/// Sampling parameters with every filter and penalty; [`drawn`] adds a logit bias.
const DRAWN: SamplingParams = SamplingParams {
    temperature: 1.5,
    top_k: 200,
    top_p: 0.95,
    min_p: 0.01,
    repeat_penalty: 1.1,
    presence_penalty: 0.25,
    frequency_penalty: -0.125,
    repeat_last_n: 5,
    logit_bias: Vec::new(),
    masked: true,
    seed: 7,
};

/// The mask of [`DRAWN`]: every third token is forbidden.
fn mask(words: u32) -> Vec<u32> {
    (0..words)
        .map(|word| (0..32).fold(0, |bits, i| bits | u32::from((32 * word + i) % 3 != 2) << i))
        .collect()
}

fn drawn() -> SamplingParams {
    SamplingParams { logit_bias: vec![(7, 2.0), (300, f32::NEG_INFINITY)], ..DRAWN }
}

/// Models of two layers, small enough for the emulator: one with biases and a tied head of Q8_0, one with QK-norm and
/// mixed K-quants.
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
        let blueprint = Blueprint { tied, ..Blueprint::new(architecture, dimensions) };
        blueprint.shape(name, mix).expect("dimensions that fit the types")
    })
    .into()
}

/// Decodes some tokens with random weights, greedy and sampled: launch by launch, by replays of the captured graph, by
/// replays queued without waiting, and by replays of a graph without programmatic edges. Compares tokens, logits and
/// all other buffers bit by bit, and the graph's kernels and edges with the plan's.
pub fn replay_equals_eager(device: &dyn Device, shape: &ModelShape) -> Row {
    let steps = if device.info().kind == Kind::Emulator { EMULATED_STEPS } else { CONTEXT };
    let what = format!("{steps} tokens, replay and full edges against eager");
    match decode_each_way(device, shape, steps) {
        Ok(()) => Row {
            kernel: shape.name.clone(),
            what,
            output: "tokens, logits, all buffers".to_owned(),
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

/// How a step is enqueued.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Launch by launch.
    Eager,
    /// By graph replays, waiting after each replay.
    Replay,
    /// By graph replays without waiting.
    Queued,
    /// By replays, without waiting, of a graph with full edges only: launches do not overlap.
    InOrder,
}

impl Way {
    /// Whether logits are read after each step.
    fn waits(self) -> bool {
        matches!(self, Way::Eager | Way::Replay)
    }
}

/// Logits and buffers after decoding.
struct Outcome {
    /// Logits after each step; empty if steps were queued.
    logits: Vec<Vec<u8>>,
    /// Every buffer after the last step, in the plan's order.
    buffers: Vec<Vec<u8>>,
}

/// A plan with its kernels, and the initial contents of its buffers.
struct Model<'a> {
    device: &'a dyn Device,
    plan: Plan,
    kernels: Vec<Kernel>,
    content: Vec<Vec<u8>>,
    logits: usize,
}

fn decode_each_way(device: &dyn Device, shape: &ModelShape, steps: u32) -> Result<(), String> {
    for sampling in [Sampling::Greedy, Sampling::Sampled] {
        compare_ways(&Model::new(device, shape, sampling)?, steps)?;
    }
    Ok(())
}

fn compare_ways(model: &Model<'_>, steps: u32) -> Result<(), String> {
    let eager = model.decode(Way::Eager, steps)?;
    for way in [Way::Replay, Way::Queued, Way::InOrder] {
        let other = model.decode(way, steps)?;
        for (step, (eager, other)) in eager.logits.iter().zip(&other.logits).enumerate() {
            same(&format!("logits after token {step}"), way, eager, other)?;
        }
        for (buffer, (eager, other)) in
            model.plan.buffers.iter().zip(eager.buffers.iter().zip(&other.buffers))
        {
            same(&buffer.name, way, eager, other)?;
        }
    }
    let position = model.plan.buffer(BufferName::State).map(|state| &eager.buffers[state][..4]);
    if position != Some(&steps.to_le_bytes()[..]) {
        return Err(format!("the position is {position:?} after {steps} tokens"));
    }
    Ok(())
}

fn same(what: &str, way: Way, eager: &[u8], other: &[u8]) -> Result<(), String> {
    match eager.iter().zip(other).position(|(eager, other)| eager != other) {
        None => Ok(()),
        Some(at) => {
            let (eager, other) = (eager[at], other[at]);
            Err(format!("{way:?}: `{what}` differs at byte {at}: {eager} eagerly, now {other}"))
        }
    }
}

impl Model<'_> {
    fn new<'a>(device: &'a dyn Device, shape: &ModelShape, sampling: Sampling) -> Result<Model<'a>, String> {
        let target = target_for(device).map_err(words)?;
        let plan =
            Plan::new(shape, target, PlanParams::single(CONTEXT).with_sampling(sampling)).map_err(words)?;
        let kernels = plan.kernels.iter().map(|kernel| {
            let ptx = ptx_of(&kernel.spec, target)?;
            let module = device.load_source(&builtin::source(target, &kernel.name, &ptx)).map_err(words)?;
            module.kernel(&kernel.name).map_err(words)
        });
        let kernels = kernels.collect::<Result<_, String>>()?;
        let content = content(&plan)?;
        let logits = plan.buffer(BufferName::Logits).ok_or("the plan has no logits")?;
        Ok(Model { device, plan, kernels, content, logits })
    }

    /// Decodes `steps` tokens, enqueued as `way` says, in freshly allocated memory.
    fn decode(&self, way: Way, steps: u32) -> Result<Outcome, String> {
        let memory = PlanBuffers::allocate(&self.plan, self.device).map_err(words)?;
        for (content, &address) in self.content.iter().zip(memory.addresses()) {
            if !content.is_empty() {
                self.device.upload(address, content).map_err(words)?;
            }
        }
        let mut launches = launches(&self.plan, &memory, &self.kernels);
        if way == Way::InOrder {
            launches.iter_mut().for_each(|launch| launch.programmatic = false);
        }
        let early = launches.iter().filter(|launch| launch.programmatic).count();
        let mut sequence = self.device.sequence(launches).map_err(words)?;
        if way != Way::Eager {
            let graph = sequence.capture().map_err(words)?;
            let kernels = &self.plan.kernels;
            let planned = self.plan.launches.iter().map(|launch| &kernels[launch.kernel].name);
            if graph.kernels.iter().ne(planned.clone()) {
                let planned: Vec<&String> = planned.collect();
                return Err(format!("the graph runs {:?}, but the plan has {planned:?}", graph.kernels));
            }
            if graph.programmatic_edges != early {
                let found = graph.programmatic_edges;
                return Err(format!(
                    "{way:?}: {found} programmatic edges where {early} launches may start early"
                ));
            }
        }
        let mut logits = Vec::new();
        for _ in 0..steps {
            match way {
                Way::Eager => sequence.run_eager().map_err(words)?,
                Way::Replay | Way::Queued | Way::InOrder => sequence.replay().map_err(words)?,
            }
            if way.waits() {
                logits.push(self.read(&memory, self.logits)?);
            }
        }
        sequence.wait().map_err(words)?;
        let buffers = (0..self.plan.buffers.len()).map(|index| self.read(&memory, index));
        Ok(Outcome { logits, buffers: buffers.collect::<Result<_, String>>()? })
    }

    fn read(&self, memory: &PlanBuffers, index: usize) -> Result<Vec<u8>, String> {
        let buffer = &self.plan.buffers[index];
        let mut out = vec![0; buffer.bytes as usize];
        match buffer.kind {
            BufferKind::HostTokens => memory.host_tokens().read(0, &mut out),
            _ => self.device.download(memory.addresses()[index], &mut out),
        }
        .map_err(words)?;
        Ok(out)
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Initial content of each buffer: random weights, a cache of NaN, the prompt. Empty for buffers that are cleared by
/// the device instead.
fn content(plan: &Plan) -> Result<Vec<Vec<u8>>, String> {
    let content = plan.buffers.iter().map(|buffer| {
        let mut bytes = vec![0; buffer.bytes as usize];
        let mut noise = Noise::new(&buffer.name);
        match &buffer.kind {
            BufferKind::Weights { parts } => {
                for part in parts {
                    let out = &mut bytes[part.offset as usize..];
                    match part.form {
                        PartForm::Matrix { ty, rows, cols } => {
                            let layout = Layout::new(ty, rows, cols)
                                .ok_or("the width is not a multiple of the block")?;
                            noise.matrix(layout).repack_to(out);
                        }
                        PartForm::Vector { elements } => {
                            let values = f32s(&noise.uniform(elements as usize, 0.5, 1.5));
                            out[..values.len()].copy_from_slice(&values);
                        }
                    }
                }
            }
            BufferKind::RopeTable { .. } => bytes = f32s(&frequencies(1e6, (buffer.bytes / 4) as u32, &[])),
            BufferKind::State => bytes = state_record(0, PROMPT.len() as u32),
            BufferKind::Tokens => bytes[..4 * PROMPT.len()].copy_from_slice(&u32s(&PROMPT)),
            BufferKind::Sampling => bytes = u32s(&drawn().words()),
            BufferKind::LogitBias => bytes = f32s(&drawn().bias_row((buffer.bytes / 4) as u32)),
            BufferKind::TokenMask => bytes = u32s(&mask((buffer.bytes / 4) as u32)),
            BufferKind::HostTokens => bytes.clear(),
            BufferKind::PageTable => {
                let pages: Vec<u32> = (0..(buffer.bytes / 4) as u32).rev().collect();
                bytes = u32s(&pages);
            }
            BufferKind::KvCache | BufferKind::Activation | BufferKind::Counters => {}
        }
        Ok(bytes)
    });
    content.collect()
}
