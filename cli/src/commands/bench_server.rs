//! `bespoke bench-server`: measures a server under load, and sends it mixed traffic.

use std::path::PathBuf;
use std::time::Duration;

use bespoke_bench_server::{Client, LoadError, Measurements, Report, Soak, Workload, measure, soak, text};
use clap::ValueEnum;
use miette::miette;

use crate::console::{self, out};
use crate::input;

/// Clients of a measurement.
const CLIENTS: [u32; 3] = [1, 8, 32];
/// Clients of mixed traffic.
const MIXED_CLIENTS: u32 = 16;

/// Measure a server under load, or send it mixed traffic
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke bench-server
  bespoke bench-server http://localhost:8080 -c 1,8,32,64 -r 8 -p 512 -n 128
  bespoke bench-server --mixed --seconds 600 -c 24

The server may be any with OpenAI's API. Answers are streamed completions; each prompt is of other random words, so that no server has \
it in its cache. Tokens a second are those of all clients together.

--mixed needs a `bespoke serve`: streams, long prompts, JSON schemas, clients that leave or read slowly, wrong requests. Each answer \
must be the expected one. At the end the server must be idle: the exit code is 1 after an unexpected answer, a stuck request, a failure \
of the engine, pages or sequences that are left, or, in runs of a minute or more, if resident memory grew by more than 10% after the \
first quarter.")]
pub struct BenchServerArgs {
    /// URL of the server
    #[arg(default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Concurrent clients: numbers of at most 1024 [default: 1,8,32; with --mixed 16]
    #[arg(short, long, value_delimiter = ',', value_name = "CLIENTS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: Vec<u32>,
    /// Requests of each client
    #[arg(short, long, default_value_t = 4, value_name = "N", conflicts_with = "mixed", value_parser = clap::value_parser!(u32).range(1..))]
    pub requests: u32,
    /// Tokens of a prompt, about [default: half of the server's context, at most 256]
    #[arg(short, long, value_name = "TOKENS", conflicts_with = "mixed", value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt: Option<u32>,
    /// Tokens of an answer [default: a quarter of the server's context, at most 64]
    #[arg(short, value_name = "TOKENS", conflicts_with = "mixed", value_parser = clap::value_parser!(u32).range(1..))]
    pub n: Option<u32>,
    /// Send mixed traffic, and check every answer
    #[arg(long)]
    pub mixed: bool,
    /// Seconds of mixed traffic
    #[arg(long, default_value_t = 60, value_name = "SECONDS", requires = "mixed", conflicts_with_all = ["requests", "prompt", "n"], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seconds: u64,
    /// Seconds after which a request without a complete answer is stuck
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub limit: u64,
    /// Name of the model [default: the server's first one]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// File with the API key to send, in its first line
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Format of the results
    #[arg(short, long, value_enum, default_value_t = Output::Md)]
    pub output: Output,
}

/// Format of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A Markdown table.
    Md,
    /// JSON.
    Json,
}

/// Runs the load generator and prints its results.
pub fn execute(args: &BenchServerArgs) -> miette::Result<()> {
    let key = args.api_key_file.as_deref().map(input::read).transpose()?;
    let key = key.and_then(|text| text.lines().next().map(|line| line.trim().to_owned()));
    let client =
        Client::new(&args.url, key, Duration::from_secs(args.limit)).map_err(|error| miette!("{error}"))?;
    if args.mixed { run_mixed(args, &client) } else { run_measure(args, &client) }
}

fn run_measure(args: &BenchServerArgs, client: &Client) -> miette::Result<()> {
    let clients = if args.clients.is_empty() { CLIENTS.to_vec() } else { args.clients.clone() };
    let BenchServerArgs { requests, prompt, n: answer, ref model, .. } = *args;
    let workload = Workload { clients, requests, prompt, answer, model: model.clone() };
    let results: Measurements =
        measure(client, &workload, |level| tracing::info!("{}", text::level(level))).map_err(load_error)?;
    match args.output {
        Output::Json => console::json(&results)?,
        Output::Md => out!("{}", text::measurements(&results))?,
    }
    match results.failed() {
        0 => Ok(()),
        failed => Err(miette!("{failed} requests failed")),
    }
}

fn run_mixed(args: &BenchServerArgs, client: &Client) -> miette::Result<()> {
    let clients = match args.clients[..] {
        [] => MIXED_CLIENTS,
        [clients] => clients,
        _ => return Err(miette!("--mixed takes one number of clients: -c N")),
    };
    let run = Soak { clients, time: Duration::from_secs(args.seconds), model: args.model.clone() };
    let report: Report =
        soak(client, &run, |report| tracing::info!("{}", text::summary(report))).map_err(load_error)?;
    match args.output {
        Output::Json => console::json(&report)?,
        Output::Md => out!("{}", text::report(&report))?,
    }
    match report.problems().as_slice() {
        [] => Ok(()),
        problems => Err(miette!("{}", problems.join("; "))),
    }
}

/// Report of an error, with what to do.
fn load_error(error: LoadError) -> miette::Report {
    match &error {
        LoadError::Request(_) => {
            miette!(help = "`bespoke serve` starts a server; its first line is its URL", "{error}")
        }
        LoadError::Context { .. } => {
            miette!(help = "-p TOKENS and -n TOKENS set the lengths", "{error}")
        }
        LoadError::Refused { status: 401, .. } => {
            miette!(help = "--api-key-file FILE sends a key", "{error}")
        }
        _ => miette!("{error}"),
    }
}
