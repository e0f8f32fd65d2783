//! The kernels of a model at every stage, line by line, and their costs.
//!
//! [`Tools`] finds NVIDIA's assembler and disassembler. [`Inspection`] is the data of the page of `bespoke inspect
//! --html`; [`diff`] compares two plans or emitted folders; [`folder`] reads emitted kernels of any program.

pub mod diff;
pub mod folder;
mod graph;
mod listing;
pub mod model;
mod nvdisasm;
mod place;
mod roofline;
mod sources;
mod stats;
pub mod text;
mod warps;

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::{self, Assembled, Ptxas, PtxasError, Usage};
use bespoke_kernels::emit::{self, EmitError, Emitted};
pub use bespoke_kernels::plan::occupancy::{Demand, Limit, Occupancy};
use bespoke_kernels::plan::{Plan, StepKind, Tuning};
use bespoke_kernels::spec::KernelSpec;
use rayon::prelude::*;
use serde::Serialize;

pub use graph::{Edge, EdgeOrder, Graph, Group, Node, Transfer};
pub use listing::Listing;
pub use nvdisasm::{Nvdisasm, NvdisasmError};
pub use place::{Place, PlaceId, Places};
pub use roofline::{Gpu, Unit, Work};
pub use stats::Stats;
pub use warps::{Copies, Products, Ring, Role, Stores, Use, Warps};

/// Why a plan cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// A kernel cannot be compiled.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// An error of the assembler.
    #[error(transparent)]
    Ptxas(#[from] PtxasError),
    /// An error of the disassembler.
    #[error(transparent)]
    Nvdisasm(#[from] NvdisasmError),
    /// SASS was requested without an assembler or a disassembler.
    #[error(
        "SASS needs {0}, which is neither on PATH nor named by {1}; both tools come with the CUDA toolkit and with \
         `pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm`"
    )]
    Missing(&'static str, &'static str),
}

/// NVIDIA's tools, if found.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// The assembler, for registers and spills.
    pub ptxas: Option<Ptxas>,
    /// The disassembler; with the assembler, for SASS.
    pub nvdisasm: Option<Nvdisasm>,
}

impl Tools {
    /// Finds the tools by environment variables, else on `PATH`.
    pub fn find() -> Result<Tools, InspectError> {
        let ptxas = Ptxas::find()?;
        let nvdisasm = Nvdisasm::find(ptxas.as_ref())?;
        Ok(Tools { ptxas, nvdisasm })
    }

    /// Fails with advice if a tool for SASS is missing.
    pub fn require_sass(&self) -> Result<(), InspectError> {
        match (&self.ptxas, &self.nvdisasm) {
            (None, _) => Err(InspectError::Missing("ptxas", ptxas::VARIABLE)),
            (_, None) => Err(InspectError::Missing("nvdisasm", nvdisasm::VARIABLE)),
            _ => Ok(()),
        }
    }

    /// Assembles a kernel; `None` without an assembler. If the assembler refuses the kernel, logs a warning, so that
    /// other stages can be shown.
    pub fn assemble(&self, kernel: &Emitted) -> Option<Assembled> {
        let compiled = &kernel.compiled;
        self.assemble_text(&compiled.name, &compiled.ptx, compiled.target)
    }

    /// Assembles the text of a module with the kernel `name`.
    fn assemble_text(&self, name: &str, ptx: &str, target: Target) -> Option<Assembled> {
        let ptxas = self.ptxas.as_ref()?;
        let assembled = ptxas.cubin(name, ptx, target);
        assembled
            .inspect_err(|error| match error {
                // A program that is not ptxas may succeed without writing machine code.
                PtxasError::Io { path, source } if path != ptxas.path() => tracing::warn!(
                    "{name}: ptxas ({}) made no machine code: {}: {source}",
                    ptxas.path().display(),
                    path.display()
                ),
                error => tracing::warn!("{name}: {error}"),
            })
            .ok()
    }

