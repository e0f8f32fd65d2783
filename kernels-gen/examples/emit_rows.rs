//! Emits the kernels of all decode steps of several sequences of a built-in shape, with integers and with f16, and those of its
//! verify and prefill steps: `emit_rows OUT SHAPE TARGET …`.

use std::path::PathBuf;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit::Emission;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::plan::{Plan, PlanParams, StepKind};
use bespoke_kernels::shape::builtin;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: emit_rows OUT SHAPE TARGET …";
    let (out, name) = (PathBuf::from(args.next().ok_or(usage)?), args.next().ok_or(usage)?);
    let shapes: Vec<_> = builtin().iter().map(|file| file.shapes()).collect::<Result<_, _>>()?;
    let shape =
        shapes.into_iter().flatten().find(|shape| *shape.name == *name).ok_or("no such built-in shape")?;
    for target in args {
        let target: Target = target.parse()?;
        let steps = |rows: u32| {
            let params = PlanParams::single(4096).with_slots(rows, rows * 64);
            let decode = params.clone().decode(rows);
            let first_token = params.clone().first_token(rows);
            [decode.clone(), decode.with_arithmetic(Arithmetic::F16), params.verify(rows), first_token]
        };
        let mut all: Vec<PlanParams> = [2, 4, 8, 16, 32, 64].into_iter().flat_map(steps).collect();
        all.push(PlanParams::single(4096).first_token(1));
        all.extend(StepKind::Prefill.sizes().iter().map(|&rows| PlanParams::single(4096).prefill(rows)));
        let mut emission = Emission::new().target(target);
        for params in all {
            for kernel in Plan::new(&shape, target, params)?.kernels {
                emission = emission.kernel(kernel.spec);
            }
        }
        emission.write(&out.join(target.to_string()))?;
    }
    Ok(())
}
