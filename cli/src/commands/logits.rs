//! `bespoke logits`: writes the logits after every token, or compares them.

use std::path::PathBuf;

use bespoke::engine::check_prompt;
use bespoke::tokenizer::Tokenizer;
use bespoke_logits::{Reference, nmse, safetensors};
use clap::ArgGroup;
use miette::{IntoDiagnostic, miette};

use crate::advice::{context_full, engine_error};
use crate::console::{counted, note, outln};
use crate::input::{self, FinalNewline, TokenIds};
use crate::model::{self, Model};
use crate::output::{self, Force, check_distinct};
use crate::progress::Progress;
use crate::session::{self, DecodeArgs};

/// Write the logits after every token of a prompt, or compare them with a reference
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("input").args(["prompt", "file", "tokens", "reference"]).required(true).multiple(true)))]
#[command(group(ArgGroup::new("given").args(["prompt", "file", "tokens"])))]
#[command(group(ArgGroup::new("result").args(["out", "reference"]).required(true).multiple(true)))]
#[command(
    after_help = "Writes a safetensors file with `tokens` (i32 [tokens]) and `logits` (f32 [tokens, vocab]). A \
reference is such a file, and may store only some positions, listed in `positions` (i32); the error is \
NMSE = Σ(ours - reference)² / Σ reference² over the stored positions.

Examples:
  bespoke logits model.gguf --prompt \"The quick brown fox\" --out logits.safetensors
  bespoke logits model.gguf --tokens 1,2,3 --out logits.safetensors
  bespoke logits model.gguf --reference oracle.safetensors --limit 1e-4"
)]
pub struct LogitsArgs {
    #[arg(help = model::MODEL)]
    pub model: PathBuf,
    /// The prompt as text, or - for standard input
    #[arg(long, short, allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file with the prompt, or - for standard input; a final newline is not part of it
    #[arg(long, short)]
    pub file: Option<PathBuf>,
    /// The prompt as token ids, or - for ids on standard input [default: those of the reference]
    #[arg(long, value_name = "IDS")]
    pub tokens: Option<TokenIds>,
    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Whether to replace an existing file.
    #[command(flatten)]
    pub force: Force,
    /// Logits to compare with
    #[arg(long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Fail if the error is above this
    #[arg(long, value_name = "NMSE", requires = "reference", value_parser = limit)]
    pub limit: Option<f64>,
    /// Device, context and mode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// Parses the largest error that is accepted. No error is above NaN or infinity.
fn limit(text: &str) -> Result<f64, String> {
    let limit = text.parse().ok().filter(|limit: &f64| limit.is_finite() && *limit >= 0.0);
    limit.ok_or_else(|| "expected a finite number that is not negative".to_owned())
}

/// Writes or compares the logits.
pub fn execute(args: &LogitsArgs) -> miette::Result<()> {
    let model = model::open_model_with(&args.model, args.decode.load)?;
    let shape = &model.shape;
    let reference = args.reference.as_deref().map(Reference::read).transpose()?;
    let given = given_tokens(args, &model)?;
    let vocab = shape.dimensions.vocab as usize;
    // All checks come before the weights are loaded.
    if let (Some(reference), Some(path)) = (&reference, &args.reference) {
        reference.check_comparable(given.as_deref(), vocab).map_err(|error| {
            miette!("{} cannot be compared with {}: {error}", args.model.display(), path.display())
        })?;
    }
    let tokens = given.or_else(|| Some(reference.as_ref()?.tokens.clone())).unwrap_or_default();
    check_prompt(&tokens, model.shape.dimensions.vocab).map_err(engine_error)?;
    let count = tokens.len();
    let needed = (count as u32).max(shape.dimensions.context.min(bespoke::engine::DEFAULT_CONTEXT));
    let context = args.decode.context(&model).unwrap_or(needed);
    if count as u64 > u64::from(context) {
        return Err(context_full(count, context, count as u64));
    }
    if let Some(out) = &args.out {
        let inputs = model::files(&args.model, &model.gguf);
        check_distinct(out, &inputs.into_iter().chain(args.reference.clone()).collect::<Vec<_>>())?;
    }
    let file = args.out.as_deref().map(|out| output::create(out, args.force)).transpose()?;
    let mut engine = session::load(&model, &args.decode, context)?;
    engine.start(&tokens).map_err(engine_error)?;
    let bar = Progress::count("positions", count as u64);
    let mut all = Vec::new();
    all.try_reserve_exact(count * vocab).map_err(|_| {
        miette!("{count} x {vocab} logits do not fit this machine's memory; use fewer tokens")
    })?;
    for done in 0..count {
        engine.step().map_err(engine_error)?;
        all.extend(engine.logits().map_err(engine_error)?);
        bar.set(done as u64 + 1);
    }
    bar.finish();
    if let (Some(file), Some(out)) = (file, &args.out) {
        output::write(file, &safetensors(&tokens, &all, vocab)?)?;
        note!("{} x {vocab} logits in {}", counted(count, "position"), out.display());
    }
    if let Some(reference) = &reference {
        let at = |position: u32| all.get(position as usize * vocab..(position as usize + 1) * vocab);
        let ours: Vec<f32> = reference.positions.iter().filter_map(|&it| at(it)).flatten().copied().collect();
        let error = nmse(&ours, &reference.logits);
        let error = error.ok_or_else(|| {
            miette!(
                "the reference has {} logits at these positions, the model {}",
                reference.logits.len(),
                ours.len()
            )
        })?;
        let positions = counted(reference.positions.len(), "position");
        outln!("{} NMSE {error:.3e} over {positions}", model::model_name(&args.model))?;
        if let Some(limit) = args.limit
            && (error > limit || error.is_nan())
        {
            miette::bail!("NMSE {error:.3e} is above the limit of {limit:.3e}");
        }
    }
    Ok(())
}

/// Tokens that the command line gives, as ids or as text.
fn given_tokens(args: &LogitsArgs, model: &Model) -> miette::Result<Option<Vec<u32>>> {
    if let Some(tokens) = &args.tokens {
        return tokens.read().map(Some);
    }
    match input::prompt(args.prompt.as_deref(), args.file.as_deref(), FinalNewline::Dropped)? {
        Some(text) => {
            let tokenizer = Tokenizer::from_gguf(&model.gguf).into_diagnostic()?;
            tokenizer.encode(&text).map(Some).into_diagnostic()
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::limit;

    #[test]
    fn a_limit_that_every_error_meets_is_refused() {
        for text in ["nan", "inf", "1e999", "-1e-4", "", "x"] {
            assert!(limit(text).is_err(), "{text}");
        }
        assert_eq!((limit("0"), limit("1e-4")), (Ok(0.0), Ok(1e-4)));
    }
}
