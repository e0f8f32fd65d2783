//! A shape from a GGUF's header.

use std::cell::RefCell;
use std::collections::HashSet;

use bespoke_gguf::Gguf;

use super::{Architecture, Dimensions, LayerTypes, ModelShape, ShapeError};
use crate::kernels::rope::frequencies;
use crate::weights::WeightType;

impl ModelShape {
    /// Reads the shape of a model from its header, and checks that every tensor that decoding needs is there with
    /// the size that the metadata gives and a type that kernels exist for, and that there is no other: a tensor that
    /// is not known here would be left out of the computation.
    pub fn from_gguf(gguf: &Gguf, name: &str) -> Result<ModelShape, ShapeError> {
        let mut architecture = Architecture::named(gguf.architecture()?)?;
        // Llama-shaped models with biases on Q, K and V exist under both names.
        architecture.qkv_bias |= gguf.tensor("blk.0.attn_q.bias").is_some();
        let dimensions = dimensions(gguf, &architecture.name)?;
        let d = &dimensions;
        d.check()?;
        let known = RefCell::new(HashSet::new());
        let (q_width, kv_width) = (d.heads * d.head_dim, d.kv_heads * d.head_dim);
        let matrix = |tensor: &str, rows: u32, cols: u32| -> Result<WeightType, ShapeError> {
            let info = gguf.require(tensor)?;
            known.borrow_mut().insert(tensor.to_owned());
            expect(tensor, &info.dims, &[cols.into(), rows.into()])?;
            WeightType::from_ggml(info.ty)
                .map_err(|source| ShapeError::Type { tensor: tensor.to_owned(), source })
        };
        let vector = |tensor: &str, size: u32| -> Result<(), ShapeError> {
            let info = gguf.require(tensor)?;
            known.borrow_mut().insert(tensor.to_owned());
            expect(tensor, &info.dims, &[size.into()])?;
            match WeightType::from_ggml(info.ty) {
                Ok(WeightType::F32) => Ok(()),
                _ => Err(ShapeError::Unsupported(format!(
                    "tensor {tensor}: type {}, but norms and biases are F32",
                    info.ty
                ))),
            }
        };
        vector("output_norm.weight", d.hidden)?;
        if gguf.tensor("rope_freqs.weight").is_some() {
            vector("rope_freqs.weight", d.rotated / 2)?;
        }
        let mut layers = Vec::new();
        for layer in 0..d.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            vector(&name("attn_norm.weight"), d.hidden)?;
            vector(&name("ffn_norm.weight"), d.hidden)?;
            if architecture.qkv_bias {
                vector(&name("attn_q.bias"), q_width)?;
                vector(&name("attn_k.bias"), kv_width)?;
                vector(&name("attn_v.bias"), kv_width)?;
            }
            if architecture.qk_norm {
                vector(&name("attn_q_norm.weight"), d.head_dim)?;
                vector(&name("attn_k_norm.weight"), d.head_dim)?;
            }
            layers.push(LayerTypes {
                q: matrix(&name("attn_q.weight"), q_width, d.hidden)?,
                k: matrix(&name("attn_k.weight"), kv_width, d.hidden)?,
                v: matrix(&name("attn_v.weight"), kv_width, d.hidden)?,
                output: matrix(&name("attn_output.weight"), d.hidden, q_width)?,
                gate: matrix(&name("ffn_gate.weight"), d.ffn, d.hidden)?,
                up: matrix(&name("ffn_up.weight"), d.ffn, d.hidden)?,
                down: matrix(&name("ffn_down.weight"), d.hidden, d.ffn)?,
            });
        }
        let embedding = matrix("token_embd.weight", d.vocab, d.hidden)?;
        let head = match gguf.tensor("output.weight") {
            Some(_) => Some(matrix("output.weight", d.vocab, d.hidden)?),
            None => None,
        };
        let known = known.into_inner();
        if let Some(other) = gguf.tensors().iter().find(|tensor| !known.contains(&tensor.name)) {
            return Err(ShapeError::Unsupported(format!(
                "tensor {}: decoding a {} model does not use it so far, and leaving it out would give wrong results",
                other.name, architecture.name
            )));
        }
        let shape = ModelShape { name: name.to_owned(), architecture, dimensions, embedding, head, layers };
        rope_table(gguf, &shape)?;
        Ok(shape)
    }
}

