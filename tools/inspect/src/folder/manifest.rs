//! The check of a manifest that was read from a file.

use std::collections::HashSet;

use bespoke_codegen::emit::{Manifest, ManifestKernel, ManifestModule};
use bespoke_codegen::ptxas::Usage;

/// Most threads per CTA, and most shared memory per CTA in bytes, above that of every target.
const THREADS: u64 = 1024;
const SHARED: u64 = 1 << 20;
/// Most registers per thread, and most bytes of stack and spills per thread.
const REGISTERS: u32 = 255;
const LOCAL: u32 = 512 << 10;
/// Most CTAs in a cluster.
const CLUSTER: u32 = 16;
/// Most bytes of parameters.
const PARAMETERS: u32 = 32 << 10;

/// Why a kernel of a manifest cannot be what a compiler wrote: the kernel's name, the field, and what is wrong.
#[derive(Debug)]
pub struct Invalid {
    /// Name of the kernel.
    pub kernel: String,
    /// Path of the field and what is wrong with it.
    pub what: String,
}

/// Checks every value that is used to find files or to compute sizes.
pub fn check(manifest: &Manifest) -> Result<(), Invalid> {
    let mut names = HashSet::new();
    for kernel in &manifest.kernels {
        let twice = if names.insert(&kernel.name) { Ok(()) } else { Err("`name`: there are two".to_owned()) };
        twice
            .and_then(|()| check_kernel(kernel))
            .map_err(|what| Invalid { kernel: kernel.name.clone(), what })?;
    }
    Ok(())
}

/// Whether a name is an identifier of PTX and Rust, which also makes it a safe file name.
pub(crate) fn is_identifier(name: &str) -> bool {
    let first = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    first && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn check_kernel(kernel: &ManifestKernel) -> Result<(), String> {
    if !is_identifier(&kernel.name) {
        return Err("`name` is not an identifier".to_owned());
    }
    let threads = kernel.block.iter().try_fold(1u64, |all, &size| all.checked_mul(size.into()));
    if !threads.is_some_and(|threads| (1..=THREADS).contains(&threads)) {
        let threads = threads.map_or("too many".to_owned(), |threads| threads.to_string());
        return Err(format!(
            "`block`: a CTA of {:?} has {threads} threads, not 1 to {THREADS}",
            kernel.block
        ));
    }
    if let Some(grid) = kernel.grid.filter(|grid| grid.contains(&0)) {
        return Err(format!("`grid` is {grid:?}: an axis has no CTAs"));
    }
    if let Some(cluster) = kernel.cluster.filter(|cluster| !(1..=CLUSTER).contains(cluster)) {
        return Err(format!("`cluster` is {cluster}, not 1 to {CLUSTER}"));
    }
    for parameter in &kernel.parameters {
        let end = u64::from(parameter.offset) + u64::from(parameter.bytes);
        if !is_identifier(&parameter.name) || end > PARAMETERS.into() {
            return Err(format!("`parameters`: `{}` is no parameter", parameter.name));
        }
    }
    for module in &kernel.modules {
        check_module(kernel, module).map_err(|what| format!("`modules` for {}: {what}", module.target))?;
    }
    Ok(())
}

fn check_module(kernel: &ManifestKernel, module: &ManifestModule) -> Result<(), String> {
    let statics = module.usage.map_or(0, |usage| usage.static_shared).max(module.static_shared);
    let shared = u64::from(statics) + u64::from(kernel.dynamic_shared);
    if shared > SHARED {
        return Err(format!("a CTA takes {shared} bytes of shared memory; at most {SHARED} are possible"));
    }
    let Some(Usage { registers, spill_stores, spill_loads, stack, .. }) = module.usage else { return Ok(()) };
    for (field, value, most) in [
        ("registers", registers, REGISTERS),
        ("spill_stores", spill_stores, LOCAL),
        ("spill_loads", spill_loads, LOCAL),
        ("stack", stack, LOCAL),
    ] {
        if value > most {
            return Err(format!("`usage.{field}` is {value}; at most {most} are possible"));
        }
    }
    Ok(())
}
