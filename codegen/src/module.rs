//! Several kernels in one PTX module.

use crate::kernel::{CompileError, Compiled, Kernel, compile_module};
use crate::passes::{OptLevel, Pipeline};
use crate::ptx::Target;

/// Kernels that share a PTX module, each with its own entry point: what a CUDA file with several `__global__` functions
/// compiles to.
///
/// The host loads the module once and looks up each kernel by its name. Equal tables of constants are stored once. The
/// `.version` is the lowest that all kernels can have; if one needs `.target sm_90a`, the module has that target.
///
/// ```
/// use bespoke_codegen::Module;
/// use bespoke_codegen::prelude::*;
///
/// #[kernel(threads = 128)]
/// fn scale(x: Ptr<Global, f32>, factor: Val<f32>) {
///     let x = x.at(block_index() * 128 + thread_index());
///     x.store(x.load() * factor);
/// }
///
/// #[kernel(threads = 128)]
/// fn add(x: Ptr<Global, f32>, y: Ptr<Global, f32>) {
///     let i = block_index() * 128 + thread_index();
///     y.at(i).store(y.at(i).load() + x.at(i).load());
/// }
///
/// let module = Module::new().kernel(scale()?).kernel(add()?).compile(Target::Sm80)?;
/// assert_eq!(module.ptx.matches(".visible .entry").count(), 2);
/// assert_eq!(module.kernels[1].name, "add");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Module {
    kernels: Vec<Kernel>,
}

/// A compiled module: PTX with one entry point for each kernel.
#[derive(Clone, Debug)]
pub struct CompiledModule {
    /// The target that the kernels were compiled for.
    pub target: Target,
    /// PTX text of the module.
    pub ptx: String,
    /// The kernels in the order of their entry points. The PTX of each is that of the module.
    pub kernels: Vec<Compiled>,
}

impl Module {
    /// A module without kernels.
    pub fn new() -> Module {
        Module::default()
    }

    /// Adds a kernel. Its name must differ from those of the others: see [`Kernel::named`].
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel) -> Module {
        self.kernels.push(kernel);
        self
    }

    /// The kernels, in the order in which they were added.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Optimises the kernels and compiles them to one PTX module for `target`.
    pub fn compile(&self, target: Target) -> Result<CompiledModule, CompileError> {
        self.compile_at(target, OptLevel::Default)
    }

    /// Like [`Module::compile`], at the given optimisation level.
    pub fn compile_at(&self, target: Target, level: OptLevel) -> Result<CompiledModule, CompileError> {
        self.compile_with(target, &Pipeline::of(level))
    }

    /// Like [`Module::compile`], with the given passes.
    pub fn compile_with(&self, target: Target, pipeline: &Pipeline) -> Result<CompiledModule, CompileError> {
        let (ptx, kernels) = compile_module(&self.kernels, target, pipeline)?;
        Ok(CompiledModule { target, ptx, kernels })
    }
}

impl CompiledModule {
    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<&Compiled> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}
