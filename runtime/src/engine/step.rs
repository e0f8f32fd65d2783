//! Steps of an engine: their plans over its memory. The decode step of one row is loaded with the engine, the others when they
//! are first needed.

use std::collections::{BTreeMap, HashMap};

use bespoke_kernels::kernels::attention::PAGE;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::kernels::state::{self, Row};
use bespoke_kernels::plan::{Plan, PlanError, PlanKernel, PlanParams, StepKind};

use super::{Engine, EngineError, EngineOptions, bind, capture, check_shared_memory, kernels};
use crate::device::{self, Address, Device, GraphReport, Kernel, LaunchSequence, MemoryInfo};

/// Divisor: one 32nd of the free memory is not given to pages, because free memory fluctuates.
const RESERVE: u64 = 32;

/// Index in an engine's steps of the decode step of one row, which multiplies integers also in an engine of f16.
pub(super) const ONE_ROW: usize = 0;

/// A step of an engine.
pub(super) struct Step {
    plan: Plan,
    /// None until the step is needed first.
    loaded: Option<LoadedStep>,
}

/// Launches of a step, bound to the engine's memory.
pub(super) struct LoadedStep {
    pub launches: Box<dyn LaunchSequence>,
    /// The captured graph; none if the launches run one by one.
    pub graph: Option<GraphReport>,
    /// Loaded kernels, in the plan's order.
    pub kernels: Vec<Kernel>,
}

impl Step {
    /// Parameters of the step's plan.
    pub fn params(&self) -> &PlanParams {
        &self.plan.params
    }
}

impl LoadedStep {
    /// Enqueues the launches, over the records on the device.
    pub fn enqueue(&mut self) -> device::Result<()> {
        if self.graph.is_some() { self.launches.replay() } else { self.launches.run_eager() }
    }
}

/// Plans the steps of an engine, that of one row first. Also returns the plan of that step with the buffers of all steps.
pub(super) fn plans(
    base: &Plan,
    options: &EngineOptions,
    device: &dyn Device,
) -> Result<(Plan, Vec<Step>), EngineError> {
    let slots = base.params.slots;
    let tuned = |params: PlanParams| -> Result<Step, EngineError> {
        let plan = Plan::tuned(&base.shape, base.gpu, params, &options.tuning)?;
        check_shared_memory(&plan, device)?;
        Ok(Step { plan, loaded: None })
    };
    let with = |of: fn(PlanParams, u32) -> PlanParams| move |&rows: &u32| of(base.params.clone(), rows);
    let decode_sizes = decode_sizes(slots, options.arithmetic);
    let decode = decode_sizes.iter().filter(|&&rows| rows > 1).map(with(PlanParams::decode));
    let verify = verify_sizes(slots, options.drafts).iter().map(with(PlanParams::verify));
    let mut steps = decode.chain(verify).map(tuned).collect::<Result<Vec<Step>, EngineError>>()?;
    if options.prefill {
        let prefill = prefill_sizes(&base.params).iter().map(with(PlanParams::prefill));
        let first_token = decode_sizes.iter().filter(|&&rows| rows >= least_rows(options.arithmetic));
        let first_token = first_token.map(with(PlanParams::first_token));
        let prefill: Result<Vec<Step>, EngineError> = prefill.chain(first_token).map(tuned).collect();
        match prefill {
            Ok(prefill) => steps.extend(prefill),
            // Decode steps process prompts, too.
            Err(error) if is_unsupported(&error) => {
                tracing::warn!("{error}: decode steps process prompts, a token at a time");
            }
            Err(error) => return Err(error),
        }
    }
    steps.insert(ONE_ROW, Step { plan: base.clone(), loaded: None });
    if options.no_jit {
        let kernels = steps.iter().flat_map(|step| &step.plan.kernels);
        kernels::require_built_in(kernels, base.target(), options)?;
    }
    let mut merged = base.clone();
    for step in &steps {
        for buffer in &step.plan.buffers {
            match merged.buffers.iter_mut().find(|own| own.name == buffer.name) {
                Some(own) => own.bytes = own.bytes.max(buffer.bytes),
                None => merged.buffers.push(buffer.clone()),
            }
        }
    }
    Ok((merged, steps))
}

