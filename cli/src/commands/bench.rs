//! `bespoke bench`: measures decode speed, its ceiling by memory bandwidth, and the time of every launch.

use std::path::{Path, PathBuf};

use bespoke::builtin;
use bespoke::device::Kind;
use bespoke::engine::{self, Engine, EngineOptions};
use bespoke_bench::{
    Build, MeasuredStep, Results, SpeculationError, SpeculationWorkload, Subject, Workload, text,
};
use bespoke_kernels::kernels::gemv::Arithmetic;
use clap::ValueEnum;
use miette::{IntoDiagnostic, miette};

use crate::advice::engine_error;
use crate::console::{self, out};
use crate::model::{self, Model};
use crate::output::{self, Force, check_distinct};
use crate::progress::Progress;
use crate::sampling::{DrawsWithTemp, SamplingArgs};
use crate::session::{self, ArithmeticArgs, DecodeArgs};

/// Measure decode and prefill speed
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke bench model.gguf
  bespoke bench a.gguf b.gguf -n 128 -d 0,4096 -r 5 -o json
  bespoke bench model.gguf --profile --trace token.json
  bespoke bench model.gguf -b 8,64 -p 512 --profile
  bespoke bench model.gguf --timeline --trace token.json
  bespoke bench model.gguf --ceiling
  bespoke bench model.gguf --speculate=0.7 --draft small.gguf

Speed is tokens a second by the host's clock, over N tokens that the host reads as `run` does, after a warm-up. \
Bytes a token are all weights (of an embedding that is not also the head, one row) and the keys and values of earlier \
positions. The ceiling is a plain read of device memory, measured in the same run. Steps of --batch and --prompt have a second \
ceiling: dense products of f16 matrices on tensor cores, by which the operations of their matrix products (two for each \
weight and token) are divided. There are none on the emulator: its time says nothing about a GPU's.")]
pub struct BenchArgs {
    /// Models: GGUF files, Hugging Face folders, or `demo`
    #[arg(required = true)]
    pub models: Vec<PathBuf>,
    /// Tokens to decode
    #[arg(short, long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub n: u32,
    /// Also decode this many sequences side by side: numbers of at most 64
    #[arg(short = 'b', long, value_delimiter = ',', value_name = "SEQUENCES", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub batch: Vec<u32>,
    /// Operands of matrix products.
    #[command(flatten)]
    pub arithmetic: ArithmeticArgs,
    /// Also process prompts of these lengths
    #[arg(short = 'p', long, value_delimiter = ',', value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt: Vec<u32>,
    /// Also decode with synthetic drafts whose tokens are right with these probabilities, which measures the speedup at these
    /// acceptance rates [without RATES: 0.5,0.7,0.9]
    #[arg(long, value_delimiter = ',', value_name = "RATES", num_args = 0..=1, require_equals = true, default_missing_values = ["0.5", "0.7", "0.9"], value_parser = rate)]
    pub speculate: Option<Vec<f64>>,
    /// Lengths of the drafts of --speculate; an automatically chosen length is always measured, too
    #[arg(long, requires = "speculate", value_delimiter = ',', default_value = "1,3,7", value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..=63))]
    pub draft_lengths: Vec<u32>,
    /// Run the steps of this draft model for --speculate; its tokens are replaced by the synthetic ones
    #[arg(long, value_name = "FILE", requires = "speculate")]
    pub draft: Option<PathBuf>,
    /// Positions in the cache at the start
    #[arg(short = 'd', long, value_delimiter = ',', default_value = "0", value_name = "DEPTHS")]
    pub depth: Vec<u32>,
    /// Repetitions; the result is the median
    #[arg(short, long, default_value_t = 5, value_name = "R", value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Format of the results
    #[arg(short, long, value_enum, default_value_t = Output::Md)]
    pub output: Output,
    /// Time every kernel alone, launched eagerly, and compare the sum with a graph replay: in a decode step of one row,
    /// in the steps of --batch, and in the prefill and first-token steps of --prompt
    #[arg(long)]
    pub profile: bool,
    /// Show how the launches of the same steps overlap when their graph is replayed: with kernels that write timestamps
    /// of when each CTA starts, continues after its wait for earlier launches, and ends
    #[arg(long)]
    pub timeline: bool,
    /// Write the profile, and with --timeline the timeline, as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Whether to replace an existing file.
    #[command(flatten)]
    pub force: Force,
    /// Time every matrix kernel alone, back to back over the layers, with cold caches
    #[arg(long)]
    pub ceiling: bool,
    /// Check of the sampling options.
    #[command(flatten)]
    draws: DrawsWithTemp,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Device, context and mode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// Smallest number of prompt tokens before drafts.
const PROMPT: u32 = 16;

/// Parses a probability.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
    rate.ok_or_else(|| "a number from 0 to 1 is needed".to_owned())
}

