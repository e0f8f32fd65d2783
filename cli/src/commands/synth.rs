//! `bespoke synth`: writes a synthetic model.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bespoke::device::Bytes;
use bespoke::engine::DEFAULT_CONTEXT;
use bespoke_codegen::ptx::Target;
use bespoke_gguf::Gguf;
use bespoke_kernels::plan::{Plan, PlanParams};
use bespoke_kernels::shape::{
    Architecture, Blueprint, MAX_DIMENSION, MAX_LAYERS, Mix, ModelShape, ShapeFile,
};
use bespoke_synth::{self as synth, SynthError, SynthSpec};
use clap::builder::RangedU64ValueParser;
use clap::value_parser;
use miette::{IntoDiagnostic, miette};

use crate::console::note;
use crate::model;
use crate::model::builtin_named;
use crate::output::{self, Force, cannot_write, check_distinct, file_error};
use crate::progress::Progress;

/// The target for which a model must have a plan: of those with the most shared memory.
const TARGET: Target = Target::Sm90;

/// Write a synthetic model: a real model's shape with random weights, and a working tokenizer
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke synth 8b.gguf --shape llama-3.1-8b
  bespoke synth 8b-q8_0.gguf --shape llama-3.1-8b --mix q8_0 --seed 7
  bespoke synth twin.gguf --like model.gguf
  bespoke synth tiny.gguf --arch qwen2 --hidden 512 --layers 4 --vocab 1024

Options of dimensions replace those of --shape or --like, or else those of a tiny llama. The same arguments always \
give the same file.")]
pub struct SynthArgs {
    /// The file to write
    out: PathBuf,
    /// A built-in shape: its name, or name and mix as in llama-3.1-8b-q8_0
    #[arg(long, value_name = "NAME")]
    shape: Option<String>,
    /// A model to take shape and types from: a GGUF file, a Hugging Face folder, or `demo`
    #[arg(long, value_name = "MODEL", conflicts_with = "shape")]
    like: Option<PathBuf>,
    /// Types of the weights: q4_k_m, q5_k_m, q6_k, q8_0, f16, ... [default: the shape's, or q4_k_m]
    #[arg(long)]
    mix: Option<Mix>,
    /// Seed of the random weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    dimensions: DimensionArgs,
}

/// Options for single dimensions.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Dimensions")]
struct DimensionArgs {
    /// llama, qwen2, gemma3, ...: see docs/architectures.md
    #[arg(long)]
    arch: Option<Architecture>,
    /// Width of the residual stream
    #[arg(long, value_name = "N", value_parser = width())]
    hidden: Option<u32>,
    /// Layers
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_LAYERS)))]
    layers: Option<u32>,
    /// Query heads
    #[arg(long, value_name = "N", value_parser = width())]
    heads: Option<u32>,
    /// Key and value heads
    #[arg(long, value_name = "N", value_parser = width())]
    kv_heads: Option<u32>,
    /// Elements of a head
    #[arg(long, value_name = "N", value_parser = width())]
    head_dim: Option<u32>,
    /// Width of the feed-forward network
    #[arg(long, value_name = "N", value_parser = width())]
    ffn: Option<u32>,
    /// Tokens
    #[arg(long, value_name = "N", value_parser = width())]
    vocab: Option<u32>,
    /// Maximum context
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// RoPE's base frequency
    #[arg(long, value_name = "X", value_parser = positive)]
    rope_base: Option<f32>,
    /// Epsilon of the norms
    #[arg(long, value_name = "X", value_parser = positive)]
    eps: Option<f32>,
    /// Use the embedding as the output matrix
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    tied: Option<bool>,
    /// RoPE's frequencies are divided by factors, as in Llama 3.1 and Phi-3
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    rope_factors: Option<bool>,
}

/// Parser of a dimension: within the limits that reading a model has.
fn width() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=u64::from(MAX_DIMENSION))
}

