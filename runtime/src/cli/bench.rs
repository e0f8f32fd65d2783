//! `bespoke bench`: decode speed, and what the memory would allow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use miette::IntoDiagnostic;
use serde::Serialize;

use super::session::{self, DecodeArgs};
use crate::engine::{self, Engine, EngineError};

/// Measure decode speed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke bench model.gguf
  bespoke bench a.gguf b.gguf -n 128 -d 0,4096 -r 5 -o json
  bespoke bench model.gguf --profile

Speed is tokens a second by the host's clock, over N tokens read by the host as `run` reads them, after a warm-up. Bytes a token are all weights (one row of
an embedding of its own) and the keys and values of the positions before. The ceiling is a plain read of device memory,
measured in the same run.")]
pub struct BenchArgs {
    /// Models, GGUF files
    #[arg(required = true)]
    pub models: Vec<PathBuf>,
    /// Tokens to decode
    #[arg(short, long, default_value_t = 128, value_name = "N")]
    pub n: u32,
    /// Positions in the cache at the start
    #[arg(short = 'd', long, value_delimiter = ',', default_value = "0", value_name = "DEPTHS")]
    pub depth: Vec<u32>,
    /// Repetitions; the median counts
    #[arg(short, long, default_value_t = 5, value_name = "R")]
    pub repetitions: u32,
    /// Output
    #[arg(short, long, value_enum, default_value_t = Output::Md)]
    pub output: Output,
    /// Time every kernel by itself, eagerly
    #[arg(long)]
    pub profile: bool,
    /// Device, context and mode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A Markdown table.
    Md,
    /// JSON with every repetition.
    Json,
    /// Comma-separated values.
    Csv,
}

/// One model at one depth.
#[derive(Debug, Serialize)]
struct Measurement {
    model: String,
    model_bytes: u64,
    parameters: u64,
    device: String,
    driver: Option<String>,
    target: String,
    mode: &'static str,
    nodes: usize,
    tokens: u32,
    depth: u32,
    /// Tokens a second of every repetition.
    repetitions: Vec<f64>,
    tokens_per_second: f64,
    standard_deviation: f64,
    bytes_per_token: u64,
    bytes_per_second: f64,
    ceiling_bytes_per_second: f64,
    fraction_of_ceiling: f64,
}

/// A kernel's share of one step.
#[derive(Debug, Serialize)]
struct KernelTime {
    model: String,
    kernel: String,
    launches: usize,
    microseconds: f64,
    bytes: u64,
    bytes_per_second: f64,
    fraction_of_ceiling: f64,
}

#[derive(Debug, Default, Serialize)]
struct Results {
    version: &'static str,
    measurements: Vec<Measurement>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kernels: Vec<KernelTime>,
}

/// Runs the command.
pub fn execute(args: &BenchArgs) -> miette::Result<()> {
    let mut results = Results { version: env!("CARGO_PKG_VERSION"), ..Results::default() };
    for path in &args.models {
        bench_model(path, args, &mut results)?;
    }
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&results).into_diagnostic()?),
        Output::Md => {
            println!("{}", measurements_table(&results.measurements));
            if args.profile {
                println!("\nEvery kernel by itself: eager launches with an event around each, no overlap.\n");
                println!("{}", kernels_table(&results.kernels));
            }
        }
        Output::Csv => print_csv(&results),
    }
    Ok(())
}

fn bench_model(path: &Path, args: &BenchArgs, results: &mut Results) -> miette::Result<()> {
    let model = session::open_model(path)?;
    let deepest = args.depth.iter().copied().max().unwrap_or(0);
    let context = deepest.saturating_add(args.n).saturating_add(WARM_UP);
    let mut engine = session::load(&model, &args.decode, context)?;
    let ceiling = engine::read_bandwidth(engine.device()).map_err(session::engine_error)?;
    let parameters = model.gguf.tensors().iter().map(|tensor| tensor.elements()).sum();
    for &depth in &args.depth {
        let rates = measure(&mut engine, depth, args).map_err(session::engine_error)?;
        let mut sorted = rates.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
        // The cache grows while tokens are decoded: the mean length counts.
        let bytes = engine.plan().bytes_per_token(u64::from(depth) + u64::from(args.n) / 2);
        let info = engine.device().info();
        results.measurements.push(Measurement {
            model: session::model_name(path),
            model_bytes: model.gguf.file_bytes(),
            parameters,
            device: info.name.clone(),
            driver: info.driver.clone(),
            target: engine.plan().target.to_string(),
            mode: if engine.graph().is_some() { "graph" } else { "eager" },
            nodes: engine.plan().launches.len(),
            tokens: args.n,
            depth,
            repetitions: rates,
            tokens_per_second: median,
            standard_deviation: variance.sqrt(),
            bytes_per_token: bytes,
            bytes_per_second: bytes as f64 * median,
            ceiling_bytes_per_second: ceiling,
            fraction_of_ceiling: bytes as f64 * median / ceiling,
        });
        if args.profile {
            let times = profile(&mut engine, depth).map_err(session::engine_error)?;
            results.kernels.extend(kernel_times(path, &engine, depth, &times, ceiling));
        }
    }
    Ok(())
}

