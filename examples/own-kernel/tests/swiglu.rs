//! The kernel of docs/kernels.md that shows what becomes of compile-time values.

use bespoke_codegen::prelude::*;

/// What the kernel is specialised for.
pub struct SwigluShape {
    /// Elements of `y`; `x` has the gates, then as many values.
    pub width: u32,
    /// Threads per CTA.
    pub threads: u32,
}

/// y[i] = gate[i] / (1 + e^−gate[i]) · up[i].
#[kernel(threads = s.threads)]
pub fn swiglu(x: Ptr<Global, f32>, y: Ptr<Global, f32>, s: &SwigluShape) {
    let i = block_index() * s.threads + thread_index();
    if i < s.width {
        let (gate, up) = (x.at(i).load(), x.at(i).at(s.width).load());
        y.at(i).store(gate / (1.0 + (-gate).exp_approx()) * up);
    }
}

#[test]
fn the_page_shows_the_ptx() {
    let page = include_str!("../../../docs/kernels.md");
    let (_, shown) = page.split_once("```ptx\n").expect("the page shows PTX");
    let (shown, _) = shown.split_once("```").expect("the listing ends");
    let kernel = swiglu(&SwigluShape { width: 14336, threads: 128 }).unwrap();
    let ptx = kernel.compile(Target::Sm80).unwrap().ptx;
    let instructions: String =
        ptx.split_inclusive('\n').filter(|line| !line.trim_start().starts_with(".loc")).collect();
    assert!(instructions.contains(shown), "{instructions}");
}
