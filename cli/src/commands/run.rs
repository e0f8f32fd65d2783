//! `bespoke run`: decodes a model and streams the text.

mod demo;
mod printer;
mod prompt;

use std::path::PathBuf;
use std::time::Instant;

use bespoke::engine::EngineOptions;
use bespoke::generation::{FinishReason, Request, Summary};
use clap::error::ErrorKind;
use clap::{ArgGroup, ValueEnum};
use miette::{IntoDiagnostic, miette};
use printer::{Printer, Streamed, TokenLogprob};
use serde::Serialize;

use crate::advice::engine_error;
use crate::chat_template::TemplateArgs;
use crate::console::{self, counted, note};
use crate::decoder::Decoder;
use crate::input::{self, FinalNewline, TokenIds};
use crate::interrupt;
use crate::model;
use crate::progress::DelayedBar;
use crate::sampling::{DrawsWithTemp, SamplingArgs};
use crate::session::{DecodeArgs, SpeculationArgs};

/// Decode a model, greedily or (with --temp) sampling
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("input").args(["prompt", "file", "tokens"])))]
#[command(after_help = "Examples:
  bespoke run
  bespoke run --prompt \"17 + 25 =\"
  bespoke run model.gguf --prompt \"The quick brown fox\" -n 64
  bespoke run model.gguf --prompt Hello --temp 0.8 --seed 42
  bespoke run model.gguf --chat --prompt \"What is the capital of France?\"
  bespoke run model.gguf --prompt \"Q: 2 + 2? A:\" --stop Q: --logprobs 3
  bespoke run model.gguf --file question.txt --ctx 8192
  bespoke run model.gguf --tokens 1,2,3 -n 16 --format json
  bespoke run model.gguf --prompt Hello --device emulator")]
pub struct RunArgs {
    /// Check that there is a prompt; first, since reading an option removes it from clap's matches.
    #[command(flatten)]
    pub needs_prompt: NeedsPrompt,
    /// The model: a GGUF file, a Hugging Face folder, or `demo` [default: demo, the demo model in this binary, which does
    /// arithmetic and tells short stories]
    pub model: Option<PathBuf>,
    /// The prompt as text, or - for standard input; the demo model has default prompts. The model gets the prompt as it
    /// is, but for --chat
    #[arg(long, short, allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file with the prompt, or - for standard input; a final newline is not part of it
    #[arg(long, short)]
    pub file: Option<PathBuf>,
    /// The prompt as token ids, or - for ids on standard input; the output is then ids too, not text
    #[arg(long, value_name = "IDS")]
    pub tokens: Option<TokenIds>,
    /// Treat the prompt as a question: write it by the model's chat template
    #[arg(long, conflicts_with = "tokens")]
    pub chat: bool,
    /// Tokens to generate, or -1 for all until the text ends or the context is full [default: 128; with --chat, -1]
    #[arg(short, long, aliases = ["predict", "n-predict"], value_name = "N", value_parser = token_limit)]
    pub n: Option<u32>,
    /// When the context is full, keep its first N tokens and the newer half of the others, and continue [default: end]
    #[arg(long, value_name = "N")]
    pub keep: Option<u32>,
    /// Continue after an end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,
    /// End before this text, also if it spans several tokens; it is not printed. May be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = input::stop_text)]
    pub stop: Vec<String>,
    /// Print the log-probability of each token and of the N most likely ones, one line for each token
    #[arg(long, value_name = "N")]
    pub logprobs: Option<u32>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Speculation.
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    /// Template and system prompt, for `--chat`.
    #[command(flatten)]
    pub template: TemplateArgs,
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

/// `-n -1`: no limit.
pub const UNLIMITED: u32 = u32::MAX;

/// Parses a number of tokens; -1 is [`UNLIMITED`].
pub fn token_limit(text: &str) -> Result<u32, String> {
    if text == "-1" {
        return Ok(UNLIMITED);
    }
    text.parse().map_err(|_| "expected a number of tokens, or -1 for no limit".to_owned())
}

/// Name of an option of the chat template that was given without `--chat`, if one was.
fn template_without_chat(matches: &clap::ArgMatches) -> Result<Option<&'static str>, clap::Error> {
    let template = <TemplateArgs as clap::FromArgMatches>::from_arg_matches(matches)?;
    Ok(template.given().filter(|_| !matches.get_flag("chat")))
}

