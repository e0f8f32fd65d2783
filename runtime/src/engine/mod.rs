//! Decode engine: a plan bound to a device, with a model's weights.
//!
//! [`Engine::load`] plans for the model's shape, allocates the plan's buffers, uploads the weights and captures a step
//! as a graph. [`Slots`] are the steps for a [scheduler](crate::scheduler), which decodes requests. The engine also has a sequence of
//! its own, for measurements and for logits: each [`Engine::step`] is one graph launch, without allocation, look-up or blocking.
//! The position and the tokens of a sequence are in device memory. Chosen tokens are also written to host-visible memory, which the
//! scheduler polls while later steps run.

pub mod bind;
mod error;
mod gpu;
mod kernels;
mod load;
mod measure;
mod memory_needs;
mod non_finite;
mod options;
mod sampling;
mod slots;
mod start;
mod step;
mod wait;

use std::cell::Cell;
use std::time::{Duration, Instant};

use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::state;
use bespoke_kernels::plan::{Plan, PlanParams};
use bespoke_kernels::shape::ModelShape;

use crate::device::{self, Address, Device, GraphReport, LaunchSequence};
use bind::{PlanBuffers, capture, check_shared_memory};
pub use error::{DoesNotFit, EngineError};
pub use gpu::{gpu_for, target_for};
pub use kernels::{KernelCounts, OriginCounts};
pub use measure::{
    LaunchSpan, Matrix, MatrixRate, StepRows, Variant, Variants, median, read_bandwidth, tensor_throughput,
};
pub use memory_needs::MemoryNeeds;
pub use non_finite::{NonFiniteLogits, NonFiniteOutput};
pub use options::{DEFAULT_CONTEXT, EngineOptions, STEP_LIMIT};
pub use sampling::{SamplingError, SamplingParams};
pub use slots::Slots;
pub use start::check_prompt;
pub(crate) use start::prefilled_tokens;
use step::{LoadedStep, ONE_ROW, Step};
pub use wait::MAX_STEPS_AHEAD;
pub(crate) use wait::{Backoff, Pause};

/// Durations of the phases of loading.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadTimes {
    /// Planning, and looking up or compiling kernels.
    pub specialise: Duration,
    /// Loading kernels into the device, and assembling kernels that have no machine code.
    pub assemble: Duration,
    /// Allocating the plan's buffers.
    pub allocate: Duration,
    /// Repacking weights, and copying them to the device.
    pub weights: Duration,
    /// Part of `weights` spent reading the file and repacking.
    pub repack: Duration,
    /// Part of `weights` spent waiting for copies to the device.
    pub upload: Duration,
    /// Binding launches and capturing the graph.
    pub capture: Duration,
}

impl LoadTimes {
    /// Sum of the phases.
    pub fn total(&self) -> Duration {
        self.specialise + self.assemble + self.allocate + self.weights + self.capture
    }
}

/// Progress of the engine's own sequence, in positions.
#[derive(Clone, Copy, Default)]
struct Cursor {
    /// Length of the prompt: tokens at smaller positions are given, not chosen.
    prompt: u32,
    /// Number of positions that enqueued steps process; the next step processes this position.
    enqueued: u32,
    /// Number of positions whose steps are known to be complete.
    complete: u32,
}

/// Plan bound to a device, with the model's weights and a sequence of its own.
///
/// If the device fails, the call returns the error and the sequence is lost: steps are refused
/// ([`EngineError::NotStarted`]) until the next start, which fails if the device has not recovered.
pub struct Engine {
    /// All steps; the first is the decode step of one row. Declared first and so dropped first: dropping a step waits for its kernels,
    /// which use the buffers.
    steps: Vec<Step>,
    /// Plan of the decode step of one row, with the buffers of all steps.
    plan: Plan,
    buffers: PlanBuffers,
    device: Box<dyn Device>,
    kernels: KernelCounts,
    times: LoadTimes,
    cursor: Cursor,
    /// Whether the device holds the sequence that `cursor` describes. Set by a start, cleared by a failure.
    started: Cell<bool>,
    options: EngineOptions,
    /// Whether the device holds the sampling parameters that were set last.
    sampling_set: bool,
    step_limit: Duration,
    /// Whether the page table is that of the engine, not one that [`Slots`] left behind.
    own_pages: bool,
}

/// Marks a host token that the device has not written yet. No vocabulary has this token.
const NOT_WRITTEN: u32 = u32::MAX;

/// Progress callback of loading: bytes of weights uploaded, and their total.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

