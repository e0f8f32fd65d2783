//! Build-time API: compiles kernels to PTX files, a Rust module with a typed launch stub for each, and a manifest for
//! other languages. Needs the feature `emit`.
//!
//! A `build.rs`, with the kernels in a file that it shares with the crate:
//!
//! ```no_run
//! use bespoke_codegen::emit::{Emission, Geometry};
//! use bespoke_codegen::prelude::*;
//!
//! /// y[i] += a · x[i] for i < n.
//! #[kernel(threads = 128)]
//! fn axpy(x: Ptr<Global, f32>, y: Ptr<Global, f32>, a: Val<f32>, n: Val<u32>) {
//!     let i = block_index() * 128 + thread_index();
//!     if i < n {
//!         y.at(i).store(fma(a, x.at(i).load(), y.at(i).load()));
//!     }
//! }
//!
//! fn main() {
//!     Emission::new()
//!         .target(Target::Sm80)
//!         .target(Target::Sm90)
//!         .kernel(axpy(), Geometry::per_launch())
//!         .build();
//! }
//! ```
//!
//! The crate includes the module with `mod kernels { include!(concat!(env!("OUT_DIR"), "/kernels.rs")); }`, which has
//!
//! ```text
//! pub mod axpy {
//!     pub fn launch<L: Launcher>(
//!         launcher: &mut L,
//!         grid: [u32; 3],
//!         x: DevicePointer<f32>,
//!         y: DevicePointer<f32>,
//!         a: f32,
//!         n: u32,
//!     ) -> Result<(), L::Error>;
//! }
//! ```
//!
//! `launch` takes any [`Launcher`](crate::launch::Launcher) and launches the PTX of the newest target that the device
//! can run: PTX runs on its target and on every later GPU. The module refers to this package, so the crate depends on
//! `bespoke-codegen`, and its build script on the same package with the feature `emit`.
//!
//! # Files
//!
//! | path | contents |
//! | --- | --- |
//! | `sm_90/NAME.ptx` | one module per kernel, or for the kernels of [`Emission::module`]; an entry point has its kernel's name |
//! | `sm_90/NAME.ir` | unless [`Emission::without_ir`], the kernel before any pass, for `bespoke inspect` and `bespoke opt` |
//! | `sm_90/NAME.cubin` | with [`Emission::assembler`], machine code for compute capability 9.0 |
//! | `kernels.rs` | `TARGETS`, `kernels(target)`, and a module per kernel: sources by target, geometry, `launch` |
//! | `kernels.json` | the same as data: [`Manifest`], described in `docs/emitted.md` for other languages |
//!
//! Names are identifiers of both Rust and PTX. Each specialisation of a kernel needs its own name:
//! `axpy(&shape).map(|kernel| kernel.named("axpy_c4096"))`.
//!
//! # When cargo runs the build script again
//!
//! [`Emission::build`] prints `cargo::rerun-if-changed=build.rs`. Cargo also runs a build script again after
//! recompiling it: after a change in one of its modules (`#[path = "src/kernel.rs"] mod kernel;`) or in a crate of its
//! `[build-dependencies]`. Kernels in either need nothing more. For a shape that is read from a file or an environment
//! variable, print `cargo::rerun-if-changed=FILE` or `cargo::rerun-if-env-changed=VARIABLE`.

mod assembly;
mod entry;
mod error;
mod files;
mod manifest;
mod stubs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rayon::prelude::*;

use crate::dsl::Recorded;
use crate::ir::verify::is_identifier;
use crate::kernel::Kernel;
use crate::module::Module;
use crate::ptx::Target;
use crate::ptxas::Ptxas;

pub use entry::{Emitted, Entry, Geometry};
pub use error::EmitError;
pub use files::Files;
pub use manifest::{Manifest, ManifestKernel, ManifestModule, ManifestParameter, ManifestTensorMap};

/// Kernels that are compiled together.
#[derive(Clone, Debug)]
struct Unit {
    /// The target that they are for; none stands for all targets.
    target: Option<Target>,
    /// Name of the module that they share; none for a kernel with a module of its own.
    module: Option<String>,
    entries: Vec<Entry>,
}

/// A set of kernels to emit for a set of targets.
#[derive(Clone, Debug, Default)]
pub struct Emission {
    targets: BTreeSet<Target>,
    units: Vec<Unit>,
    ptxas: Option<Ptxas>,
    without_ir: bool,
}

