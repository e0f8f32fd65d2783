//! `bespoke compare`: how far the predictions of two models are apart.

use std::path::PathBuf;

use bespoke_kernels::kernels::attention::KvType;
use bespoke_perplexity::{Comparison, check_vocabularies, compare, text};
use miette::miette;
use serde::Serialize;

use crate::console::{self, out};
use crate::model;
use crate::scored_text::{Division, Format, ScoredText, TextArgs};
use crate::session::{self, DecodeArgs};

/// Compare the predictions of two models on a text
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The text is cut and scored as by `bespoke perplexity`. KL divergence is the mean over the scored \
tokens of sum p * ln(p/q) over the vocabulary, in nats, with p of the reference and q of the model. The ratio is that \
of the perplexities, model / reference. --quantize and --kv apply to the model, not to the reference. Both models must \
have the same vocabulary; both are in memory.

Examples:
  bespoke compare model-f16.gguf model-q4_k_m.gguf --file wiki.test.raw
  bespoke compare model.gguf model.gguf --kv q8_0 --file wiki.test.raw --chunks 8 --format json
  bespoke compare FOLDER FOLDER --quantize q4_k_m --file wiki.test.raw"
)]
pub struct CompareArgs {
    /// The reference: a GGUF file, a Hugging Face folder, or `demo`
    pub reference: PathBuf,
    /// The model that is compared with the reference: a GGUF file, a Hugging Face folder, or `demo`
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
    reference_model: String,
    compared_model: String,
    device: String,
    text: Division,
    #[serde(flatten)]
    result: Comparison,
}

/// Compares the models and prints the result.
pub fn execute(args: &CompareArgs) -> miette::Result<()> {
    let reference = model::open_model(&args.reference)?;
    let model = model::open_model_with(&args.model, args.decode.load)?;
    check_vocabularies(&reference.gguf, &model.gguf).map_err(|error| {
        miette!("{} and {} cannot be compared: {error}", args.reference.display(), args.model.display())
    })?;
    let text = ScoredText::read(&args.text, &args.decode, &reference)?;
    let of_reference = DecodeArgs { kv: KvType::default(), ..args.decode.clone() };
    let mut engines = [
        session::load(&reference, &of_reference, text.context())?,
        session::load(&model, &args.decode, text.context())?,
    ];
    let [first, second] = &mut engines;
    let measurement = |text: bespoke_perplexity::Text<'_>, progress: bespoke_perplexity::Progress<'_>| {
        compare(first, second, text, progress)
    };
    let result = text.measure(measurement, |result| result.work.scored)?;
    match args.text.format {
        Format::Text => out!("{}", text::comparison(&result))?,
        Format::Json => {
            let output = Output {
                reference_model: reference.shape.name,
                compared_model: model.shape.name,
                device: engines[1].device().info().name.clone(),
                text: text.division(),
                result,
            };
            console::json(&output)?;
        }
    }
    Ok(())
}
