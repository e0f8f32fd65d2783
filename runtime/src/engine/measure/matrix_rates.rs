//! Bandwidth of each matrix kernel of a plan when the kernel runs alone: an upper bound for decoding.

use bespoke_kernels::plan::{
    Argument, ArgumentAccess, BufferKind, Launch as Planned, LaunchRole, PartForm, Plan,
};

use super::median;
use crate::device::{Allocation, Kind, Launch};
use crate::engine::{Engine, EngineError, bind};

/// A weight matrix, or a stack of matrices, that a launch streams: reads completely, once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matrix {
    /// Label of the launch without its layer, such as `attn_qkv`.
    pub name: String,
    /// Rows of all stacked matrices.
    pub rows: u64,
    /// Columns of each stacked matrix.
    pub cols: u32,
    /// Weight types of the stacked matrices, each once, in order.
    pub types: String,
}

impl Matrix {
    /// The matrix that a launch streams; none if the launch reads no whole matrix. An embedding look-up reads one row a
    /// token.
    pub fn of(plan: &Plan, launch: &Planned) -> Option<Matrix> {
        let streamed: u64 =
            launch.args.iter().filter(|arg| holds_matrix(plan, arg)).map(|arg| arg.bytes).sum();
        if streamed == 0 || launch.label.role == LaunchRole::Embed {
            return None;
        }
        let mut matrix =
            Matrix { name: launch.label.role.to_string(), rows: 0, cols: 0, types: String::new() };
        let mut types: Vec<String> = Vec::new();
        for (ty, rows, cols) in launch.args.iter().flat_map(|arg| matrices(plan, arg)) {
            matrix.rows += u64::from(rows);
            matrix.cols = cols;
            if !types.contains(&ty) {
                types.push(ty);
            }
        }
        matrix.types = types.join("+");
        Some(matrix)
    }
}

/// Type, rows and columns of the matrices that an argument points to.
fn matrices<'a>(plan: &'a Plan, arg: &'a Argument) -> impl Iterator<Item = (String, u32, u32)> + 'a {
    let parts = match &plan.buffers[arg.buffer].kind {
        BufferKind::Weights { parts } => parts.as_slice(),
        _ => &[],
    };
    let inside = arg.offset..arg.offset + arg.bytes;
    parts.iter().filter(move |part| inside.contains(&part.offset)).filter_map(|part| match part.form {
        PartForm::Matrix { ty, rows, cols } => Some((ty.to_string(), rows, cols)),
        PartForm::Vector { .. } => None,
    })
}

fn holds_matrix(plan: &Plan, arg: &Argument) -> bool {
    matrices(plan, arg).next().is_some()
}

/// Whether a launch writes the state record.
fn writes_state(plan: &Plan, launch: &Planned) -> bool {
    let state = |arg: &&Argument| plan.buffers[arg.buffer].kind == BufferKind::State;
    launch.args.iter().filter(state).any(|arg| arg.access != ArgumentAccess::Read)
}

/// Measured time of one matrix kernel of a plan.
#[derive(Clone, Debug)]
pub struct MatrixRate {
    /// The matrix; `name` lists all matrices for which the kernel is launched.
    pub matrix: Matrix,
    /// The kernel's name.
    pub kernel: String,
    /// Launches of the kernel per step.
    pub launches: usize,
    /// Bytes read and written per launch ([`bespoke_kernels::spec::KernelSpec::bytes`]).
    pub bytes: u64,
    /// Median time per launch in microseconds.
    pub microseconds: f64,
    /// Bytes of distinct weights that the timed launches rotate through.
    pub rotated_bytes: u64,
}

/// Multiple of the L2 size that is read between two launches with the same weights, so that the weights are not cached.
const COLD: u64 = 4;
/// Number of timed batches, whose median is the result, and number of graph replays per batch.
const BATCHES: usize = 7;
const REPLAYS: u32 = 8;

