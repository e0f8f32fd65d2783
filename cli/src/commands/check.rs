//! `bespoke check`: kernels under the emulator's checks.

use std::fs::File;
use std::io::{Cursor, IsTerminal, Read, stdout};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bespoke::engine::EngineError;
use bespoke_check::text::{self, Renderer};
use bespoke_check::{
    self as check, CheckError, Checks, Failure, Launches, Loaded, Options, REPORT_VERSION, Report,
};
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::plan::PlanParams;
use clap::{Args, ValueEnum};
use miette::miette;
use serde_json::json;

use crate::console::{self, Unwritable, out, outln};
use crate::exit_code_of;
use crate::model::{self, LoadArgs};
use crate::progress::Progress;
use crate::rules;
use crate::session::{self, ArithmeticArgs};

/// Run kernels on the emulator and report their errors: a PTX file, a built-in shape, or a model's decode plan
///
/// A PTX file needs a launch file; without one, a template of it is printed. Each finding is shown once, with its
/// source line, and ends only its own launch. The exit code is 0 without findings, 1 with findings, and 2 if nothing
/// could be checked; `--format json` then prints an object with `error`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bespoke check kernels.ptx > launches.toml
  bespoke check kernels.ptx --launches launches.toml --profile
  bespoke check kernels.ptx --launches launches.toml --format json --deny lints
  bespoke check model.gguf --steps 2
  bespoke check model.gguf --rows 8
  bespoke check qwen2.5-0.5b --filter attention")]