    /// Disassembly for [`Listing::of_sass`], if both tools are found.
    pub fn disassemble(&self, assembled: &Assembled) -> Option<String> {
        let text = self.nvdisasm.as_ref()?.disassemble(&assembled.cubin);
        text.inspect_err(|error| tracing::warn!("{error}")).ok()
    }
}

/// Data of the page: a plan's kernels and launches, or the kernels of a folder. A folder has no launches, and its rooflines,
/// bytes and operations are zero.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// Version of this program.
    pub version: &'static str,
    /// The model's name.
    pub model: String,
    /// The target that kernels are for.
    pub target: Target,
    /// Kind of the step.
    pub step: StepKind,
    /// Number of rows of the step: tokens that it processes.
    pub rows: u32,
    /// Positions in the KV cache.
    pub context: u32,
    /// Launches per step.
    pub launches: usize,
    /// Bytes read per step with a full KV cache: weights, keys and values.
    pub bytes_per_token: u64,
    /// Whether ptxas was found, so that numbers of registers are known.
    pub has_ptxas: bool,
    /// Every kernel of the plan, in the plan's order.
    pub kernels: Vec<KernelView>,
    /// Graph of the plan's launches.
    pub graph: Graph,
    /// GPUs for which the page shows rooflines.
    pub gpus: [Gpu; 7],
    /// Source lines to which the listings refer.
    pub places: Places,
    /// Text of each file in `places`; `None` if neither the binary contains the text nor a file is found.
    pub sources: Vec<Option<Cow<'static, str>>>,
}

/// A kernel at every stage.
#[derive(Debug, Serialize)]
pub struct KernelView {
    /// Costs of the kernel.
    #[serde(flatten)]
    pub stats: Stats,
    /// The kernel of the same launch for each target.
    pub targets: Vec<OnTarget>,
    /// Roles of the warps, if warps wait for each other by mbarriers.
    pub warps: Option<Warps>,
    /// Listing of the IR after all passes.
    pub ir: Listing,
    /// Listing of the PTX.
    pub ptx: Listing,
    /// Listing of the SASS, if assembler and disassembler are found.
    pub sass: Option<Listing>,
}

/// The kernel in the plan for another target.
#[derive(Clone, Debug, Serialize)]
pub struct OnTarget {
    /// CTAs of the grid along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub threads: u32,
    /// Shared memory per CTA, static and dynamic, in bytes.
    pub shared: u32,
    /// Resources reported by ptxas, if ptxas was found.
    pub usage: Option<Usage>,
    /// Occupancy of the kernel on the target.
    #[serde(flatten)]
    pub occupancy: Occupancy,
}

/// Progress callback, for any thread: completed kernels and their total.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Counter of completed kernels, which reports progress.
struct Count<'a> {
    done: AtomicUsize,
    total: usize,
    progress: Progress<'a>,
}

impl Count<'_> {
    fn one(&self) {
        (self.progress)(self.done.fetch_add(1, Ordering::Relaxed) + 1, self.total);
    }
}

impl Inspection {
    /// Compiles the kernels of a plan, and the kernels of the same model's plans for all other targets.
    pub fn of(
        plan: &Plan,
        tuning: &Tuning,
        tools: &Tools,
        progress: Progress<'_>,
    ) -> Result<Inspection, InspectError> {
        let others = others(plan, tuning);
        let total = plan.kernels.len() + others.iter().map(|other| other.kernels.len()).sum::<usize>();
        let count = Count { done: AtomicUsize::new(0), total, progress };
        let mut kernels = views(plan, tools, &count)?;
        let mut places = Places::new();
        for other in &others {
            for (kernel, on_target) in on_target(plan, other, tools, &count)? {
                kernels[kernel].targets.push(on_target);
            }
        }
        let kernels = kernels.into_iter().map(|view| view.read(&mut places)).collect();
        let sources = places.files().iter().map(|file| sources::find(file)).collect();
        Ok(Inspection {
            version: env!("CARGO_PKG_VERSION"),
            model: plan.shape.name.clone(),
            target: plan.target(),
            step: plan.params.kind,
            rows: plan.params.rows,
            context: plan.params.context,
            launches: plan.launches.len(),
            bytes_per_token: plan.bytes_per_token(plan.params.context.into()),
            has_ptxas: tools.ptxas.is_some(),
            kernels,
            graph: Graph::of(plan),
            gpus: Gpu::ALL,
            places,
            sources,
        })
    }
}

