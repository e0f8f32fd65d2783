//! Variants of a decode step of a loaded model: different tuning rules, over the same weights, KV cache and state.
//!
//! Tuning rules do not change the layout of weights ([`bespoke_kernels::plan::tuning`]). A variant therefore needs only
//! its kernels, a graph, and the few buffers whose size depends on the rules.

use std::collections::HashMap;

use bespoke_kernels::plan::{BufferKind, Plan, PlanKernel, Tuning};

use super::step_times::StepRows;
use crate::device::{self, Address, Allocation, Kernel, LaunchSequence};
use crate::engine::{
    Engine, EngineError, NonFiniteLogits, are_finite, bind, capture, check_shared_memory, kernels,
};

/// Graph of a step planned by given tuning rules, over the memory of an engine.
pub struct Variant {
    plan: Plan,
    // Declared first and so dropped first: dropping the sequence waits for its kernels, which write the buffers.
    sequence: Box<dyn LaunchSequence>,
    /// Counters among the variant's own buffers.
    counters: Vec<(Address, u64)>,
    _buffers: Vec<Allocation>,
}

impl Variant {
    /// Plan of the variant.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// Creates variants of a decode step of an engine. Each kernel is loaded once.
pub struct Variants<'a> {
    engine: &'a mut Engine,
    sequences: u32,
    loaded: HashMap<String, Kernel>,
}

impl<'a> Variants<'a> {
    /// Creates a factory of variants of the decode step of `sequences` sequences, which reuses the kernels loaded by `engine`.
    ///
    /// # Errors
    /// If no step of the engine has so many rows.
    pub fn new(engine: &'a mut Engine, sequences: u32) -> Result<Variants<'a>, EngineError> {
        engine.step_plan(StepRows::Decode { sequences, depth: 0 })?;
        let names = engine.plan.kernels.iter().map(|kernel| kernel.name.clone());
        let loaded = names.zip(engine.one_row().kernels.iter().cloned()).collect();
        Ok(Variants { engine, sequences, loaded })
    }

    /// Engine whose step the variants change.
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// The step's plan in the engine.
    fn base(&self) -> Result<&Plan, EngineError> {
        self.engine.step_plan(self.rows(0))
    }

    fn rows(&self, depth: u32) -> StepRows {
        StepRows::Decode { sequences: self.sequences, depth }
    }

    /// Builds a plan with the rules `tuning`, for the engine's model, target and context.
    pub fn plan(&self, tuning: &Tuning) -> Result<Plan, EngineError> {
        let Plan { shape, gpu, params, .. } = self.base()?;
        let plan = Plan::tuned(shape, *gpu, params.clone(), tuning)?;
        check_shared_memory(&plan, &*self.engine.device)?;
        Ok(plan)
    }

    /// Loads the kernels of a plan that are not loaded yet, and captures its graph.
    pub fn make(&mut self, plan: Plan) -> Result<Variant, EngineError> {
        let device = &*self.engine.device;
        let missing: Vec<&PlanKernel> =
            plan.kernels.iter().filter(|kernel| !self.loaded.contains_key(&kernel.name)).collect();
        for kernel in kernels::load(device, plan.target(), &kernels::texts(&missing, plan.target())?)? {
            self.loaded.insert(kernel.name().to_owned(), kernel);
        }
        let kernels: Vec<Kernel> =
            plan.kernels.iter().map(|kernel| self.loaded[&kernel.name].clone()).collect();

        let mut addresses = Vec::new();
        let (mut buffers, mut counters) = (Vec::new(), Vec::new());
        for own in &plan.buffers {
            if let Some(address) = self.engine.buffer_with_room(&own.name, own.bytes) {
                addresses.push(address);
                continue;
            }
            let buffer = device.alloc(&own.name, own.bytes)?;
            if own.kind == BufferKind::Counters {
                counters.push((buffer.address(), own.bytes));
            }
            addresses.push(buffer.address());
            buffers.push(buffer);
        }
        let mut sequence = device.sequence(bind::launches_at(&plan, &addresses, &kernels))?;
        if capture(&mut *sequence, &plan)?.is_none() {
            return Err(device::Error::NotCaptured.into());
        }
        Ok(Variant { plan, sequence, counters, _buffers: buffers })
    }

    /// Mean time of `count` steps from `depth` on, in milliseconds by the device's clock.
    ///
    /// # Errors
    /// If the cache has no room for the steps.
    pub fn time(&mut self, variant: &mut Variant, depth: u32, count: u32) -> Result<f64, EngineError> {
        self.engine.write_step(self.rows(depth), count)?;
        Ok(self.begin(variant)?.time_replays(count)?)
    }

    /// Logits after the last token of each sequence, `f32 [sequence][vocab]`. Sequence i is `prompt` rotated left by i tokens.
    pub fn logits(&mut self, variant: &mut Variant, prompt: &[u32]) -> Result<Vec<f32>, EngineError> {
        // One sequence of an engine of f16 has a step of two rows.
        if self.base()?.params.rows == 1 {
            self.engine.start(prompt)?;
        } else {
            self.engine.write_step(self.rows(0), prompt.len() as u32)?;
            self.engine.write_prompts(self.sequences, prompt)?;
        }
        let sequence = self.begin(variant)?;
        for _ in prompt {
            sequence.replay()?;
        }
        self.engine.wait_for_steps(prompt.len() as u32)?;
        let mut logits = Vec::new();
        for row in 0..self.sequences {
            logits.extend(self.engine.logits_of(row, 0)?);
        }
        if !are_finite(&logits) {
            let position = (prompt.len() as u32).saturating_sub(1);
            return Err(NonFiniteLogits { position, first: None }.into());
        }
        Ok(logits)
    }

    /// Launches of a variant, after a start. They end the engine's sequence, as [`Engine::launches`] does. Counters are
    /// cleared, because an earlier run of the variant may have failed.
    fn begin<'v>(&self, variant: &'v mut Variant) -> Result<&'v mut dyn LaunchSequence, EngineError> {
        self.engine.started.set(false);
        for &(address, bytes) in &variant.counters {
            self.engine.device.fill(address, bytes, 0)?;
        }
        Ok(&mut *variant.sequence)
    }
}