impl Emission {
    /// An empty emission.
    pub fn new() -> Emission {
        Emission::default()
    }

    /// Adds a target to compile for.
    #[must_use]
    pub fn target(mut self, target: Target) -> Emission {
        self.targets.insert(target);
        self
    }

    /// Adds a kernel for every target: the result of calling a `#[kernel]` function, and its launch geometry.
    #[must_use]
    pub fn kernel(self, kernel: Recorded, geometry: Geometry) -> Emission {
        self.entry(Entry::new(kernel, geometry))
    }

    /// Adds a kernel for every target, with the settings of `entry`.
    #[must_use]
    pub fn entry(mut self, entry: Entry) -> Emission {
        self.units.push(Unit { target: None, module: None, entries: vec![entry] });
        self
    }

    /// Adds kernels for every target that share one PTX module, `TARGET/NAME.ptx`, as the kernels of one CUDA file do. The
    /// driver loads it once. Each kernel has its own entry point and launch stub, as without a module.
    ///
    /// ```no_run
    /// # use bespoke_codegen::emit::{Emission, Entry, Geometry};
    /// # use bespoke_codegen::prelude::*;
    /// # #[kernel(threads = 32)]
    /// # fn scale(x: Ptr<Global, f32>) { x.store(x.load() * 2.0); }
    /// # #[kernel(threads = 32)]
    /// # fn add(x: Ptr<Global, f32>) { x.store(x.load() + 2.0); }
    /// let geometry = Geometry::per_launch();
    /// Emission::new()
    ///     .target(Target::Sm80)
    ///     .module("vectors", [Entry::new(scale(), geometry), Entry::new(add(), geometry)])
    ///     .build();
    /// ```
    #[must_use]
    pub fn module(mut self, name: impl Into<String>, entries: impl IntoIterator<Item = Entry>) -> Emission {
        let entries = entries.into_iter().collect();
        self.units.push(Unit { target: None, module: Some(name.into()), entries });
        self
    }

    /// Adds a kernel for one target only, and the target itself. Kernels of the same name must have the same parameters
    /// and geometry for all targets.
    #[must_use]
    pub fn entry_for(mut self, target: Target, entry: Entry) -> Emission {
        self.units.push(Unit { target: Some(target), module: None, entries: vec![entry] });
        self.target(target)
    }

    /// Assembles every kernel with `ptxas`. The machine code becomes a file and part of the generated module; the
    /// resource usage becomes part of the manifest; a spill that the kernel does not allow is an error.
    #[must_use]
    pub fn assembler(mut self, ptxas: Ptxas) -> Emission {
        self.ptxas = Some(ptxas);
        self
    }

    /// Leaves out the files with the kernels' IR, which `bespoke inspect FOLDER` shows. They are larger than the PTX.
    #[must_use]
    pub fn without_ir(mut self) -> Emission {
        self.without_ir = true;
        self
    }

    /// Compiles all kernels in parallel; the kernels of each target are sorted by name.
    pub fn compile(&self) -> Result<BTreeMap<Target, Vec<Emitted>>, EmitError> {
        if self.targets.is_empty() {
            return Err(EmitError::NoTarget);
        }
        let work: Vec<(Target, &Unit)> = self
            .targets
            .iter()
            .flat_map(|&target| {
                let wanted = move |unit: &&Unit| unit.target.is_none_or(|only| only == target);
                self.units.iter().filter(wanted).map(move |unit| (target, unit))
            })
            .collect();
        let compiled: Vec<Vec<Emitted>> =
            work.into_par_iter().map(|(target, unit)| self.emit(target, unit)).collect::<Result<_, _>>()?;
        let mut targets: BTreeMap<Target, Vec<Emitted>> =
            self.targets.iter().map(|&target| (target, Vec::new())).collect();
        for kernel in compiled.into_iter().flatten() {
            targets.entry(kernel.compiled.target).or_default().push(kernel);
        }
        for kernels in targets.values_mut() {
            kernels.sort_by(|a, b| a.compiled.name.cmp(&b.compiled.name));
            if let Some(twice) = kernels.windows(2).find(|two| two[0].compiled.name == two[1].compiled.name) {
                return Err(EmitError::Duplicate { kernel: twice[0].compiled.name.clone() });
            }
        }
        self.check_modules()?;
        Ok(targets)
    }

