//! `bespoke run`: decodes.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::{ArgGroup, ValueEnum};
use miette::IntoDiagnostic;
use serde::Serialize;

use super::interrupt;
use super::sampling::SamplingArgs;
use super::session::{self, DecodeArgs};
use crate::demo;
use crate::engine::{self, Engine};
use crate::tokenizer::Tokenizer;

/// Decode a model: greedily, or with --temp by drawing tokens.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("input").args(["prompt", "tokens"])))]
#[command(after_help = "Examples:
  bespoke run
  bespoke run --prompt \"17 + 25 =\"
  bespoke run model.gguf --prompt \"The quick brown fox\" -n 64
  bespoke run model.gguf --prompt Hello --temp 0.8 --seed 42
  bespoke run model.gguf --tokens 1,2,3 -n 16 --format json
  bespoke run model.gguf --prompt Hello --device emulator")]
pub struct RunArgs {
    /// The model, a GGUF file [default: the demo model in this binary, which does sums and tells short stories]
    #[arg(requires = "input")]
    pub model: Option<PathBuf>,
    /// The prompt as text; the demo model has some of its own
    #[arg(long, short)]
    pub prompt: Option<String>,
    /// The prompt as token ids
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub tokens: Option<Vec<u32>>,
    /// Tokens to generate [default: 128, or what the context has room for]
    #[arg(short, long, value_name = "N")]
    pub n: Option<u32>,
    /// Go on after an end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,
    /// Output: text as it comes, or one JSON object at the end
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Device, context and mode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Streamed.
    Text,
    /// One object.
    Json,
}

#[derive(Serialize)]
struct Output {
    model: String,
    device: String,
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    text: Option<String>,
    /// Of what was drawn.
    seed: Option<u64>,
    timings: Timings,
}

/// Seconds, and tokens a second.
#[derive(Serialize)]
struct Timings {
    load_seconds: f64,
    prompt_seconds: f64,
    decode_seconds: f64,
    prompt_tokens_per_second: f64,
    tokens_per_second: f64,
}

/// Tokens generated if nothing else is asked for.
const DEFAULT_TOKENS: u32 = 128;

/// Runs the command.
pub fn execute(args: &RunArgs) -> miette::Result<()> {
    let start = Instant::now();
    let model = match &args.model {
        Some(path) => session::open_model(path)?,
        None => session::open_demo()?,
    };
    if args.prompt.is_none() && args.tokens.is_none() {
        return super::demo::execute(args, &model);
    }
    // Token ids need no vocabulary; text does.
    let tokenizer = match (&args.prompt, Tokenizer::from_gguf(&model.gguf)) {
        (_, Ok(tokenizer)) => Some(tokenizer),
        (Some(_), Err(error)) => return Err(error).into_diagnostic(),
        (None, Err(_)) => None,
    };
    let prompt = match (&args.prompt, &args.tokens, &tokenizer) {
        (Some(text), _, Some(tokenizer)) if model.is_demo => {
            tokenizer.encode(&demo::as_taught(text)).into_diagnostic()?
        }
        (Some(text), _, Some(tokenizer)) => tokenizer.encode(text).into_diagnostic()?,
        (_, Some(tokens), _) => tokens.clone(),
        _ => Vec::new(),
    };
    let wanted = prompt.len() as u64 + u64::from(args.n.unwrap_or(DEFAULT_TOKENS));
    let context =
        u64::from(model.shape.dimensions.context).min(wanted.max(engine::DEFAULT_CONTEXT.into())) as u32;
    let sampling = args.sampling.params();
    let seed = (sampling.temperature > 0.0).then_some(sampling.seed);
    let mut engine = session::load_sampling(&model, &args.decode, context, sampling)?;
    engine.start(&prompt).map_err(session::engine_error)?;
    // The last token generated needs no position of its own: nothing follows it.
    let room = u64::from(engine.plan().params.context) + 1 - prompt.len() as u64;
    let n = match args.n {
        Some(n) => n,
        None => room.min(DEFAULT_TOKENS.into()) as u32,
    };
    let load_seconds = start.elapsed().as_secs_f64();

    let mut printer = Printer {
        tokenizer: tokenizer.as_ref(),
        as_text: args.prompt.is_some(),
        first: true,
        stream: args.format == Format::Text,
    };
    let generated = generate(&mut engine, n, args, tokenizer.as_ref(), &mut printer)?;
    tracing::debug!(
        "first token {:.3} s after the start: {load_seconds:.3} s for loading, {:.3} s for the prompt of {}",
        load_seconds + generated.prompt_seconds,
        generated.prompt_seconds,
        prompt.len()
    );
    let timings = Timings {
        load_seconds,
        prompt_seconds: generated.prompt_seconds,
        decode_seconds: generated.decode_seconds,
        prompt_tokens_per_second: rate(prompt.len(), generated.prompt_seconds),
        tokens_per_second: rate(generated.tokens.len().saturating_sub(1), generated.decode_seconds),
    };
    match args.format {
        Format::Text => {
            eprintln!(
                "{} tokens at {:.2} tokens/s after a prompt of {} at {:.2} tokens/s on {}",
                generated.tokens.len(),
                timings.tokens_per_second,
                prompt.len(),
                timings.prompt_tokens_per_second,
                engine.device().info().name
            );
        }
        Format::Json => {
            let output = Output {
                model: model.shape.name.clone(),
                device: engine.device().info().name.clone(),
                text: tokenizer.as_ref().map(|tokenizer| tokenizer.decode(&generated.tokens)),
                seed,
                prompt_tokens: prompt,
                tokens: generated.tokens,
                timings,
            };
            println!("{}", serde_json::to_string_pretty(&output).into_diagnostic()?);
        }
    }
    Ok(())
}

