//! The text form of the shipped kernels: it reads back as the same text, and the kernel read from it compiles to the same
//! PTX.

use bespoke_codegen::Kernel;
use bespoke_codegen::ptx::Target;
use bespoke_kernels::plan::{Plan, PlanParams, Sampling};
use bespoke_kernels::shape::builtin;
use rayon::prelude::*;

#[test]
fn shipped_kernels_read_back() {
    let file = builtin().into_iter().find(|file| file.name == "llama-3.2-1b").expect("the shape");
    let shape = file.shapes().expect("its mixes").remove(0);
    for target in [Target::Sm80, Target::Sm90] {
        let params = PlanParams::single(4096).with_sampling(Sampling::Sampled);
        let plan = Plan::new(&shape, target, params).expect("a plan");
        plan.kernels.par_iter().for_each(|kernel| {
            let recorded = kernel.spec.kernel(target).expect("the kernel is recorded");
            let compiled = recorded.compile(target).expect("the kernel compiles");
            let read =
                |text: &str| Kernel::parse(text).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
            let text = compiled.function.to_string();
            assert_eq!(read(&text).function().to_string(), text, "{}", kernel.name);
            let again = read(&recorded.function().to_string()).compile(target).expect("the kernel compiles");
            assert_eq!(again.ptx, compiled.ptx, "{}", kernel.name);
        });
    }
}