/// Whether an error says that a model or a device cannot have a step, so that an engine goes without.
fn is_unsupported(error: &EngineError) -> bool {
    matches!(error, EngineError::Plan(PlanError::Unsupported(_)) | EngineError::SharedMemory { .. })
}

/// The sizes up to the first one that holds `rows` rows.
fn up_to(sizes: &'static [u32], rows: u32) -> &'static [u32] {
    let enough = sizes.iter().position(|&size| size >= rows).map_or(sizes.len(), |at| at + 1);
    &sizes[..enough]
}

/// Fewest rows of steps with this arithmetic: f16 has at least two.
fn least_rows(arithmetic: Arithmetic) -> u32 {
    if arithmetic == Arithmetic::F16 { 2 } else { 1 }
}

/// Numbers of rows of an engine's decode steps and first-token steps.
fn decode_sizes(slots: u32, arithmetic: Arithmetic) -> &'static [u32] {
    up_to(StepKind::Decode.sizes(), slots.max(least_rows(arithmetic)))
}

/// Numbers of rows of an engine's verify steps, for drafts of at most `drafts` tokens.
fn verify_sizes(slots: u32, drafts: u32) -> &'static [u32] {
    if drafts == 0 {
        &[]
    } else {
        up_to(StepKind::Verify.sizes(), slots.saturating_mul(drafts.saturating_add(1)))
    }
}

/// Rows of the largest prefill step of an engine with several slots, unless a context is longer or all contexts together
/// are shorter.
const ROWS_OF_SEVERAL: u32 = 512;

/// Numbers of rows of an engine's prefill steps: up to the first that holds a slot's context, and with several slots their
/// contexts together, but at most [`ROWS_OF_SEVERAL`] rows.
fn prefill_sizes(params: &PlanParams) -> &'static [u32] {
    let &PlanParams { slots, context, .. } = params;
    let held = context.max(context.saturating_mul(slots).min(ROWS_OF_SEVERAL));
    up_to(StepKind::Prefill.sizes(), held)
}

/// Bytes of the buffers of an engine's largest steps besides the pages of its pool.
fn bytes_besides_pool(
    params: &PlanParams,
    base: impl Fn(PlanParams) -> Result<Plan, EngineError>,
    options: &EngineOptions,
) -> Result<u64, EngineError> {
    let bytes_with = |of: fn(PlanParams, u32) -> PlanParams, sizes: &[u32]| {
        let params = PlanParams { pages: 1, ..params.clone() };
        Ok(base(of(params, sizes.last().copied().unwrap_or(1)))?.total_bytes())
    };
    let verify = match verify_sizes(params.slots, options.drafts) {
        [] => 0,
        sizes => bytes_with(PlanParams::verify, sizes)?,
    };
    let prefill = options.prefill.then(|| bytes_with(PlanParams::prefill, prefill_sizes(params)));
    match prefill {
        // No decode step has as many rows.
        Some(Ok(prefill)) => Ok(prefill.max(verify)),
        Some(Err(error)) if !is_unsupported(&error) => Err(error),
        _ => {
            let decode = bytes_with(PlanParams::decode, decode_sizes(params.slots, options.arithmetic))?;
            Ok(decode.max(verify))
        }
    }
}

/// Number of pages of the pool: enough for every slot's context, or what `--kv-memory` or the free memory allows.
pub(super) fn pool_pages(
    params: &PlanParams,
    base: impl Fn(PlanParams) -> Result<Plan, EngineError>,
    options: &EngineOptions,
    device: &dyn Device,
) -> Result<u32, EngineError> {
    let all = u64::from(params.slots) * u64::from(params.slot_pages());
    let one = u64::from(params.slot_pages());
    if params.slots == 1 && options.kv_memory.is_none() {
        return Ok(params.slot_pages());
    }
    let plan = base(PlanParams { pages: 1, ..params.clone() })?;
    let page = plan.kv_bytes() * u64::from(PAGE);
    let pages = match options.kv_memory {
        Some(bytes) => {
            let (pages, needed, context) = (bytes / page, params.slot_pages(), params.context);
            if pages < one {
                return Err(EngineError::KvMemory { bytes, page, pages, needed, context });
            }
            pages.min(all)
        }
        None => {
            let MemoryInfo { free, .. } = device.memory()?;
            let others = bytes_besides_pool(params, base, options)?;
            let left = (free - free / RESERVE).saturating_sub(others);
            let left = left.min(free / u64::from(options.kv_share.max(1)));
            (left / page).clamp(one.min(all), all)
        }
    };
    let PlanParams { slots, context, .. } = params;
    tracing::info!("KV cache: {pages} pages of {PAGE} positions for {slots} sequences of at most {context}");
    Ok(u32::try_from(pages).unwrap_or(u32::MAX / PAGE))
}