impl Engine {
    /// Times each matrix kernel of the plan alone: replays a graph of its launches for all layers, with the plan's
    /// edges. If the weights of all layers fit the cache, launches on copies of the weights are added. Overwrites
    /// activations; call [`Engine::start`] again afterwards.
    pub fn matrix_rates(&mut self) -> Result<Vec<MatrixRate>, EngineError> {
        // A step initialises every activation: reading uninitialised memory is a finding on the emulator.
        self.start_at_depth(0)?;
        self.step()?;
        self.wait()?;
        let bound = bind::launches(&self.plan, &self.buffers, &self.one_row().kernels);
        let mut rates = Vec::new();
        for (index, kernel) in self.plan.kernels.iter().enumerate() {
            let found = self.plan.launches.iter().zip(&bound).filter(|(planned, _)| planned.kernel == index);
            // A launch that writes the state record advances the position, so it cannot be repeated.
            let found = found.filter(|(planned, _)| !writes_state(&self.plan, planned));
            let found: Vec<_> = found
                .filter_map(|(planned, launch)| Some((Matrix::of(&self.plan, planned)?, planned, launch)))
                .collect();
            let Some((first, planned, _)) = found.first() else { continue };
            let mut matrix = first.clone();
            let mut names: Vec<&str> = found.iter().map(|(matrix, ..)| matrix.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            matrix.name = names.join(", ");

            let mut launches: Vec<Launch> = found.iter().map(|(_, _, launch)| (*launch).clone()).collect();
            let count = launches.len();
            let streamed =
                planned.args.iter().filter(|arg| holds_matrix(&self.plan, arg)).map(|arg| arg.bytes);
            let streamed: u64 = streamed.sum();
            let _copies = self.add_copies(planned, streamed, &mut launches)?;
            rates.push(MatrixRate {
                matrix,
                kernel: kernel.name.clone(),
                launches: count,
                bytes: kernel.spec.bytes(1),
                rotated_bytes: streamed * launches.len() as u64,
                microseconds: self.time_batch(launches)?,
            });
        }
        Ok(rates)
    }

    /// Adds copies of the first launch, each on its own copy of the weights, until all weights together exceed the
    /// cache; fewer if memory is short.
    fn add_copies(
        &self,
        planned: &Planned,
        streamed: u64,
        launches: &mut Vec<Launch>,
    ) -> Result<Vec<Allocation>, EngineError> {
        let wanted = (COLD * self.device.info().l2_bytes).div_ceil(streamed);
        let affordable = self.device.memory()?.free / 2 / streamed;
        let originals = launches.len();
        let missing = wanted.saturating_sub(originals as u64).min(affordable);
        let first = launches[0].clone();
        launches.extend((0..missing).map(|_| first.clone()));
        let mut copies = Vec::new();
        for (position, arg) in planned.args.iter().enumerate() {
            if !holds_matrix(&self.plan, arg) || missing == 0 {
                continue;
            }
            let mut bytes = vec![0; arg.bytes as usize];
            self.device.download(self.buffers.addresses()[arg.buffer].offset(arg.offset), &mut bytes)?;
            for launch in &mut launches[originals..] {
                let copy = self.device.alloc("copy of weights for timing", arg.bytes)?;
                self.device.upload(copy.address(), &bytes)?;
                let at = first.kernel.signature().parameters[position].offset;
                launch.params[at..at + 8].copy_from_slice(&copy.address().0.to_le_bytes());
                copies.push(copy);
            }
        }
        Ok(copies)
    }

    /// Median time per launch in microseconds.
    fn time_batch(&self, launches: Vec<Launch>) -> Result<f64, EngineError> {
        let (batches, replays) = match self.device.info().kind {
            Kind::Cuda { .. } => (BATCHES, REPLAYS),
            Kind::Emulator => (1, 1),
        };
        let count = launches.len();
        let mut sequence = self.device.sequence(launches)?;
        sequence.capture()?;
        sequence.time_replays(1)?;
        let times = (0..batches).map(|_| sequence.time_replays(replays)).collect::<Result<Vec<_>, _>>()?;
        Ok(median(&times) * 1e3 / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use bespoke_codegen::ptx::Target;
    use bespoke_gguf::Gguf;
    use bespoke_kernels::plan::PlanParams;
    use bespoke_kernels::shape::{ModelShape, builtin};

    use super::*;
    use crate::device::emulator_with_info;
    use crate::engine::EngineOptions;

    #[test]
    fn weights_are_copied_until_they_exceed_the_cache() {
        const L2: u64 = 100 << 10;
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/llama-q4_k_m.gguf");
        let gguf = Gguf::open(path).unwrap();
        let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
        let options = EngineOptions { context: Some(16), ..EngineOptions::default() };
        let device = emulator_with_info(|info| info.l2_bytes = L2);
        let mut engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
        let free = engine.device().memory().unwrap().free;
        let rates = engine.matrix_rates().unwrap();
        assert!(rates.len() > 3);
        for rate in &rates {
            assert!(rate.rotated_bytes >= COLD * L2 && rate.microseconds > 0.0, "{rate:?}");
        }
        // The copies are freed, and the model decodes as before.
        assert_eq!(engine.device().memory().unwrap().free, free);
        engine.start(&[1, 2, 3]).unwrap();
        (0..6).for_each(|_| engine.step().unwrap());
        engine.wait().unwrap();
        let tokens: Vec<u32> = (3..7).map(|position| engine.token(position).unwrap()).collect();
        assert_eq!(tokens, [471, 239, 117, 404]);
    }

    /// Every weight matrix is streamed once per token; the embedding is streamed only if it is also the output matrix.
    #[test]
    fn every_matrix_is_streamed_once() {
        for (name, mix, tied) in [("llama-3.1-8b", "q4_k_m", false), ("llama-3.2-1b", "q4_k_m", true)] {
            let file = builtin().into_iter().find(|file| file.name == name).unwrap();
            let plan = Plan::new(&file.with_mix(mix).unwrap(), Target::Sm90, PlanParams::single(64)).unwrap();
            let streamed: Vec<Matrix> =
                plan.launches.iter().filter_map(|launch| Matrix::of(&plan, launch)).collect();
            let d = &plan.shape.dimensions;
            let elements: u64 = streamed.iter().map(|matrix| matrix.rows * u64::from(matrix.cols)).sum();
            let qkv = d.q_width() + 2 * d.kv_width();
            let layer = u64::from(d.hidden) * u64::from(qkv + d.q_width() + 3 * d.ffn);
            let head = u64::from(d.hidden) * u64::from(d.vocab);
            assert_eq!(elements, layer * plan.shape.layers.len() as u64 + head, "{name}");
            assert!(plan.launches.len() > streamed.len());
            assert!(streamed.iter().any(|matrix| matrix.types == "Q4_K+Q6_K"), "{streamed:?}");
            assert_eq!(plan.shape.head.is_none(), tied);
        }
    }
}