pub struct CheckArgs {
    /// A PTX file; a model, whose steps run: a GGUF file or a Hugging Face folder; or `demo` or a built-in shape, whose
    /// kernels run on the inputs of selftest
    #[arg(value_name = "FILE.ptx|MODEL.gguf|SHAPE")]
    subject: String,
    /// How the weights are loaded.
    #[command(flatten)]
    load: LoadArgs,
    /// Buffers and launches for a PTX file, as TOML
    #[arg(long, value_name = "FILE.toml")]
    launches: Option<PathBuf>,
    /// Tokens to decode, for a model: at least 1 [default: 3]
    #[arg(long, value_name = "N", value_parser = rules::nonzero)]
    steps: Option<NonZeroU32>,
    /// Check prefill, first-token and decode steps of this many sequences, for a model: at most 64 [default: decode steps
    /// of one sequence]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PlanParams::MAX_ROWS)))]
    rows: Option<u32>,
    /// Type of the KV cache, for a shape or a model: f16 or q8_0 [default: f16]
    #[arg(long, value_name = "TYPE", default_value_t, hide_default_value = true)]
    kv: KvType,
    /// Operands of matrix products.
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
    /// Only kernels whose name contains this, for a shape
    #[arg(long, value_name = "SUBSTRING")]
    filter: Option<String>,
    /// Print the costs of every source line: lane instructions (in all, per thread, per byte moved to or from global
    /// memory), sectors, bank conflicts, divergence
    #[arg(long)]
    profile: bool,
    /// Additional findings, which a kernel may intend; may be given several times
    #[arg(long, value_enum, value_name = "WHAT")]
    also: Vec<Also>,
    /// Findings that are not reported, where devices accept what the PTX ISA does not define; may be given several times
    #[arg(long, value_enum, value_name = "WHAT")]
    skip: Vec<Skip>,
    /// Warp instructions after which a PTX file's launch counts as hanging: those of its CTAs that have not ended.
    /// They are counted every 1048576 instructions of a CTA or cluster [default: 268435456, some seconds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Multiprocessors of the device: those on which a PTX file's launches must fit, and among which a model's work is
    /// divided [default: that of the launch file, else that of the largest common device of the target: 132 for
    /// sm_90]
    #[arg(long, value_name = "N", value_parser = rules::nonzero)]
    multiprocessors: Option<NonZeroU32>,
    /// Notes on what could be faster, in launches large enough for it to matter
    #[arg(long, value_enum, default_value_t = Lints::On)]
    lints: Lints,
    /// What else counts as a finding
    #[arg(long, value_enum)]
    deny: Vec<Deny>,
    /// Format of the report on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Also {
    /// Results that are infinite or not a number although the operands are finite
    Values,
    /// Addresses computed by 32-bit sums and products that wrapped
    Overflow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Skip {
    /// Races, and with them different values and proxy fences
    Races,
    /// Lanes of one store that write different values to the same address
    DifferentValues,
    /// Missing proxy fences before bulk copies, `wgmma` and uses of tensor maps
    ProxyFences,
    /// Changes of registers by `setmaxnreg`, which then has no effect
    Registers,
    /// Bulk stores that nothing has waited for when the CTA ends
    UnawaitedStores,
    /// Uses of uninitialised memory and registers, and of memory that asynchronous copies in flight use
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Lints {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Deny {
    Lints,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text with source lines.
    Text,
    /// One versioned JSON object.
    Json,
}

/// Exit code if there are findings.
const FINDINGS: u8 = 1;
/// Exit code if nothing could be checked.
const NOT_CHECKED: u8 = 2;

/// Tokens that a model decodes without `--steps`.
const DEFAULT_STEPS: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// Runs the check and prints the report or the error.
pub fn execute(args: &CheckArgs) -> miette::Result<ExitCode> {
    let reported = run(args).or_else(|error| {
        let unwritable = error.downcast_ref::<Unwritable>().is_some();
        if args.format == Format::Json && !unwritable {
            console::json(&failure(args, &error))?;
        }
        print_error(args, error)
    });
    // The report could not be written: nobody may take that for findings.
    Ok(reported.unwrap_or_else(|error| exit_code_of(&error, ExitCode::from(NOT_CHECKED))))
}

fn run(args: &CheckArgs) -> miette::Result<ExitCode> {
    let options = options(args)?;
    let path = Path::new(&args.subject);
    let (mut kind, text) = kind_of(path);
    // The demo model has a shape whose kernels are checked, and weights with which its steps run.
    if kind == Kind::Shape && model::is_demo(path) && (args.steps.is_some() || args.rows.is_some()) {
        kind = Kind::Model;
    }
    kind.refuse_unused_options(args)?;
    let report = match kind {
        Kind::Ptx => match check_ptx(args, path, text, &options) {
            Ok(Some(report)) => report,
            // There were no launches, and a template of them was printed.
            Ok(None) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error),
        },
        Kind::Model => {
            let model = model::open_model_with(path, args.load)?;
            let steps = args.steps.unwrap_or(DEFAULT_STEPS).get();
            let bar = Progress::steps("checking", u64::from(steps));
            let mut tell = |done: usize, total: usize, _: &str| bar.update(done as u64, total as u64);
            let checked = match args.rows {
                Some(rows) => check::model_rows(&model.gguf, &model.shape, rows, steps, &options, &mut tell),
                None => check::model(&model.gguf, &model.shape, steps, &options, &mut tell),
            };
            checked.map_err(|error| match error {
                CheckError::Engine(error @ EngineError::Gguf(_)) => session::load_error(error, &model),
                error => error.into(),
            })?
        }
        Kind::Shape => {
            let shape = model::resolve(&args.subject, args.load)?;
            let bar = Progress::steps("checking", 0);
            let mut tell = |done: usize, total: usize, kernel: &str| {
                tracing::debug!("{kernel}");
                bar.update(done as u64, total as u64);
            };
            check::shape(&shape, args.filter.as_deref().unwrap_or_default(), &options, &mut tell)?
        }
    };
    let denied = args.deny.contains(&Deny::Lints) && !report.lints.is_empty();
    let ptx = (kind == Kind::Ptx).then_some(path);
    print_report(args, ptx, &report, denied)?;
    let clean = report.findings.is_empty() && !denied;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

fn options(args: &CheckArgs) -> miette::Result<Options> {
    if args.deny.contains(&Deny::Lints) && args.lints == Lints::Off {
        return Err(miette!("--deny lints has no effect with --lints off"));
    }
    let also = |what| args.also.contains(&what);
    let on = |what| !args.skip.contains(&what);
    let checks = Checks {
        memory: on(Skip::Memory),
        races: on(Skip::Races),
        different_values: on(Skip::DifferentValues),
        proxy_fences: on(Skip::ProxyFences),
        registers: on(Skip::Registers),
        unawaited_stores: on(Skip::UnawaitedStores),
        values: also(Also::Values),
        overflow: also(Also::Overflow),
    };
    let instruction_limit = args.limit.unwrap_or(Options::default().instruction_limit);
    Ok(Options {
        checks,
        kv: args.kv,
        arithmetic: args.arithmetic.arithmetic,
        instruction_limit,
        multiprocessors: args.multiprocessors,
        lints: args.lints == Lints::On,
        profile: args.profile,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ptx,
    Model,
    Shape,
}

impl Kind {
    /// Returns an error for an option that would have no effect on this kind of subject.
    fn refuse_unused_options(self, args: &CheckArgs) -> miette::Result<()> {
        let what = match self {
            Kind::Ptx => "a PTX file",
            Kind::Model => "a model, which runs its steps",
            Kind::Shape => "a built-in shape, which runs the cases of `selftest`",
        };
        for (option, given, its) in [
            ("--launches", args.launches.is_some(), Kind::Ptx),
            ("--limit", args.limit.is_some(), Kind::Ptx),
            ("--steps", args.steps.is_some(), Kind::Model),
            ("--rows", args.rows.is_some(), Kind::Model),
            ("--arithmetic f16", args.arithmetic.arithmetic == Arithmetic::F16, Kind::Model),
            ("--filter", args.filter.is_some(), Kind::Shape),
        ] {
            if given && its != self {
                let help = match its {
                    Kind::Ptx => "give a PTX file",
                    Kind::Model => "give the file of a model, or `demo`: its steps are checked",
                    Kind::Shape if model::is_demo(Path::new(&args.subject)) => "leave out --steps and --rows",
                    Kind::Shape => "give a built-in shape or `demo`",
                };
                return Err(miette!(help = help, "{option} has no effect here: {} is {what}", args.subject));
            }
        }
        if args.arithmetic.arithmetic == Arithmetic::F16 && args.rows.is_none() {
            return Err(miette!(
                "--arithmetic f16 has no effect without --rows: a step of one row multiplies integers"
            ));
        }
        Ok(())
    }
}

/// Kind of a subject, by its extension, else by the file's first bytes. For PTX found by its first bytes, also returns
/// a reader of the whole text, because a pipe cannot be read twice.
fn kind_of(path: &Path) -> (Kind, Option<Box<dyn Read>>) {
    let is_shape = path.to_str().is_some_and(model::is_builtin);
    if model::is_hf_folder(path) || (path.is_dir() && !is_shape) {
        return (Kind::Model, None);
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("ptx") => return (Kind::Ptx, None),
        Some("gguf") => return (Kind::Model, None),
        _ => {}
    }
    let mut start = [0; 4];
    match File::open(path).and_then(|mut file| file.read_exact(&mut start).map(|()| file)) {
        Ok(_) if &start == b"GGUF" => (Kind::Model, None),
        Ok(rest) => (Kind::Ptx, Some(Box::new(Cursor::new(start).chain(rest)))),
        Err(_) => (Kind::Shape, None),
    }
}

/// Checks a PTX file, which may be open already. Without `--launches`, prints a template of a launch file.
fn check_ptx(
    args: &CheckArgs,
    path: &Path,
    open: Option<Box<dyn Read>>,
    options: &Options,
) -> miette::Result<Option<Report>> {
    let text = match open {
        Some(file) => std::io::read_to_string(file),
        None => std::fs::read_to_string(path),
    };
    let text = text.map_err(|source| CheckError::Read { path: path.to_owned(), source })?;
    let loaded = Loaded::parse(&args.subject, &text)?;
    if let Some(launches) = &args.launches {
        let launches = Launches::read(launches)?;
        let _bar = Progress::delayed_spinner("checking");
        return Ok(Some(loaded.check(&launches, options)?));
    }
    let loaded = loaded.without_problems()?;
    let template = check::template(&loaded);
    match args.format {
        Format::Text => out!("{template}")?,
        Format::Json => console::json(&listing(&loaded, &template))?,
    }
    tracing::info!(
        "{}: no errors in the text; fill in the launches above and pass them with --launches",
        args.subject
    );
    Ok(None)
}

/// The kernels of a file and the template, as JSON.
fn listing(loaded: &Loaded, template: &str) -> serde_json::Value {
    let kernels = loaded.kernels().map(|kernel| {
        let params = kernel.params().iter().map(
            |param| json!({ "name": param.name, "type": param.ty, "offset": param.offset, "bytes": param.size }),
        );
        json!({
            "name": kernel.name(),
            "parameters": params.collect::<Vec<_>>(),
            "static_shared": kernel.static_shared_bytes(),
            "dynamic_shared": kernel.takes_dynamic_shared(),
        })
    });
    json!({
        "version": REPORT_VERSION,
        "subject": loaded.name,
        "kernels": kernels.collect::<Vec<_>>(),
        "template": template,
    })
}

/// Prints why nothing was checked: problems of a PTX text to standard output, because they are a result; other errors
/// to standard error. Returns the exit code.
fn print_error(args: &CheckArgs, error: miette::Report) -> miette::Result<ExitCode> {
    match error.downcast_ref() {
        Some(CheckError::Ptx { text, problems, .. }) if args.format == Format::Text => {
            let renderer = Renderer::new(color(), Some(Path::new(&args.subject)));
            outln!("{}{error}", renderer.problems(&args.subject, text, problems))?;
            Ok(ExitCode::from(NOT_CHECKED))
        }
        _ => Err(error),
    }
}

/// The error as JSON data.
fn failure(args: &CheckArgs, error: &miette::Report) -> Failure {
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many error messages already contain the message of their cause.
        if !message.contains(&cause) {
            message += &format!(": {cause}");
        }
    }
    let failure = Failure::new(&args.subject, message, error.help().map(|help| help.to_string()));
    match error.downcast_ref() {
        Some(error) => failure.with_details(error, args.launches.as_deref()),
        None => failure,
    }
}

/// Prints the report; `ptx` is the checked file, if the subject was one.
fn print_report(args: &CheckArgs, ptx: Option<&Path>, report: &Report, denied: bool) -> miette::Result<()> {
    match args.format {
        Format::Json => console::json(report)?,
        Format::Text => {
            out!("{}", Renderer::new(color(), ptx).report(report, denied))?;
            for profile in &report.profiles {
                outln!("{}", text::profile(profile))?;
            }
            let only_notes = denied && report.findings.is_empty();
            let denial = if only_notes { "; --deny lints counts notes as findings" } else { "" };
            outln!("{}{denial}", text::summary(report))?;
        }
    }
    Ok(())
}

/// Whether to colour standard output.
fn color() -> bool {
    crate::color(stdout().is_terminal())
}
