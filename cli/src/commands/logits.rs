//! `bespoke logits`: writes the logits after every token, or compares them.

use std::path::PathBuf;

use bespoke::engine::EngineError;
use bespoke_logits::{Reference, nmse, safetensors};

use crate::model;
use crate::output::{Force, Output};
use crate::progress::Progress;
use crate::session::{self, DecodeArgs};

/// Write the logits after every token of a prompt, or compare them with a reference
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Writes a safetensors file with `tokens` (i32 [tokens]) and `logits` (f32 [tokens, vocab]). A \
reference is such a file, and may store only some positions, listed in `positions` (i32); the error is \
NMSE = Σ(ours - reference)² / Σ reference² over the stored positions.

Examples:
  bespoke logits model.gguf --tokens 1,2,3 --out logits.safetensors
  bespoke logits model.gguf --reference oracle.safetensors --limit 1e-4"
)]
pub struct LogitsArgs {
    /// The model, a GGUF file or a Hugging Face folder
    pub model: PathBuf,
    /// Token ids [default: those of the reference]
    #[arg(long, value_delimiter = ',', value_name = "IDS", required_unless_present = "reference")]
    pub tokens: Option<Vec<u32>>,
    /// The file to write
    #[arg(long, short, value_name = "FILE", required_unless_present = "reference")]
    pub out: Option<PathBuf>,
    /// Whether to replace an existing file.
    #[command(flatten)]
    pub force: Force,
    /// Logits to compare with
    #[arg(long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Fail if the error is above this
    #[arg(long, value_name = "NMSE", requires = "reference")]
    pub limit: Option<f64>,
    /// Device, context and mode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// Writes or compares the logits.
pub fn execute(args: &LogitsArgs) -> miette::Result<()> {
    let model = model::open_model_with(&args.model, args.decode.load)?;
    let shape = &model.shape;
    let reference = args.reference.as_deref().map(Reference::read).transpose()?;
    let tokens = match (&args.tokens, &reference) {
        (Some(tokens), _) => tokens.clone(),
        (None, Some(reference)) => reference.tokens.clone(),
        (None, None) => Vec::new(),
    };
    let count = tokens.len();
    let vocab = shape.dimensions.vocab as usize;
    let context = (count as u32).max(shape.dimensions.context.min(bespoke::engine::DEFAULT_CONTEXT));
    // Created first, so that an unwritable path fails before the weights are loaded.
    if let Some(context) = args.decode.ctx.filter(|&context| count as u64 > u64::from(context)) {
        return Err(session::engine_error(EngineError::ContextFull { needed: count as u64, context }));
    }
    let file = args.out.as_deref().map(|out| Output::create(out, args.force)).transpose()?;
    let mut engine = session::load(&model, &args.decode, context)?;
    engine.start(&tokens).map_err(session::engine_error)?;
    let bar = Progress::count("positions", count as u64);
    let mut all = Vec::new();
    all.try_reserve_exact(count * vocab).map_err(|_| {
        miette::miette!("{count} x {vocab} logits do not fit this machine's memory; use fewer tokens")
    })?;
    for done in 0..count {
        engine.step().map_err(session::engine_error)?;
        all.extend(engine.logits().map_err(session::engine_error)?);
        bar.set(done as u64 + 1);
    }
    bar.finish();
    if let (Some(file), Some(out)) = (file, &args.out) {
        file.write(&safetensors(&tokens, &all, vocab)?)?;
        eprintln!("{count} positions x {vocab} logits in {}", out.display());
    }
    if let Some(reference) = &reference {
        let at = |position: u32| all.get(position as usize * vocab..(position as usize + 1) * vocab);
        let ours: Vec<f32> = reference.positions.iter().filter_map(|&it| at(it)).flatten().copied().collect();
        let error = nmse(&ours, &reference.logits).ok_or_else(|| {
            miette::miette!(
                "the reference has {} logits, the model gave {}",
                reference.logits.len(),
                ours.len()
            )
        })?;
        let positions = reference.positions.len();
        println!("{} NMSE {error:.3e} over {positions} positions", model::model_name(&args.model));
        if let Some(limit) = args.limit
            && (error > limit || error.is_nan())
        {
            miette::bail!("NMSE {error:.3e} is above the limit of {limit:.3e}");
        }
    }
    Ok(())
}
