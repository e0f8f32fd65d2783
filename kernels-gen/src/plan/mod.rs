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
mod cost;
mod gpu;
mod label;
pub mod occupancy;
mod prefill_cost;
mod sampling;
mod token_cost;
mod token_time;
pub mod tuning;
mod warpgroup_cost;
mod weights;

use std::fmt;

use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use crate::kernels::attention::{KvType, PAGE};
use crate::kernels::gemm::GemmShape;
use crate::kernels::gemv::Arithmetic;
use crate::kernels::sample::SampleShape;
use crate::shape::{ModelShape, ShapeError};
use crate::spec::KernelSpec;
pub use buffer::{Buffer, BufferKind, BufferName};
pub use gpu::Gpu;
pub use label::{LaunchLabel, LaunchRole, UnknownLabel};
pub use tuning::{Rule, Site, Tuning, TuningError};
pub use weights::{Part, PartForm};

/// Parameters of a plan besides shape and target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanParams {
    /// Number of rows of a step: tokens that it processes.
    pub rows: u32,
    /// Number of first rows that have logits, and may choose a token.
    pub outputs: u32,
    /// The rows that a step may have.
    pub kind: StepKind,
    /// Number of slots: sequences whose tokens and pages the device knows.
    pub slots: u32,
    /// Number of pages in the pool of the KV cache.
    pub pages: u32,
    /// Largest number of positions of a sequence.
    pub context: u32,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Choice of the next token.
    pub sampling: Sampling,
    /// Operands of the products of steps of several rows other than prefill steps. Steps of one row always multiply integers.
    #[serde(default, skip_serializing_if = "Arithmetic::is_default")]
    pub arithmetic: Arithmetic,
}

/// The rows that a step may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Every row is the last token of another sequence. Attention appends the row's keys and values to the cache.
    #[default]
    Decode,
    /// Rows may be any tokens of any sequences; a row may read what other rows append in the same step. A launch of its
    /// own appends the keys and values of all rows before attention.
    Prefill,
    /// A decode step whose rows may also be consecutive tokens of a sequence, which need not be the last ones: rows that
    /// verify a draft. Every row chooses, with the bits of a decode step. The rows of a sequence are in the order of their
    /// positions. A launch of its own appends the keys and values of all rows before attention.
    Verify,
    /// The rest of a prefill step for the last tokens of prompts: the last layer from its inputs on, the LM head, and the
    /// choice of the first tokens of the answers. Every row is the last prompt token of another sequence, which the prefill
    /// step just before has processed. Its kernels are those of a decode step.
    FirstToken,
}

impl StepKind {
    /// Numbers of rows of an engine's steps of this kind, in ascending order. An engine has the decode steps up to the
    /// first one that holds all of its slots, as many first-token steps, and the prefill steps up to the first one that
    /// holds its context, or 512 rows if it has several slots.
    pub fn sizes(self) -> &'static [u32] {
        match self {
            StepKind::Decode | StepKind::FirstToken => &[1, 2, 4, 8, 16, 32, 64],
            StepKind::Prefill => &[64, 128, 256, 512, 2048],
            StepKind::Verify => &[2, 4, 8, 16, 32, 64],
        }
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StepKind::Decode => "decode",
            StepKind::Prefill => "prefill",
            StepKind::Verify => "verify",
            StepKind::FirstToken => "first-token",
        })
    }
}

/// Kind and number of rows of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepSize {
    /// The rows that the step may have.
    pub kind: StepKind,
    /// Number of rows.
    pub rows: u32,
}

impl StepSize {
    /// The decode step of one row.
    pub const ONE_ROW: StepSize = StepSize { kind: StepKind::Decode, rows: 1 };

    /// All steps of engines.
    pub fn all() -> impl Iterator<Item = StepSize> {
        let of_kind = |kind: StepKind| kind.sizes().iter().map(move |&rows| StepSize { kind, rows });
        [StepKind::Decode, StepKind::Verify, StepKind::FirstToken, StepKind::Prefill]
            .into_iter()
            .flat_map(of_kind)
    }
}

