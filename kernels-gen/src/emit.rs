//! Emission of PTX, plans and a Rust module with typed launch stubs as files.
//!
//! From a `build.rs`:
//!
//! ```no_run
//! use bespoke_kernels::emit::Emission;
//! use bespoke_kernels::shape::ModelShape;
//! use bespoke_codegen::ptx::Target;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gguf = bespoke_gguf::Gguf::open("model.gguf")?;
//! let shape = ModelShape::from_gguf(&gguf, "model")?;
//! let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
//! Emission::new().shape(shape).target(Target::Sm90).write(&out)?;
//! # Ok(())
//! # }
//! ```
//!
//! and in the crate: `mod kernels { include!(concat!(env!("OUT_DIR"), "/kernels.rs")); }`.
//!
//! [`bespoke_codegen::emit`] writes everything except the plans, and can emit other kernels than a decoder's.
//!
//! # Files
//!
//! | path | contents |
//! | --- | --- |
//! | `sm_90/NAME.ptx` | one module per kernel; the entry point has the name of the file |
//! | `sm_90/NAME.cubin` | with [`Emission::assembler`], the kernel as machine code |
//! | `plans/SHAPE.sm_90.json` | the decode plan ([`crate::plan::Plan`]) |
//! | `plans/SHAPE.sm_90.report.json` | with [`Emission::assembler`], the resources that its kernels use ([`PlanReport`]) |
//! | `kernels.rs` | `TARGETS`, `kernels(target)`, and a module with the launch stub of each kernel |
//! | `kernels.json` | the kernels as data ([`bespoke_codegen::emit::Manifest`]) |

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bespoke_codegen::emit::{self, Entry, Files};
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::Ptxas;
use bespoke_codegen::{CompileError, Compiled, Kernel, dsl::RecordError};
use rayon::prelude::*;

use crate::kernels::attention::KvType;
use crate::plan::{Gpu, Plan, PlanError, PlanParams, Sampling, StepKind, StepSize, Tuning};
use crate::shape::ModelShape;
use crate::spec::KernelSpec;

pub use report::{KernelReport, PlanReport};

/// Error of an emission.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    /// No plan can be built for a shape.
    #[error("{shape}: {source}")]
    Plan {
        /// Name of the model's shape.
        shape: String,
        /// The cause.
        source: Box<PlanError>,
    },
    /// A kernel cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A kernel cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// `bespoke_codegen`'s `Emission::write` failed: it compiles the kernels and writes their files.
    #[error(transparent)]
    Kernels(#[from] emit::EmitError),
    /// A plan cannot be serialised: a bug.
    #[error("the plan: {0}")]
    Json(#[from] serde_json::Error),
}

/// A compiled kernel and its specification.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The kernel with its compile-time parameters.
    pub spec: KernelSpec,
    /// PTX of the kernel, and the compiler's report.
    pub compiled: Compiled,
    /// Run-time parameters of the kernel.
    pub params: Vec<bespoke_codegen::ir::Param>,
}

/// Records and compiles kernels in parallel.
pub fn compile(specs: &[KernelSpec], target: Target) -> Result<Vec<Emitted>, EmitError> {
    compile_each(specs, target, |kernel, _| kernel)
}

/// As [`compile`], for kernels that write timestamps ([`Kernel::timed`]), under the names of [`timed_name`].
pub fn compile_timed(specs: &[KernelSpec], target: Target) -> Result<Vec<Emitted>, EmitError> {
    compile_each(specs, target, |kernel, spec| kernel.timed().named(timed_name(spec)))
}

/// Name of the timed form of a kernel, in [`compile_timed`].
pub fn timed_name(spec: &KernelSpec) -> String {
    format!("{}_timed", spec.name())
}

fn compile_each(
    specs: &[KernelSpec],
    target: Target,
    change: impl Fn(Kernel, &KernelSpec) -> Kernel + Sync,
) -> Result<Vec<Emitted>, EmitError> {
    specs
        .par_iter()
        .map(|spec| {
            let kernel = change(spec.kernel(target)?, spec);
            let compiled = kernel.compile(target)?;
            Ok(Emitted { spec: spec.clone(), compiled, params: kernel.params().to_vec() })
        })
        .collect()
}

