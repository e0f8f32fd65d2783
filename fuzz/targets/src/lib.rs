//! Bodies of the fuzz targets: each reads hostile input and checks properties of what comes out.
//!
//! A target is a function of bytes that panics if a property fails. `fuzz/fuzz_targets` calls it from libFuzzer;
//! `tests/cases.rs` runs it on the inputs in `fuzz/seeds` and `fuzz/found`. Every target requires that nothing panics;
//! each module names its further properties. Time and memory per input are limited by the callers ([`Target`]).

mod folder;
mod gguf;
mod ir;
mod launches;
mod manifest;
mod ptx;
mod sections;
mod stub;
mod template;
mod tokenizer;
mod tuning;

/// A fuzz target.
pub struct Target {
    /// Name: that of the binary in `fuzz/fuzz_targets`, and of the folders with inputs.
    pub name: &'static str,
    /// Runs one input; panics if a property fails.
    pub run: fn(&[u8]),
    /// Most bytes of memory that one input may take at a time.
    pub memory: usize,
}

const MIB: usize = 1 << 20;

/// All targets. libFuzzer's limits are in `fuzz/run`.
pub const TARGETS: [Target; 10] = [
    Target { name: "gguf", run: gguf::run, memory: 64 * MIB },
    Target { name: "tokenizer", run: tokenizer::run, memory: 64 * MIB },
    Target { name: "template", run: template::run, memory: 256 * MIB },
    Target { name: "folder", run: folder::run, memory: 64 * MIB },
    Target { name: "ptx", run: ptx::run, memory: 256 * MIB },
    Target { name: "launches", run: launches::run, memory: 256 * MIB },
    Target { name: "tuning", run: tuning::run, memory: 256 * MIB },
    Target { name: "manifest", run: manifest::run, memory: 64 * MIB },
    Target { name: "ir", run: ir::run, memory: 64 * MIB },
    Target { name: "stub", run: stub::run, memory: 64 * MIB },
];

/// Runs the target called `name`.
///
/// # Panics
/// If there is no such target, or a property fails.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("no fuzz target is called `{name}`"));
    (target.run)(data);
}
