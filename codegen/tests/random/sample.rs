//! Random kernels as modules of many, for an assembler, which takes longer to start than to read a kernel.

use bespoke_codegen::passes::{self, OptLevel};
use bespoke_codegen::ptx::{self, Target};

use crate::{check, generate};

/// Kernels a module.
const A_MODULE: usize = 25;

/// Modules of `count` optimised kernels, the first that have no instruction which the target lacks.
pub fn modules(target: Target, count: usize) -> Vec<String> {
    let kernels: Vec<String> = (0..).filter_map(|seed| kernel(seed, target)).take(count).collect();
    kernels.chunks(A_MODULE).map(joined).collect()
}

fn kernel(seed: u64, target: Target) -> Option<String> {
    let mut function = check::unoptimised(&generate::program(seed));
    passes::optimize(&mut function, OptLevel::Default);
    function.name = format!("kernel_{seed}");
    ptx::print(&function, target).ok()
}

/// The kernels behind one head: the newest version, and the target, which is the same.
fn joined(kernels: &[String]) -> String {
    let parts = || kernels.iter().filter_map(|text| text.split_once(".visible"));
    // Versions are of one length.
    let head = parts().map(|(head, _)| head).max().unwrap_or_default();
    parts().fold(head.to_owned(), |text, (_, kernel)| text + ".visible" + kernel + "\n")
}
