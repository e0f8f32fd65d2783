//! Architectures: a row of facts for each, and the table of tensors that they share.
//!
//! This is the only file that knows architectures by name. A model's description ([`super::description`]) is built from
//! a row, the metadata and the tensors of a file; plans and kernels see the description alone.
//!
//! Sources of the facts: the models' reference implementations in Hugging Face `transformers`, and llama.cpp for the
//! names and defaults of metadata keys.

use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ShapeError;
use super::form::Form;
use super::settings::Setting;
use crate::kernels::activation::Activation;
use crate::kernels::attention::NormSpan;
use crate::kernels::rope::RopeKind;

/// Every supported architecture.
pub const ARCHITECTURES: &[Architecture] = &[
    // Llama 2 and 3, Mistral, TinyLlama, SmolLM2, Yi, and DeepSeek's distilled Llamas.
    Architecture { name: "llama", rope: RopeKind::Norm, ..PLAIN },
    // Mistral Small 3: Llama under another name. Ministral 3 has a temperature of the queries.
    Architecture { name: "mistral3", rope: RopeKind::Norm, query_temperature: true, ..PLAIN },
    Architecture { name: "qwen2", qkv_bias: true, ..PLAIN },
    Architecture { name: "qwen3", qk_norm: Some(NormSpan::Head), ..PLAIN },
    Architecture {
        name: "phi3",
        fused_qkv: true,
        fused_gate_up: true,
        long_rope: true,
        typical: &[
            ("attention.sliding_window", Setting::Integer(2047)),
            ("rope.scaling.original_context_length", Setting::Integer(4096)),
            ("rope.scaling.attn_factor", Setting::Float(1.190_238)),
        ],
        ..PLAIN
    },
    Architecture {
        name: "gemma2",
        norms: NormPlacement::BOTH,
        activation: Activation::Gelu,
        scaled_embedding: true,
        window: Some(4096),
        window_period: 2,
        attention_softcap: Some(50.0),
        logit_softcap: Some(30.0),
        wide_scale_layers: Some(46),
        ..PLAIN
    },
    Architecture {
        name: "gemma3",
        norms: NormPlacement::BOTH,
        qk_norm: Some(NormSpan::Head),
        activation: Activation::Gelu,
        scaled_embedding: true,
        window_period: 6,
        local_rope: LocalRope { base: Some(10_000.0), scaled: false },
        wide_scale_layers: Some(62),
        typical: &[("attention.sliding_window", Setting::Integer(512))],
        ..PLAIN
    },
    Architecture {
        name: "granite",
        rope: RopeKind::Norm,
        multipliers: true,
        rope_switch: true,
        typical: &[
            ("embedding_scale", Setting::Float(12.0)),
            ("residual_scale", Setting::Float(0.22)),
            ("attention.scale", Setting::Float(0.015625)),
            ("logit_scale", Setting::Float(8.0)),
        ],
        ..PLAIN
    },
    Architecture { name: "smollm3", rope: RopeKind::Norm, unrotated_period: Some(4), ..PLAIN },
    // OLMo 2, and OLMo 3 with its sliding windows.
    Architecture {
        name: "olmo2",
        norms: NormPlacement::AFTER,
        qk_norm: Some(NormSpan::Projection),
        window_period: 4,
        local_rope: LocalRope { base: None, scaled: false },
        ..PLAIN
    },
    // ERNIE 4.5 without experts.
    Architecture { name: "ernie4_5", rope: RopeKind::Norm, ..PLAIN },
];

/// Facts of most architectures; rows name what differs.
const PLAIN: Architecture = Architecture {
    name: "",
    rope: RopeKind::Neox,
    norms: NormPlacement { before: true, after: false },
    qk_norm: None,
    qkv_bias: false,
    fused_qkv: false,
    fused_gate_up: false,
    activation: Activation::Silu,
    scaled_embedding: false,
    multipliers: false,
    window: None,
    window_period: 0,
    local_rope: LocalRope { base: None, scaled: true },
    unrotated_period: None,
    rope_switch: false,
    query_temperature: false,
    long_rope: false,
    attention_softcap: None,
    logit_softcap: None,
    wide_scale_layers: None,
    typical: &[],
};

