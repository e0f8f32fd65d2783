//! `bespoke perplexity`: how well a model predicts a text.

use std::path::PathBuf;

use bespoke_perplexity::{Perplexity, perplexity, text};
use serde::Serialize;

use crate::console::{self, out};
use crate::model;
use crate::scored_text::{Division, Format, ScoredText, TextArgs};
use crate::session::{self, DecodeArgs};

/// Measure the perplexity of a model on a text
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The text is cut into windows of --ctx tokens [default: 512, or the model's context if that is \
smaller]. Each starts with an empty cache, and with the beginning-of-sequence token in place of its first token if the \
model uses one. The tokens of its second half are scored: the tokens that llama.cpp's llama-perplexity scores. With \
--stride, windows overlap and every token is scored once. Perplexity is e^mean(-ln p).

Examples:
  bespoke perplexity model.gguf --file wiki.test.raw
  bespoke perplexity model.gguf --file wiki.test.raw --ctx 2048 --chunks 10
  bespoke perplexity model.gguf --file book.txt --ctx 1024 --stride 512 --format json"
)]
pub struct PerplexityArgs {
    #[arg(help = model::MODEL)]
    pub model: PathBuf,
    /// The text.
    #[command(flatten)]
    pub text: TextArgs,
    /// Device, context and mode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

#[derive(Serialize)]
struct Output {
    model: String,
    device: String,
    text: Division,
    #[serde(flatten)]
    result: Perplexity,
}

/// Measures the perplexity and prints it.
pub fn execute(args: &PerplexityArgs) -> miette::Result<()> {
    let model = model::open_model_with(&args.model, args.decode.load)?;
    let text = ScoredText::read(&args.text, &args.decode, &model)?;
    let mut engine = session::load(&model, &args.decode, text.context())?;
    let measurement = |text: bespoke_perplexity::Text<'_>, progress: bespoke_perplexity::Progress<'_>| {
        perplexity(&mut engine, text, progress)
    };
    let result = text.measure(measurement, |result| result.work.scored)?;
    match args.text.format {
        Format::Text => out!("{}", text::perplexity(&result))?,
        Format::Json => {
            let device = engine.device().info().name.clone();
            let output = Output { model: model.shape.name, device, text: text.division(), result };
            console::json(&output)?;
        }
    }
    Ok(())
}