    fn emit(&self, target: Target, unit: &Unit) -> Result<Vec<Emitted>, EmitError> {
        let mut entries: Vec<(&Kernel, &Entry)> = unit
            .entries
            .iter()
            .map(|entry| Ok((entry.kernel()?, entry)))
            .collect::<Result<_, EmitError>>()?;
        entries.sort_by_key(|(kernel, _)| kernel.name());
        let compiled = match (&unit.module, &entries[..]) {
            (None, [(kernel, _)]) => vec![kernel.compile(target)?],
            _ => {
                let module = entries
                    .iter()
                    .fold(Module::new(), |module, (kernel, _)| module.kernel((*kernel).clone()));
                module.compile(target)?.kernels
            }
        };
        let mut emitted = Vec::new();
        for (compiled, (_, entry)) in compiled.into_iter().zip(entries) {
            let file = unit.module.as_ref().unwrap_or(&compiled.name).clone();
            emitted.push(entry.emitted(compiled, &file)?);
        }
        if let Some(ptxas) = &self.ptxas {
            assembly::assemble(ptxas, &mut emitted)?;
        }
        Ok(emitted)
    }

    /// Checks that the names of modules are names of files, and that every file is of one module.
    fn check_modules(&self) -> Result<(), EmitError> {
        let mut known = BTreeSet::new();
        for unit in &self.units {
            let Some(module) = &unit.module else { continue };
            let error = |why: String| Err(EmitError::Module { module: module.clone(), why });
            if !is_identifier(module) {
                return error(
                    "the name cannot be a file's: write ASCII letters, digits and `_`, a letter first".into(),
                );
            }
            if !known.insert(module) {
                return error("there are two modules of this name: give one of them another name".into());
            }
            if unit.entries.is_empty() {
                return error("it has no kernels".into());
            }
            let alone = self.units.iter().filter(|unit| unit.module.is_none()).flat_map(|unit| &unit.entries);
            if alone.filter_map(|entry| entry.kernel().ok()).any(|kernel| kernel.name() == module) {
                return error(
                    "a kernel outside of it has the same name, and so the same file: rename the module"
                        .into(),
                );
            }
        }
        Ok(())
    }

    /// Compiles all kernels; returns them and all files.
    pub fn files(&self) -> Result<Files, EmitError> {
        let targets = self.compile()?;
        let kernels = by_name(&targets)?;
        let module = stubs::module(&targets, &kernels)?;
        let manifest = serde_json::to_string_pretty(&Manifest::of(&kernels, !self.without_ir))?;
        let mut files = Files::of(targets, !self.without_ir);
        files.content.insert("kernels.rs".into(), module.into_bytes());
        files.content.insert("kernels.json".into(), manifest.into_bytes());
        Ok(files)
    }

    /// Writes all files below `out`, which is created; returns the compiled kernels.
    pub fn write(&self, out: &Path) -> Result<BTreeMap<Target, Vec<Emitted>>, EmitError> {
        let files = self.files()?;
        files.write(out)?;
        Ok(files.kernels)
    }

    /// The body of a `build.rs`: writes into `OUT_DIR` and tells cargo when to run again. An error fails the build with
    /// its Rust line.
    pub fn build(&self) {
        println!("cargo::rerun-if-changed=build.rs");
        let outcome = match std::env::var_os("OUT_DIR") {
            Some(out) => self.write(Path::new(&out)).map(|_| ()),
            None => Err(EmitError::NoOutDir),
        };
        if let Err(error) = outcome {
            // Each line of a cargo error needs the prefix `cargo::error=`.
            error.to_string().lines().for_each(|line| println!("cargo::error={line}"));
        }
    }
}

/// The compiled versions of one kernel, one per target, oldest target first.
type Variants<'a> = Vec<&'a Emitted>;

/// Groups kernels by name; an error if parameters or launch geometry differ between targets.
fn by_name(targets: &BTreeMap<Target, Vec<Emitted>>) -> Result<BTreeMap<&str, Variants<'_>>, EmitError> {
    let mut kernels: BTreeMap<&str, Variants<'_>> = BTreeMap::new();
    for kernel in targets.values().flatten() {
        let variants = kernels.entry(&kernel.compiled.name).or_default();
        if let Some(first) = variants.first()
            && !first.is_launched_like(kernel)
        {
            return Err(EmitError::Differs {
                kernel: kernel.compiled.name.clone(),
                targets: [first.compiled.target, kernel.compiled.target],
            });
        }
        variants.push(kernel);
    }
    Ok(kernels)
}