/// Declares [`Tensor`] from one row per tensor: name in GGUF, form, and the models that have it. Names of a layer's
/// tensors follow `blk.N.` in the file.
macro_rules! tensors {
    (model { $($model:ident = $model_name:literal, $model_form:expr, $model_presence:ident;)* }
     layer { $($layer:ident = $layer_name:literal, $layer_form:expr, $layer_presence:ident;)* }) => {
        /// A tensor that decoding reads: of the model, or of each layer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the variants have GGUF's names")]
        pub enum Tensor { $($model,)* $($layer,)* }

        impl Tensor {
            /// Tensors that a model has once, outside the layers.
            pub const OF_MODEL: &[Tensor] = &[$(Tensor::$model,)*];
            /// Tensors of a layer, in the order in which `bespoke synth` writes them.
            pub const OF_LAYER: &[Tensor] = &[$(Tensor::$layer,)*];

            const fn row(self) -> (&'static str, Form, Presence) {
                use super::form::Extent::*;
                use Form::*;
                match self {
                    $(Tensor::$model => ($model_name, $model_form, Presence::$model_presence),)*
                    $(Tensor::$layer => ($layer_name, $layer_form, Presence::$layer_presence),)*
                }
            }
        }
    };
}

tensors! {
    model {
        TokenEmbd        = "token_embd.weight",         Matrix(Vocab, Hidden), Always;
        RopeFreqs        = "rope_freqs.weight",         Vector(RotatedPairs),  RopeFreqs;
        RopeFactorsLong  = "rope_factors_long.weight",  Vector(RotatedPairs),  LongRope;
        RopeFactorsShort = "rope_factors_short.weight", Vector(RotatedPairs),  LongRope;
        OutputNorm       = "output_norm.weight",        Vector(Hidden),        Always;
        Output           = "output.weight",             Matrix(Vocab, Hidden), Untied;
    }
    layer {
        AttnNorm       = "attn_norm.weight",           Vector(Hidden),          NormBefore;
        FfnNorm        = "ffn_norm.weight",            Vector(Hidden),          NormBefore;
        AttnQ          = "attn_q.weight",              Matrix(Queries, Hidden), SplitQkv;
        AttnK          = "attn_k.weight",              Matrix(Keys, Hidden),    SplitQkv;
        AttnV          = "attn_v.weight",              Matrix(Keys, Hidden),    SplitQkv;
        AttnQkv        = "attn_qkv.weight",            Matrix(QueriesKeysValues, Hidden), FusedQkv;
        AttnOutput     = "attn_output.weight",         Matrix(Hidden, Queries), Always;
        FfnGate        = "ffn_gate.weight",            Matrix(Ffn, Hidden),     SplitGateUp;
        FfnUp          = "ffn_up.weight",              Matrix(Ffn, Hidden),     SplitGateUp;
        // Gate and up in one tensor, gate first.
        FfnGateUp      = "ffn_up.weight",              Matrix(TwiceFfn, Hidden), FusedGateUp;
        FfnDown        = "ffn_down.weight",            Matrix(Hidden, Ffn),     Always;
        AttnQBias      = "attn_q.bias",                Vector(Queries),         SplitQkvBias;
        AttnKBias      = "attn_k.bias",                Vector(Keys),            SplitQkvBias;
        AttnVBias      = "attn_v.bias",                Vector(Keys),            SplitQkvBias;
        AttnQkvBias    = "attn_qkv.bias",              Vector(QueriesKeysValues), FusedQkvBias;
        AttnOutputBias = "attn_output.bias",           Vector(Hidden),          Optional;
        FfnGateBias    = "ffn_gate.bias",              Vector(Ffn),             Optional;
        FfnUpBias      = "ffn_up.bias",                Vector(Ffn),             Optional;
        FfnDownBias    = "ffn_down.bias",              Vector(Hidden),          Optional;
        AttnQNorm      = "attn_q_norm.weight",         Vector(Head),            HeadNorm;
        AttnKNorm      = "attn_k_norm.weight",         Vector(Head),            HeadNorm;
        // Norms over the projections to all heads.
        AttnQWideNorm  = "attn_q_norm.weight",         Vector(Queries),         ProjectionNorm;
        AttnKWideNorm  = "attn_k_norm.weight",         Vector(Keys),            ProjectionNorm;
        AttnPostNorm   = "post_attention_norm.weight", Vector(Hidden),          NormAfter;
        FfnPostNorm    = "post_ffw_norm.weight",       Vector(Hidden),          NormAfter;
    }
}