impl fmt::Display for StepSize {
    /// Formats as `decode step of 8 rows`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepSize { kind, rows } = self;
        write!(f, "{kind} step of {rows} row{}", if *rows == 1 { "" } else { "s" })
    }
}

/// How a step chooses the next token. Greedy plans have no launches for sampling, so greedy decoding does not pay for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// The most likely token.
    Greedy,
    /// A random token, drawn with parameters in device memory: see [`crate::kernels::sample`].
    Sampled,
}

impl PlanParams {
    /// Maximum number of positions of a KV cache: up to here, f32 represents every position exactly.
    pub const MAX_CONTEXT: u32 = 1 << 24;

    /// Largest number of rows of a decode step.
    pub const MAX_ROWS: u32 = 64;

    /// Largest number of rows of a prefill step.
    pub const MAX_PREFILL_ROWS: u32 = 2048;

    /// Parameters for decoding one sequence, with a KV cache of f16 and the greedy choice.
    pub fn single(context: u32) -> PlanParams {
        let (kv, sampling) = (KvType::F16, Sampling::Greedy);
        let (kind, pages) = (StepKind::Decode, context.div_ceil(PAGE));
        let arithmetic = Arithmetic::Integers;
        PlanParams { rows: 1, outputs: 1, kind, slots: 1, pages, context, kv, sampling, arithmetic }
    }

    /// These parameters, with `slots` sequences that share `pages` pages.
    #[must_use]
    pub fn with_slots(self, slots: u32, pages: u32) -> PlanParams {
        PlanParams { slots, pages, ..self }
    }

    /// These parameters, for decode steps of `rows` rows.
    #[must_use]
    pub fn decode(self, rows: u32) -> PlanParams {
        PlanParams { rows, outputs: rows, kind: StepKind::Decode, ..self }
    }

    /// These parameters, for verify steps of `rows` rows.
    #[must_use]
    pub fn verify(self, rows: u32) -> PlanParams {
        PlanParams { rows, outputs: rows, kind: StepKind::Verify, ..self }
    }

    /// These parameters, for prefill steps of `rows` rows.
    #[must_use]
    pub fn prefill(self, rows: u32) -> PlanParams {
        PlanParams { rows, outputs: 0, kind: StepKind::Prefill, ..self }
    }

    /// These parameters, for first-token steps of `rows` rows.
    #[must_use]
    pub fn first_token(self, rows: u32) -> PlanParams {
        PlanParams { rows, outputs: rows, kind: StepKind::FirstToken, ..self }
    }

    /// These parameters, for steps of a size.
    #[must_use]
    pub fn with_step(self, step: StepSize) -> PlanParams {
        match step.kind {
            StepKind::Decode => self.decode(step.rows),
            StepKind::Prefill => self.prefill(step.rows),
            StepKind::Verify => self.verify(step.rows),
            StepKind::FirstToken => self.first_token(step.rows),
        }
    }

    /// Kind and number of rows of a step.
    pub fn step(&self) -> StepSize {
        StepSize { kind: self.kind, rows: self.rows }
    }

    /// Number of page table entries of a slot.
    pub fn slot_pages(&self) -> u32 {
        self.context.div_ceil(PAGE)
    }

    /// Number of tokens of a slot in the token buffers: one more than the context, for the token after the last
    /// position.
    pub fn slot_tokens(&self) -> u32 {
        self.context + 1
    }

