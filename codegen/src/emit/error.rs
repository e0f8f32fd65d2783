//! Why nothing was emitted.

use std::path::PathBuf;

use crate::dsl::RecordError;
use crate::kernel::CompileError;
use crate::ptx::Target;
use crate::ptxas::{PtxasError, Usage};

/// Why nothing was emitted.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    /// No target was named.
    #[error(
        "no target to emit kernels for: add one, for example `.target(Target::Sm80)`, whose PTX runs on every GPU that is supported"
    )]
    NoTarget,
    /// Not in a build script.
    #[error(
        "OUT_DIR is not set: `Emission::build` is for build scripts; elsewhere give `Emission::write` a folder"
    )]
    NoOutDir,
    /// A kernel cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A kernel cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A kernel's name cannot be a module's.
    #[error("kernel `{kernel}`: {why}; give it another name with `Kernel::named`")]
    Name {
        /// The kernel.
        kernel: String,
        /// What is wrong with the name.
        why: &'static str,
    },
    /// A kernel cannot be launched as its geometry says.
    #[error("kernel `{kernel}` for {target}: {why}")]
    Geometry {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// What is wrong and what to do.
        why: String,
    },
    /// Two kernels of one name.
    #[error(
        "two kernels are called `{kernel}`: give each specialisation a name of its own, for example \
         `{kernel}(&shape).map(|kernel| kernel.named(\"{kernel}_4096\"))`"
    )]
    Twice {
        /// The name.
        kernel: String,
    },
    /// A kernel is launched in another way on another target.
    #[error(
        "kernel `{kernel}` has other parameters or another geometry for {} than for {}: one stub launches it on \
         both, so give the two different names with `Kernel::named`",
        targets[0], targets[1]
    )]
    Differs {
        /// The kernel.
        kernel: String,
        /// The two targets.
        targets: [Target; 2],
    },
    /// The assembler refuses a kernel, or does not run.
    #[error(transparent)]
    Ptxas(#[from] PtxasError),
    /// A kernel spills registers and does not allow it.
    #[error(
        "kernel `{kernel}` for {target} spills registers: {} bytes of stack a thread, {} bytes stored and {} loaded, where \
         {allowed} are allowed; it uses {} registers: hold less at a time, let fewer CTAs share a multiprocessor \
         (`min_blocks`), or allow it by `#[kernel(…, allow_spills = {})]`",
        usage.stack, usage.spill_stores, usage.spill_loads, usage.registers, usage.stack
    )]
    Spills {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// What the assembler says.
        usage: Usage,
        /// Bytes of stack that the kernel allows.
        allowed: u32,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The generated Rust is none: a bug in the generator.
    #[error("the generated module: {0} (a bug in bespoke-codegen)")]
    Rust(#[from] syn::Error),
    /// Constants that are no JSON.
    #[error("a kernel's constants cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
