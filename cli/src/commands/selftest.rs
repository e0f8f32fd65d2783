//! `bespoke selftest`: compares every kernel with a computation in double precision.

use std::collections::HashSet;

use bespoke::device::{Checks, Device, Kind};
use bespoke::engine::gpu_for;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::plan::Gpu;
use bespoke_kernels::shape::{self, ModelShape};
use bespoke_kernels::spec::KernelSpec;
use bespoke_selftest::{self as selftest, Report, Row, text};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, miette};

use crate::advice::engine_error;
use crate::console::{self, outln};
use crate::model::{self, LoadArgs};
use crate::session::DeviceArgs;

/// Compare every kernel with a computation in double precision, on this machine's device
///
/// On a GPU: the kernels of every built-in shape, and small ones of every kind and weight type. On the emulator: the
/// small ones, and the kernels of small models.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bespoke selftest
  bespoke selftest --device emulator --filter gemv_q6k
  bespoke selftest --device cuda:1 --shape llama-3.1-8b --format json
  bespoke selftest --shape model.gguf")]
pub struct SelftestArgs {
    /// Where to run.
    #[command(flatten)]
    device: DeviceArgs,
    /// Only kernels whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    filter: Option<String>,
    /// Only the kernels of these models: GGUF files, Hugging Face folders, `demo`, or built-in shapes
    #[arg(long, value_name = "NAME", num_args = 1..)]
    shape: Vec<String>,
    /// Test the kernels of every built-in shape on the emulator too; that takes hours
    #[arg(long)]
    full: bool,
    /// Format of the results on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table with a line for each kernel.
    Text,
    /// One JSON object with every output of every case.
    Json,
}

/// Runs the selftest and prints its table; the error names the failed cases.
pub fn execute(args: &SelftestArgs) -> miette::Result<()> {
    let opened = args.device.open(Checks::ALL)?;
    let device = &*opened.device;
    let info = device.info();
    tracing::info!("{}: {} ({})", info.kind, info.name, opened.reason);
    let gpu = gpu_for(device).map_err(engine_error)?;

    let specs = specs(args, info.kind, gpu)?;
    let report = run(device, args, &specs)?;
    match args.format {
        Format::Json => console::json(&report)?,
        Format::Text => {
            outln!("{}", text::table(&report))?;
            outln!("{} on {} ({}): {}", report.summary(), report.device, report.target, report.origin())?;
        }
    }
    let failures: Vec<String> = report.failures().map(text::describe).collect();
    if failures.is_empty() { Ok(()) } else { Err(miette!("{}:\n{}", report.summary(), failures.join("\n"))) }
}

/// The selected kernels, without duplicates.
fn specs(args: &SelftestArgs, kind: Kind, gpu: Gpu) -> miette::Result<Vec<KernelSpec>> {
    let mut specs = if args.shape.is_empty() { selftest::small() } else { Vec::new() };
    for shape in shapes(args, kind)? {
        for kv in KvType::ALL {
            let kernels = selftest::of_shape(&shape, gpu, kv);
            specs.extend(kernels.map_err(|error| miette!("{}: {error}", shape.name))?);
        }
    }
    let mut seen = HashSet::new();
    specs.retain(|spec| {
        let name = spec.name();
        args.filter.as_ref().is_none_or(|filter| name.contains(filter)) && seen.insert(name)
    });
    match &args.filter {
        Some(filter) if specs.is_empty() => {
            Err(miette!("no kernel has `{filter}` in its name: without --filter, selftest prints all names"))
        }
        _ => Ok(specs),
    }
}

fn shapes(args: &SelftestArgs, kind: Kind) -> miette::Result<Vec<ModelShape>> {
    let builtin = || -> miette::Result<Vec<ModelShape>> {
        let files = shape::builtin();
        let shapes: Result<Vec<_>, _> = files.iter().map(|file| file.shapes()).collect();
        Ok(shapes.into_diagnostic()?.into_iter().flatten().collect())
    };
    if args.shape.is_empty() {
        return if args.full || kind != Kind::Emulator { builtin() } else { Ok(selftest::replay_shapes()) };
    }
    args.shape.iter().map(|name| model::resolve(name, LoadArgs::default())).collect()
}

fn run(device: &dyn Device, args: &SelftestArgs, specs: &[KernelSpec]) -> miette::Result<Report> {
    let style = ProgressStyle::with_template("{pos} results, {elapsed} {wide_msg}").into_diagnostic()?;
    let progress = ProgressBar::no_length().with_style(style);
    let mut show = |row: &Row| {
        progress.inc(1);
        progress.set_message(row.kernel.clone());
        if !row.passed() {
            progress.println(text::describe(row));
        }
    };
    let mut report = selftest::run(device, specs, &mut show).map_err(engine_error)?;
    if args.filter.is_none() {
        for shape in selftest::replay_shapes() {
            let row = selftest::replay_equals_eager(device, &shape);
            show(&row);
            report.rows.push(row);
        }
    }
    progress.finish_and_clear();
    Ok(report)
}
