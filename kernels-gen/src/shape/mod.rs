//! Shape of a model: architecture, dimensions, and the types of its weights.

mod builtin;
mod from_gguf;
pub mod mix;
pub mod tensors;

use std::str::FromStr;

use bespoke_gguf::GgmlType;
use serde::{Deserialize, Serialize};

pub use crate::kernels::rope::RopeKind;
use crate::weights::{UnsupportedType, WeightType};
pub use builtin::{ShapeFile, builtin, parse_shape_file};
pub use from_gguf::rope_table;
pub use mix::{Mix, MixError};
use tensors::{Tensor, TensorName};

/// Error of reading or checking a model's shape.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The file is malformed, or lacks a key or a tensor.
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    /// The architecture is unknown.
    #[error("architecture '{0}' is not supported: llama, qwen2 and qwen3 are")]
    Architecture(String),
    /// No kernel supports a tensor's type.
    #[error("tensor {tensor}: {source}")]
    Type {
        /// Name of the tensor.
        tensor: String,
        /// The error for the unsupported type.
        source: UnsupportedType,
    },
    /// A tensor's dimensions contradict the metadata.
    #[error("tensor {tensor}: {found:?} (innermost first), but the metadata gives {expected:?}")]
    Dimensions {
        /// Name of the tensor.
        tensor: String,
        /// Dimensions in the file.
        found: Vec<u64>,
        /// Dimensions that follow from the metadata.
        expected: Vec<u64>,
    },
    /// No kernel supports the dimensions.
    #[error("{0}")]
    Unsupported(String),
    /// A shape file is malformed.
    #[error("shape file: {0}")]
    Toml(#[from] toml::de::Error),
    /// The mix of types is unknown.
    #[error(transparent)]
    Mix(#[from] MixError),
}

/// Properties of an architecture, as data: kernels and plans depend on these, not on its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Architecture {
    /// GGUF's `general.architecture`.
    pub name: String,
    /// Which elements of a head RoPE rotates as a pair.
    pub rope: RopeKind,
    /// Whether Q, K and V have biases.
    pub qkv_bias: bool,
    /// Whether the heads of Q and K are normalised (RMSNorm) before RoPE.
    pub qk_norm: bool,
}

impl Architecture {
    /// The architecture with this name in GGUF.
    pub fn named(name: &str) -> Result<Architecture, ShapeError> {
        let (rope, qkv_bias, qk_norm) = match name {
            "llama" => (RopeKind::Norm, false, false),
            "qwen2" => (RopeKind::Neox, true, false),
            "qwen3" => (RopeKind::Neox, false, true),
            other => return Err(ShapeError::Architecture(other.to_owned())),
        };
        Ok(Architecture { name: name.to_owned(), rope, qkv_bias, qk_norm })
    }
}

impl FromStr for Architecture {
    type Err = ShapeError;

    fn from_str(name: &str) -> Result<Architecture, ShapeError> {
        Architecture::named(name)
    }
}

/// A model's dimensions, in elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dimensions {
    /// Width of the residual stream.
    pub hidden: u32,
    /// Number of layers.
    pub layers: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of key heads, and of value heads.
    pub kv_heads: u32,
    /// Number of elements per head.
    pub head_dim: u32,
    /// Number of elements per head that RoPE rotates.
    pub rotated: u32,
    /// Width of the feed-forward network.
    pub ffn: u32,
    /// Number of tokens in the vocabulary.
    pub vocab: u32,
    /// Longest context that the model was trained for, in positions.
    pub context: u32,
    /// ε of the RMSNorms.
    pub eps: f32,
}

/// Largest width, and largest number of heads, layers and tokens: far above any model, and far below overflow.
const LIMIT: u32 = 1 << 24;

