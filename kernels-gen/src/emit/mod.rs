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
//! # What is written
//!
//! | path | contents |
//! | --- | --- |
//! | `sm_90/NAME.ptx` | one module a kernel, its entry point named like the file |
//! | `plans/SHAPE.sm_90.json` | the decode plan ([`crate::plan::Plan`]) |
//! | `kernels.rs` | for every target a module with `KERNELS` (all sources, sorted by name) and a module a kernel with its launch stub |

mod stubs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bespoke_codegen::ptx::Target;
use bespoke_codegen::{CompileError, Compiled, dsl::RecordError};
use rayon::prelude::*;

use crate::plan::{Plan, PlanParams};
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
        source: ShapeError,
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
    /// The generated Rust is none: a bug in the generator.
    #[error("the generated module: {0}")]
    Rust(#[from] syn::Error),
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
            let kernel = spec.record()?;
            let compiled = kernel.compile(target)?;
            Ok(Emitted { spec: spec.clone(), compiled, params: kernel.params().to_vec() })
        })
        .collect()
}

/// What to emit.
#[derive(Clone, Debug, Default)]
pub struct Emission {
    shapes: Vec<ModelShape>,
    targets: Vec<Target>,
    extra: Vec<KernelSpec>,
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
        self.targets.push(target);
        self
    }

    /// Adds a kernel that no plan names.
    #[must_use]
    pub fn kernel(mut self, spec: KernelSpec) -> Emission {
        self.extra.push(spec);
        self
    }

    /// Writes everything below `out`, which is created.
    pub fn write(&self, out: &Path) -> Result<Vec<Emitted>, EmitError> {
        let mut all = Vec::new();
        let mut modules = Vec::new();
        for &target in &self.targets {
            let mut specs: BTreeMap<String, KernelSpec> =
                self.extra.iter().map(|spec| (spec.name(), spec.clone())).collect();
            for shape in &self.shapes {
                let params = PlanParams::single(shape.dimensions.context);
                let plan = Plan::new(shape, target, params)
                    .map_err(|source| EmitError::Shape { shape: shape.name.clone(), source })?;
                specs.extend(plan.kernels.iter().map(|kernel| (kernel.name.clone(), kernel.spec.clone())));
                let json = serde_json::to_string_pretty(&plan)?;
                write(&out.join("plans").join(format!("{}.{target}.json", shape.name)), &json)?;
            }
            let specs: Vec<KernelSpec> = specs.into_values().collect();
            let emitted = compile(&specs, target)?;
            for kernel in &emitted {
                write(&out.join(target.to_string()).join(format!("{}.ptx", kernel.compiled.name)), &kernel.compiled.ptx)?;
            }
            modules.push((target, emitted.clone()));
            all.extend(emitted);
        }
        write(&out.join("kernels.rs"), &stubs::module(&modules)?)?;
        Ok(all)
    }
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
