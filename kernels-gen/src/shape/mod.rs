//! What a model is: dimensions, types and what its architecture does.

mod builtin;
mod from_gguf;
pub mod mix;

use bespoke_gguf::GgmlType;
use serde::{Deserialize, Serialize};

pub use crate::kernels::rope::RopeKind;
use crate::weights::{UnsupportedType, WeightType};
pub use builtin::{ShapeFile, builtin, parse_shape_file};
pub use from_gguf::rope_table;
use mix::Role;
pub use mix::{Mix, MixError};

/// Why a model cannot be specialised for.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The file cannot be read or lacks something.
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    /// An architecture without a description here.
    #[error("architecture '{0}' is not supported: llama, qwen2 and qwen3 are")]
    Architecture(String),
    /// A tensor's type has no kernel.
    #[error("tensor {tensor}: {source}")]
    Type {
        /// Its name.
        tensor: String,
        /// The type.
        source: UnsupportedType,
    },
    /// A tensor of the wrong size.
    #[error("tensor {tensor}: {found:?} (innermost first), but the metadata gives {expected:?}")]
    Dimensions {
        /// Its name.
        tensor: String,
        /// As in the file.
        found: Vec<u64>,
        /// As it should be.
        expected: Vec<u64>,
    },
    /// Dimensions that no kernel is made for.
    #[error("{0}")]
    Unsupported(String),
    /// A shape file that is none.
    #[error("shape file: {0}")]
    Toml(#[from] toml::de::Error),
    /// Choices that the target or the model does not allow.
    #[error("tuning: {0}")]
    Tuning(#[from] crate::plan::TuningError),
    /// An unknown mix of types.
    #[error(transparent)]
    Mix(#[from] MixError),
}

/// What an architecture does; a description, not a code path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Architecture {
    /// GGUF's name.
    pub name: String,
    /// Which elements RoPE rotates together.
    pub rope: RopeKind,
    /// Q, K and V have biases.
    pub qkv_bias: bool,
    /// Q and K are normalised head by head before RoPE.
    pub qk_norm: bool,
}

impl Architecture {
    /// The description of one of GGUF's architectures.
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

/// A model's dimensions, in elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dimensions {
    /// Width of the residual stream.
    pub hidden: u32,
    /// Layers.
    pub layers: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements a head.
    pub head_dim: u32,
    /// Elements of a head that RoPE rotates.
    pub rotated: u32,
    /// Width of the feed-forward network.
    pub ffn: u32,
    /// Tokens.
    pub vocab: u32,
    /// Longest context that the model was made for.
    pub context: u32,
    /// ε of the norms.
    pub eps: f32,
}

/// Most elements of a vector, and most heads, layers or positions: far above any model, far below overflow. A position
/// is exact as f32 up to here.
const LIMIT: u32 = 1 << 24;

impl Dimensions {
    /// Checks that no dimension is absurd and that the kernels' divisions go without remainder.
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
                "{} query heads are no multiple of {} key heads",
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

/// The types of one layer's matrices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTypes {
    /// `attn_q`.
    pub q: WeightType,
    /// `attn_k`.
    pub k: WeightType,
    /// `attn_v`.
    pub v: WeightType,
    /// `attn_output`.
    pub output: WeightType,
    /// `ffn_gate`.
    pub gate: WeightType,
    /// `ffn_up`.
    pub up: WeightType,
    /// `ffn_down`.
    pub down: WeightType,
}

/// Everything that kernels and plan are specialised for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// A name for people and folders.
    pub name: String,
    /// What the architecture does.
    pub architecture: Architecture,
    /// Dimensions.
    pub dimensions: Dimensions,
    /// `token_embd`.
    pub embedding: WeightType,
    /// `output`; none if it is tied to the embedding.
    pub head: Option<WeightType>,
    /// Layer by layer.
    pub layers: Vec<LayerTypes>,
}

impl ModelShape {
    /// Width of the queries: heads × head dimension.
    pub fn q_width(&self) -> u32 {
        self.dimensions.heads * self.dimensions.head_dim
    }

    /// Width of the keys, and of the values.
    pub fn kv_width(&self) -> u32 {
        self.dimensions.kv_heads * self.dimensions.head_dim
    }

    /// Bytes of the KV cache a position: f16 keys and values of every layer.
    pub fn kv_bytes(&self) -> u64 {
        u64::from(self.dimensions.layers) * u64::from(self.kv_width()) * 2 * 2
    }

    /// A shape whose every matrix has the type that `mix` gives it, as `llama-quantize` and `bespoke synth` do.
    pub fn from_mix(
        name: &str,
        architecture: Architecture,
        dimensions: Dimensions,
        mix: Mix,
        tied: bool,
    ) -> Result<ModelShape, ShapeError> {
        let n = dimensions.layers;
        let (hidden, ffn) = (dimensions.hidden, dimensions.ffn);
        let q_width = dimensions.heads * dimensions.head_dim;
        let typed = |tensor: &str, ty: GgmlType| {
            WeightType::from_ggml(ty).map_err(|source| ShapeError::Type { tensor: tensor.to_owned(), source })
        };
        let embedding_role = if tied { Role::Output } else { Role::Other };
        let embedding = typed("token_embd.weight", mix.ty(embedding_role, n, hidden))?;
        let head = if tied { None } else { Some(typed("output.weight", mix.ty(Role::Output, n, hidden))?) };
        let layers = (0..n)
            .map(|layer| {
                let of = |role, cols| typed(&format!("blk.{layer}"), mix.ty(role, n, cols));
                let sensitive = Role::Sensitive { layer };
                Ok(LayerTypes {
                    q: of(Role::Other, hidden)?,
                    k: of(Role::Other, hidden)?,
                    v: of(sensitive, hidden)?,
                    output: of(Role::Other, q_width)?,
                    gate: of(Role::Other, hidden)?,
                    up: of(Role::Other, hidden)?,
                    down: of(sensitive, ffn)?,
                })
            })
            .collect::<Result<_, ShapeError>>()?;
        Ok(ModelShape { name: name.to_owned(), architecture, dimensions, embedding, head, layers })
    }
}
