//! `bespoke run`: decodes.

mod demo;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Instant;

use bespoke::engine::{self, Engine, EngineError};
use bespoke::tokenizer::Tokenizer;
use clap::{ArgGroup, ValueEnum};
use miette::{IntoDiagnostic, miette};
use serde::Serialize;

use crate::interrupt;
use crate::progress::Late;
use crate::sampling::SamplingArgs;
use crate::session::{self, DecodeArgs};

/// Decode a model: greedily, or with --temp by drawing tokens.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("input").args(["prompt", "file", "tokens"])))]
#[command(after_help = "Examples:
  bespoke run
  bespoke run --prompt \"17 + 25 =\"
  bespoke run model.gguf --prompt \"The quick brown fox\" -n 64
  bespoke run model.gguf --prompt Hello --temp 0.8 --seed 42
  bespoke run model.gguf --file question.txt --ctx 8192
  bespoke run model.gguf --tokens 1,2,3 -n 16 --format json
  bespoke run model.gguf --prompt Hello --device emulator")]
pub struct RunArgs {
    /// The model, a GGUF file [default: the demo model in this binary, which does sums and tells short stories]
    #[arg(requires = "input")]
    pub model: Option<PathBuf>,
    /// The prompt as text, or - for what standard input holds; the demo model has some of its own. It goes to the model
    /// as it is: there is no chat template
    #[arg(long, short)]
    pub prompt: Option<String>,
    /// A file that holds the prompt
    #[arg(long, short)]
    pub file: Option<PathBuf>,
    /// The prompt as token ids
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub tokens: Option<Vec<u32>>,
    /// Tokens to generate, at most what the context has room for [default: 128]
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
    stopped: Stop,
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
    let text = prompt_text(args)?;
    if text.is_none() && args.tokens.is_none() {
        return demo::execute(args, &model);
    }
    // Token ids need no vocabulary; text does.
    let tokenizer = match (&text, Tokenizer::from_gguf(&model.gguf)) {
        (_, Ok(tokenizer)) => Some(tokenizer),
        (Some(_), Err(error)) => return Err(error).into_diagnostic(),
        (None, Err(_)) => None,
    };
    let prompt = match (&text, &args.tokens, &tokenizer) {
        (Some(text), _, Some(tokenizer)) if model.is_demo => {
            tokenizer.encode(&bespoke_demo::as_taught(text)).into_diagnostic()?
        }
        (Some(text), _, Some(tokenizer)) => tokenizer.encode(text).into_diagnostic()?,
        (_, Some(tokens), _) => tokens.clone(),
        _ => Vec::new(),
    };
    let wanted = args.n.unwrap_or(DEFAULT_TOKENS);
    let positions = prompt.len() as u64 + u64::from(wanted);
    let most = u64::from(model.shape.dimensions.context);
    let context = args.decode.ctx.unwrap_or(most.min(positions.max(engine::DEFAULT_CONTEXT.into())) as u32);
    // Before the weights are loaded: a prompt that does not fit is of no use.
    let room = room(prompt.len(), context).map_err(session::engine_error)?;
    let sampling = args.sampling.params();
    let seed = (sampling.temperature > 0.0).then_some(sampling.seed);
    let mut engine = session::load_sampling(&model, &args.decode, context, sampling)?;
    engine.start(&prompt).map_err(session::engine_error)?;
    let load_seconds = start.elapsed().as_secs_f64();

