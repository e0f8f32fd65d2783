//! `bespoke quantize`: writes a model with fewer bits per weight.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use bespoke::device::Bytes;
use bespoke_gguf::GgmlType;
use bespoke_kernels::shape::Mix;
use bespoke_quantize::{Quantization, QuantizeError};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::console::note;
use crate::model;
use crate::output::{self, Force, cannot_write, check_distinct, file_error};
use crate::progress::Progress;

/// Write a model with fewer bits a weight
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke quantize model-f16.gguf model-q4_k_m.gguf
  bespoke quantize model-f16.gguf model-q8_0.gguf --type q8_0
  bespoke quantize SmolLM2-135M smollm2-bf16.gguf --type bf16

Types and their mixes are llama.cpp's, and so is the way scales are chosen (without an importance matrix). One type is \
that of all matrices, the embedding included, as by `llama-quantize --pure`.")]
pub struct QuantizeArgs {
    #[arg(help = model::MODEL)]
    model: PathBuf,
    /// The file to write
    out: PathBuf,
    /// A mix (q4_k_m, q5_k_m) or one type for all matrices: q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl,
    /// iq4_xs, mxfp4, q4_0, q4_1, q5_0, q5_1, q8_0, f16, bf16, f32
    #[arg(long = "type", short = 't', value_name = "TYPE", default_value = "q4_k_m")]
    mix: Mix,
    #[command(flatten)]
    force: Force,
    /// Accept matrices that are already quantised
    #[arg(long)]
    allow_requantize: bool,
}

/// Quantises the model and writes the file.
pub fn execute(args: &QuantizeArgs) -> miette::Result<()> {
    let start = Instant::now();
    // Created first, so that an unwritable path fails before the model is read.
    let file = output::create(&args.out, args.force)?;
    let cannot = || format!("cannot quantise {}", args.model.display());
    let gguf = model::open_gguf(&args.model).wrap_err_with(cannot)?;
    check_distinct(&args.out, &model::files(&args.model, &gguf))?;
    let plan = match Quantization::new(&gguf, args.mix, args.allow_requantize) {
        Err(error) => return Err(model::quantize_error(error)).wrap_err_with(cannot),
        Ok(plan) => plan,
    };
    if let Some(fallbacks) = fallbacks(plan.fallbacks()) {
        tracing::warn!("{fallbacks}");
    }
    for (info, ty) in plan.tensors() {
        tracing::debug!("{:<32} {:?} {} -> {ty}", info.name, info.dims, info.ty);
    }
    let counts: Vec<String> = plan.counts().iter().map(|(ty, count)| format!("{count} {ty}")).collect();
    let bar = Progress::bytes("quantising", 0);
    let written = plan.write(file, &|done, total| bar.update(done, total));
    bar.finish();
    let written = written.map_err(|error| match error {
        QuantizeError::Io(error) => cannot_write(&args.out, error),
        error => miette!("{error}"),
    });
    written.and_then(|file| file.finish().map_err(file_error)).wrap_err_with(cannot)?;
    let bytes = args.out.metadata().into_diagnostic()?.len();
    note!(
        "{}: {} from {} in {:.1} s: {}",
        args.out.display(),
        Bytes(bytes),
        Bytes(gguf.file_bytes()),
        start.elapsed().as_secs_f64(),
        counts.join(", ")
    );
    Ok(())
}

/// Message about matrices that got another type than the mix gives them, if there are any.
fn fallbacks(fallbacks: BTreeMap<(GgmlType, GgmlType), usize>) -> Option<String> {
    let list: Vec<String> = fallbacks
        .iter()
        .map(|((wanted, ty), count)| {
            format!("{count} in {ty}, since {wanted} needs multiples of {}", wanted.block_elements())
        })
        .collect();
    let count = counted_matrices(fallbacks.values().sum());
    (!list.is_empty()).then(|| {
        format!("{count} not stored in the type of the mix, by the length of their rows: {}", list.join("; "))
    })
}

fn counted_matrices(count: usize) -> String {
    if count == 1 { "1 matrix is".to_owned() } else { format!("{count} matrices are") }
}
