//! The decode engine: a plan bound to a device, with a model's weights.
//!
//! [`Engine::load`] plans for the model's shape, allocates the plan's buffers, uploads the weights and captures the
//! step as a graph. From then on a token is one [`Engine::step`]: one graph launch, without allocation, look-up or
//! waiting. Position, token and sequence live on the device; what was chosen appears in host-visible memory, where
//! [`Tokens`] finds it while later steps are under way.

pub mod bind;
mod ceiling;
mod error;
mod kernels;
mod load;
mod needs;
mod queue;
mod roofline;
mod sampling;
mod variant;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bespoke_codegen::ptx::Target;
use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::attention::PAGE;
use bespoke_kernels::kernels::state;
use bespoke_kernels::plan::{BufferKind, Plan, PlanParams, Sampling, Tuning};
use bespoke_kernels::shape::ModelShape;
use bind::Memory;

use crate::device::{self, Address, Device, GraphReport, Kernel, Sequence};
pub use ceiling::read_bandwidth;
pub use error::{DoesNotFit, EngineError};
pub use kernels::{KernelSource, Origins};
pub use needs::MemoryNeeds;
pub use queue::{AHEAD, Place, Steps, Tokens};
pub use roofline::{Matrix, MatrixRate};
pub use sampling::{SamplingError, SamplingParams};
pub use variant::{Variant, Variants};

/// How to load and run a model.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Positions in the KV cache; by default the model's context, at most [`DEFAULT_CONTEXT`].
    pub context: Option<u32>,
    /// Launch every kernel by itself instead of replaying a graph.
    pub eager: bool,
    /// Refuse kernels that are not built in.
    pub no_jit: bool,
    /// Rules in place of the cost model's choices.
    pub tuning: Tuning,
    /// The model's file, for messages.
    pub path: PathBuf,
    /// How tokens are chosen. Whether they are drawn at all decides which launches a step ends with.
    pub sampling: SamplingParams,
}

/// Positions in the KV cache if nothing else is asked for.
pub const DEFAULT_CONTEXT: u32 = 4096;

/// Where the time of loading went.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadTimes {
    /// Planning and specialising or finding kernels.
    pub specialise: Duration,
    /// Loading kernels into the device, and assembling those of which there is no machine code.
    pub assemble: Duration,
    /// Allocating the plan's buffers.
    pub allocate: Duration,
    /// Repacking and uploading weights, which overlap.
    pub weights: Duration,
    /// Of that, how long threads were repacking, reading the file included.
    pub repack: Duration,
    /// Of that, how long the upload took.
    pub upload: Duration,
    /// Binding launches and capturing the graph.
    pub capture: Duration,
}

impl LoadTimes {
    /// All of it.
    pub fn total(&self) -> Duration {
        self.specialise + self.assemble + self.allocate + self.weights + self.capture
    }
}

/// A plan bound to a device.
pub struct Engine {
    plan: Plan,
    sequence: Box<dyn Sequence>,
    memory: Memory,
    /// The plan's kernels, in its order.
    loaded: Vec<Kernel>,
    device: Box<dyn Device>,
    graph: Option<GraphReport>,
    kernels: KernelSource,
    times: LoadTimes,
    place: Place,
}

/// What a word of the tokens for the host says before the step that fills it: no vocabulary has this token.
const UNKNOWN: u32 = u32::MAX;

/// Progress of loading: bytes done and in all.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

