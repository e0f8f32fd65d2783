//! `bespoke specialize`: writes a folder of kernels.

mod earlier;

use std::path::PathBuf;
use std::time::Instant;

use bespoke::device::Bytes;
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::Ptxas;
use bespoke_files::{FileError, OutputFolder};
use bespoke_kernels::emit::Emission;
use miette::{IntoDiagnostic, miette};

use crate::console::{counted, note, outln};
use crate::model::{self, LoadArgs};
use crate::output::{Force, file_error};
use crate::progress::Progress;
use crate::rules::RulesArgs;

/// Write a model's kernels as PTX (and machine code, if there is a ptxas), its decode plan and a Rust module with
/// launch stubs
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke specialize llama-3.1-8b --target sm_90 --out kernels
  bespoke specialize model.gguf --target sm_80 --target sm_90 --out kernels
  bespoke specialize model.gguf --target sm_89 --multiprocessors 58 --out kernels     for an L4")]
pub struct SpecializeArgs {
    #[arg(value_name = "MODEL|SHAPE", help = model::HELP)]
    model: String,
    /// How the weights are loaded.
    #[command(flatten)]
    load: LoadArgs,
    /// Target, such as sm_90; may be given several times
    #[arg(long = "target", value_name = "TARGET", required = true)]
    targets: Vec<Target>,
    /// The folder to write to; created if necessary
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write to a folder of an earlier `specialize`, and remove its files
    #[arg(long)]
    force: bool,
    /// Rules for dividing the work.
    #[command(flatten)]
    rules: RulesArgs,
}

/// Emits the kernels, as the build script of the runtime does for a built-in shape.
pub fn execute(args: &SpecializeArgs) -> miette::Result<()> {
    let shape = model::resolve(&args.model, args.load)?;
    let name = shape.name.clone();
    let tuning = args.rules.read()?;
    for target in &args.targets {
        args.rules.warn_if_unused(&tuning, &args.rules.gpu(*target));
    }
    let force = Force { force: args.force };
    if !args.force
        && let Some(file) = earlier::existing_output(&args.out)
    {
        return Err(file_error(FileError::Exists(file)));
    }
    let folder = OutputFolder::create(&args.out, force.replace()).map_err(file_error)?;
    let start = Instant::now();
    let mut emission = args
        .targets
        .iter()
        .fold(Emission::new().shape(shape).tuning(tuning), |emission, target| emission.target(*target));
    if let Some(count) = args.rules.multiprocessors {
        emission = emission.multiprocessors(count.get());
    }
    let ptxas = Ptxas::find().into_diagnostic()?;
    let extensions = if ptxas.is_some() { &["ptx", "cubin"][..] } else { &["ptx"] };
    if let Some(ptxas) = &ptxas {
        emission = emission.assembler(ptxas.clone());
    }
    let bar = Progress::delayed_spinner(if ptxas.is_some() { "assembling" } else { "compiling" });
    let files = emission.files().map_err(|error| miette!("{error}"))?;
    drop(bar);
    // The manifest last, because other programs read it first.
    files.content.iter().rev().try_for_each(|(file, bytes)| folder.write(file, bytes)).map_err(file_error)?;
    let earlier = if args.force { earlier::files(&args.out) } else { Vec::new() };
    folder.finish(&earlier).map_err(file_error)?;
    let emitted = files.kernels;
    let seconds = start.elapsed().as_secs_f64();
    let kernels = || emitted.values().flatten();
    for kernel in kernels() {
        let compiled = &kernel.compiled;
        for extension in extensions {
            let file = format!("{}.{extension}", compiled.name);
            outln!("{}", args.out.join(compiled.target.to_string()).join(file).display())?;
        }
    }
    for target in emitted.keys() {
        for extension in if ptxas.is_some() { &["json", "report.json"][..] } else { &["json"] } {
            outln!("{}", args.out.join("plans").join(format!("{name}.{target}.{extension}")).display())?;
        }
    }
    for file in ["kernels.rs", "kernels.json"] {
        outln!("{}", args.out.join(file).display())?;
    }
    let bytes: usize = kernels().map(|kernel| kernel.compiled.ptx.len()).sum();
    let count = counted(kernels().count(), "kernel");
    note!("{count} for {name}, {} of PTX, in {seconds:.2} s", Bytes(bytes as u64));
    Ok(())
}