/// Format of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A Markdown table.
    Md,
    /// JSON with every repetition.
    Json,
    /// Comma-separated values; only the rows of single sequences.
    Csv,
}

/// Runs the benchmark and prints the results.
pub fn execute(args: &BenchArgs) -> miette::Result<()> {
    refuse_unprinted_rows(args)?;
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        optimised: !cfg!(debug_assertions),
        targets: builtin::targets(),
    };
    let mut results = Results {
        build,
        device: None,
        measurements: Vec::new(),
        rows: Vec::new(),
        speculation: Vec::new(),
        profiles: Vec::new(),
        timelines: Vec::new(),
        matrices: Vec::new(),
    };
    if let Some(path) = &args.trace {
        check_distinct(path, &args.models)?;
    }
    // Created first, so that an unwritable path fails before minutes of measuring.
    let trace = args.trace.as_deref().map(|path| output::create(path, args.force)).transpose()?;
    for path in &args.models {
        bench_model(path, args, &mut results)?;
    }
    if let Some(file) = trace {
        let trace = bespoke_bench::trace(&results.profiles, &results.timelines);
        let trace = serde_json::to_vec(&trace).into_diagnostic()?;
        output::write(file, &trace)?;
    }
    match args.output {
        Output::Json => console::json(&results)?,
        Output::Md => out!("{}", text::markdown(&results, args.profile))?,
        Output::Csv => out!("{}", text::csv(&results.measurements))?,
    }
    Ok(())
}

/// Fails for measurements that CSV has no columns for.
fn refuse_unprinted_rows(args: &BenchArgs) -> miette::Result<()> {
    let unprinted = [
        (!args.batch.is_empty(), "--batch"),
        (!args.prompt.is_empty(), "--prompt"),
        (args.speculate.is_some(), "--speculate"),
        (args.ceiling, "--ceiling"),
        (args.profile && args.trace.is_none(), "--profile"),
        (args.timeline && args.trace.is_none(), "--timeline"),
    ];
    match unprinted.iter().find(|(given, _)| *given && args.output == Output::Csv) {
        Some((_, option)) => Err(miette!(
            help = "-o json has all results",
            "-o csv has only the rows of single sequences: it would not print the results of {option}"
        )),
        None => Ok(()),
    }
}

fn bench_model(path: &Path, args: &BenchArgs, results: &mut Results) -> miette::Result<()> {
    if args.arithmetic.arithmetic == Arithmetic::F16 && args.batch.is_empty() && args.speculate.is_none() {
        return Err(miette!(
            "--arithmetic f16 has no effect without --batch: a step of one sequence multiplies integers"
        ));
    }
    let model = model::open_model_with(path, args.decode.load)?;
    let context = args.decode.context(&model).unwrap_or(needed_context(args));
    let options = args.decode.options(&model, context)?;
    let draft = args.draft.as_deref().map(|path| session::load_draft(path, &model, &args.decode, &options));
    let draft = draft.transpose()?;
    let mut subject = load(&model, model::model_name(path), options, args)?;
    results.device.get_or_insert_with(|| subject.engine.device().info().clone());
    bench_depths(&mut subject, args, results)?;
    bench_batches(&mut subject, args, results)?;
    bench_prompts(&mut subject, args, results)?;
    bench_speculation(&mut subject, draft, args, results)?;
    if args.ceiling {
        results.matrices.extend(bespoke_bench::matrix_ceilings(&mut subject).map_err(engine_error)?);
    }
    Ok(())
}

/// Positions that all measurements together need.
fn needed_context(args: &BenchArgs) -> u32 {
    let deepest = args.depth.iter().copied().max().unwrap_or(0);
    let decoded = args.n.saturating_add(bespoke_bench::WARM_UP).max(bespoke_bench::BATCH_POSITIONS);
    let longest = args.prompt.iter().copied().max().unwrap_or(0);
    let of_speculation = args.speculate.as_ref().map_or(0, |_| PROMPT.max(deepest).saturating_add(args.n));
    deepest.saturating_add(decoded).max(longest.saturating_add(1)).max(of_speculation)
}