/// Models that have a tensor. A file decides itself about biases, the output matrix, RoPE's divisors, and whether Q, K
/// and V are fused; a synthetic model follows the architecture's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// All models.
    Always,
    /// Models whose embedding does not serve as the output matrix.
    Untied,
    /// Models with divisors of RoPE's frequencies.
    RopeFreqs,
    /// Models with RoPE divisors for long and short contexts.
    LongRope,
    NormBefore,
    NormAfter,
    SplitQkv,
    FusedQkv,
    SplitQkvBias,
    FusedQkvBias,
    SplitGateUp,
    FusedGateUp,
    /// Models whose QK norm is over each head.
    HeadNorm,
    /// Models whose QK norm is over the whole projection.
    ProjectionNorm,
    /// Models whose file has it; no synthetic model has it.
    Optional,
}

impl Tensor {
    /// Name in GGUF, without the prefix of the layer.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Dimensions of the tensor.
    pub fn form(self) -> Form {
        self.row().1
    }

    /// The bias that is added to the product with this matrix, in models that have it.
    pub fn bias(self) -> Option<Tensor> {
        match self {
            Tensor::AttnQ => Some(Tensor::AttnQBias),
            Tensor::AttnK => Some(Tensor::AttnKBias),
            Tensor::AttnV => Some(Tensor::AttnVBias),
            Tensor::AttnQkv => Some(Tensor::AttnQkvBias),
            Tensor::AttnOutput => Some(Tensor::AttnOutputBias),
            Tensor::FfnGate => Some(Tensor::FfnGateBias),
            Tensor::FfnUp => Some(Tensor::FfnUpBias),
            Tensor::FfnDown => Some(Tensor::FfnDownBias),
            _ => None,
        }
    }
}

/// Where a block has RMSNorms: before its first product, after its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormPlacement {
    /// The block's input is normalised.
    pub before: bool,
    /// The block's output is normalised before the residual is added.
    pub after: bool,
}

impl NormPlacement {
    const AFTER: NormPlacement = NormPlacement { before: false, after: true };
    const BOTH: NormPlacement = NormPlacement { before: true, after: true };
}

/// RoPE of the layers with a sliding window, if it differs from that of the other layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalRope {
    /// Base frequency, unless the key `rope.freq_base_swa` gives one; `None` for that of the other layers.
    pub base: Option<f32>,
    /// Whether the scaling for long contexts applies.
    pub scaled: bool,
}

