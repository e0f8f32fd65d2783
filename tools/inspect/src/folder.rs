//! The kernels of an emitted folder, of any program, without a model or a plan.

mod manifest;
mod page;
mod within;

use std::io;
use std::path::{Path, PathBuf};

use bespoke_codegen::emit::{Manifest, ManifestKernel, ManifestModule, ManifestParameter};
use bespoke_codegen::ptx::{Target, entry_text};
use bespoke_codegen::ptxas::Usage;
use bespoke_codegen::{CompileError, Compiled, IrError, Kernel, Module};
use serde::Serialize;
use serde_json::Value;

use super::{Demand, InspectError, Occupancy, Tools};
use manifest::Invalid;
pub(crate) use manifest::is_identifier;
pub(crate) use within::read;

/// Why a folder cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The folder has no manifest.
    #[error(
        "{}: no kernels were emitted here: there is no kernels.json, which `bespoke specialize` and a build script's \
         `Emission` write",
        .0.display()
    )]
    NoManifest(PathBuf),
    /// A plan or a manifest is invalid.
    #[error("{}: {source}", path.display())]
    Json {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The manifest has another version.
    #[error("{}: version {version} of the format; this program reads version {}", path.display(), Manifest::VERSION)]
    Version {
        /// Path of the manifest.
        path: PathBuf,
        /// Version of the manifest.
        version: u32,
    },
    /// A kernel of the manifest or the plan has values that no compiler wrote.
    #[error("{}: `{kernel}`: {what}", path.display())]
    Kernel {
        /// Path of the manifest or the plan.
        path: PathBuf,
        /// Name of the kernel.
        kernel: String,
        /// The reason.
        what: String,
    },
    /// The choice of a plan or target is ambiguous or impossible.
    #[error("{}: {what}", folder.display())]
    Choice {
        /// Path of the folder.
        folder: PathBuf,
        /// The reason.
        what: String,
    },
    /// The folder has no IR of a kernel.
    #[error(
        "{}: there is no IR of `{kernel}`: emit the kernels again with `bespoke_codegen::emit::Emission` of this version, not \
         `without_ir`; for a folder of `bespoke specialize`, name the model instead of the folder",
        folder.display()
    )]
    NoIr {
        /// Path of the folder.
        folder: PathBuf,
        /// Name of the kernel.
        kernel: String,
    },
    /// The file with a kernel's IR is invalid.
    #[error("{}: {source}", path.display())]
    Ir {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: IrError,
    },
    /// The IR of a kernel cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// An error of a tool.
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

/// Number of lines of PTX; of a kernel that shares its module with others, those of its entry point.
fn lines(ptx: &str, kernel: &str) -> usize {
    let shared = ptx.matches("\n.visible .entry ").count() > 1;
    let entry = if shared { entry_text(ptx, kernel) } else { None };
    entry.unwrap_or(ptx).lines().count()
}

/// Manifest and files of an emitted folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    manifest: Manifest,
}

/// A kernel of a folder with its costs: the output of `bespoke inspect FOLDER --stage stats --format json`.
#[derive(Clone, Debug, Serialize)]
pub struct FolderKernel {
    /// Name of the entry point.
    pub name: String,
    /// Summary of the kernel's purpose; may be empty.
    pub summary: String,
    /// Target of the PTX.
    pub target: Target,
    /// CTAs along x, y and z; `None` if the host chooses them at each launch.
    pub grid: Option<[u32; 3]>,
    /// Threads per CTA along x, y and z.
    pub block: [u32; 3],
    /// CTAs along x that form a cluster.
    pub cluster: Option<u32>,
    /// Static shared memory per CTA in bytes.
    pub static_shared: u32,
    /// Dynamic shared memory per CTA in bytes.
    pub dynamic_shared: u32,
    /// Run-time parameters, in order of declaration.
    pub parameters: Vec<ManifestParameter>,
    /// The compile-time parameters; null if not declared.
    pub constants: Value,
    /// Number of lines of PTX.
    pub ptx_lines: usize,
    /// Resources reported by ptxas: on this machine, or else when the folder was written.
    pub ptxas: Option<Usage>,
    /// Occupancy; without ptxas, the limit by registers is ignored.
    pub occupancy: Occupancy,
    /// PTX text.
    #[serde(skip)]
    pub ptx: String,
    /// Disassembly for [`Listing::of_sass`](super::Listing::of_sass), if both tools are found.
    #[serde(skip)]
    pub sass: Option<String>,
}

/// A kernel of a folder before and after the passes.
#[derive(Clone, Debug)]
pub struct FolderIr {
    /// Name of the kernel.
    pub name: String,
    /// The kernel as recorded.
    pub recorded: Kernel,
    /// The kernel compiled by this version of the passes.
    pub compiled: Compiled,
    /// Whether the folder has the same PTX. Otherwise another version of the passes wrote the folder.
    pub is_same: bool,
}

impl Folder {
    /// Reads the manifest, `kernels.json`.
    pub fn read(path: &Path) -> Result<Folder, FolderError> {
        let file = path.join("kernels.json");
        if file.symlink_metadata().is_err() {
            return Err(FolderError::NoManifest(path.to_owned()));
        }
        let manifest: Manifest = serde_json::from_str(&read(path, "kernels.json".as_ref())?)
            .map_err(|source| FolderError::Json { path: file.clone(), source })?;
        if manifest.version != Manifest::VERSION {
            return Err(FolderError::Version { path: file, version: manifest.version });
        }
        manifest::check(&manifest).map_err(|Invalid { kernel, what }| FolderError::Kernel {
            path: file,
            kernel,
            what,
        })?;
        Ok(Folder { path: path.to_owned(), manifest })
    }