/// Check of the command line: only the demo model has prompts of its own, and only chats have a template.
#[derive(Clone, Debug)]
pub struct NeedsPrompt;

impl clap::Args for NeedsPrompt {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }
    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl clap::FromArgMatches for NeedsPrompt {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        match matches.get_one::<PathBuf>("model") {
            Some(path) if !model::is_demo(path) && !matches.contains_id("input") => {
                let message = if path.exists() {
                    "a prompt is needed: --prompt TEXT, --file FILE or --tokens IDS; `bespoke chat MODEL` holds a \
                     conversation"
                        .to_owned()
                } else {
                    format!(
                        "there is no model {}; a prompt is an option: `bespoke run -p TEXT` asks the demo model, `bespoke \
                         run MODEL.gguf -p TEXT` your own",
                        path.display()
                    )
                };
                Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, message))
            }
            _ => match template_without_chat(matches)? {
                Some(option) => {
                    let message = format!("{option} needs --chat");
                    Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, message))
                }
                None => Ok(NeedsPrompt),
            },
        }
    }
    fn update_from_arg_matches(&mut self, _: &clap::ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Streamed text.
    Text,
    /// One JSON object at the end.
    Json,
}

#[derive(Serialize)]
struct Output {
    model: String,
    device: String,
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    text: Option<String>,
    /// Log-probabilities of every token, with `--logprobs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenLogprob>>,
    /// [`FinishReason::name`].
    finish_reason: &'static str,
    /// Seed, if tokens were sampled.
    seed: Option<u64>,
    timings: Timings,
}

/// Durations in seconds, and speeds in tokens per second.
#[derive(Serialize)]
struct Timings {
    load_seconds: f64,
    prompt_seconds: f64,
    decode_seconds: f64,
    prompt_tokens_per_second: f64,
    tokens_per_second: f64,
}