/// Steps before the clock starts.
const WARM_UP: u32 = 8;

/// Tokens a second of every repetition.
fn measure(engine: &mut Engine, depth: u32, args: &BenchArgs) -> Result<Vec<f64>, EngineError> {
    let mut rates = Vec::new();
    for _ in 0..args.repetitions.max(1) {
        engine.start_at_depth(depth)?;
        for _ in 0..WARM_UP {
            engine.step()?;
        }
        engine.start_at_depth(depth)?;
        engine.wait()?;
        let start = Instant::now();
        for token in engine.generate(args.n)? {
            token?;
        }
        rates.push(f64::from(args.n) / start.elapsed().as_secs_f64());
    }
    Ok(rates)
}

/// Steps of which a launch's median time is taken.
const PROFILED_STEPS: usize = 9;

/// Microseconds of every launch: the median over several steps.
fn profile(engine: &mut Engine, depth: u32) -> Result<Vec<f64>, EngineError> {
    let mut steps = Vec::new();
    for _ in 0..PROFILED_STEPS {
        engine.start_at_depth(depth)?;
        steps.push(engine.sequence().profile()?);
    }
    let launches = engine.plan().launches.len();
    Ok((0..launches)
        .map(|launch| {
            let mut times: Vec<f64> = steps.iter().map(|step| step[launch]).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect())
}

fn kernel_times(path: &Path, engine: &Engine, depth: u32, times: &[f64], ceiling: f64) -> Vec<KernelTime> {
    let plan = engine.plan();
    let mut by_kernel: BTreeMap<usize, (usize, f64)> = BTreeMap::new();
    for (launch, time) in plan.launches.iter().zip(times) {
        let entry = by_kernel.entry(launch.kernel).or_default();
        entry.0 += 1;
        entry.1 += time;
    }
    let mut rows: Vec<KernelTime> = by_kernel
        .into_iter()
        .map(|(kernel, (launches, microseconds))| {
            let kernel = &plan.kernels[kernel];
            let bytes = kernel.spec.bytes(u64::from(depth) + 1) * launches as u64;
            let rate = bytes as f64 / (microseconds * 1e-6);
            KernelTime {
                model: session::model_name(path),
                kernel: kernel.name.clone(),
                launches,
                microseconds,
                bytes,
                bytes_per_second: rate,
                fraction_of_ceiling: rate / ceiling,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.microseconds.total_cmp(&a.microseconds));
    rows
}

fn markdown() -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table
}

fn measurements_table(measurements: &[Measurement]) -> Table {
    let mut table = markdown();
    table.set_header([
        "model",
        "size",
        "params",
        "device",
        "test",
        "t/s",
        "MB/token",
        "GB/s",
        "ceiling GB/s",
        "of ceiling",
    ]);
    for m in measurements {
        let depth = if m.depth > 0 { format!(" @ d{}", m.depth) } else { String::new() };
        table.add_row([
            m.model.clone(),
            crate::device::Bytes(m.model_bytes).to_string(),
            format!("{:.2} B", m.parameters as f64 / 1e9),
            format!("{} ({}, {})", m.device, m.target, m.mode),
            format!("tg{}{depth}", m.tokens),
            format!("{:.2} ± {:.2}", m.tokens_per_second, m.standard_deviation),
            format!("{:.1}", m.bytes_per_token as f64 / 1e6),
            format!("{:.1}", m.bytes_per_second / 1e9),
            format!("{:.1}", m.ceiling_bytes_per_second / 1e9),
            format!("{:.1}%", m.fraction_of_ceiling * 100.0),
        ]);
    }
    table
}

fn kernels_table(kernels: &[KernelTime]) -> Table {
    let mut table = markdown();
    table.set_header(["model", "kernel", "launches", "µs", "share", "MB", "GB/s", "of ceiling"]);
    for k in kernels {
        let total: f64 =
            kernels.iter().filter(|other| other.model == k.model).map(|other| other.microseconds).sum();
        table.add_row([
            k.model.clone(),
            k.kernel.clone(),
            k.launches.to_string(),
            format!("{:.1}", k.microseconds),
            format!("{:.1}%", k.microseconds / total * 100.0),
            format!("{:.2}", k.bytes as f64 / 1e6),
            format!("{:.0}", k.bytes_per_second / 1e9),
            format!("{:.0}%", k.fraction_of_ceiling * 100.0),
        ]);
    }
    table
}

fn print_csv(results: &Results) {
    println!(
        "model,device,target,mode,tokens,depth,tokens_per_second,standard_deviation,bytes_per_token,bytes_per_second,ceiling_bytes_per_second,fraction_of_ceiling"
    );
    for m in &results.measurements {
        println!(
            "{},{},{},{},{},{},{:.3},{:.3},{},{:.0},{:.0},{:.4}",
            m.model,
            m.device,
            m.target,
            m.mode,
            m.tokens,
            m.depth,
            m.tokens_per_second,
            m.standard_deviation,
            m.bytes_per_token,
            m.bytes_per_second,
            m.ceiling_bytes_per_second,
            m.fraction_of_ceiling
        );
    }
}
