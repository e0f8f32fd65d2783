//! Shape of a model from the header of its GGUF file.

use std::collections::HashSet;

use bespoke_gguf::{GgmlType, Gguf};

use super::describe::describe;
use super::rope::rope_table;
use super::settings::{Settings, check_quantization_version};
use super::tensors::{Form, Tensor, TensorName};
use super::{Architecture, Dimensions, ModelShape, ShapeError, weight_type};

impl ModelShape {
    /// Reads the shape of a model from its header.
    ///
    /// Every tensor that decoding reads must be there, with the dimensions that the metadata gives and a supported
    /// type. A tensor or a key of the architecture that decoding does not read is an error: ignoring it could give
    /// wrong results.
    pub fn from_gguf(gguf: &Gguf, name: &str) -> Result<ModelShape, ShapeError> {
        let architecture = Architecture::named(gguf.architecture()?)?;
        let settings = Settings::new(gguf, architecture.name);
        let dimensions = dimensions(gguf, &settings)?;
        dimensions.check()?;
        let types = |name: TensorName| gguf.tensor(&name.to_string()).map(|info| info.ty);
        let shape = describe(name, architecture, dimensions, &settings, &types)?;
        settings.check_all_read()?;
        check_quantization_version(gguf)?;
        let mut known = HashSet::new();
        for name in shape.tensors() {
            check_tensor(gguf, name, &shape.dimensions)?;
            known.insert(name.to_string());
        }
        if let Some(other) = gguf.tensors().iter().find(|tensor| !known.contains(&tensor.name)) {
            return Err(ShapeError::Unsupported(format!(
                "tensor {}: decoding of {} models does not use it yet, and ignoring it would give wrong results",
                other.name, architecture.name
            )));
        }
        for table in 0..shape.ropes.len() {
            for context in [1, u32::MAX] {
                rope_table(gguf, &shape, table, context)?;
            }
        }
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

/// Reads the dimensions of a model from its metadata; the vocabulary from the embedding.
fn dimensions(gguf: &Gguf, settings: &Settings<'_>) -> Result<Dimensions, ShapeError> {
    let unsupported = |message: String| Err(ShapeError::Unsupported(message));
    if settings.opt_u32("expert_count")?.unwrap_or(0) > 0 {
        return unsupported("a mixture of experts is not supported: only dense models are".into());
    }
    let (hidden, layers) = (settings.u32("embedding_length")?, settings.u32("block_count")?);
    let heads = settings.u32_of_layers("attention.head_count", layers)?;
    if heads == 0 {
        return unsupported(format!("{} is 0", settings.key("attention.head_count")));
    }
    let head_dim = settings.opt_u32("attention.key_length")?.unwrap_or(hidden / heads);
    let value_length = settings.opt_u32("attention.value_length")?.unwrap_or(head_dim);
    if value_length != head_dim {
        return unsupported(format!(
            "values of {value_length} and keys of {head_dim} elements a head: only equal sizes are supported"
        ));
    }
    let rotated = settings.opt_u32("rope.dimension_count")?.unwrap_or(head_dim);
    // Layers with a sliding window.
    for (name, expected) in [
        ("attention.key_length_swa", head_dim),
        ("attention.value_length_swa", head_dim),
        ("rope.dimension_count_swa", rotated),
    ] {
        let found = settings.opt_u32(name)?.unwrap_or(expected);
        if found != expected {
            return unsupported(format!(
                "metadata key {} is {found}: only the {expected} elements of the other layers are supported",
                settings.key(name)
            ));
        }
    }
    let embedding = gguf.require(&Tensor::TokenEmbd.of_model().to_string())?;
    let Ok(vocab) = u32::try_from(embedding.rows()) else {
        return unsupported(format!("a vocabulary of {} tokens is not supported", embedding.rows()));
    };
    Ok(Dimensions {
        hidden,
        layers,
        heads,
        kv_heads: settings.opt_u32_of_layers("attention.head_count_kv", layers)?.unwrap_or(heads),
        head_dim,
        rotated,
        ffn: settings.u32_of_layers("feed_forward_length", layers)?,
        vocab,
        context: settings.u32("context_length")?,
        eps: settings.f32("attention.layer_norm_rms_epsilon")?,
    })
}