/// What was generated, and how long it took.
pub(super) struct Generated {
    pub tokens: Vec<u32>,
    /// Until the first token.
    pub prompt_seconds: f64,
    /// From the first token to the last.
    pub decode_seconds: f64,
}

/// Generates up to `n` tokens, handing each to `printer` as it comes, until one ends the text or Ctrl-C asks to stop.
pub(super) fn generate(
    engine: &mut Engine,
    n: u32,
    args: &RunArgs,
    tokenizer: Option<&Tokenizer>,
    printer: &mut Printer<'_>,
) -> miette::Result<Generated> {
    let start = Instant::now();
    let mut stream = tokenizer.map(Tokenizer::decode_stream);
    let mut first_token = None;
    let chosen = engine.generate(n).map_err(session::engine_error)?;
    let mut tokens = Vec::with_capacity(n as usize);
    for token in chosen {
        let token = token.map_err(session::engine_error)?;
        interrupt::be_gentle();
        first_token.get_or_insert_with(Instant::now);
        tokens.push(token);
        let end = !args.ignore_eos && tokenizer.is_some_and(|tokenizer| tokenizer.is_end(token));
        // The end token is one of the ids, but no text.
        let text = if end { "" } else { stream.as_mut().map_or("", |stream| stream.push(token)) };
        printer.token(token, text).into_diagnostic()?;
        // Steps enqueued beyond this one run to their end, unseen.
        if end || interrupt::asked() {
            break;
        }
    }
    let rest = stream.map_or(String::new(), |stream| stream.finish());
    printer.end(&rest).into_diagnostic()?;
    let first_token = first_token.unwrap_or(start);
    Ok(Generated {
        tokens,
        prompt_seconds: (first_token - start).as_secs_f64(),
        decode_seconds: first_token.elapsed().as_secs_f64(),
    })
}

fn rate(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

/// Writes tokens to standard output as they come: text after a text prompt, ids after ids.
pub(super) struct Printer<'a> {
    tokenizer: Option<&'a Tokenizer>,
    as_text: bool,
    first: bool,
    stream: bool,
}

impl<'a> Printer<'a> {
    /// Streams text.
    pub fn text(tokenizer: &'a Tokenizer) -> Self {
        Printer { tokenizer: Some(tokenizer), as_text: true, first: true, stream: true }
    }

    fn token(&mut self, token: u32, text: &str) -> std::io::Result<()> {
        if !self.stream {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        if self.as_text && self.tokenizer.is_some() {
            out.write_all(text.as_bytes())?;
        } else {
            let separator = if self.first { "" } else { "," };
            write!(out, "{separator}{token}")?;
        }
        self.first = false;
        out.flush()
    }

    fn end(&mut self, rest: &str) -> std::io::Result<()> {
        if !self.stream {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        if self.as_text {
            out.write_all(rest.as_bytes())?;
        }
        writeln!(out)
    }
}