impl Engine {
    /// Loads the model `gguf` of shape `shape` onto `device`. `progress` is told of the weights' upload.
    pub fn load(
        device: Box<dyn Device>,
        gguf: &Gguf,
        shape: &ModelShape,
        options: &EngineOptions,
        progress: Progress<'_>,
    ) -> Result<Engine, EngineError> {
        let mut times = LoadTimes::default();
        let start = Instant::now();
        let target = target_for(&*device)?;
        options.sampling.check()?;
        let context = options.context.unwrap_or(shape.dimensions.context.min(DEFAULT_CONTEXT));
        let params = PlanParams::single(context).choosing(options.sampling.launches());
        let plan = Plan::tuned(shape, target, params, &options.tuning)?;
        needs::check(&plan, &*device)?;
        check_shared_memory(&plan, &*device)?;
        let sources = kernels::sources(&plan, options)?;
        times.specialise = start.elapsed();

        let start = Instant::now();
        let loaded = kernels::load(&*device, target, &sources.texts)?;
        times.assemble = start.elapsed();

        let start = Instant::now();
        let memory = Memory::allocate(&plan, &*device)?;
        times.allocate = start.elapsed();

        let start = Instant::now();
        let busy = load::upload(&plan, &memory, gguf, &*device, progress)?;
        times.weights = start.elapsed();
        (times.repack, times.upload) = (busy.repack, busy.upload);

        let start = Instant::now();
        let mut sequence = device.sequence(bind::launches(&plan, &memory, &loaded))?;
        let graph = if options.eager { None } else { capture(&mut *sequence, &plan)? };
        times.capture = start.elapsed();
        let kernels = sources.origin;
        let place = Place::default();
        let mut engine = Engine { plan, sequence, memory, loaded, device, graph, kernels, times, place };
        engine.set_sampling(&options.sampling)?;
        Ok(engine)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// The captured graph, if steps are replays.
    pub fn graph(&self) -> Option<&GraphReport> {
        self.graph.as_ref()
    }

    /// Where the kernels came from.
    pub fn kernels(&self) -> &KernelSource {
        &self.kernels
    }

    /// Where their machine code came from; all zero on the emulator, which has none.
    pub fn origins(&self) -> Origins {
        Origins::of(&self.loaded)
    }

    /// Where the time of loading went.
    pub fn load_times(&self) -> LoadTimes {
        self.times
    }

    /// The sequence of launches, for timing.
    pub fn sequence(&mut self) -> &mut dyn Sequence {
        &mut *self.sequence
    }

    /// Says how tokens are chosen from the next step on. An engine that was loaded for greedy decoding cannot draw.
    pub fn set_sampling(&mut self, params: &SamplingParams) -> Result<(), EngineError> {
        params.check()?;
        let Some(index) = self.plan.buffer("sampling") else {
            return if params.launches() == Sampling::Greedy { Ok(()) } else { Err(EngineError::OnlyGreedy) };
        };
        let bytes: Vec<u8> = params.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(self.device.upload(self.memory.addresses()[index], &bytes)?)
    }

    /// Starts a sequence with a prompt; the first step processes its first token. Steps of an earlier sequence that
    /// are still under way are waited for.
    pub fn start(&mut self, prompt: &[u32]) -> Result<(), EngineError> {
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let vocab = self.plan.shape.dimensions.vocab;
        if let Some(&token) = prompt.iter().find(|&&token| token >= vocab) {
            return Err(EngineError::NoSuchToken { token, vocab });
        }
        self.require_positions(prompt.len() as u64)?;
        let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
        self.device.upload(self.memory.address_of(&BufferKind::Tokens), &bytes)?;
        self.write_state(0, prompt.len() as u32)
    }

    /// Starts at position `depth`, as if that many tokens were in the cache, which is filled with small numbers:
    /// for measuring speed at a depth.
    pub fn start_at_depth(&mut self, depth: u32) -> Result<(), EngineError> {
        self.require_positions(u64::from(depth) + 1)?;
        let mut ranges = Vec::new();
        for (buffer, address) in self.plan.buffers.iter().zip(self.memory.addresses()) {
            if buffer.kind == BufferKind::KvCache {
                let pages = |positions: u32| u64::from(positions.div_ceil(PAGE));
                let filled = buffer.bytes / pages(self.plan.params.context) * pages(depth);
                ranges.push((*address, filled));
            }
        }
        for (address, bytes) in ranges.into_iter().filter(|range| range.1 > 0) {
            // 0x2C2C is 0.0652 as f16.
            self.device.fill(address, bytes, 0x2C)?;
        }
        let token = self.memory.address_of(&BufferKind::Tokens).offset(u64::from(depth) * 4);
        self.device.upload(token, &1u32.to_le_bytes())?;
        self.write_state(depth, depth + 1)
    }

    /// Waits for all work enqueued, forgets what was known, and writes the state.
    fn write_state(&mut self, position: u32, prompt: u32) -> Result<(), EngineError> {
        let finished = self.memory.finished();
        self.device.fill(finished.address(), finished.bytes(), UNKNOWN as u8)?;
        let mut words = [0u32; state::WORDS as usize];
        words[state::POSITION as usize] = position;
        words[state::PROMPT as usize] = prompt;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.device.upload(self.memory.address_of(&BufferKind::State), &bytes)?;
        self.place = Place { given: prompt, enqueued: position, taken: position };
        Ok(())
    }

    fn require_positions(&self, needed: u64) -> Result<(), EngineError> {
        let context = self.plan.params.context;
        if needed > u64::from(context) {
            return Err(EngineError::ContextFull { needed, context });
        }
        Ok(())
    }

    /// Checks that `steps` more steps fit the cache.
    pub fn require_steps(&self, steps: u64) -> Result<(), EngineError> {
        self.require_positions(u64::from(self.place.enqueued) + steps)
    }

    /// The next `n` tokens after the prompt, or after those taken before, as they become known; steps are enqueued
    /// ahead of them. `n` must fit the cache.
    pub fn generate(
        &mut self,
        n: u32,
    ) -> Result<impl Iterator<Item = Result<u32, EngineError>> + '_, EngineError> {
        self.generate_telling(n, None)
    }