impl Dimensions {
    /// Width of the queries: heads × head dimension.
    pub fn q_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Width of the keys, and of the values.
    pub fn kv_width(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Checks that the dimensions are within limits, and have the divisors that kernels need.
    pub fn check(&self) -> Result<(), ShapeError> {
        let refuse = |message: String| Err(ShapeError::Unsupported(message));
        let widths = u64::from(self.heads) * u64::from(self.head_dim);
        for (name, value) in [
            ("embedding_length", self.hidden.into()),
            ("block_count", self.layers.into()),
            ("attention.head_count", self.heads.into()),
            ("attention.head_count_kv", self.kv_heads.into()),
            ("attention.key_length", self.head_dim.into()),
            ("attention.head_count × key_length", widths),
            ("feed_forward_length", self.ffn.into()),
            ("vocab_size", self.vocab.into()),
        ] {
            if value == 0 || value > u64::from(LIMIT) {
                return refuse(format!("{name} is {value}; 1 to {LIMIT} are supported"));
            }
        }
        if self.context == 0 {
            return refuse("context_length is 0".into());
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return refuse(format!(
                "{} query heads are not a multiple of {} key heads",
                self.heads, self.kv_heads
            ));
        }
        if !self.head_dim.is_multiple_of(16) || self.head_dim > 256 {
            return refuse(format!(
                "head dimension {}: multiples of 16 up to 256 are supported",
                self.head_dim
            ));
        }
        if !self.rotated.is_multiple_of(2) || self.rotated == 0 || self.rotated > self.head_dim {
            return refuse(format!("RoPE over {} of {} elements", self.rotated, self.head_dim));
        }
        if !self.hidden.is_multiple_of(4) || !self.ffn.is_multiple_of(4) {
            return refuse(format!(
                "hidden {} and ffn {}: multiples of 4 are supported",
                self.hidden, self.ffn
            ));
        }
        if !(self.eps.is_finite() && self.eps >= 0.0) {
            return refuse(format!("attention.layer_norm_rms_epsilon is {}", self.eps));
        }
        Ok(())
    }
}

/// Types of one layer's matrices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTypes {
    /// Type of `attn_q`.
    pub q: WeightType,
    /// Type of `attn_k`.
    pub k: WeightType,
    /// Type of `attn_v`.
    pub v: WeightType,
    /// Type of `attn_output`.
    pub output: WeightType,
    /// Type of `ffn_gate`.
    pub gate: WeightType,
    /// Type of `ffn_up`.
    pub up: WeightType,
    /// Type of `ffn_down`.
    pub down: WeightType,
}

impl LayerTypes {
    /// Calls `ty` for every matrix of a layer.
    fn from_fn<E>(ty: impl Fn(Tensor) -> Result<WeightType, E>) -> Result<LayerTypes, E> {
        Ok(LayerTypes {
            q: ty(Tensor::AttnQ)?,
            k: ty(Tensor::AttnK)?,
            v: ty(Tensor::AttnV)?,
            output: ty(Tensor::AttnOutput)?,
            gate: ty(Tensor::FfnGate)?,
            up: ty(Tensor::FfnUp)?,
            down: ty(Tensor::FfnDown)?,
        })
    }
}

/// Everything about a model that kernels and plans are specialised for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Name, used in messages and in names of files.
    pub name: String,
    /// The architecture.
    pub architecture: Architecture,
    /// The dimensions.
    pub dimensions: Dimensions,
    /// Type of `token_embd`.
    pub embedding: WeightType,
    /// Type of `output`; none if the embedding serves as the output matrix.
    pub head: Option<WeightType>,
    /// Types of each layer's matrices.
    pub layers: Vec<LayerTypes>,
}

impl ModelShape {
    /// Bytes of the KV cache for one position: f16 keys and values of every layer.
    pub fn kv_bytes(&self) -> u64 {
        u64::from(self.dimensions.layers) * u64::from(self.dimensions.kv_width()) * 2 * 2
    }

    /// A shape whose matrices have the types of `mix`, as in the files of `llama-quantize` and `bespoke synth`.
    pub fn from_mix(
        name: &str,
        architecture: Architecture,
        dimensions: Dimensions,
        mix: Mix,
        tied: bool,
    ) -> Result<ModelShape, ShapeError> {
        let ty = |name: TensorName| weight_type(name, mix.tensor_type(name, &dimensions, tied));
        let embedding = ty(Tensor::TokenEmbd.of_model())?;
        let head = if tied { None } else { Some(ty(Tensor::Output.of_model())?) };
        let layers = (0..dimensions.layers)
            .map(|layer| LayerTypes::from_fn(|tensor| ty(tensor.of_layer(layer))))
            .collect::<Result<_, ShapeError>>()?;
        Ok(ModelShape { name: name.to_owned(), architecture, dimensions, embedding, head, layers })
    }
}

/// The weight type of a tensor's GGML type.
fn weight_type(name: TensorName, ty: GgmlType) -> Result<WeightType, ShapeError> {
    WeightType::from_ggml(ty).map_err(|source| ShapeError::Type { tensor: name.to_string(), source })
}
