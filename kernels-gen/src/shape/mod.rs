//! Shape of a model: architecture, dimensions, and the types of its weights.

pub mod architecture;
mod builtin;
mod describe;
pub mod description;
mod form;
mod from_gguf;
pub mod mix;
pub mod rope;
mod settings;
pub mod tensors;

use bespoke_gguf::GgmlType;
use serde::{Deserialize, Serialize};

pub use crate::kernels::rope::RopeKind;
use crate::weights::{UnsupportedType, WeightType};
pub use architecture::Architecture;
pub use builtin::{ShapeFile, builtin, parse_shape_file};
pub use describe::Blueprint;
pub use description::{Attention, FeedForward, Layer, Matrix, ModelShape, Multipliers, TensorSlice};
pub use mix::{Mix, MixError};
pub use rope::rope_table;
pub use settings::Setting;
use tensors::TensorName;

/// Error of reading or checking a model's shape.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The file is malformed, or lacks a key or a tensor.
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    /// The architecture is unknown.
    #[error("architecture `{0}` is not supported; supported: {names}", names = Architecture::names())]
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

/// Largest width, and largest number of heads and tokens: far above any model, and far below overflow.
pub const MAX_DIMENSION: u32 = 1 << 24;

/// Largest number of layers: far above any model. Descriptions and plans take memory for each layer.
pub const MAX_LAYERS: u32 = 1 << 16;

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
            let most = if name == "block_count" { MAX_LAYERS } else { MAX_DIMENSION };
            if value == 0 || value > u64::from(most) {
                return refuse(format!("{name} is {value}; 1 to {most} are supported"));
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

/// The weight type of a tensor's GGML type.
fn weight_type(name: TensorName, ty: GgmlType) -> Result<WeightType, ShapeError> {
    WeightType::from_ggml(ty).map_err(|source| ShapeError::Type { tensor: name.to_string(), source })
}