    let mut printer = Printer {
        tokenizer: tokenizer.as_ref(),
        as_text: text.is_some(),
        first: true,
        stream: args.format == Format::Text,
    };
    let bar = Late::new("prompt");
    let generated = generate(&mut engine, wanted.min(room), args, &mut printer, Some((&bar, prompt.len())))?;
    let stopped =
        if generated.stopped == Stop::Count && wanted > room { Stop::Context } else { generated.stopped };
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
    if stopped == Stop::Context {
        tracing::warn!("the context of {context} positions is full; --ctx N for more");
    }
    match args.format {
        Format::Text => {
            eprintln!(
                "{} after a {} on {}",
                counted("token", generated.tokens.len(), timings.tokens_per_second),
                counted("prompt of", prompt.len(), timings.prompt_tokens_per_second),
                engine.device().info().name
            );
        }
        Format::Json => {
            let output = Output {
                model: model.shape.name.clone(),
                device: engine.device().info().name.clone(),
                text: tokenizer.as_ref().map(|tokenizer| tokenizer.decode(&generated.tokens)),
                stopped,
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

/// The prompt's text, if it is given as text: the argument, standard input or a file, without the newline that ends it.
fn prompt_text(args: &RunArgs) -> miette::Result<Option<String>> {
    let read = |from: &str, text: std::io::Result<String>| -> miette::Result<Option<String>> {
        let text = text.map_err(|error| miette!("cannot read the prompt from {from}: {error}"))?;
        Ok(Some(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)))
    };
    match (&args.prompt, &args.file) {
        (Some(text), _) if text == "-" => {
            let mut text = String::new();
            let outcome = std::io::stdin().read_to_string(&mut text);
            read("standard input", outcome.map(|_| text))
        }
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => read(&path.display().to_string(), std::fs::read_to_string(path)),
        (None, None) => Ok(None),
    }
}

/// How many tokens can follow a prompt: the last one needs no position of its own, since nothing follows it.
fn room(prompt: usize, context: u32) -> Result<u32, EngineError> {
    match u64::from(context).checked_sub(prompt as u64) {
        Some(left) => Ok((left + 1).min(u32::MAX.into()) as u32),
        None => Err(EngineError::ContextFull { needed: prompt as u64, context }),
    }
}

/// `12 tokens at 3.40 tokens/s`, `prompt of 7 at …`; no rate where nothing was timed.
fn counted(what: &str, count: usize, per_second: f64) -> String {
    let text = match (what, count) {
        ("token", 1) => "1 token".to_owned(),
        ("token", count) => format!("{count} tokens"),
        (what, count) => format!("{what} {count}"),
    };
    if per_second > 0.0 { format!("{text} at {per_second:.2} tokens/s") } else { text }
}

/// Why no more tokens came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stop {
    /// The model ended the text.
    End,
    /// As many as were asked for are there.
    Count,
    /// The cache is full.
    Context,
    /// Ctrl-C.
    Interrupted,
}

/// What was generated, and how long it took.
pub(super) struct Generated {
    pub tokens: Vec<u32>,
    /// Until the first token.
    pub prompt_seconds: f64,
    /// From the first token to the last.
    pub decode_seconds: f64,
    /// Why it ended.
    pub stopped: Stop,
}

/// Generates up to `n` tokens, handing each to `printer` as it comes, until one ends the text or Ctrl-C asks to stop.
/// `bar` shows how much of a prompt, of so many tokens, went by.
pub(super) fn generate(
    engine: &mut Engine,
    n: u32,
    args: &RunArgs,
    printer: &mut Printer<'_>,
    bar: Option<(&Late, usize)>,
) -> miette::Result<Generated> {
    let start = Instant::now();
    let tokenizer = printer.tokenizer;
    let mut stream = tokenizer.map(Tokenizer::decode_stream);
    let mut first_token = None;
    let tell = |position: u32| {
        if let Some((bar, prompt)) = bar {
            bar.update(u64::from(position), prompt as u64);
        }
    };
    let chosen = engine.generate_telling(n, Some(&tell)).map_err(session::engine_error)?;
    let mut tokens = Vec::with_capacity(n as usize);
    let mut stopped = Stop::Count;
    for token in chosen {
        if let (Some((bar, _)), None) = (bar, first_token) {
            bar.finish();
        }
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
            stopped = if end { Stop::End } else { Stop::Interrupted };
            break;
        }
    }
    if let Some((bar, _)) = bar {
        bar.finish();
    }
    let rest = stream.map_or(String::new(), |stream| stream.finish());
    printer.end(&rest).into_diagnostic()?;
    let first_token = first_token.unwrap_or(start);
    Ok(Generated {
        tokens,
        prompt_seconds: (first_token - start).as_secs_f64(),
        decode_seconds: first_token.elapsed().as_secs_f64(),
        stopped,
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