impl Engine {
    /// Index of the smallest step of a kind that holds `rows` rows.
    pub(super) fn step_for(&self, kind: StepKind, rows: u32) -> Option<usize> {
        let fits = |step: &&Step| step.params().kind == kind && step.params().rows >= rows;
        let smallest = self.steps.iter().filter(fits).min_by_key(|step| step.params().rows)?;
        self.steps.iter().position(|step| std::ptr::eq(step, smallest))
    }

    /// Index of the smallest decode step that holds `rows` rows and has the engine's arithmetic.
    pub(super) fn decode_step_for(&self, rows: u32) -> Option<usize> {
        self.step_for(StepKind::Decode, rows.max(least_rows(self.plan.params.arithmetic)))
    }

    /// Index of the smallest first-token step that holds `rows` rows and has the engine's arithmetic.
    pub(super) fn first_token_step_for(&self, rows: u32) -> Option<usize> {
        self.step_for(StepKind::FirstToken, rows.max(least_rows(self.plan.params.arithmetic)))
    }

    /// Parameters of all steps.
    pub(super) fn step_params(&self) -> impl Iterator<Item = &PlanParams> {
        self.steps.iter().map(Step::params)
    }

    /// Compiles, loads and captures steps, except those for which that was done before. Kernels of all steps are compiled and
    /// loaded in parallel.
    pub(super) fn load_steps(&mut self, indices: impl IntoIterator<Item = usize>) -> Result<(), EngineError> {
        let indices: Vec<usize> =
            indices.into_iter().filter(|&index| self.steps[index].loaded.is_none()).collect();
        if indices.is_empty() {
            return Ok(());
        }
        let plans: Vec<&Plan> = indices.iter().map(|&index| &self.steps[index].plan).collect();
        let all: BTreeMap<&str, &PlanKernel> = plans
            .iter()
            .flat_map(|plan| &plan.kernels)
            .map(|kernel| (kernel.name.as_str(), kernel))
            .collect();
        let all: Vec<&PlanKernel> = all.into_values().collect();
        let sources =
            kernels::sources(&all, self.plan.target(), &self.options, "prefill, verify and decode steps")?;
        let loaded = kernels::load(&*self.device, self.plan.target(), &sources.texts)?;
        let loaded: HashMap<&str, &Kernel> = loaded.iter().map(|kernel| (kernel.name(), kernel)).collect();
        let mut steps = Vec::new();
        for plan in plans {
            let kernels: Vec<Kernel> =
                plan.kernels.iter().map(|kernel| loaded[kernel.name.as_str()].clone()).collect();
            steps.push(self.bind_step(plan, kernels)?);
        }
        for (index, step) in indices.into_iter().zip(steps) {
            self.steps[index].loaded = Some(step);
        }
        Ok(())
    }

    /// Binds a plan with its loaded kernels to the engine's memory, and captures its graph.
    fn bind_step(&self, plan: &Plan, kernels: Vec<Kernel>) -> Result<LoadedStep, EngineError> {
        let launches = bind::launches_at(plan, &self.addresses_of(plan), &kernels);
        let mut launches = self.device.sequence(launches)?;
        let graph = if self.options.eager { None } else { capture(&mut *launches, plan)? };
        Ok(LoadedStep { launches, graph, kernels })
    }

    /// Loads the decode step of one row, whose kernels are loaded already.
    pub(super) fn load_one_row(&mut self, kernels: Vec<Kernel>) -> Result<(), EngineError> {
        self.steps[ONE_ROW].loaded = Some(self.bind_step(&self.steps[ONE_ROW].plan, kernels)?);
        Ok(())
    }

    /// The decode step of one row.
    pub(super) fn one_row(&self) -> &LoadedStep {
        self.steps[ONE_ROW].loaded.as_ref().expect("it is loaded with the engine")
    }

