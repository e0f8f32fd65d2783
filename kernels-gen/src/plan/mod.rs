//! The plan of a step: buffers and launches, as plain data.
//!
//! A step processes a fixed number of rows, each of which is one token of a sequence. Steps of several sizes share the
//! memory that outlives a step: weights, KV cache, page table and tokens.
//!
//! A [`Plan`] is built for a model's shape, a target and [`PlanParams`]. The CUDA device and the emulator run the same
//! plan, `inspect` prints it, and `plans/*.json` are its serialisation. Everything that changes from token to token is
//! in device memory (see [`crate::kernels::state`]), so that a captured graph of the plan is replayed without updates.

mod buffer;
mod build;
mod builder;
mod check;
mod cost;
mod gpu;
mod label;
pub mod occupancy;
mod params;
mod prefill_cost;
mod sampling;
mod token_cost;
mod token_time;
pub mod tuning;
mod warpgroup_cost;
mod weights;

use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use crate::kernels::gemm::GemmShape;
use crate::kernels::sample::SampleShape;
use crate::shape::{ModelShape, ShapeError};
use crate::spec::KernelSpec;
pub use buffer::{Buffer, BufferKind, BufferName};
pub use gpu::Gpu;
pub use label::{LaunchLabel, LaunchRole, UnknownLabel};
pub use params::{PlanParams, Sampling, StepKind, StepSize};
pub use tuning::{Rule, Site, Tuning, TuningError};
pub use weights::{Part, PartForm};

/// How a launch accesses the memory of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentAccess {
    /// Reads.
    Read,
    /// Writes without reading.
    Write,
    /// Reads and writes.
    ReadWrite,
}

/// A launch's argument: a view into a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Name of the kernel's parameter.
    pub param: String,
    /// Index in [`Plan::buffers`].
    pub buffer: usize,
    /// Start of the view in the buffer, in bytes.
    pub offset: u64,
    /// Size of the view, in bytes.
    pub bytes: u64,
    /// How the launch accesses the view.
    pub access: ArgumentAccess,
}

/// A kernel of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanKernel {
    /// Name of the kernel, of its entry point and of its file.
    pub name: String,
    /// The kernel with its compile-time parameters.
    #[serde(flatten)]
    pub spec: KernelSpec,
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Role and layer.
    pub label: LaunchLabel,
    /// Index in [`Plan::kernels`].
    pub kernel: usize,
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub threads: u32,
    /// Dynamic shared memory, in bytes.
    pub dynamic_shared: u32,
    /// Arguments, in the order of the kernel's parameters.
    pub args: Vec<Argument>,
    /// Indices of the launches that must complete before this one: edges of the graph.
    pub after: Vec<usize>,
    /// Whether the edges are programmatic: the kernel may start early, and waits on the device.
    pub programmatic: bool,
}

/// Error of building a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The shape is inconsistent or unsupported.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A tuning rule is impossible for the model or the target.
    #[error("tuning: {0}")]
    Tuning(#[from] TuningError),
    /// No plan supports the parameters, or the target cannot run a launch.
    #[error("{0}")]
    Unsupported(String),
}

/// Buffers, kernels and launches of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Shape of the model.
    pub shape: ModelShape,
    /// The GPU among whose multiprocessors the work is divided.
    pub gpu: Gpu,
    /// Rows, context and other parameters.
    pub params: PlanParams,
    /// Buffers in device memory.
    pub buffers: Vec<Buffer>,
    /// Kernels, each once.
    pub kernels: Vec<PlanKernel>,
    /// Launches of one step, in order.
    pub launches: Vec<Launch>,
}

impl Plan {
    /// Plans one step, with work divided among the multiprocessors of `gpu` by the cost model. A target stands for
    /// [`Gpu::typical`].
    pub fn new(shape: &ModelShape, gpu: impl Into<Gpu>, params: PlanParams) -> Result<Plan, PlanError> {
        Plan::tuned(shape, gpu, params, &Tuning::default())
    }