/// Facts about an architecture. Metadata and tensors of a file give the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Architecture {
    /// GGUF's `general.architecture`.
    pub name: &'static str,
    /// Which elements of a head RoPE rotates as a pair, in the order that converters give them.
    pub rope: RopeKind,
    /// Where attention and the feed-forward network have norms.
    pub norms: NormPlacement,
    /// What the norms of queries and keys before RoPE span; `None` without such norms.
    pub qk_norm: Option<NormSpan>,
    /// Whether Q, K and V must have biases; elsewhere they may have them.
    pub qkv_bias: bool,
    /// Whether synthetic models have Q, K and V in one tensor; files may have either form.
    pub fused_qkv: bool,
    /// Whether `ffn_up` holds gate and up.
    pub fused_gate_up: bool,
    /// Activation of the feed-forward network's gate.
    pub activation: Activation,
    /// Whether embeddings are multiplied by √hidden.
    pub scaled_embedding: bool,
    /// Whether the keys `embedding_scale`, `residual_scale` and `logit_scale` (a divisor) apply.
    pub multipliers: bool,
    /// Sliding window in positions, unless the key `attention.sliding_window` gives one.
    pub window: Option<u32>,
    /// Every `window_period`-th layer has no window; 0 if all layers have one. The key
    /// `attention.sliding_window_pattern` replaces it.
    pub window_period: u32,
    /// RoPE of the layers with a window.
    pub local_rope: LocalRope,
    /// Every `unrotated_period`-th layer has no RoPE. The key `attention.rope_pattern` replaces it.
    pub unrotated_period: Option<u32>,
    /// Whether the key `rope.scaling.finetuned` turns RoPE off if it is false.
    pub rope_switch: bool,
    /// Whether the key `attention.temperature_scale` scales the queries of positions past the original context.
    pub query_temperature: bool,
    /// Whether RoPE's divisors are for long and short contexts, in synthetic models.
    pub long_rope: bool,
    /// Soft cap of attention scores, unless the key `attn_logit_softcapping` gives one.
    pub attention_softcap: Option<f32>,
    /// Soft cap of the logits, unless the key `final_logit_softcapping` gives one.
    pub logit_softcap: Option<f32>,
    /// Number of layers of the size whose attention scores are scaled by 1/√(hidden / heads) instead of 1/√head_dim.
    pub wide_scale_layers: Option<u32>,
    /// Metadata of a typical model below the architecture's prefix, for synthetic models and shape files.
    pub typical: &'static [(&'static str, Setting)],
}

impl Architecture {
    /// The architecture with this name in GGUF.
    pub fn named(name: &str) -> Result<Architecture, ShapeError> {
        let found = ARCHITECTURES.iter().find(|architecture| architecture.name == name);
        found.copied().ok_or_else(|| ShapeError::Architecture(name.to_owned()))
    }

    /// Names of all architectures, for messages: `llama, mistral3, …`.
    pub fn names() -> String {
        ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", ")
    }

    /// Whether a synthetic model has a tensor: one that is tied if `tied`, and has divisors of RoPE's frequencies if
    /// `rope_factors`.
    pub(super) fn has(&self, tensor: Tensor, tied: bool, rope_factors: bool) -> bool {
        match tensor.row().2 {
            Presence::Always => true,
            Presence::Untied => !tied,
            Presence::RopeFreqs => rope_factors && !self.long_rope,
            Presence::LongRope => rope_factors && self.long_rope,
            Presence::NormBefore => self.norms.before,
            Presence::NormAfter => self.norms.after,
            Presence::SplitQkv => !self.fused_qkv,
            Presence::FusedQkv => self.fused_qkv,
            Presence::SplitQkvBias => self.qkv_bias && !self.fused_qkv,
            Presence::FusedQkvBias => self.qkv_bias && self.fused_qkv,
            Presence::SplitGateUp => !self.fused_gate_up,
            Presence::FusedGateUp => self.fused_gate_up,
            Presence::HeadNorm => self.qk_norm == Some(NormSpan::Head),
            Presence::ProjectionNorm => self.qk_norm == Some(NormSpan::Projection),
            Presence::Optional => false,
        }
    }
}

impl FromStr for Architecture {
    type Err = ShapeError;

    fn from_str(name: &str) -> Result<Architecture, ShapeError> {
        Architecture::named(name)
    }
}

/// An architecture is serialised as its name.
impl Serialize for Architecture {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Architecture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Architecture, D::Error> {
        Architecture::named(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
