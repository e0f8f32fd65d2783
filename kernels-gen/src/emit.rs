//! Emission: PTX, plans and a Rust module with typed launch stubs, as files.
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
//! Everything beside the plans is written by [`bespoke_codegen::emit`], which is also the way to emit kernels that are
//! not of a decoder.
//!
//! # What is written
//!
//! | path | contents |
//! | --- | --- |
//! | `sm_90/NAME.ptx` | one module a kernel, its entry point named like the file |
//! | `sm_90/NAME.cubin` | with [`Emission::assembler`], the same as machine code |
//! | `plans/SHAPE.sm_90.json` | the decode plan ([`crate::plan::Plan`]) |
//! | `plans/SHAPE.sm_90.report.json` | with [`Emission::assembler`], what its kernels take ([`PlanReport`]) |
//! | `kernels.rs` | `TARGETS`, `kernels(target)`, and a module a kernel with its launch stub |
//! | `kernels.json` | the same as data ([`bespoke_codegen::emit::Manifest`]) |

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bespoke_codegen::emit::{self, Entry};
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::Ptxas;
use bespoke_codegen::{CompileError, Compiled, dsl::RecordError};
use rayon::prelude::*;

use crate::plan::{Plan, PlanParams, Sampling, Tuning};
use crate::shape::{ModelShape, ShapeError};
use crate::spec::KernelSpec;

pub use report::{KernelReport, PlanReport};

/// Why nothing was emitted.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    /// The shape cannot be specialised for.
    #[error("{shape}: {source}")]
    Shape {
        /// Its name.
        shape: String,
        /// Why.
        source: Box<ShapeError>,
    },
    /// A kernel cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A kernel cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A file cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kernels cannot be emitted.
    #[error(transparent)]
    Kernels(#[from] emit::EmitError),
    /// A plan that does not serialise: a bug.
    #[error("the plan: {0}")]
    Json(#[from] serde_json::Error),
}

/// A kernel with what it is specialised for.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// What it is specialised for.
    pub spec: KernelSpec,
    /// PTX and report.
    pub compiled: Compiled,
    /// The run-time parameters.
    pub params: Vec<bespoke_codegen::ir::Param>,
}

/// Records and compiles kernels in parallel.
pub fn compile(specs: &[KernelSpec], target: Target) -> Result<Vec<Emitted>, EmitError> {
    specs
        .par_iter()
        .map(|spec| {
            let kernel = spec.kernel(target)?;
            let compiled = kernel.compile(target)?;
            Ok(Emitted { spec: spec.clone(), compiled, params: kernel.params().to_vec() })
        })
        .collect()
}

/// What to emit.
#[derive(Clone, Debug, Default)]
pub struct Emission {
    shapes: Vec<ModelShape>,
    targets: BTreeSet<Target>,
    extra: Vec<KernelSpec>,
    tuning: Tuning,
    ptxas: Option<Ptxas>,
}

impl Emission {
    /// Nothing yet.
    pub fn new() -> Emission {
        Emission::default()
    }

    /// Adds a model's shape.
    #[must_use]
    pub fn shape(mut self, shape: ModelShape) -> Emission {
        self.shapes.push(shape);
        self
    }

    /// Adds a target.
    #[must_use]
    pub fn target(mut self, target: Target) -> Emission {
        self.targets.insert(target);
        self
    }

    /// Adds a kernel that no plan names.
    #[must_use]
    pub fn kernel(mut self, spec: KernelSpec) -> Emission {
        self.extra.push(spec);
        self
    }