/// Parses a positive, finite number.
fn positive(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        Ok(_) => Err("it must be positive and finite".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl DimensionArgs {
    fn apply(&self, spec: &mut SynthSpec) {
        fn replace<T>(value: &mut T, given: Option<T>) {
            if let Some(given) = given {
                *value = given;
            }
        }
        replace(&mut spec.architecture, self.arch);
        let d = &mut spec.dimensions;
        replace(&mut d.hidden, self.hidden);
        replace(&mut d.layers, self.layers);
        replace(&mut d.heads, self.heads);
        replace(&mut d.kv_heads, self.kv_heads);
        replace(&mut d.head_dim, self.head_dim);
        replace(&mut d.ffn, self.ffn);
        replace(&mut d.vocab, self.vocab);
        replace(&mut d.context, self.context);
        replace(&mut d.eps, self.eps);
        if self.head_dim.is_some() {
            d.rotated = d.head_dim;
        }
        replace(&mut spec.rope_base, self.rope_base);
        replace(&mut spec.tied, self.tied);
        replace(&mut spec.rope_factors, self.rope_factors);
    }
}

/// Writes the model.
pub fn execute(args: &SynthArgs) -> miette::Result<()> {
    let spec = spec(args)?;
    check(&spec)?;
    check_distinct(&args.out, args.like.as_slice())?;
    let file = output::create(&args.out, args.force)?;
    let start = Instant::now();
    let bar = Progress::bytes("writing", 0);
    let written = synth::write(&spec, file, &|done, total| bar.update(done, total));
    let file = written.map_err(|error| match error {
        SynthError::Io(error) => cannot_write(&args.out, error),
        error => miette!("{error}"),
    })?;
    file.finish().map_err(file_error)?;
    bar.finish();
    let seconds = start.elapsed().as_secs_f64();
    let bytes = args.out.metadata().into_diagnostic()?.len();
    note!(
        "{}: {} ({}) in {seconds:.1} s, {:.2} GB/s",
        args.out.display(),
        Bytes(bytes),
        spec.mix,
        bytes as f64 / seconds / 1e9
    );
    Ok(())
}

/// Fails for a model that `run` would refuse.
fn check(spec: &SynthSpec) -> miette::Result<()> {
    let shape = spec.blueprint().shape(&spec.name, spec.mix).into_diagnostic()?;
    let context = shape.dimensions.context.min(DEFAULT_CONTEXT);
    Plan::new(&shape, TARGET, PlanParams::single(context)).into_diagnostic()?;
    Ok(())
}

fn spec(args: &SynthArgs) -> miette::Result<SynthSpec> {
    let mut spec = match (&args.shape, &args.like) {
        (Some(name), _) => {
            let (file, mix) = builtin_named(name)?;
            from_shape_file(&file, mix)?
        }
        (None, Some(path)) => like(path, args.mix)?,
        (None, None) => SynthSpec::default(),
    };
    spec.mix = args.mix.unwrap_or(spec.mix);
    spec.seed = args.seed;
    args.dimensions.apply(&mut spec);
    if args.shape.is_none() && args.like.is_none() && args.dimensions.layers.is_none() {
        // Layers of every kind that the architecture has.
        let Architecture { window_period, unrotated_period, .. } = spec.architecture;
        let period = window_period.max(unrotated_period.unwrap_or(0));
        spec.dimensions.layers = spec.dimensions.layers.max(period);
    }
    Ok(spec)
}

fn from_shape_file(file: &ShapeFile, mix: Mix) -> miette::Result<SynthSpec> {
    Ok(from_blueprint(file.blueprint().into_diagnostic()?, &file.name, mix))
}

fn from_blueprint(model: Blueprint, name: &str, mix: Mix) -> SynthSpec {
    SynthSpec {
        architecture: model.architecture,
        name: name.to_owned(),
        dimensions: model.dimensions,
        rope_base: model.rope_base,
        mix,
        tied: model.tied,
        rope_factors: model.rope_factors,
        embedding: model.embedding,
        settings: model.settings,
        seed: 1,
    }
}

/// Specification with the shape of a GGUF file. Its weight types are those of `mix` or, without it, of the mix that the
/// file's `general.file_type` names; the embedding keeps the file's type. Warns with the number of other matrices whose
/// type in the file differs from the mix.
fn like(path: &Path, mix: Option<Mix>) -> miette::Result<SynthSpec> {
    let model::Model { gguf, shape, .. } = model::open_model(path)?;
    let mix = match mix {
        Some(mix) => mix,
        None => mix_of(&gguf, path)?,
    };
    let blueprint = Blueprint::of(&gguf, &shape).into_diagnostic()?;
    let mixed = blueprint.shape(&shape.name, mix).into_diagnostic()?;
    let embedding = (mixed.embedding != shape.embedding).then(|| shape.embedding.ggml());
    let matrices = differing(&mixed, &shape);
    if matrices > 0 {
        tracing::warn!("{matrices} matrices of {} have other types than in {mix}", path.display());
    }
    Ok(SynthSpec { embedding, ..from_blueprint(blueprint, &shape.name, mix) })
}

fn mix_of(gguf: &Gguf, path: &Path) -> miette::Result<Mix> {
    let number = gguf.opt_u32("general.file_type").into_diagnostic()?;
    number.and_then(Mix::from_file_type).ok_or_else(|| {
        let number =
            number.map_or("no general.file_type".to_owned(), |number| format!("general.file_type {number}"));
        miette!(
            help = "choose one with --mix",
            "{} has {number}, which is not a supported mix",
            path.display()
        )
    })
}

/// Number of matrices, except the embedding, whose types differ between two shapes.
fn differing(a: &ModelShape, b: &ModelShape) -> usize {
    a.matrix_types().zip(b.matrix_types()).filter(|(a, b)| a != b).count()
}
