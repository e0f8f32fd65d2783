//! Modules of many random kernels each for ptxas, because starting ptxas takes longer than assembling a kernel.

use bespoke_codegen::passes::{self, OptLevel};
use bespoke_codegen::ptx::{self, Target};

use crate::{check, generate};

/// Kernels per module.
const A_MODULE: usize = 25;

/// Modules with the first `count` optimised kernels that the target supports.
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

/// Joins kernels into a module with a single header: the one with the highest PTX version.
fn joined(kernels: &[String]) -> String {
    let parts = || kernels.iter().filter_map(|text| text.split_once(".visible"));
    // All version strings have the same length, so they compare as text.
    let head = parts().map(|(head, _)| head).max().unwrap_or_default();
    parts().fold(head.to_owned(), |text, (_, kernel)| text + ".visible" + kernel + "\n")
}