/// Decodes the prompt and prints the text or the JSON object.
pub fn execute(args: &RunArgs) -> miette::Result<()> {
    let start = Instant::now();
    let model = match &args.model {
        Some(path) => model::open_model_with(path, args.decode.load)?,
        None => model::open_demo_with(args.decode.load)?,
    };
    let text = input::prompt(args.prompt.as_deref(), args.file.as_deref(), FinalNewline::Dropped)?;
    let ids = args.tokens.as_ref().map(TokenIds::read).transpose()?;
    if text.is_none() && ids.is_none() {
        if args.chat {
            return Err(miette!("--chat needs --prompt or --file"));
        }
        return demo::execute(args, &model);
    }
    // Opening a GPU and reading a large tokenizer take a quarter of a second each.
    let device = args.decode.device.start_opening();
    // Only text needs the tokenizer; token ids do not.
    let (tokenizer, ends) = match &text {
        Some(_) => {
            let tokenizer = model.tokenizer().into_diagnostic()?;
            let ends = tokenizer.end_tokens().to_vec();
            (Some(tokenizer), ends)
        }
        None => model.tokenizer_for_ids(),
    };
    let prompt = match (&text, ids, &tokenizer) {
        (Some(text), _, Some(tokenizer)) => prompt::encode(text, args, &model, tokenizer)?,
        (_, ids, _) => ids.unwrap_or_default(),
    };
    // Checked before the weights are loaded.
    let context = prompt::context(&prompt, args, &model)?;
    if tokenizer.is_none() && !args.stop.is_empty() {
        return Err(miette!("--stop needs a model with a vocabulary"));
    }
    let sampling = args.sampling.params(tokenizer.as_ref())?;
    let seed = (sampling.temperature > 0.0).then_some(sampling.seed);
    let options = args.decode.options(&model, context)?;
    let options = EngineOptions { sampling: sampling.clone(), ..options };
    let mut engines = args.speculation.load(device, &model, &args.decode, options)?;
    let mut decoder = Decoder::new(&mut engines, args.speculation.speculation(), tokenizer.as_ref())
        .map_err(engine_error)?;
    let load_seconds = start.elapsed().as_secs_f64();

    let streamed = match args.format {
        Format::Json => Streamed::Nothing,
        Format::Text if args.logprobs.is_some() => Streamed::Logprobs,
        Format::Text if text.is_some() => Streamed::Text,
        Format::Text => Streamed::Ids,
    };
    let mut printer = Printer::new(tokenizer.as_ref(), streamed, !args.stop.is_empty());
    let bar = DelayedBar::new("prompt", prompt.len() as u64);
    let request = Request {
        sampling,
        max_tokens: prompt::max_tokens(args),
        keep: args.keep,
        stop_tokens: if args.ignore_eos { &[] } else { &ends },
        stop_strings: &args.stop,
        logprobs: args.logprobs,
        ..Request::new(&prompt)
    };
    let generated = generate(&mut decoder, &request, &mut printer, Some(&bar))?;
    let prompt_seconds = generated.prompt_time.as_secs_f64();
    let decode_seconds = generated.decode_time.as_secs_f64();
    let timings = Timings {
        load_seconds,
        prompt_seconds,
        decode_seconds,
        prompt_tokens_per_second: rate(prompt.len() - generated.reused as usize, prompt_seconds),
        tokens_per_second: rate(generated.tokens.len().saturating_sub(1), decode_seconds),
    };
    log(&generated, &timings, &prompt, context, args.keep.unwrap_or(0));
    match args.format {
        Format::Text => {
            note!(
                "{} after a prompt of {} on {}{}",
                at_rate(counted(generated.tokens.len(), "token"), timings.tokens_per_second),
                at_rate(prompt.len().to_string(), timings.prompt_tokens_per_second),
                decoder.device(),
                args.speculation.summary(&generated.drafts)
            );
        }
        Format::Json => {
            let output = Output {
                model: model.shape.name.clone(),
                device: decoder.device().to_owned(),
                text: tokenizer.is_some().then_some(generated.text),
                logprobs: args.logprobs.map(|_| printer.logprobs),
                finish_reason: generated.reason.name(),
                seed,
                prompt_tokens: prompt,
                tokens: generated.tokens,
                timings,
            };
            console::json(&output)?;
        }
    }
    Ok(())
}

/// Logs when the first token came, and what happened to a full context.
fn log(generated: &Summary, timings: &Timings, prompt: &[u32], context: u32, keep: u32) {
    tracing::debug!(
        "first token {:.3} s after the start: {:.3} s for loading, {:.3} s for the prompt of {}",
        timings.load_seconds + timings.prompt_seconds,
        timings.load_seconds,
        timings.prompt_seconds,
        prompt.len()
    );
    if generated.reason == FinishReason::ContextFull {
        tracing::warn!(
            "stopped because the context of {context} positions is full: --ctx N makes it larger, --keep N continues \
             without its older tokens"
        );
    }
    if generated.shifts > 0 {
        tracing::info!(
            "the context of {context} positions was full {}; each time the first {keep} tokens and the newer half of the \
             others were kept",
            if generated.shifts == 1 { "once".to_owned() } else { format!("{} times", generated.shifts) },
        );
    }
}

/// A count and a rate, as in `12 tokens at 3.40 tokens/s`; without the rate if it was not measured.
fn at_rate(count: String, per_second: f64) -> String {
    if per_second > 0.0 { format!("{count} at {per_second:.2} tokens/s") } else { count }
}

/// Generates an answer, and prints each token when it is chosen. `bar` is the progress bar of the prompt.
fn generate(
    decoder: &mut Decoder<'_>,
    request: &Request<'_>,
    printer: &mut Printer<'_>,
    bar: Option<&DelayedBar>,
) -> miette::Result<Summary> {
    let summary = decoder.generate(request, bar, |token| {
        interrupt::defer_first();
        printer.token(token)
    })?;
    printer.end(&summary)?;
    Ok(summary)
}

/// Tokens per second; 0 if no time was measured.
pub fn rate(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}
