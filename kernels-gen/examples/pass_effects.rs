//! What each pass of the compiler is worth: instructions of PTX and of the machine code, and registers, of kernels of
//! a model, by the whole pipeline and by the pipeline without one pass after the other.
//!
//! ```text
//! cargo run --release --example pass_effects [SHAPE [KERNEL …]]
//! ```
//!
//! A kernel is named by a part of its name. `ptxas` and `nvdisasm` are looked for in `PATH`.

use std::path::Path;
use std::process::Command;

use bespoke_codegen::Kernel;
use bespoke_codegen::passes::{OptLevel, Pipeline, ROUND};
use bespoke_codegen::ptx::Target;
use bespoke_kernels::plan::{Plan, PlanParams, Sampling};
use bespoke_kernels::shape::builtin;

const TARGET: Target = Target::Sm90;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let shape = args.next().unwrap_or_else(|| "llama-3.1-8b".into());
    let wanted: Vec<String> = args.collect();
    let file = builtin().into_iter().find(|file| file.name == shape).ok_or("no such shape")?;
    let shape = file.with_mix("q4_k_m")?;
    let params = PlanParams::single(4096).choosing(Sampling::Sampled);
    println!("| kernel | without | PTX | SASS | registers | spilled bytes |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for planned in Plan::new(&shape, TARGET, params)?.kernels {
        let is_wanted = wanted.is_empty() || wanted.iter().any(|part| planned.name.contains(part.as_str()));
        if !is_wanted {
            continue;
        }
        let kernel = planned.spec.kernel(TARGET)?;
        let whole = measure(&kernel, &Pipeline::of(OptLevel::Default))?;
        println!("| `{}` | – | {} | {} | {} | {} |", planned.name, whole[0], whole[1], whole[2], whole[3]);
        for pass in ROUND {
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

/// Instructions of PTX, instructions of machine code, registers, spilled bytes.
fn measure(kernel: &Kernel, pipeline: &Pipeline) -> Result<[i64; 4], Error> {
    let compiled = kernel.compile_with(TARGET, pipeline)?;
    let folder = std::env::temp_dir().join(format!("pass-effects-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (ptx, cubin) = (folder.join("kernel.ptx"), folder.join("kernel.cubin"));
    std::fs::write(&ptx, &compiled.ptx)?;
    let measured = assemble(&ptx, &cubin);
    std::fs::remove_dir_all(&folder)?;
    let [sass, registers, spilled] = measured?;
    let is_instruction = |line: &&str| line.trim_end().ends_with(';') && !line.trim_start().starts_with('.');
    let instructions = compiled.ptx.lines().filter(is_instruction).count();
    Ok([instructions as i64, sass, registers, spilled])
}

fn assemble(ptx: &Path, cubin: &Path) -> Result<[i64; 3], Error> {
    let arch = format!("-arch={TARGET}");
    let assembler = Command::new("ptxas").args(["-v", &arch, "-o"]).arg(cubin).arg(ptx).output()?;
    let report = String::from_utf8(assembler.stderr)? + &String::from_utf8(assembler.stdout)?;
    if !assembler.status.success() {
        return Err(report.into());
    }
    let number = |before: &str, after: &str| -> i64 {
        let words: Vec<&str> = report.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let found = words.windows(3).find(|window| window[1] == before && window[2].starts_with(after));
        found.and_then(|window| window[0].parse().ok()).unwrap_or(0)
    };
    let spilled = number("bytes", "spill");
    let registers = report.split("Used ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    let listing = Command::new("nvdisasm").arg("-c").arg(cubin).output()?;
    let listing = String::from_utf8(listing.stdout)?;
    // An instruction stands behind its address; what fills the last line does nothing.
    let is_instruction = |line: &&str| line.trim_start().starts_with("/*") && !line.contains("NOP");
    let sass = listing.lines().filter(is_instruction).count();
    Ok([sass as i64, registers.ok_or("ptxas names no registers")?, spilled])
}