impl Engine {
    /// Loads the model `gguf` of shape `shape` onto `device`.
    pub fn load(
        device: Box<dyn Device>,
        gguf: &Gguf,
        shape: &ModelShape,
        options: &EngineOptions,
        progress: Progress<'_>,
    ) -> Result<Engine, EngineError> {
        let mut times = LoadTimes::default();
        let start = Instant::now();
        options.sampling.check(shape.dimensions.vocab)?;
        let context = options.context.unwrap_or(shape.dimensions.context.min(DEFAULT_CONTEXT));
        let params =
            PlanParams::single(context).with_kv(options.kv).with_sampling(options.sampling.launches());
        let params = PlanParams { slots: options.parallel.max(1), arithmetic: options.arithmetic, ..params };
        let gpu = gpu::planned(&*device, options, |gpu| {
            let plan = Plan::tuned(shape, gpu, params.clone(), &options.tuning);
            plan.is_ok_and(|plan| kernels::are_built_in(&plan))
        })?;
        let tuned = |params| Ok(Plan::tuned(shape, gpu, params, &options.tuning)?);
        let pages = step::pool_pages(&params, tuned, options, &*device)?;
        let plan = tuned(PlanParams { pages, ..params })?;
        let (plan, steps) = step::plans(&plan, options, &*device)?;
        memory_needs::check(&plan, &*device)?;
        check_shared_memory(&plan, &*device)?;
        let needed: Vec<_> = plan.kernels.iter().collect();
        let sources = kernels::sources(&needed, gpu.target, options, "decode steps of one row")?;
        times.specialise = start.elapsed();

        let start = Instant::now();
        let loaded = kernels::load(&*device, gpu.target, &sources.texts)?;
        times.assemble = start.elapsed();

        let start = Instant::now();
        let buffers = PlanBuffers::allocate(&plan, &*device)?;
        times.allocate = start.elapsed();

        let start = Instant::now();
        let busy = load::upload(&plan, &buffers, gguf, &*device, progress)?;
        times.weights = start.elapsed();
        (times.repack, times.upload) = (busy.repack, busy.upload);

        let start = Instant::now();
        let kernels = sources.counts;
        let mut engine = Engine {
            plan,
            steps,
            options: options.clone(),
            buffers,
            device,
            kernels,
            times,
            cursor: Cursor::default(),
            started: Cell::new(false),
            sampling_set: false,
            own_pages: true,
            step_limit: options.step_limit.unwrap_or(STEP_LIMIT),
        };
        engine.load_one_row(loaded)?;
        engine.times.capture = start.elapsed();
        engine.set_sampling(&options.sampling)?;
        Ok(engine)
    }

    /// Plan of the decode step of one row, with the buffers of all steps.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// The captured graph of the decode step of one row; none if kernels are launched one by one.
    pub fn graph(&self) -> Option<&GraphReport> {
        self.one_row().graph.as_ref()
    }

    /// Numbers of kernels that were built in and that were compiled while loading.
    pub fn kernels(&self) -> &KernelCounts {
        &self.kernels
    }

    /// Number of kernels by the origin of their machine code; all zero on the emulator.
    pub fn origins(&self) -> OriginCounts {
        OriginCounts::of(&self.one_row().kernels)
    }

    /// Durations of the phases of loading.
    pub fn load_times(&self) -> LoadTimes {
        self.times
    }

    /// The launches of the decode step of one row, for timing after a start. They end the sequence: the next step needs another
    /// start.
    pub fn launches(&mut self) -> &mut dyn LaunchSequence {
        self.started.set(false);
        &mut *self.loaded_step(ONE_ROW).launches
    }

    /// Passes on the result of a device call on which the sequence depends. A failure ends the sequence.
    fn end_sequence_on_error<T>(&self, result: device::Result<T>) -> Result<T, EngineError> {
        if result.is_err() {
            self.started.set(false);
        }
        Ok(result?)
    }

    /// Whether steps are unfinished after `waited`. If that is longer than `steps` steps may take, the device is given
    /// up.
    fn busy(&self, waited: Duration, steps: u32) -> Result<bool, EngineError> {
        let busy = self.end_sequence_on_error(self.device.busy())?;
        let limit = self.step_limit.saturating_mul(steps);
        if busy && waited > limit {
            self.device.abandon();
            let what = match self.own_pages {
                true => format!("a step after position {}", self.cursor.complete),
                false => "a step".to_owned(),
            };
            return self.end_sequence_on_error(Err(device::Error::Hung { what, seconds: limit.as_secs() }));
        }
        Ok(busy)
    }

    /// Waits until the device is idle, if `steps` steps may be unfinished. Calls that block come after this one, so that
    /// they do not wait for a kernel that hangs.
    fn wait_for_steps(&self, steps: u32) -> Result<(), EngineError> {
        let backoff = Backoff::new();
        while self.busy(backoff.waited(), steps.max(1))? {
            backoff.pause();
        }
        Ok(())
    }

    fn require_positions(&self, needed: u64) -> Result<(), EngineError> {
        let context = self.plan.params.context;
        if needed > u64::from(context) {
            return Err(EngineError::ContextFull { needed, context });
        }
        Ok(())
    }

    /// Checks that the cache has room for `steps` more steps.
    pub fn require_steps(&self, steps: u64) -> Result<(), EngineError> {
        self.require_positions(u64::from(self.cursor.enqueued) + steps)
    }