/// Loads a model and measures the ceilings of its device.
fn load<'a>(
    model: &'a Model,
    name: String,
    options: EngineOptions,
    args: &BenchArgs,
) -> miette::Result<Subject<'a>> {
    let longest_draft = args.draft_lengths.iter().copied().max().unwrap_or(1);
    let options = EngineOptions {
        parallel: args.batch.iter().copied().max().unwrap_or(1),
        prefill: !args.prompt.is_empty(),
        drafts: args.speculate.as_ref().map_or(0, |_| longest_draft),
        arithmetic: args.arithmetic.arithmetic,
        sampling: args.sampling.params(None)?,
        ..options
    };
    let engine = session::load_on(args.decode.device.open_when_needed(), model, &args.decode, &options)?;
    let device = engine.device();
    let is_gpu = matches!(device.info().kind, Kind::Cuda { .. });
    let has_products = !(args.batch.is_empty() && args.prompt.is_empty());
    let ceiling = is_gpu.then(|| engine::read_bandwidth(device)).transpose().map_err(engine_error)?;
    let tensor = (is_gpu && has_products).then(|| engine::tensor_throughput(device)).transpose();
    let tensor_ceiling = tensor.map_err(engine_error)?;
    Ok(Subject { name, gguf: &model.gguf, engine, ceiling, tensor_ceiling })
}

/// One sequence at each depth.
fn bench_depths(subject: &mut Subject<'_>, args: &BenchArgs, results: &mut Results) -> miette::Result<()> {
    let workload = Workload { tokens: args.n, repetitions: args.repetitions };
    let bar = Progress::count("tokens", args.depth.len() as u64 * workload.all_tokens());
    for (&depth, before) in args.depth.iter().zip(0u64..) {
        let report = |tokens: u64| bar.set(before * workload.all_tokens() + tokens);
        let measurement = bespoke_bench::measure(subject, depth, workload, &report).map_err(engine_error)?;
        results.measurements.push(measurement);
        let step = MeasuredStep::decode(&subject.engine, 1, depth).map_err(engine_error)?;
        examine(subject, step, args, results)?;
    }
    bar.finish();
    Ok(())
}

/// Several sequences at each depth.
fn bench_batches(subject: &mut Subject<'_>, args: &BenchArgs, results: &mut Results) -> miette::Result<()> {
    for &depth in &args.depth {
        for &sequences in &args.batch {
            let measured = bespoke_bench::measure_batch(subject, sequences, depth, args.repetitions);
            results.rows.extend(measured.map_err(engine_error)?);
            // A batch of one is the decode step of one row, whose profile is there already.
            if sequences > 1 {
                let step = MeasuredStep::decode(&subject.engine, sequences, depth);
                examine(subject, step.map_err(engine_error)?, args, results)?;
            }
        }
    }
    Ok(())
}

/// Prompts of each length.
fn bench_prompts(subject: &mut Subject<'_>, args: &BenchArgs, results: &mut Results) -> miette::Result<()> {
    for &length in &args.prompt {
        let measured = bespoke_bench::measure_prompt(subject, length, args.repetitions);
        results.rows.push(measured.map_err(engine_error)?);
        for step in MeasuredStep::of_prompt(&subject.engine, length).map_err(engine_error)? {
            examine(subject, step, args, results)?;
        }
    }
    Ok(())
}

/// Answers with drafted tokens at each depth.
fn bench_speculation(
    subject: &mut Subject<'_>,
    mut draft: Option<Engine>,
    args: &BenchArgs,
    results: &mut Results,
) -> miette::Result<()> {
    for &depth in args.speculate.iter().flat_map(|_| &args.depth) {
        let workload = SpeculationWorkload {
            tokens: args.n.max(2),
            prompt: PROMPT.max(depth),
            repetitions: args.repetitions,
            rates: args.speculate.clone().unwrap_or_default(),
            lengths: args.draft_lengths.clone(),
        };
        let name = args.draft.as_deref().map(model::model_name);
        let draft = name.as_deref().zip(draft.as_mut());
        let bar = Progress::count("answers", workload.runs());
        let measured = bespoke_bench::measure_speculation(subject, draft, &workload, &|runs| bar.set(runs));
        bar.finish();
        results.speculation.extend(measured.map_err(|error| match error {
            SpeculationError::Engine(error) => engine_error(error),
            differs => miette!("{differs}"),
        })?);
    }
    Ok(())
}

/// Profiles a step and takes its timeline, as far as requested.
fn examine(
    subject: &mut Subject<'_>,
    step: MeasuredStep,
    args: &BenchArgs,
    results: &mut Results,
) -> miette::Result<()> {
    if args.profile || (args.trace.is_some() && !args.timeline) {
        results.profiles.push(bespoke_bench::profile(subject, step).map_err(engine_error)?);
    }
    if args.timeline {
        results.timelines.push(bespoke_bench::timeline(subject, step).map_err(engine_error)?);
    }
    Ok(())
}
