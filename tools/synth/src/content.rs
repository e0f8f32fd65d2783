//! Contents of a file: hyper-parameters, and the tensors in the order in which they are written.

use bespoke_gguf::{GgmlType, Writer};
use bespoke_kernels::shape::mix;
use bespoke_kernels::shape::tensors::{Form, Tensor, TensorName};
use bespoke_random::blocks::{self, CHUNK_ELEMENTS};
use bespoke_random::rng::SplitMix64;

use super::{MIN_VOCAB, SynthError, SynthSpec};

/// A tensor to be written.
pub struct Planned {
    pub name: String,
    /// Dimensions, innermost first.
    pub dims: Vec<u64>,
    pub ty: GgmlType,
    values: Values,
}

/// The distribution of a tensor's values.
enum Values {
    /// Random values with this mean and standard deviation.
    Random(f32, f32),
    /// RoPE divisors like those of Llama 3.1: 1 for the fast half of the frequencies, 8 for the slow half.
    RopeFactors,
}

impl Planned {
    /// Size of the tensor's data in bytes.
    pub fn bytes(&self) -> u64 {
        self.dims.iter().product::<u64>() / self.ty.block_elements() as u64 * self.ty.block_bytes() as u64
    }

    /// Bytes per chunk; each chunk has its own random generator.
    pub fn chunk_bytes(&self) -> usize {
        CHUNK_ELEMENTS / self.ty.block_elements() * self.ty.block_bytes()
    }

    /// Fills one chunk of the tensor's data.
    pub fn fill(&self, mut rng: SplitMix64, chunk: &mut [u8]) {
        match self.values {
            Values::Random(mean, std) => blocks::fill(self.ty, mean, std, &mut rng, chunk),
            Values::RopeFactors => {
                let (factors, _) = chunk.as_chunks_mut::<4>();
                let fast = factors.len() / 2;
                for (i, factor) in factors.iter_mut().enumerate() {
                    *factor = if i < fast { 1.0f32 } else { 8.0 }.to_le_bytes();
                }
            }
        }
    }
}

/// Plans the tensors of a model; fails for an invalid specification.
pub fn plan(spec: &SynthSpec) -> Result<Vec<Planned>, SynthError> {
    check(spec)?;
    let shape = spec.blueprint().shape(&spec.name, spec.mix)?;
    Ok(shape.tensors().map(|name| planned(spec, name)).collect())
}

/// Dimensions, type and distribution of one tensor.
fn planned(spec: &SynthSpec, name: TensorName) -> Planned {
    let d = &spec.dimensions;
    let ty = spec.blueprint().tensor_type(name, spec.mix);
    let form = name.tensor.form();
    let values = match (name.tensor, form) {
        (Tensor::RopeFreqs | Tensor::RopeFactorsLong | Tensor::RopeFactorsShort, _) => Values::RopeFactors,
        (Tensor::TokenEmbd, _) if !spec.tied => Values::Random(0.0, 1.0),
        (Tensor::AttnQBias | Tensor::AttnKBias | Tensor::AttnVBias | Tensor::AttnQkvBias, _) => {
            Values::Random(0.0, 0.1)
        }
        // Weights of norms.
        (_, Form::Vector(_)) => Values::Random(1.0, 0.1),
        (_, Form::Matrix(_, cols)) => Values::Random(0.0, unit_gain(cols.of(d))),
    };
    Planned { name: name.to_string(), dims: form.dims(d), ty, values }
}

fn check(spec: &SynthSpec) -> Result<(), SynthError> {
    let d = &spec.dimensions;
    let fail = |message: String| Err(SynthError::Spec(message));
    for (what, value) in [
        ("hidden", d.hidden),
        ("layers", d.layers),
        ("heads", d.heads),
        ("kv_heads", d.kv_heads),
        ("head_dim", d.head_dim),
        ("ffn", d.ffn),
        ("context", d.context),
    ] {
        if value == 0 {
            return fail(format!("{what} must not be 0"));
        }
    }
    if !d.heads.is_multiple_of(d.kv_heads) {
        return fail(format!("{} heads cannot share {} KV heads evenly", d.heads, d.kv_heads));
    }
    if !d.head_dim.is_multiple_of(2) {
        return fail(format!("head_dim {} must be even for RoPE", d.head_dim));
    }
    if d.heads.checked_mul(d.head_dim).is_none() {
        return fail(format!("{} heads of {} elements overflow", d.heads, d.head_dim));
    }
    if d.vocab < MIN_VOCAB {
        return fail(format!("a vocabulary of {} is too small: {MIN_VOCAB} is the least", d.vocab));
    }
    for ty in spec.embedding.iter().chain(if let mix::Mix::Pure(ty) = &spec.mix { Some(ty) } else { None }) {
        if !mix::supported(*ty) {
            return fail(format!("tensors of type {ty} are not supported"));
        }
    }
    Ok(())
}

/// Standard deviation of weights that preserves that of a vector of `cols` elements: 1/√cols.
fn unit_gain(cols: u32) -> f32 {
    (1.0 / cols as f32).sqrt()
}

/// Writes the hyper-parameters.
pub fn metadata(spec: &SynthSpec, writer: &mut Writer) -> Result<(), SynthError> {
    writer.set("general.architecture", spec.architecture.name)?;
    writer.set("general.name", spec.name.as_str())?;
    writer.set("general.file_type", spec.mix.file_type())?;
    writer.set("general.quantization_version", 2u32)?; // GGML_QNT_VERSION
    Ok(spec.blueprint().metadata(writer)?)
}