/// Builder of an emission: shapes, targets and options.
#[derive(Clone, Debug, Default)]
pub struct Emission {
    /// Shapes, each with the steps besides the decode step of one row.
    shapes: Vec<(ModelShape, BTreeSet<StepSize>)>,
    targets: BTreeSet<Target>,
    multiprocessors: Option<u32>,
    extra: Vec<KernelSpec>,
    caches: Vec<KvType>,
    tuning: Tuning,
    ptxas: Option<Ptxas>,
}

impl Emission {
    /// An emission without shapes and targets.
    pub fn new() -> Emission {
        Emission::default()
    }

    /// Adds the shape of a model: the kernels of the decode step of one row.
    #[must_use]
    pub fn shape(self, shape: ModelShape) -> Emission {
        self.shape_with_steps(shape, [])
    }

    /// Adds the shape of a model: the kernels of the decode step of one row, and of `steps`. A model that has no prefill steps
    /// has no kernels for them. Decode steps are greedy and sampled.
    #[must_use]
    pub fn shape_with_steps(
        mut self,
        shape: ModelShape,
        steps: impl IntoIterator<Item = StepSize>,
    ) -> Emission {
        self.shapes.push((shape, steps.into_iter().filter(|&step| step != StepSize::ONE_ROW).collect()));
        self
    }

    /// Adds a target.
    #[must_use]
    pub fn target(mut self, target: Target) -> Emission {
        self.targets.insert(target);
        self
    }

    /// Divides the work of all plans for GPUs with `multiprocessors` multiprocessors, instead of the largest common GPU of
    /// each target ([`Gpu::typical`]).
    #[must_use]
    pub fn multiprocessors(mut self, multiprocessors: u32) -> Emission {
        self.multiprocessors = Some(multiprocessors);
        self
    }

    /// Adds a kernel that no plan launches.
    #[must_use]
    pub fn kernel(mut self, spec: KernelSpec) -> Emission {
        self.extra.push(spec);
        self
    }

    /// Adds the kernels of plans with a KV cache of type `kv`; those of f16 are always emitted.
    #[must_use]
    pub fn kv(mut self, kv: KvType) -> Emission {
        self.caches.push(kv);
        self
    }

