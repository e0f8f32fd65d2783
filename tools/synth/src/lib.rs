//! Synthetic models: GGUF files of any dense decoder shape with random weights and a working tokenizer.
//!
//! A decoder's speed depends only on shapes and types, so a synthetic file can replace a download of 5 GB in a
//! benchmark. Weights have realistic standard deviations, so that the logits of engines can be compared. A file depends
//! only on its [`SynthSpec`], not on the number of threads.

mod content;
mod vocab;

use std::io::{self, Write};

use bespoke_gguf::writer::DataWriter;
use bespoke_gguf::{GgmlType, Writer};
use bespoke_kernels::shape::{Architecture, Blueprint, Dimensions, Mix, Setting, ShapeError};
use content::Planned;
use rayon::prelude::*;

/// Specification of a synthetic model: shape, types and a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthSpec {
    /// The architecture.
    pub architecture: Architecture,
    /// `general.name`.
    pub name: String,
    /// The dimensions; a vocabulary has at least [`MIN_VOCAB`] tokens.
    pub dimensions: Dimensions,
    /// RoPE's base frequency.
    pub rope_base: f32,
    /// The types of the weight matrices.
    pub mix: Mix,
    /// Whether the output matrix is the embedding.
    pub tied: bool,
    /// Whether the file has tensors that divide RoPE's frequencies (Llama 3.1 and later, Phi-3).
    pub rope_factors: bool,
    /// Metadata below the architecture's prefix, in addition to that of a typical model, or instead of it.
    pub settings: Vec<(String, Setting)>,
    /// Type of the embedding, if it differs from the mix's type.
    pub embedding: Option<GgmlType>,
    /// Seed of the random weights.
    pub seed: u64,
}

/// The smallest vocabulary: a token for each byte and four special ones.
pub const MIN_VOCAB: u32 = 256 + vocab::SPECIAL.len() as u32;

/// Dimensions of a tiny model, whose file has a few megabytes.
pub const TINY: Dimensions = Dimensions {
    hidden: 256,
    layers: 2,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    rotated: 64,
    ffn: 768,
    vocab: 512,
    context: 4096,
    eps: 1e-5,
};

impl SynthSpec {
    /// The model without names, types and seed.
    pub fn blueprint(&self) -> Blueprint {
        Blueprint {
            architecture: self.architecture,
            dimensions: self.dimensions.clone(),
            rope_base: self.rope_base,
            tied: self.tied,
            rope_factors: self.rope_factors,
            embedding: self.embedding,
            settings: self.settings.clone(),
        }
    }
}

impl Default for SynthSpec {
    /// A [`TINY`] Llama.
    fn default() -> Self {
        Self {
            architecture: Architecture::named("llama").expect("llama is supported"),
            name: "synthetic".into(),
            dimensions: TINY,
            rope_base: 10_000.0,
            mix: Mix::Q4KM,
            tied: false,
            rope_factors: false,
            settings: Vec::new(),
            embedding: None,
            seed: 1,
        }
    }
}

/// Error of a synthetic model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// The specification describes no valid model.
    #[error("{0}")]
    Spec(String),
    /// The specification describes no supported model.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The specification describes no valid file.
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes the model to `out` and returns `out`. `progress` is called with the bytes written and their total.
pub fn write<W: Write + Send>(
    spec: &SynthSpec,
    out: W,
    progress: &dyn Fn(u64, u64),
) -> Result<W, SynthError> {
    let planned = content::plan(spec)?;
    let header = header(spec, &planned)?;
    Ok(stream(spec.seed, &planned, header, out, progress)?)
}

/// Returns a small model as bytes.
pub fn to_bytes(spec: &SynthSpec) -> Result<Vec<u8>, SynthError> {
    write(spec, Vec::new(), &|_, _| ())
}

/// Creates the header: metadata and tensor directory.
fn header(spec: &SynthSpec, planned: &[Planned]) -> Result<Writer, SynthError> {
    let mut writer = Writer::new();
    content::metadata(spec, &mut writer)?;
    vocab::metadata(spec, &mut writer)?;
    for tensor in planned {
        writer.tensor(&tensor.name, &tensor.dims, tensor.ty)?;
    }
    Ok(writer)
}

/// Generates and writes all tensors. While one batch is written, the next is generated.
fn stream<W: Write + Send>(
    seed: u64,
    planned: &[Planned],
    header: Writer,
    out: W,
    progress: &dyn Fn(u64, u64),
) -> io::Result<W> {
    let total = header.file_bytes();
    let mut done = total - header.tensors().iter().map(|info| info.bytes).sum::<u64>();
    let mut data = header.start(out)?;
    let (mut ready, mut next) = (Vec::new(), Vec::new());
    for (index, tensor) in planned.iter().enumerate() {
        let chunk_bytes = tensor.chunk_bytes();
        let chunks = tensor.bytes().div_ceil(chunk_bytes as u64);
        for first in (0..chunks).step_by(BATCH_CHUNKS) {
            let start = first * chunk_bytes as u64;
            let len = (tensor.bytes() - start).min((BATCH_CHUNKS * chunk_bytes) as u64);
            let fill = |next: &mut Vec<u8>| {
                next.resize(len as usize, 0);
                next.par_chunks_mut(chunk_bytes).enumerate().for_each(|(number, chunk)| {
                    tensor
                        .fill(bespoke_random::rng::stream(seed, index as u64, first + number as u64), chunk);
                });
            };
            let (written, ()) = rayon::join(|| data.write(&ready), || fill(&mut next));
            written?;
            done += ready.len() as u64;
            progress(done, total);
            std::mem::swap(&mut ready, &mut next);
        }
    }
    data.write(&ready)?;
    progress(total, total);
    DataWriter::finish(data)
}

/// Chunks generated at once, 9 to 64 MiB.
const BATCH_CHUNKS: usize = 64;

#[cfg(test)]
mod tests;
