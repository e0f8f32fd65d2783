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
//! | `plans/SHAPE.sm_90.json` | the decode plan ([`crate::plan::Plan`]) |
//! | `kernels.rs` | `TARGETS`, `kernels(target)`, and a module a kernel with its launch stub |
//! | `kernels.json` | the same as data ([`bespoke_codegen::emit::Manifest`]) |

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bespoke_codegen::emit::{self, Entry};
use bespoke_codegen::ptx::Target;
use bespoke_codegen::{CompileError, Compiled, dsl::RecordError};
use rayon::prelude::*;

use crate::plan::{Plan, PlanParams, Sampling, Tuning};
use crate::shape::{ModelShape, ShapeError};
use crate::spec::KernelSpec;

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

    /// Writes everything below `out`, which is created; gives the kernels of each target, sorted by name.
    pub fn write(&self, out: &Path) -> Result<BTreeMap<Target, Vec<emit::Emitted>>, EmitError> {
        let mut emission = emit::Emission::new();
        for &target in &self.targets {
            emission = emission.target(target);
            let specs = self.plan(target, out)?;
            let entries: Vec<Entry> = specs.par_iter().map(|spec| entry(spec, target)).collect();
            emission =
                entries.into_iter().fold(emission, |emission, entry| emission.entry_for(target, entry));
        }
        Ok(emission.write(out)?)
    }

    /// Writes the plans for `target` and gives the kernels that they and [`Emission::kernel`] name: each once, sorted
    /// by name.
    fn plan(&self, target: Target, out: &Path) -> Result<Vec<KernelSpec>, EmitError> {
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
            write(&out.join("plans").join(format!("{}.{target}.json", shape.name)), &json)?;
            Ok([plan.kernels, sampled.kernels].concat())
        });
        let planned: Vec<_> = planned.collect::<Result<_, EmitError>>()?;
        let mut specs: BTreeMap<String, KernelSpec> =
            self.extra.iter().map(|spec| (spec.name(), spec.clone())).collect();
        specs.extend(planned.into_iter().flatten().map(|kernel| (kernel.name, kernel.spec)));
        Ok(specs.into_values().collect())
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
        let specs = emission.plan(Target::Sm80, &folder).unwrap();
        let names: Vec<String> = specs.iter().map(KernelSpec::name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        let mut plans: Vec<_> =
            folder.join("plans").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        plans.sort();
        assert_eq!(plans, ["llama-3.2-1b-q8_0.sm_80.json", "llama-3.2-1b.sm_80.json"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