    /// Applies the rules of `tuning` to all plans. A program that runs the kernels must apply the same rules.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Emission {
        self.tuning = tuning;
        self
    }

    /// Assembles every kernel (see [`emit::Emission::assembler`]), and writes a [`PlanReport`] for each plan.
    #[must_use]
    pub fn assembler(mut self, ptxas: Ptxas) -> Emission {
        self.ptxas = Some(ptxas);
        self
    }

    /// The emission of the kernels, and the plans.
    fn prepared(&self) -> Result<(emit::Emission, Vec<Plan>), EmitError> {
        // The IR of a decoder's kernels follows from the model.
        let mut emission = emit::Emission::new().without_ir();
        if let Some(ptxas) = &self.ptxas {
            emission = emission.assembler(ptxas.clone());
        }
        let mut plans = Vec::new();
        for &target in &self.targets {
            emission = emission.target(target);
            let planned = self.plan(target)?;
            plans.extend(planned.plans);
            let entries: Vec<Entry> = planned.specs.par_iter().map(|spec| entry(spec, target)).collect();
            emission =
                entries.into_iter().fold(emission, |emission, entry| emission.entry_for(target, entry));
        }
        Ok((emission, plans))
    }

    /// Builds the plans and compiles their kernels: those of each target, sorted by name.
    pub fn kernels(&self) -> Result<BTreeMap<Target, Vec<emit::Emitted>>, EmitError> {
        Ok(self.prepared()?.0.compile()?)
    }

    /// Builds the plans and compiles their kernels; returns the kernels and all files.
    pub fn files(&self) -> Result<Files, EmitError> {
        let (emission, plans) = self.prepared()?;
        let mut files = emission.files()?;
        for plan in &plans {
            files.content.insert(plan_path(plan, "json"), serde_json::to_vec_pretty(plan)?);
            let kernels = files.kernels.get(&plan.target()).map_or(&[][..], Vec::as_slice);
            let report = plan_path(plan, "report.json");
            match PlanReport::of(plan, kernels) {
                Some(content) => drop(files.content.insert(report, serde_json::to_vec_pretty(&content)?)),
                None => files.stale.push(report),
            }
        }
        Ok(files)
    }

    /// Writes all files to the folder `out`, which is created. Returns the kernels of each target, sorted by name.
    pub fn write(&self, out: &Path) -> Result<BTreeMap<Target, Vec<emit::Emitted>>, EmitError> {
        let files = self.files()?;
        files.write(out)?;
        Ok(files.kernels)
    }

    /// Builds the plans for `target`. Returns them with their kernels and those of [`Emission::kernel`].
    fn plan(&self, target: Target) -> Result<Planned, EmitError> {
        let typical = Gpu::typical(target);
        let gpu = self.multiprocessors.map_or(typical, |count| typical.with_multiprocessors(count));
        let planned = self.shapes.par_iter().map(|(shape, steps)| {
            let params = PlanParams::single(shape.dimensions.context.min(PlanParams::MAX_CONTEXT));
            let failed = |source| EmitError::Plan { shape: shape.name.clone(), source: Box::new(source) };
            let plan = |params| Plan::tuned(shape, gpu, params, &self.tuning).map_err(failed);
            let mut others = plan(params.clone().with_sampling(Sampling::Sampled))?.kernels;
            for &kv in &self.caches {
                others.extend(plan(params.clone().with_kv(kv))?.kernels);
            }
            for &step in steps {
                for sampling in [Sampling::Greedy, Sampling::Sampled] {
                    let params = params.clone().with_step(step).with_sampling(sampling);
                    match Plan::tuned(shape, gpu, params, &self.tuning) {
                        Ok(plan) => others.extend(plan.kernels),
                        // An engine also works without these steps.
                        Err(PlanError::Unsupported(_)) if step.kind == StepKind::Prefill => {}
                        Err(source) => return Err(failed(source)),
                    }
                }
            }
            Ok((plan(params)?, others))
        });
        let planned: Vec<_> = planned.collect::<Result<_, EmitError>>()?;
        let mut specs: BTreeMap<String, KernelSpec> =
            self.extra.iter().map(|spec| (spec.name(), spec.clone())).collect();
        let kernels = planned.iter().flat_map(|(plan, others)| plan.kernels.iter().chain(others));
        specs.extend(kernels.map(|kernel| (kernel.name.clone(), kernel.spec.clone())));
        let plans = planned.into_iter().map(|(plan, _)| plan).collect();
        Ok(Planned { plans, specs: specs.into_values().collect() })
    }
}

/// Plans for a target, and their kernels without duplicates, sorted by name.
struct Planned {
    plans: Vec<Plan>,
    specs: Vec<KernelSpec>,
}

/// Path of a plan's file with the given extension, in the folder.
fn plan_path(plan: &Plan, extension: &str) -> PathBuf {
    Path::new("plans").join(format!("{}.{}.{extension}", plan.shape.name, plan.target()))
}

fn entry(spec: &KernelSpec, target: Target) -> Entry {
    Entry::new(spec.kernel(target), spec.geometry().into()).summary(spec.summary()).constants(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::builtin;

    #[test]
    fn kernels_do_not_depend_on_the_context() {
        for file in builtin() {
            for shape in file.shapes().unwrap() {
                let kernels =
                    |context| Plan::new(&shape, Target::Sm90, PlanParams::single(context)).unwrap().kernels;
                assert_eq!(kernels(16), kernels(shape.dimensions.context), "{}", shape.name);
            }
        }
    }

    #[test]
    fn kernels_of_a_target_are_sorted_and_unique() {
        let mut shapes =
            builtin().into_iter().find(|file| file.name == "llama-3.2-1b").unwrap().shapes().unwrap();
        shapes.push(shapes[0].clone());
        let emission = shapes.into_iter().fold(Emission::new(), Emission::shape);
        let emission = emission.target(Target::Sm80);
        let specs = emission.plan(Target::Sm80).unwrap().specs;
        let names: Vec<String> = specs.iter().map(KernelSpec::name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        let files = emission.files().unwrap();
        let plans: Vec<_> = files.content.keys().filter(|path| path.starts_with("plans")).collect();
        assert_eq!(
            plans,
            ["plans/llama-3.2-1b-q8_0.sm_80.json", "plans/llama-3.2-1b.sm_80.json"].map(Path::new).each_ref()
        );
    }
}