    /// Enqueues one step: processes the token at the current position and chooses the next one.
    ///
    /// # Errors
    /// If no sequence was started since the engine was loaded or failed, the cache is full, or the device fails.
    pub fn step(&mut self) -> Result<(), EngineError> {
        if !self.started.get() {
            return Err(EngineError::NotStarted);
        }
        self.require_steps(1)?;
        self.enqueue_step(ONE_ROW)?;
        self.cursor.enqueued += 1;
        Ok(())
    }

    /// Mean time of a graph replay from `depth` on, in milliseconds by the device's clock; none without a graph. Runs
    /// `count` steps, or as many as the cache has room for. Call [`Engine::start`] again afterwards.
    pub fn time_replays(&mut self, depth: u32, count: u32) -> Result<Option<f64>, EngineError> {
        self.start_at_depth(depth)?;
        let count = count.min(self.plan.params.context - depth);
        self.started.set(false);
        let LoadedStep { launches, graph, .. } = self.loaded_step(ONE_ROW);
        Ok(graph.is_some().then(|| launches.time_replays(count)).transpose()?)
    }

    /// Waits for all enqueued steps.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        self.wait_for_steps(self.cursor.enqueued - self.cursor.complete)?;
        self.cursor.complete = self.cursor.enqueued;
        Ok(())
    }

    /// As [`Engine::wait`], without pauses between polls, for timing.
    ///
    /// # Errors
    /// If a kernel faulted, or the steps take longer than their limit.
    pub fn wait_without_pauses(&mut self) -> Result<(), EngineError> {
        let since = Instant::now();
        while self.busy(since.elapsed(), (self.cursor.enqueued - self.cursor.complete).max(1))? {
            std::hint::spin_loop();
        }
        self.cursor.complete = self.cursor.enqueued;
        Ok(())
    }

    /// Position that the next step processes: the number of tokens in the cache.
    pub fn position(&self) -> u32 {
        self.cursor.enqueued
    }

    /// Token at `position`, which may be any position but the first. The step that writes the token must have
    /// completed.
    ///
    /// # Errors
    /// If the token is not there, or the logits that it would be chosen from are not finite.
    pub fn token(&self, position: u32) -> Result<u32, EngineError> {
        self.token_of(0, position)?.ok_or(EngineError::NoToken { position })
    }

    /// Token of a slot at a position; none if the device has not written it yet.
    fn token_of(&self, slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        let mut bytes = [0; 4];
        let index = u64::from(slot) * u64::from(self.plan.params.slot_tokens()) + u64::from(position);
        self.end_sequence_on_error(self.buffers.host_tokens().read(index * 4, &mut bytes))?;
        match u32::from_le_bytes(bytes) {
            NOT_WRITTEN => Ok(None),
            state::NOT_FINITE => Err(NonFiniteLogits { position: position - 1, first: None }.into()),
            token => Ok(Some(token)),
        }
    }

    /// Marks `count` tokens of a slot as not written, ordered after all enqueued work and before later uploads.
    fn forget_tokens(&self, slot: u32, position: u32, count: u32) -> Result<(), EngineError> {
        let first = u64::from(slot) * u64::from(self.plan.params.slot_tokens()) + u64::from(position);
        let at = self.buffers.host_tokens().address().offset(first * 4);
        self.end_sequence_on_error(self.device.fill(at, u64::from(count) * 4, NOT_WRITTEN as u8))
    }

    /// Logits of the last step, `f32 [vocab]`. Waits until the step has completed.
    ///
    /// # Errors
    /// If a logit is NaN or infinite; the error names the first launch of the step with such an output.
    pub fn logits(&mut self) -> Result<Vec<f32>, EngineError> {
        self.wait()?;
        let logits = self.logits_of(0, 1)?;
        if are_finite(&logits) {
            return Ok(logits);
        }
        Err(self.non_finite(self.cursor.enqueued.saturating_sub(1)))
    }

    /// Logits of a row of the last step, finite or not. `steps` steps may be unfinished.
    fn logits_of(&self, row: u32, steps: u32) -> Result<Vec<f32>, EngineError> {
        self.wait_for_steps(steps)?;
        let bytes = u64::from(self.plan.shape.dimensions.vocab) * 4;
        let from = self.buffers.logits().offset(u64::from(row) * bytes);
        self.end_sequence_on_error(self.read_f32s(from, bytes))
    }

    /// Reads `bytes` bytes of f32 from the device, after all enqueued work.
    fn read_f32s(&self, from: Address, bytes: u64) -> device::Result<Vec<f32>> {
        let mut words = vec![0; bytes as usize];
        self.device.download(from, &mut words)?;
        Ok(words.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect())
    }
}

/// Whether all logits are finite.
fn are_finite(logits: &[f32]) -> bool {
    // Without a branch for each logit, so that the loop vectorises.
    logits.iter().fold(true, |finite, logit| finite & logit.is_finite())
}