/// A compiled kernel whose listings are not parsed yet. Parsing is sequential, because all listings share one table of
/// places.
struct Unread {
    emitted: Emitted,
    stats: Stats,
    targets: Vec<OnTarget>,
    sass: Option<String>,
}

impl Unread {
    fn read(self, places: &mut Places) -> KernelView {
        let compiled = &self.emitted.compiled;
        KernelView {
            warps: Warps::of(&compiled.function, places),
            ir: Listing::of_ir(&compiled.function, places),
            ptx: Listing::of_ptx(&compiled.ptx, places),
            sass: self.sass.map(|text| Listing::of_sass(&text, places)),
            stats: self.stats,
            targets: self.targets,
        }
    }
}

fn views(plan: &Plan, tools: &Tools, count: &Count<'_>) -> Result<Vec<Unread>, InspectError> {
    let specs: Vec<KernelSpec> = plan.kernels.iter().map(|kernel| kernel.spec.clone()).collect();
    let view = |emitted: Emitted| {
        let assembled = tools.assemble(&emitted);
        let sass = assembled.as_ref().and_then(|assembled| tools.disassemble(assembled));
        let stats = Stats::of(plan, &emitted, assembled.map(|assembled| assembled.usage));
        count.one();
        Unread { emitted, stats, targets: Vec::new(), sass }
    };
    Ok(emit::compile(&specs, plan.target())?.into_par_iter().map(view).collect())
}

/// Plans of the same model for all other targets that support the model.
fn others(plan: &Plan, tuning: &Tuning) -> Vec<Plan> {
    let gpu = |target: Target| if target == plan.gpu.target { plan.gpu } else { target.into() };
    let other = |target| match Plan::tuned(&plan.shape, gpu(target), plan.params.clone(), tuning) {
        Ok(other) => Some(other),
        Err(error) => {
            tracing::warn!("no plan for {target}: {error}");
            None
        }
    };
    Target::ALL.into_iter().filter_map(other).collect()
}

/// For every kernel of `plan`, the kernel of the same launch in the plan for another target.
fn on_target(
    plan: &Plan,
    other: &Plan,
    tools: &Tools,
    count: &Count<'_>,
) -> Result<Vec<(usize, OnTarget)>, InspectError> {
    let specs: Vec<KernelSpec> = other.kernels.iter().map(|kernel| kernel.spec.clone()).collect();
    let usage = |emitted: &Emitted| {
        let usage = tools.assemble(emitted).map(|assembled| assembled.usage);
        count.one();
        usage
    };
    let usages: Vec<Option<Usage>> = emit::compile(&specs, other.target())?.par_iter().map(usage).collect();
    let counterpart = |kernel: usize| {
        let launch = plan.launches.iter().find(|launch| launch.kernel == kernel)?;
        let launch = other.launches.iter().find(|it| it.label == launch.label)?;
        let (spec, usage) = (&specs[launch.kernel], usages[launch.kernel]);
        let demand = stats::demand(spec, usage);
        let occupancy = Occupancy::of(other.target(), demand);
        Some(OnTarget { grid: launch.grid, threads: launch.threads, shared: demand.shared, usage, occupancy })
    };
    Ok((0..plan.kernels.len()).filter_map(|kernel| Some((kernel, counterpart(kernel)?))).collect())
}

#[cfg(test)]
mod tests;