    /// Addresses of a step's buffers, in the plan's order.
    pub(super) fn addresses_of(&self, plan: &Plan) -> Vec<Address> {
        let address =
            |name: &str| self.buffer_with_room(name, 0).expect("the engine has the buffers of all steps");
        plan.buffers.iter().map(|buffer| address(&buffer.name)).collect()
    }

    /// Address of the engine's buffer `name`, if it has `bytes` bytes.
    pub(super) fn buffer_with_room(&self, name: &str, bytes: u64) -> Option<Address> {
        let at = self.plan.buffers.iter().position(|buffer| buffer.name == name)?;
        (self.plan.buffers[at].bytes >= bytes).then(|| self.buffers.addresses()[at])
    }

    /// Writes the records of the rows of a decode, verify or first-token step with `size` rows; further rows of the step do not
    /// exist.
    pub(super) fn write_rows(&self, rows: impl Iterator<Item = Row>, size: u32) -> Result<(), EngineError> {
        self.write_records(self.buffers.state(), rows.map(Some).collect(), size)
    }

    /// Enqueues the prefill step `prefill` for `rows`, of which some do not exist, and the step `first_token`, if there is
    /// one, for the rows `choosing`. Loads both and writes both records before: a load and an upload wait for steps in
    /// flight.
    pub(super) fn enqueue_prompt(
        &mut self,
        prefill: usize,
        rows: Vec<Option<Row>>,
        first_token: Option<usize>,
        choosing: Vec<Row>,
    ) -> Result<(), EngineError> {
        self.load_steps([prefill].into_iter().chain(first_token))?;
        self.write_prompt_rows(rows, self.steps[prefill].params().rows)?;
        if let Some(step) = first_token {
            self.write_rows(choosing.into_iter(), self.steps[step].params().rows)?;
        }
        self.enqueue_step(prefill)?;
        first_token.map_or(Ok(()), |step| self.enqueue_step(step))
    }

    /// Writes the records of a prefill step with `size` rows, of which some do not exist.
    pub(super) fn write_prompt_rows(&self, records: Vec<Option<Row>>, size: u32) -> Result<(), EngineError> {
        let records_of_prompts = self.buffers.prompt_state().ok_or(EngineError::NoStep { rows: size })?;
        self.write_records(records_of_prompts, records, size)
    }

    fn write_records(
        &self,
        to: Address,
        mut records: Vec<Option<Row>>,
        size: u32,
    ) -> Result<(), EngineError> {
        records.resize(size as usize, None);
        let words =
            records.into_iter().flat_map(|row| row.map_or([0; state::WORDS as usize], |row| row.words()));
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        self.end_sequence_on_error(self.device.upload(to, &bytes))
    }

    /// Enqueues a step over the records on the device.
    pub(super) fn enqueue_step(&mut self, index: usize) -> Result<(), EngineError> {
        self.load_steps([index])?;
        let enqueued = self.loaded_step(index).enqueue();
        self.end_sequence_on_error(enqueued)
    }

    /// Record of a row whose token is at `position` of the sequence in a slot, with `prompt` prompt tokens.
    pub(super) fn row(&self, slot: u32, position: u32, prompt: u32, chooses: bool) -> Row {
        let params = &self.plan.params;
        let (tokens, pages) = (slot * params.slot_tokens(), slot * params.slot_pages());
        Row { position, prompt, chooses, slot, tokens, pages, ..Row::default() }
    }

    /// Plan of a step.
    pub(super) fn plan_of(&self, index: usize) -> &Plan {
        &self.steps[index].plan
    }

    /// A step that was loaded before.
    pub(super) fn loaded_step(&mut self, index: usize) -> &mut LoadedStep {
        self.steps[index].loaded.as_mut().expect("the caller loaded the step")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_prefill_step_holds_the_context() {
        let all = StepKind::Prefill.sizes();
        for (slots, context, sizes) in [
            (1, 1, &[64][..]),
            (1, 64, &[64]),
            (1, 65, &[64, 128]),
            (1, 513, all),
            (1, 100_000, all),
            (2, 64, &[64, 128]),
            (64, 100, &[64, 128, 256, 512]),
            (64, 513, all),
        ] {
            let params = PlanParams { slots, ..PlanParams::single(context) };
            assert_eq!(prefill_sizes(&params), sizes, "{slots} slots of {context}");
        }
    }
}