    /// Plans by the rules of `tuning` instead of the cost model alone. A program that runs such kernels plans by the
    /// same rules.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Emission {
        self.tuning = tuning;
        self
    }

    /// Assembles every kernel, as [`emit::Emission::assembler`] says, and writes what those of each plan take.
    #[must_use]
    pub fn assembler(mut self, ptxas: Ptxas) -> Emission {
        self.ptxas = Some(ptxas);
        self
    }

    /// Writes everything below `out`, which is created; gives the kernels of each target, sorted by name.
    pub fn write(&self, out: &Path) -> Result<BTreeMap<Target, Vec<emit::Emitted>>, EmitError> {
        let mut emission = emit::Emission::new();
        if let Some(ptxas) = &self.ptxas {
            emission = emission.assembler(ptxas.clone());
        }
        let mut plans = Vec::new();
        for &target in &self.targets {
            emission = emission.target(target);
            let planned = self.plan(target, out)?;
            plans.extend(planned.plans);
            let entries: Vec<Entry> = planned.specs.par_iter().map(|spec| entry(spec, target)).collect();
            emission =
                entries.into_iter().fold(emission, |emission, entry| emission.entry_for(target, entry));
        }
        let emitted = emission.write(out)?;
        for plan in &plans {
            let kernels = emitted.get(&plan.target).map_or(&[][..], Vec::as_slice);
            write_report(out, plan, kernels)?;
        }
        Ok(emitted)
    }

    /// Plans for `target`, writes the plans, and gives the kernels that they and [`Emission::kernel`] name.
    fn plan(&self, target: Target, out: &Path) -> Result<Planned, EmitError> {
        let planned = self.shapes.par_iter().map(|shape| {
            let params = PlanParams::single(shape.dimensions.context.min(PlanParams::MAX_CONTEXT));
            let plan = |params| {
                Plan::tuned(shape, target, params, &self.tuning).map_err(|source| EmitError::Shape {
                    shape: shape.name.clone(),
                    source: Box::new(source),
                })
            };
            let sampled = plan(params.clone().choosing(Sampling::Sampled))?;
            let plan = plan(params)?;
            let json = serde_json::to_string_pretty(&plan)?;
            write(&plan_path(out, &plan, "json"), &json)?;
            Ok((plan, sampled.kernels))
        });
        let planned: Vec<_> = planned.collect::<Result<_, EmitError>>()?;
        let mut specs: BTreeMap<String, KernelSpec> =
            self.extra.iter().map(|spec| (spec.name(), spec.clone())).collect();
        let kernels = planned.iter().flat_map(|(plan, sampled)| plan.kernels.iter().chain(sampled));
        specs.extend(kernels.map(|kernel| (kernel.name.clone(), kernel.spec.clone())));
        let plans = planned.into_iter().map(|(plan, _)| plan).collect();
        Ok(Planned { plans, specs: specs.into_values().collect() })
    }
}

/// Plans for a target and all of their kernels, each once, sorted by name.
struct Planned {
    plans: Vec<Plan>,
    specs: Vec<KernelSpec>,
}

/// A plan's file, or one beside it.
fn plan_path(out: &Path, plan: &Plan, extension: &str) -> PathBuf {
    out.join("plans").join(format!("{}.{}.{extension}", plan.shape.name, plan.target))
}

/// Writes what the plan's kernels take. Where that is not known, what an earlier emission left there goes.
fn write_report(out: &Path, plan: &Plan, kernels: &[emit::Emitted]) -> Result<(), EmitError> {
    let path = plan_path(out, plan, "report.json");
    match PlanReport::of(plan, kernels) {
        Some(report) => write(&path, &serde_json::to_string_pretty(&report)?),
        None => match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(EmitError::Io { path, source })
            }
            _ => Ok(()),
        },
    }
}

fn entry(spec: &KernelSpec, target: Target) -> Entry {
    Entry::new(spec.kernel(target), spec.geometry().into()).summary(spec.summary()).constants(spec)
}

fn write(path: &Path, text: &str) -> Result<(), EmitError> {
    let attempt = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)
    };
    attempt().map_err(|source| EmitError::Io { path: path.to_owned(), source })
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
        let folder = std::env::temp_dir().join(format!("bespoke-emit-{}", std::process::id()));
        let mut shapes =
            builtin().into_iter().find(|file| file.name == "llama-3.2-1b").unwrap().shapes().unwrap();
        shapes.push(shapes[0].clone());
        let emission = shapes.into_iter().fold(Emission::new(), Emission::shape);
        let specs = emission.plan(Target::Sm80, &folder).unwrap().specs;
        let names: Vec<String> = specs.iter().map(KernelSpec::name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        let mut plans: Vec<_> =
            folder.join("plans").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        plans.sort();
        assert_eq!(plans, ["llama-3.2-1b-q8_0.sm_80.json", "llama-3.2-1b.sm_80.json"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
