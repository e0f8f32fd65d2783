//! The decode plan: buffers and launches for one token, as plain data.
//!
//! A [`Plan`] is made for a model's shape, a target and [`PlanParams`]. Both devices run the same plan, `inspect`
//! prints it, and `plan.json` is its serialisation. Everything that changes from token to token lies in device
//! memory (see [`crate::kernels::state`]), so that a captured graph of the plan is replayed without an update.

mod build;
mod cost;
mod sampling;
pub mod tuning;
mod weights;

use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use crate::kernels::sample::SampleShape;
use crate::shape::{ModelShape, ShapeError};
use crate::spec::KernelSpec;
pub use cost::Machine;
pub use tuning::{Role, Rule, Tuning, TuningError};
pub use weights::{Part, PartKind};

/// What a plan is for, besides the shape and the target.
///
/// One sequence, one token a launch and one shard so far; the fields are here so that plans for more are other
/// values, not another format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanParams {
    /// Sequences decoded together.
    pub batch: u32,
    /// Tokens of each sequence in a launch.
    pub tokens: u32,
    /// Parts that the model is split into.
    pub shards: u32,
    /// Positions that the KV cache holds.
    pub context: u32,
    /// How the next token is chosen.
    pub sampling: Sampling,
}

/// How the next token is chosen: by launches of their own, so that greedy decoding does not pay for sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// The most likely one.
    Greedy,
    /// Drawn, with parameters in device memory: see [`crate::kernels::sample`].
    Sampled,
}

impl PlanParams {
    /// Most positions that a cache may hold: a position is exact as f32 up to here.
    pub const MAX_CONTEXT: u32 = 1 << 24;

    /// One sequence, one token, one shard; greedy.
    pub fn single(context: u32) -> PlanParams {
        PlanParams { batch: 1, tokens: 1, shards: 1, context, sampling: Sampling::Greedy }
    }

    /// The same, with the next token chosen so.
    #[must_use]
    pub fn choosing(self, sampling: Sampling) -> PlanParams {
        PlanParams { sampling, ..self }
    }
}

/// What a buffer is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BufferKind {
    /// Filled from the model's tensors at load.
    Weights {
        /// Tensors and where they go.
        parts: Vec<Part>,
    },
    /// RoPE's frequencies, computed at load (see [`crate::kernels::rope::frequencies`]).
    RopeTable,
    /// Written and read within one step; reused from layer to layer.
    Activation,
    /// Zero between launches.
    Counters,
    /// Keys and values, from step to step. Needs no content at first: see [`crate::kernels::attention`].
    KvCache,
    /// Position and prompt length: see [`crate::kernels::state`].
    State,
    /// Parameters of sampling, in a plan that samples: see [`crate::kernels::sample`].
    Sampling,
    /// Token ids by position: the prompt, then what was chosen.
    Tokens,
    /// The same, as they become known, in memory that the host reads.
    Finished,
}

/// A named piece of device memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Unique in the plan.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// What it is for.
    #[serde(flatten)]
    pub kind: BufferKind,
}

/// Whether a launch reads or writes what an argument points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads.
    Read,
    /// Writes, without reading.
    Write,
    /// Reads and writes.
    ReadWrite,
}

/// A launch's argument: a view into a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// The kernel's parameter.
    pub param: String,
    /// Index of the buffer.
    pub buffer: usize,
    /// From the buffer's start, in bytes.
    pub offset: u64,
    /// Size of the view, in bytes.
    pub bytes: u64,
    /// What the launch does with it.
    pub access: Access,
}

/// A kernel of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanKernel {
    /// Its name, which is its entry point and its file's.
    pub name: String,
    /// What it is specialised for.
    #[serde(flatten)]
    pub spec: KernelSpec,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// What it computes, as `blk.3.attn_qkv`.
    pub label: String,
    /// Index of the kernel.
    pub kernel: usize,
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads a CTA.
    pub threads: u32,
    /// Dynamic shared memory, in bytes.
    pub dynamic_shared: u32,
    /// Arguments, in the order of the kernel's parameters.
    pub args: Vec<Argument>,
    /// Launches that must be over before this one: edges of the graph.
    pub after: Vec<usize>,
    /// The edge is programmatic: this kernel may start early and waits on the device.
    pub programmatic: bool,
}

/// Buffers, kernels and launches for one token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The model.
    pub shape: ModelShape,
    /// The target.
    pub target: Target,
    /// Batch and context.
    pub params: PlanParams,
    /// Device memory.
    pub buffers: Vec<Buffer>,
    /// Kernels, each once.
    pub kernels: Vec<PlanKernel>,
    /// Launches in order.
    pub launches: Vec<Launch>,
}

impl Plan {
    /// Plans one decode step, divided as the cost model says.
    pub fn new(shape: &ModelShape, target: Target, params: PlanParams) -> Result<Plan, ShapeError> {
        Plan::tuned(shape, target, params, &Tuning::default())
    }