    /// Targets for which the folder has kernels, oldest first.
    pub fn targets(&self) -> Vec<Target> {
        let modules = || self.manifest.kernels.iter().flat_map(|kernel| &kernel.modules);
        Target::ALL.into_iter().filter(|&target| modules().any(|module| module.target == target)).collect()
    }

    /// Returns `wanted` if the folder has a kernel for that target; without `wanted`, the newest target.
    pub fn target(&self, wanted: Option<Target>) -> Result<Target, FolderError> {
        let targets = self.targets();
        let found = match wanted {
            Some(wanted) => targets.iter().find(|&&target| target == wanted),
            None => targets.last(),
        };
        found.copied().ok_or_else(|| {
            let there: Vec<String> = targets.iter().map(Target::to_string).collect();
            let what = match wanted {
                Some(wanted) => {
                    format!("no kernel is for {wanted}; there are kernels for {}", there.join(", "))
                }
                None => "there are no kernels".to_owned(),
            };
            FolderError::Choice { folder: self.path.clone(), what }
        })
    }

    /// Names of the kernels for a target, sorted.
    pub fn names(&self, target: Target) -> Vec<&str> {
        self.of(target).map(|(kernel, _)| kernel.name.as_str()).collect()
    }

    /// Kernels for a target with their costs, sorted by name: all, or the one called `only`.
    pub fn kernels(
        &self,
        target: Target,
        only: Option<&str>,
        tools: &Tools,
    ) -> Result<Vec<FolderKernel>, FolderError> {
        self.of(target)
            .filter(|(kernel, _)| only.is_none_or(|only| only == kernel.name))
            .map(|(kernel, module)| self.kernel(kernel, module, tools))
            .collect()
    }

    /// Kernels for a target from their IR, sorted by name: all, or the one called `only`.
    pub fn ir(&self, target: Target, only: Option<&str>) -> Result<Vec<FolderIr>, FolderError> {
        self.of(target)
            .filter(|(kernel, _)| only.is_none_or(|only| only == kernel.name))
            .map(|(kernel, module)| {
                let recorded = self.recorded(kernel, module)?;
                let compiled = self.compile(&recorded, module)?;
                let is_same = read(&self.path, module.ptx.as_ref())? == compiled.ptx;
                Ok(FolderIr { name: kernel.name.clone(), recorded, compiled, is_same })
            })
            .collect()
    }

    /// The kernel of a module as recorded.
    fn recorded(&self, kernel: &ManifestKernel, module: &ManifestModule) -> Result<Kernel, FolderError> {
        let folder = self.path.clone();
        let Some(file) = &module.ir else {
            return Err(FolderError::NoIr { folder, kernel: kernel.name.clone() });
        };
        let text = read(&self.path, file.as_ref())?;
        Kernel::parse(&text).map_err(|source| FolderError::Ir { path: folder.join(file), source })
    }

    /// Compiles a kernel with those that share its module.
    fn compile(&self, recorded: &Kernel, module: &ManifestModule) -> Result<Compiled, FolderError> {
        let sharing: Vec<_> = self.of(module.target).filter(|(_, other)| other.ptx == module.ptx).collect();
        if sharing.len() < 2 {
            return Ok(recorded.compile(module.target)?);
        }
        let mut whole = Module::new();
        for (kernel, module) in sharing {
            whole = whole.kernel(self.recorded(kernel, module)?);
        }
        let mut compiled = whole.compile(module.target)?.kernels;
        compiled.retain(|kernel| kernel.name == recorded.name());
        // The file of the IR may have another name than the manifest.
        compiled.pop().map_or_else(|| Ok(recorded.compile(module.target)?), Ok)
    }

    fn of(&self, target: Target) -> impl Iterator<Item = (&ManifestKernel, &ManifestModule)> {
        self.manifest.kernels.iter().filter_map(move |kernel| {
            Some((kernel, kernel.modules.iter().find(|module| module.target == target)?))
        })
    }

    fn kernel(
        &self,
        kernel: &ManifestKernel,
        module: &ManifestModule,
        tools: &Tools,
    ) -> Result<FolderKernel, FolderError> {
        let ptx = read(&self.path, module.ptx.as_ref())?;
        let assembled = tools.assemble_text(&kernel.name, &ptx, module.target);
        let ptxas = assembled.as_ref().map(|assembled| assembled.usage).or(module.usage);
        let static_shared = ptxas.map_or(module.static_shared, |usage| usage.static_shared);
        let demand = Demand {
            threads: kernel.block.iter().product(),
            registers: ptxas.map(|usage| usage.registers),
            shared: static_shared + kernel.dynamic_shared,
        };
        Ok(FolderKernel {
            name: kernel.name.clone(),
            summary: kernel.summary.clone(),
            target: module.target,
            grid: kernel.grid,
            block: kernel.block,
            cluster: kernel.cluster,
            static_shared,
            dynamic_shared: kernel.dynamic_shared,
            parameters: kernel.parameters.clone(),
            constants: kernel.constants.clone(),
            ptx_lines: lines(&ptx, &kernel.name),
            ptxas,
            occupancy: Occupancy::of(module.target, demand),
            sass: assembled.as_ref().and_then(|assembled| tools.disassemble(assembled)),
            ptx,
        })
    }
}
