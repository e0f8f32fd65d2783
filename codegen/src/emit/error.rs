//! Errors of an emission.

use std::path::PathBuf;

use crate::dsl::RecordError;
use crate::kernel::CompileError;
use crate::ptx::Target;
use crate::ptxas::{PtxasError, Usage};

/// Errors of an emission.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    /// No target was added.
    #[error(
        "no target to emit kernels for: add one, for example `.target(Target::Sm80)`, whose PTX runs on every supported GPU"
    )]
    NoTarget,
    /// `OUT_DIR` is not set: [`Emission::build`](super::Emission::build) was called outside a build script.
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
    /// A kernel's name cannot be a module name.
    #[error("kernel `{kernel}`: {why}; give it another name with `Kernel::named`")]
    Name {
        /// The invalid name.
        kernel: String,
        /// What is wrong with the name.
        why: &'static str,
    },
    /// A kernel cannot be launched with its geometry.
    #[error("kernel `{kernel}` for {target}: {why}")]
    Geometry {
        /// Name of the kernel.
        kernel: String,
        /// The target that the kernel was compiled for.
        target: Target,
        /// What is wrong with the geometry and what to do.
        why: String,
    },
    /// Two kernels have the same name.
    #[error(
        "two kernels have the name `{kernel}`: give each specialisation its own name, for example \
         `{kernel}(&shape).map(|kernel| kernel.named(\"{kernel}_4096\"))`"
    )]
    Duplicate {
        /// The duplicate name.
        kernel: String,
    },
    /// A module's name cannot be that of its files.
    #[error("module `{module}`: {why}")]
    Module {
        /// The invalid name.
        module: String,
        /// What is wrong with the name, and what to do.
        why: String,
    },
    /// Two targets' versions of a kernel differ in parameters or launch geometry.
    #[error(
        "kernel `{kernel}` has different parameters or launch geometry for {} and {}: one stub launches both, so give \
         them different names with `Kernel::named`",
        targets[0], targets[1]
    )]
    Differs {
        /// Name of the kernel.
        kernel: String,
        /// The two targets that differ.
        targets: [Target; 2],
    },
    /// The assembler rejects a kernel, or cannot be run.
    #[error(transparent)]
    Ptxas(#[from] PtxasError),
    /// A kernel spills more registers than it allows.
    #[error(
        "kernel `{kernel}` for {target} spills registers: {} bytes of stack a thread, {} bytes stored and {} loaded, but \
         {allowed} are allowed; it uses {} registers: keep fewer values live, let each thread have more (`min_blocks`, \
         `max_registers`), or allow the spill with `#[kernel(…, allow_spills = {})]`",
        usage.stack, usage.spill_stores, usage.spill_loads, usage.registers, usage.stack
    )]
    Spills {
        /// Name of the kernel.
        kernel: String,
        /// The target that the kernel was compiled for.
        target: Target,
        /// Resource usage of the kernel.
        usage: Usage,
        /// Allowed stack per thread, in bytes.
        allowed: u32,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The generated Rust does not parse: a bug in the generator.
    #[error("the generated module: {0} (a bug in bespoke-codegen)")]
    Rust(#[from] syn::Error),
    /// The manifest cannot be serialised as JSON.
    #[error("a kernel's constants cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