    /// Plans one step, with work divided by the rules of `tuning`, and by the cost model where no rule applies.
    pub fn tuned(
        shape: &ModelShape,
        gpu: impl Into<Gpu>,
        params: PlanParams,
        tuning: &Tuning,
    ) -> Result<Plan, PlanError> {
        let gpu = gpu.into();
        if !(1..=Gpu::MAX_MULTIPROCESSORS).contains(&gpu.multiprocessors) {
            return Err(PlanError::Unsupported(format!(
                "{} multiprocessors are not supported; 1 to {} are",
                gpu.multiprocessors,
                Gpu::MAX_MULTIPROCESSORS
            )));
        }
        shape.check()?;
        if params.context == 0 || params.context > PlanParams::MAX_CONTEXT {
            return Err(PlanError::Unsupported(format!(
                "a context of {} positions is not supported; 1 to {} are",
                params.context,
                PlanParams::MAX_CONTEXT
            )));
        }
        params.check_rows()?;
        if let Some(most) = shape.max_context.filter(|&most| params.context > most) {
            return Err(PlanError::Unsupported(format!(
                "a context of {} positions is not supported: behind position {most} this model changes the temperature \
                 of its queries (attention.temperature_scale); --ctx {most} is its longest context here",
                params.context
            )));
        }
        if params.sampling == Sampling::Sampled && shape.dimensions.vocab > SampleShape::MAX_VOCAB {
            return Err(PlanError::Unsupported(format!(
                "sampling from {} tokens is not supported; at most {} are",
                shape.dimensions.vocab,
                SampleShape::MAX_VOCAB
            )));
        }
        tuning.check_rules()?;
        let plan = build::build(shape, gpu, params, tuning);
        tuning.check(&plan)?;
        for launch in &plan.launches {
            if let KernelSpec::Gemm(s) = &plan.kernels[launch.kernel].spec
                && !GemmShape::supports(&s.product)
            {
                let [gate, up] = [0, 1].map(|i| s.product.segments[i].ty);
                return Err(PlanError::Unsupported(format!(
                    "{} has matrices of types {gate} and {up}, whose blocks have different widths, which prefill steps do \
                     not support",
                    launch.label
                )));
            }
            let shared = launch.dynamic_shared + plan.kernels[launch.kernel].spec.static_shared();
            if shared > gpu.shared_per_cta {
                return Err(PlanError::Unsupported(format!(
                    "{} needs {shared} bytes of shared memory; a CTA of {} has {}",
                    launch.label, gpu.target, gpu.shared_per_cta
                )));
            }
        }
        Ok(plan)
    }

    /// Target of the kernels.
    pub fn target(&self) -> Target {
        self.gpu.target
    }

    /// Index in [`Plan::buffers`] of the buffer called `name`.
    pub fn buffer(&self, name: BufferName) -> Option<usize> {
        self.buffers.iter().position(|buffer| buffer.name == name.as_str())
    }

    /// Bytes of the buffers whose kind satisfies `predicate`.
    pub fn bytes_where(&self, predicate: impl Fn(&BufferKind) -> bool) -> u64 {
        self.buffers.iter().filter(|buffer| predicate(&buffer.kind)).map(|buffer| buffer.bytes).sum()
    }

    /// Bytes of all buffers.
    pub fn total_bytes(&self) -> u64 {
        self.bytes_where(|_| true)
    }

    /// Bytes that a step must read: rows of the embedding, all other weights, and the keys and values to which each row
    /// attends, after `length` positions of its sequence (in a prefill step, one sequence). An embedding that serves as the
    /// output matrix is also read as a whole.
    pub fn bytes_per_token(&self, length: u64) -> u64 {
        let bytes = |spec: &KernelSpec| match spec {
            KernelSpec::Gemv(s) => s.file_bytes(),
            KernelSpec::Embed(s) => u64::from(s.tokens) * s.layout().file_row_bytes() as u64,
            KernelSpec::Gemm(s) => s.product.file_bytes(),
            KernelSpec::Attention(s) => u64::from(s.tokens) * s.read_bytes(length),
            KernelSpec::AttentionChunk(s) => s.attention.read_bytes(length),
            _ => 0,
        };
        self.launches.iter().map(|launch| bytes(&self.kernels[launch.kernel].spec)).sum()
    }

    /// Bytes of the KV cache for one position: keys and values of every layer.
    pub fn kv_bytes(&self) -> u64 {
        let bytes = |spec: &KernelSpec| match spec {
            // In a verify step `append` is counted.
            KernelSpec::Attention(s) if !s.appended => {
                2 * u64::from(s.kv_heads) * u64::from(s.position_bytes())
            }
            KernelSpec::Append(s) => s.entry_bytes(),
            _ => 0,
        };
        self.launches.iter().map(|launch| bytes(&self.kernels[launch.kernel].spec)).sum()
    }
}
