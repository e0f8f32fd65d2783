//! Shape of a model from the header of its GGUF file.

use std::collections::HashSet;

use bespoke_gguf::{GgmlType, Gguf};

use super::tensors::{Form, Inventory, Tensor, TensorName};
use super::{Architecture, Dimensions, LayerTypes, ModelShape, ShapeError, weight_type};
use crate::kernels::rope::frequencies;

impl ModelShape {
    /// Reads the shape of a model from its header.
    ///
    /// Every tensor that decoding reads must be there, with the dimensions that the metadata gives and a supported
    /// type. A tensor that decoding does not read is an error: ignoring it would give wrong results.
    pub fn from_gguf(gguf: &Gguf, name: &str) -> Result<ModelShape, ShapeError> {
        let mut architecture = Architecture::named(gguf.architecture()?)?;
        let has = |name: TensorName| gguf.tensor(&name.to_string()).is_some();
        // Models shaped like Llama with biases on Q, K and V exist under both names.
        architecture.qkv_bias |= has(Tensor::AttnQBias.of_layer(0));
        let dimensions = dimensions(gguf, &architecture.name)?;
        dimensions.check()?;
        let tied = !has(Tensor::Output.of_model());
        let inventory = Inventory {
            architecture: &architecture,
            layers: dimensions.layers,
            tied,
            rope_factors: has(Tensor::RopeFreqs.of_model()),
        };
        // The number of layers is not trusted: the first missing tensor ends this.
        for name in inventory.names() {
            check_tensor(gguf, name, &dimensions)?;
        }
        let known: HashSet<String> = inventory.names().map(|name| name.to_string()).collect();
        if let Some(other) = gguf.tensors().iter().find(|tensor| !known.contains(&tensor.name)) {
            return Err(ShapeError::Unsupported(format!(
                "tensor {}: decoding of {} models does not use it yet, and ignoring it would give wrong results",
                other.name, architecture.name
            )));
        }
        let ty = |name: TensorName| weight_type(name, gguf.require(&name.to_string())?.ty);
        let embedding = ty(Tensor::TokenEmbd.of_model())?;
        let head = if tied { None } else { Some(ty(Tensor::Output.of_model())?) };
        let layers = (0..dimensions.layers)
            .map(|layer| LayerTypes::from_fn(|tensor| ty(tensor.of_layer(layer))))
            .collect::<Result<_, ShapeError>>()?;
        let shape = ModelShape { name: name.to_owned(), architecture, dimensions, embedding, head, layers };
        rope_table(gguf, &shape)?;
        Ok(shape)
    }
}

/// Checks that a tensor is in the file, with the right dimensions and a supported type.
fn check_tensor(gguf: &Gguf, name: TensorName, d: &Dimensions) -> Result<(), ShapeError> {
    let info = gguf.require(&name.to_string())?;
    let expected = name.tensor.form().dims(d);
    if info.dims != expected {
        let found = info.dims.clone();
        return Err(ShapeError::Dimensions { tensor: name.to_string(), found, expected });
    }
    match name.tensor.form() {
        Form::Matrix(..) => weight_type(name, info.ty).map(|_| ()),
        Form::Vector(_) if info.ty == GgmlType::F32 => Ok(()),
        Form::Vector(_) => Err(ShapeError::Unsupported(format!(
            "tensor {name}: type {}, but norms and biases must be F32",
            info.ty
        ))),
    }
}

/// RoPE's table of frequencies ([`frequencies`]) from a model's metadata and its `rope_freqs.weight`.
///
/// Linear scaling divides every frequency by the same factor; `rope_freqs.weight` has a divisor for each (Llama 3.1).
pub fn rope_table(gguf: &Gguf, shape: &ModelShape) -> Result<Vec<f32>, ShapeError> {
    let key = |name: &str| format!("{}.rope.{name}", shape.architecture.name);
    let base = gguf.opt_f32(&key("freq_base"))?.unwrap_or(10_000.0);
    let divisor = match gguf.opt_str(&key("scaling.type"))? {
        None | Some("none") => 1.0,
        Some("linear") => gguf.f32(&key("scaling.factor"))?,
        Some(other) => {
            return Err(ShapeError::Unsupported(format!(
                "RoPE scaling '{other}': none, linear and rope_freqs.weight are supported"
            )));
        }
    };
    let mut factors: Vec<f32> = match gguf.tensor(&Tensor::RopeFreqs.of_model().to_string()) {
        Some(info) => {
            gguf.data(info).as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
        }
        None => vec![1.0; shape.dimensions.rotated as usize / 2],
    };
    factors.iter_mut().for_each(|factor| *factor *= divisor);
    let positive = |value: f32| value.is_finite() && value > 0.0;
    if !positive(base) || !factors.iter().all(|&factor| positive(factor)) {
        return Err(ShapeError::Unsupported(
            "RoPE's base frequency, factor and rope_freqs must be positive".into(),
        ));
    }
    Ok(frequencies(f64::from(base), shape.dimensions.rotated, &factors))
}

/// Reads the dimensions of a model from its metadata; the vocabulary from the embedding.
fn dimensions(gguf: &Gguf, arch: &str) -> Result<Dimensions, ShapeError> {
    let key = |name: &str| format!("{arch}.{name}");
    let required = |name: &str| gguf.u32(&key(name));
    let optional = |name: &str| gguf.opt_u32(&key(name));
    if optional("expert_count")?.unwrap_or(0) > 0 {
        return Err(ShapeError::Unsupported(
            "a mixture of experts is not supported: only dense models are".into(),
        ));
    }
    let hidden = required("embedding_length")?;
    let heads = required("attention.head_count")?;
    if heads == 0 {
        return Err(ShapeError::Unsupported(format!("{} is 0", key("attention.head_count"))));
    }
    let head_dim = match optional("attention.key_length")? {
        Some(length) => length,
        None => hidden / heads,
    };
    if let Some(value_length) = optional("attention.value_length")?
        && value_length != head_dim
    {
        return Err(ShapeError::Unsupported(format!(
            "values of {value_length} and keys of {head_dim} elements a head: only equal sizes are supported"
        )));
    }
    let embedding = gguf.require(&Tensor::TokenEmbd.of_model().to_string())?;
    let vocab = u32::try_from(embedding.rows()).map_err(|_| {
        ShapeError::Unsupported(format!("a vocabulary of {} tokens is not supported", embedding.rows()))
    })?;
    Ok(Dimensions {
        hidden,
        layers: required("block_count")?,
        heads,
        kv_heads: optional("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        rotated: optional("rope.dimension_count")?.unwrap_or(head_dim),
        ffn: required("feed_forward_length")?,
        vocab,
        context: required("context_length")?,
        eps: gguf.f32(&key("attention.layer_norm_rms_epsilon"))?,
    })
}