/// The table of frequencies for [`crate::kernels::attention`] from a model's metadata and `rope_freqs.weight`.
///
/// Linear scaling divides every frequency by its factor; `rope_freqs.weight` holds a divisor for each (Llama 3.1).
pub fn rope_table(gguf: &Gguf, shape: &ModelShape) -> Result<Vec<f32>, ShapeError> {
    let key = |name: &str| format!("{}.rope.{name}", shape.architecture.name);
    let base = gguf.opt_f32(&key("freq_base"))?.unwrap_or(10_000.0);
    let stretch = match gguf.opt_str(&key("scaling.type"))? {
        None | Some("none") => 1.0,
        Some("linear") => gguf.f32(&key("scaling.factor"))?,
        Some(other) => {
            return Err(ShapeError::Unsupported(format!(
                "RoPE scaling '{other}': none, linear and rope_freqs.weight are supported"
            )));
        }
    };
    let mut factors: Vec<f32> = match gguf.tensor("rope_freqs.weight") {
        Some(info) => {
            gguf.data(info).as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
        }
        None => vec![1.0; shape.dimensions.rotated as usize / 2],
    };
    factors.iter_mut().for_each(|factor| *factor *= stretch);
    let positive = |value: f32| value.is_finite() && value > 0.0;
    if !positive(base) || !factors.iter().all(|&factor| positive(factor)) {
        return Err(ShapeError::Unsupported(
            "RoPE's base frequency, factor and rope_freqs must be positive".into(),
        ));
    }
    Ok(frequencies(f64::from(base), shape.dimensions.rotated, &factors))
}

fn expect(tensor: &str, found: &[u64], expected: &[u64]) -> Result<(), ShapeError> {
    if found == expected {
        return Ok(());
    }
    Err(ShapeError::Dimensions {
        tensor: tensor.to_owned(),
        found: found.to_vec(),
        expected: expected.to_vec(),
    })
}

fn dimensions(gguf: &Gguf, arch: &str) -> Result<Dimensions, ShapeError> {
    let key = |name: &str| format!("{arch}.{name}");
    let need = |name: &str| gguf.u32(&key(name));
    let maybe = |name: &str| gguf.opt_u32(&key(name));
    if maybe("expert_count")?.unwrap_or(0) > 0 {
        return Err(ShapeError::Unsupported("a mixture of experts: only dense models are supported".into()));
    }
    let hidden = need("embedding_length")?;
    let heads = need("attention.head_count")?;
    if heads == 0 {
        return Err(ShapeError::Unsupported(format!("{} is 0", key("attention.head_count"))));
    }
    let head_dim = match maybe("attention.key_length")? {
        Some(length) => length,
        None => hidden / heads,
    };
    if let Some(value_length) = maybe("attention.value_length")?
        && value_length != head_dim
    {
        return Err(ShapeError::Unsupported(format!(
            "values of {value_length} and keys of {head_dim} elements a head: only equal sizes are supported"
        )));
    }
    let embedding = gguf.require("token_embd.weight")?;
    let vocab = u32::try_from(embedding.rows())
        .map_err(|_| ShapeError::Unsupported(format!("a vocabulary of {} tokens", embedding.rows())))?;
    Ok(Dimensions {
        hidden,
        layers: need("block_count")?,
        heads,
        kv_heads: maybe("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        rotated: maybe("rope.dimension_count")?.unwrap_or(head_dim),
        ffn: need("feed_forward_length")?,
        vocab,
        context: need("context_length")?,
        eps: gguf.f32(&key("attention.layer_norm_rms_epsilon"))?,
    })
}
