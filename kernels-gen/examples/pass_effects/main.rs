//! Measures the effect of each compiler pass on the kernels of a model: prints the numbers of PTX instructions, machine
//! instructions and registers for the whole pipeline, and the change for the pipeline without one pass, for each pass.
//!
//! ```text
//! cargo run --release -p bespoke-kernels --example pass_effects -- [SHAPE|plain [KERNEL …]]
//! ```
//!
//! `plain` selects the kernels of `plain.rs`, which were written without regard to instruction counts. A kernel is
//! selected by a part of its name. `ptxas` is searched for in `BESPOKE_PTXAS` and `PATH`, `nvdisasm` in `PATH`.

mod plain;

use std::process::Command;

use bespoke_codegen::Kernel;
use bespoke_codegen::passes::{LAST, OptLevel, Pipeline, ROUND};
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::{Assembled, Ptxas};
use bespoke_kernels::plan::{Plan, PlanParams, Sampling};
use bespoke_kernels::shape::builtin;

const TARGET: Target = Target::Sm90;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let shape = args.next().unwrap_or_else(|| "llama-3.1-8b".into());
    let wanted: Vec<String> = args.collect();
    let kernels = if shape == "plain" { plain::kernels()? } else { of_shape(&shape)? };
    println!("| kernel | without | PTX | SASS | registers | spilled bytes |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for kernel in kernels {
        let name = kernel.name();
        let is_wanted = wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
        if !is_wanted {
            continue;
        }
        let whole = measure(&kernel, &Pipeline::of(OptLevel::Default))?;
        println!("| `{name}` | – | {} | {} | {} | {} |", whole[0], whole[1], whole[2], whole[3]);
        for pass in ROUND.iter().chain(LAST) {
            let without = measure(&kernel, &Pipeline::of(OptLevel::Default).without(pass.name()))?;
            let change = |index: usize| match without[index] - whole[index] {
                0 => "=".to_owned(),
                change => format!("{change:+}"),
            };
            println!("| | {} | {} | {} | {} | {} |", pass.name(), change(0), change(1), change(2), change(3));
        }
    }
    Ok(())
}

/// The kernels of the decode plan of a built-in shape.
fn of_shape(name: &str) -> Result<Vec<Kernel>, Error> {
    let file = builtin().into_iter().find(|file| file.name == name).ok_or("no such shape")?;
    let params = PlanParams::single(4096).with_sampling(Sampling::Sampled);
    let planned = Plan::new(&file.with_mix("q4_k_m")?, TARGET, params)?.kernels;
    planned.iter().map(|planned| Ok(planned.spec.kernel(TARGET)?)).collect()
}

/// Counts of a compiled kernel: PTX instructions, machine instructions, registers and spilled bytes.
fn measure(kernel: &Kernel, pipeline: &Pipeline) -> Result<[i64; 4], Error> {
    let compiled = kernel.compile_with(TARGET, pipeline)?;
    let ptxas = Ptxas::find()?.ok_or("no ptxas: put one on PATH, or name it by BESPOKE_PTXAS")?;
    let Assembled { usage, cubin } = ptxas.cubin(&compiled.name, &compiled.ptx, TARGET)?;
    let is_instruction = |line: &&str| line.trim_end().ends_with(';') && !line.trim_start().starts_with('.');
    let ptx = compiled.ptx.lines().filter(is_instruction).count();
    let spilled = usage.spill_stores + usage.spill_loads;
    Ok([ptx as i64, machine_instructions(&cubin)?, usage.registers.into(), spilled.into()])
}

fn machine_instructions(cubin: &[u8]) -> Result<i64, Error> {
    let file = std::env::temp_dir().join(format!("pass-effects-{}.cubin", std::process::id()));
    std::fs::write(&file, cubin)?;
    let listing = Command::new("nvdisasm").arg("-c").arg(&file).output();
    std::fs::remove_file(&file)?;
    let listing = listing.map_err(|error| format!("nvdisasm: {error}: put it on PATH"))?;
    let listing = String::from_utf8(listing.stdout)?;
    // A line of the listing with an instruction starts with its address, in a comment; NOPs are padding.
    let is_instruction = |line: &&str| line.trim_start().starts_with("/*") && !line.contains("NOP");
    Ok(listing.lines().filter(is_instruction).count() as i64)
}
