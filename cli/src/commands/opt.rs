//! `bespoke opt`: passes over the text form of a kernel.

use std::path::{Path, PathBuf};

use bespoke_codegen::IrError;
use bespoke_codegen::ptx::Target;
use bespoke_inspect::text;
use bespoke_opt::{OptError, pass_names};
use clap::ValueEnum;
use miette::{IntoDiagnostic, miette};

use crate::console::{exact, outln};

/// Run passes over the text form of a kernel
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke opt kernel.ir                          the passes of the compiler, in rounds
  bespoke opt kernel.ir --passes fold,dce        these passes, once each in this order
  bespoke opt kernel.ir --passes unroll --report
  bespoke opt kernel.ir --emit ptx --target sm_80
  bespoke opt --list-passes

`bespoke inspect MODEL KERNEL --stage ir0` prints such a file, and an emission of kernels writes one for each kernel. The \
kernel is verified before the first pass and after each. docs/ir.md describes the form.")]
pub struct OptArgs {
    /// The file with the kernel
    #[arg(value_name = "FILE.ir", required_unless_present = "list_passes")]
    file: Option<PathBuf>,
    /// Passes to run, once each in this order [default: all, in rounds, as in `Kernel::compile`]
    #[arg(long, value_delimiter = ',', value_name = "PASS")]
    passes: Option<Vec<String>>,
    /// What to print
    #[arg(long, value_enum, default_value_t = Emit::Ir)]
    emit: Emit,
    /// The target of --emit ptx [default: sm_90]
    #[arg(long, value_name = "TARGET")]
    target: Option<Target>,
    /// Print the optimisations applied and missed, with the reason, instead of the kernel
    #[arg(long, conflicts_with = "emit")]
    report: bool,
    /// Print the names of the passes
    #[arg(long, conflicts_with_all = ["file", "passes", "emit", "target", "report"])]
    list_passes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// The text form of the IR
    Ir,
    /// PTX
    Ptx,
}

/// Runs the passes and prints the result.
pub fn execute(args: &OptArgs) -> miette::Result<()> {
    let Some(file) = args.file.as_deref().filter(|_| !args.list_passes) else {
        return pass_names().iter().try_for_each(|name| Ok(outln!("{name}")?));
    };
    if args.target.is_some() && args.emit != Emit::Ptx {
        return Err(miette!("--target has no effect without --emit ptx: the IR is the same for all targets"));
    }
    let text = read(file)?;
    let optimised = bespoke_opt::run(&text, args.passes.as_deref()).map_err(|error| match error {
        OptError::Ir(error) => invalid(file, &error),
        other => miette!("{}: {other}", file.display()),
    })?;
    let result = match (args.report, args.emit) {
        (true, _) => text::opt_report(&optimised.function.name, &optimised.report),
        (false, Emit::Ir) => optimised.function.to_string(),
        (false, Emit::Ptx) => optimised.ptx(args.target.unwrap_or(Target::Sm90)).into_diagnostic()?,
    };
    Ok(exact(result.trim_end())?)
}

/// Reads a file with the text form of a kernel.
pub(super) fn read(file: &Path) -> miette::Result<String> {
    std::fs::read_to_string(file).map_err(|error| miette!("cannot read {}: {error}", file.display()))
}

/// Report of a file that is not a valid kernel. The message of a syntax error begins with line and column.
pub(super) fn invalid(file: &Path, error: &IrError) -> miette::Report {
    let separator = if matches!(error, IrError::Parse(_)) { ":" } else { ": " };
    miette!(
        help = "`bespoke inspect MODEL KERNEL --stage ir0` prints such a file; docs/ir.md describes the form",
        "{}{separator}{error}",
        file.display()
    )
}