    /// As [`Engine::generate`]; `on_given` is told the position of each of the prompt's tokens but the first as it goes
    /// by.
    pub fn generate_telling<'a>(
        &'a mut self,
        n: u32,
        on_given: Option<&'a dyn Fn(u32)>,
    ) -> Result<impl Iterator<Item = Result<u32, EngineError>> + 'a, EngineError> {
        let first = u64::from(self.place.given.max(self.place.taken + 1));
        self.require_positions((first + u64::from(n)).saturating_sub(1))?;
        Ok(Tokens::new(Stepping { engine: self, on_given }, n))
    }

    /// Enqueues one step: the token at the present position goes through the model and the next one is chosen.
    pub fn step(&mut self) -> Result<(), EngineError> {
        self.require_steps(1)?;
        match self.graph {
            Some(_) => self.sequence.replay()?,
            None => self.sequence.run_eager()?,
        }
        self.place.enqueued += 1;
        Ok(())
    }

    /// The mean time of a step from `depth` on as a replay of the graph, in milliseconds by the device's clock, over
    /// `count` steps or what the cache has room for; none without a graph. [`Engine::start`] again afterwards.
    pub fn time_replays(&mut self, depth: u32, count: u32) -> Result<Option<f64>, EngineError> {
        self.start_at_depth(depth)?;
        let count = count.min(self.plan.params.context - depth);
        Ok(self.graph.is_some().then(|| self.sequence.time_replays(count)).transpose()?)
    }

    /// Waits for the steps enqueued.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        Ok(self.sequence.wait()?)
    }

    /// The position that the next step processes: as many tokens are in the cache.
    pub fn position(&self) -> u32 {
        self.place.enqueued
    }

    /// The token at `position`, which a step that was waited for has made known; positions of the prompt but the
    /// first included.
    pub fn token(&self, position: u32) -> Result<u32, EngineError> {
        self.known(position)?.ok_or(EngineError::NoToken { position })
    }

    fn known(&self, position: u32) -> Result<Option<u32>, EngineError> {
        let mut bytes = [0; 4];
        self.memory.finished().read(u64::from(position) * 4, &mut bytes)?;
        let token = u32::from_le_bytes(bytes);
        Ok((token != UNKNOWN).then_some(token))
    }

    /// The logits of the last step, `f32 [vocab]`. Waits for it.
    pub fn logits(&self) -> Result<Vec<f32>, EngineError> {
        let vocab = self.plan.shape.dimensions.vocab as usize;
        let mut bytes = vec![0; vocab * 4];
        self.device.download(self.buffer_address("logits"), &mut bytes)?;
        Ok(bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect())
    }

    fn buffer_address(&self, name: &str) -> Address {
        let index = self.plan.buffer(name).expect("every plan has this buffer");
        self.memory.addresses()[index]
    }
}

/// The engine as what [`Tokens`] drives.
struct Stepping<'a> {
    engine: &'a mut Engine,
    on_given: Option<&'a dyn Fn(u32)>,
}

impl Steps for Stepping<'_> {
    fn place(&mut self) -> &mut Place {
        &mut self.engine.place
    }
    fn enqueue(&mut self) -> Result<(), EngineError> {
        self.engine.step()
    }
    fn known(&self, position: u32) -> Result<Option<u32>, EngineError> {
        self.engine.known(position)
    }
    fn busy(&self) -> Result<bool, EngineError> {
        Ok(self.engine.device.busy()?)
    }
    fn given(&mut self, position: u32) {
        if let Some(tell) = self.on_given {
            tell(position);
        }
    }
}

/// The newest target that the device runs.
pub fn target_for(device: &dyn Device) -> Result<Target, EngineError> {
    let (major, minor) = device.info().compute;
    // The binary holds kernels for some targets; others are made while loading. An older built-in target beats
    // making kernels, except where the newer one can do more.
    let newest = Target::for_device(major, minor).ok_or_else(|| EngineError::TooOld {
        name: device.info().name.clone(),
        major,
        minor,
    })?;
    let best = crate::builtin::targets().iter().copied().filter(|target| *target <= newest).max();
    Ok(best.unwrap_or(newest))
}

/// The plan was cut for a target; the device may have less shared memory than the largest part of that target.
fn check_shared_memory(plan: &Plan, device: &dyn Device) -> Result<(), EngineError> {
    let limit = device.info().shared_per_block_optin;
    match plan.launches.iter().find(|launch| launch.dynamic_shared > limit) {
        None => Ok(()),
        Some(launch) => Err(EngineError::SharedMemory {
            label: launch.label.clone(),
            needed: launch.dynamic_shared,
            device: device.info().name.clone(),
            limit,
        }),
    }
}

/// Captures the sequence and compares the graph with the plan; none, with a warning, if it cannot be captured.
fn capture(sequence: &mut dyn Sequence, plan: &Plan) -> Result<Option<GraphReport>, EngineError> {
    let report = match sequence.capture() {
        Ok(report) => report,
        Err(error @ device::Error::Capture(_)) => {
            tracing::warn!("{error}; launching kernels one by one instead");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let planned: Vec<&str> =
        plan.launches.iter().map(|launch| plan.kernels[launch.kernel].name.as_str()).collect();
    if report.nodes != planned.len() {
        return Err(EngineError::GraphMismatch(format!(
            "{} nodes for {} launches",
            report.nodes,
            planned.len()
        )));
    }
    match report.kernels.iter().zip(&planned).position(|(node, kernel)| node != kernel) {
        None => Ok(Some(report)),
        Some(index) => Err(EngineError::GraphMismatch(format!(
            "node {index} is {}, launch {index} is {}",
            report.kernels[index], planned[index]
        ))),
    }
}