    /// Checks rows, slots and pages.
    fn check_rows(&self) -> Result<(), PlanError> {
        let entries = u64::from(self.slots) * u64::from(self.context);
        let most_rows = match self.kind {
            StepKind::Decode | StepKind::Verify | StepKind::FirstToken => PlanParams::MAX_ROWS,
            StepKind::Prefill => PlanParams::MAX_PREFILL_ROWS,
        };
        for (what, value, most) in [
            ("rows", self.rows, most_rows),
            ("slots", self.slots, PlanParams::MAX_SLOTS),
            ("pages", self.pages, u32::MAX / PAGE),
        ] {
            if !(1..=most).contains(&value) {
                return Err(PlanError::Unsupported(format!("{what} is {value}; 1 to {most} are supported")));
            }
        }
        let outputs = match self.kind {
            StepKind::Decode | StepKind::Verify | StepKind::FirstToken => self.rows,
            StepKind::Prefill => 0,
        };
        if self.outputs != outputs {
            return Err(PlanError::Unsupported(
                "the rows of prefill steps have no outputs, and those of other steps have".to_owned(),
            ));
        }
        if entries > u64::from(u32::MAX) / 2 {
            return Err(PlanError::Unsupported(format!(
                "{} sequences of {} positions are too many: choose fewer sequences or a smaller context",
                self.slots, self.context
            )));
        }
        Ok(())
    }

    /// Largest number of slots.
    pub const MAX_SLOTS: u32 = 1024;

    /// These parameters, with `kv` as the type of the KV cache.
    #[must_use]
    pub fn with_kv(self, kv: KvType) -> PlanParams {
        PlanParams { kv, ..self }
    }

    /// These parameters, with other operands of the products of several rows.
    #[must_use]
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> PlanParams {
        PlanParams { arithmetic, ..self }
    }

    /// These parameters, with `sampling` as the choice of the next token.
    #[must_use]
    pub fn with_sampling(self, sampling: Sampling) -> PlanParams {
        PlanParams { sampling, ..self }
    }
}

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
        shape.dimensions.check()?;
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

    /// Checks that the plan is consistent: indices and views are in range, launches have their kernel's geometry, and
    /// edges order every two launches that access the same memory, unless both only read it. The error names the
    /// launch.
    pub fn check(&self) -> Result<(), String> {
        // For each launch, whether each earlier launch completes before it.
        let mut ordered_before: Vec<Vec<bool>> = Vec::new();
        for (index, launch) in self.launches.iter().enumerate() {
            let fail = |what: String| Err(format!("launch {index} ({}): {what}", launch.label));
            let Some(kernel) = self.kernels.get(launch.kernel) else {
                return fail(format!("kernel {} does not exist", launch.kernel));
            };
            if let Err(what) = kernel.spec.check() {
                return fail(format!("{}: {what}", kernel.name));
            }
            let geometry = kernel.spec.geometry();
            if (geometry.grid, geometry.threads, geometry.dynamic_shared)
                != (launch.grid, launch.threads, launch.dynamic_shared)
            {
                return fail(format!("its geometry differs from that of {}", kernel.name));
            }
            let mut completed = vec![false; index];
            for &dependency in &launch.after {
                if dependency >= index {
                    return fail(format!("it waits for launch {dependency}, which is not an earlier one"));
                }
                completed[dependency] = true;
                for (mark, &earlier) in completed.iter_mut().zip(&ordered_before[dependency]) {
                    *mark |= earlier;
                }
            }
            for arg in &launch.args {
                let Some(buffer) = self.buffers.get(arg.buffer) else {
                    return fail(format!("{}: buffer {} does not exist", arg.param, arg.buffer));
                };
                if arg.offset.checked_add(arg.bytes).is_none_or(|end| end > buffer.bytes) {
                    return fail(format!("{}: the view ends past the end of {}", arg.param, buffer.name));
                }
                for (earlier, other) in self.launches[..index].iter().enumerate() {
                    let conflict = other.args.iter().any(|theirs| {
                        theirs.buffer == arg.buffer
                            && (theirs.access != ArgumentAccess::Read || arg.access != ArgumentAccess::Read)
                            && theirs.offset < arg.offset + arg.bytes
                            && arg.offset < theirs.offset + theirs.bytes
                    });
                    if conflict && !completed[earlier] {
                        return fail(format!(
                            "{} conflicts with launch {earlier} ({}), and no edge orders them",
                            arg.param, other.label
                        ));
                    }
                }
            }
            ordered_before.push(completed);
        }
        Ok(())
    }
}