    /// Plans one decode step, divided as `tuning` says and, where it says nothing, the cost model.
    pub fn tuned(
        shape: &ModelShape,
        target: Target,
        params: PlanParams,
        tuning: &Tuning,
    ) -> Result<Plan, ShapeError> {
        shape.dimensions.check()?;
        for (what, value) in [("batch", params.batch), ("tokens", params.tokens), ("shards", params.shards)] {
            if value != 1 {
                return Err(ShapeError::Unsupported(format!("{what} {value}: plans are made for 1 so far")));
            }
        }
        if params.context == 0 || params.context > PlanParams::MAX_CONTEXT {
            return Err(ShapeError::Unsupported(format!(
                "a context of {} positions; 1 to {} are supported",
                params.context,
                PlanParams::MAX_CONTEXT
            )));
        }
        if params.sampling == Sampling::Sampled && shape.dimensions.vocab > SampleShape::MAX_VOCAB {
            return Err(ShapeError::Unsupported(format!(
                "sampling from {} tokens; at most {} are supported",
                shape.dimensions.vocab,
                SampleShape::MAX_VOCAB
            )));
        }
        tuning.check_rules()?;
        let plan = build::build(shape, target, params, tuning);
        tuning.check(&plan)?;
        let limit = target.shared_memory_per_block();
        for launch in &plan.launches {
            let shared = launch.dynamic_shared + plan.kernels[launch.kernel].spec.static_shared();
            if shared > limit {
                return Err(ShapeError::Unsupported(format!(
                    "{} needs {shared} bytes of shared memory; a CTA of {target} has {limit}",
                    launch.label
                )));
            }
        }
        Ok(plan)
    }

    /// Index of the buffer `name`.
    pub fn buffer(&self, name: &str) -> Option<usize> {
        self.buffers.iter().position(|buffer| buffer.name == name)
    }

    /// Bytes of all buffers of a kind.
    pub fn bytes_where(&self, keep: impl Fn(&BufferKind) -> bool) -> u64 {
        self.buffers.iter().filter(|buffer| keep(&buffer.kind)).map(|buffer| buffer.bytes).sum()
    }

    /// Bytes of all buffers.
    pub fn total_bytes(&self) -> u64 {
        self.bytes_where(|_| true)
    }

    /// Bytes that a token must read at the least: all weights (one row of an embedding of its own) and the keys and
    /// values of `length` positions.
    pub fn bytes_per_token(&self, length: u64) -> u64 {
        let weights: u64 = self
            .launches
            .iter()
            .map(|launch| match &self.kernels[launch.kernel].spec {
                KernelSpec::Gemv(s) => s.file_bytes(),
                KernelSpec::Embed(s) => s.layout().file_row_bytes() as u64,
                _ => 0,
            })
            .sum();
        weights + self.shape.kv_bytes() * length
    }

    /// Checks that the plan is consistent: indices and views are in range, every argument matches the kernel's
    /// parameters, and whatever a launch reads or overwrites was made by launches that its edges wait for. The
    /// error names the launch.
    pub fn check(&self) -> Result<(), String> {
        // All launches that must be over before a launch, as bits of a set by index.
        let mut before: Vec<Vec<bool>> = Vec::new();
        for (index, launch) in self.launches.iter().enumerate() {
            let fail = |what: String| Err(format!("launch {index} ({}): {what}", launch.label));
            let Some(kernel) = self.kernels.get(launch.kernel) else {
                return fail(format!("no kernel {}", launch.kernel));
            };
            let geometry = kernel.spec.geometry();
            if (geometry.grid, geometry.threads, geometry.dynamic_shared)
                != (launch.grid, launch.threads, launch.dynamic_shared)
            {
                return fail(format!("geometry differs from {}'s", kernel.name));
            }
            let mut over = vec![false; index];
            for &dependency in &launch.after {
                if dependency >= index {
                    return fail(format!("waits for launch {dependency}, which does not come before it"));
                }
                over[dependency] = true;
                for (mark, &earlier) in over.iter_mut().zip(&before[dependency]) {
                    *mark |= earlier;
                }
            }
            for arg in &launch.args {
                let Some(buffer) = self.buffers.get(arg.buffer) else {
                    return fail(format!("{}: no buffer {}", arg.param, arg.buffer));
                };
                if arg.offset + arg.bytes > buffer.bytes {
                    return fail(format!("{}: view past the end of {}", arg.param, buffer.name));
                }
                for (earlier, other) in self.launches[..index].iter().enumerate() {
                    let conflict = other.args.iter().any(|theirs| {
                        theirs.buffer == arg.buffer
                            && (theirs.access != Access::Read || arg.access != Access::Read)
                            && theirs.offset < arg.offset + arg.bytes
                            && arg.offset < theirs.offset + theirs.bytes
                    });
                    if conflict && !over[earlier] {
                        return fail(format!(
                            "{} needs launch {earlier} ({}) to be over",
                            arg.param, other.label
                        ));
                    }
                }
            }
            before.push(over);
        }
        Ok(())
    }
}
