//! Table of the tensors that decoding reads: GGUF names, dimensions, and which models have them.
//!
//! Reading a header ([`ModelShape::from_gguf`](super::ModelShape::from_gguf)), building a plan, writing a synthetic
//! model and choosing types ([`Mix`](super::Mix)) all take names and dimensions from here.

use std::fmt;
use std::str::FromStr;

use super::{Architecture, Dimensions};

/// Length of one dimension of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Width of the residual stream.
    Hidden,
    /// Total width of all query heads.
    Queries,
    /// Total width of all key heads; value heads have the same.
    Keys,
    /// Number of elements of a head.
    Head,
    /// Number of element pairs that RoPE rotates in a head: half of the rotated elements.
    RotatedPairs,
    /// Width of the feed-forward network.
    Ffn,
    /// Number of tokens in the vocabulary.
    Vocab,
}

impl Extent {
    /// The length in a model of dimensions `d`.
    pub fn of(self, d: &Dimensions) -> u32 {
        match self {
            Extent::Hidden => d.hidden,
            Extent::Queries => d.q_width(),
            Extent::Keys => d.kv_width(),
            Extent::Head => d.head_dim,
            Extent::RotatedPairs => d.rotated / 2,
            Extent::Ffn => d.ffn,
            Extent::Vocab => d.vocab,
        }
    }
}

/// Dimensions of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Weights of any supported type: rows (outputs) × columns (inputs).
    Matrix(Extent, Extent),
    /// f32 values: the weights of a norm, a bias, or RoPE's divisors.
    Vector(Extent),
}

impl Form {
    /// Dimensions in elements, innermost first, as in a GGUF file.
    pub fn dims(self, d: &Dimensions) -> Vec<u64> {
        match self {
            Form::Matrix(rows, cols) => vec![cols.of(d).into(), rows.of(d).into()],
            Form::Vector(elements) => vec![elements.of(d).into()],
        }
    }
}

/// Condition under which a model has a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Always,
    /// If Q, K and V have biases.
    QkvBias,
    /// If the heads of Q and K are normalised.
    QkNorm,
    /// Unless the embedding serves as the output matrix.
    Untied,
    /// If RoPE's frequencies have divisors.
    RopeFactors,
}

/// Declares [`Tensor`] from one row per tensor: name in GGUF, form and presence. Names of a layer's tensors follow
/// `blk.N.` in the file.
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
            /// Tensors of every layer, in the order in which `bespoke synth` writes them.
            pub const OF_LAYER: &[Tensor] = &[$(Tensor::$layer,)*];

            const fn row(self) -> (&'static str, Form, Presence) {
                use {Extent::*, Form::*};
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
        TokenEmbd  = "token_embd.weight",  Matrix(Vocab, Hidden), Always;
        RopeFreqs  = "rope_freqs.weight",  Vector(RotatedPairs),  RopeFactors;
        OutputNorm = "output_norm.weight", Vector(Hidden),        Always;
        Output     = "output.weight",      Matrix(Vocab, Hidden), Untied;
    }
    layer {
        AttnNorm   = "attn_norm.weight",   Vector(Hidden),          Always;
        FfnNorm    = "ffn_norm.weight",    Vector(Hidden),          Always;
        AttnQ      = "attn_q.weight",      Matrix(Queries, Hidden), Always;
        AttnK      = "attn_k.weight",      Matrix(Keys, Hidden),    Always;
        AttnV      = "attn_v.weight",      Matrix(Keys, Hidden),    Always;
        AttnOutput = "attn_output.weight", Matrix(Hidden, Queries), Always;
        FfnGate    = "ffn_gate.weight",    Matrix(Ffn, Hidden),     Always;
        FfnUp      = "ffn_up.weight",      Matrix(Ffn, Hidden),     Always;
        FfnDown    = "ffn_down.weight",    Matrix(Hidden, Ffn),     Always;
        AttnQBias  = "attn_q.bias",        Vector(Queries),         QkvBias;
        AttnKBias  = "attn_k.bias",        Vector(Keys),            QkvBias;
        AttnVBias  = "attn_v.bias",        Vector(Keys),            QkvBias;
        AttnQNorm  = "attn_q_norm.weight", Vector(Head),            QkNorm;
        AttnKNorm  = "attn_k_norm.weight", Vector(Head),            QkNorm;
    }
}

impl Tensor {
    /// Dimensions of the tensor.
    pub fn form(self) -> Form {
        self.row().1
    }

    /// The bias that is added to the product with this matrix, if the architecture has one.
    pub fn bias(self) -> Option<Tensor> {
        match self {
            Tensor::AttnQ => Some(Tensor::AttnQBias),
            Tensor::AttnK => Some(Tensor::AttnKBias),
            Tensor::AttnV => Some(Tensor::AttnVBias),
            _ => None,
        }
    }

    /// Name of this tensor, which belongs to the whole model.
    pub fn of_model(self) -> TensorName {
        TensorName { tensor: self, layer: None }
    }

    /// Name of this tensor in layer `layer`.
    pub fn of_layer(self, layer: u32) -> TensorName {
        TensorName { tensor: self, layer: Some(layer) }
    }
}

/// Name of a tensor in a file, such as `blk.3.attn_q.weight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorName {
    /// The tensor, without its layer.
    pub tensor: Tensor,
    /// The layer; `None` for a tensor of the whole model.
    pub layer: Option<u32>,
}

impl fmt::Display for TensorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "blk.{layer}.{}", self.tensor.row().0),
            None => f.write_str(self.tensor.row().0),
        }
    }
}

/// Error of parsing a [`TensorName`]: decoding reads no such tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("decoding reads no tensor {0}")]
pub struct UnknownTensor(pub String);

impl FromStr for TensorName {
    type Err = UnknownTensor;

    fn from_str(name: &str) -> Result<TensorName, UnknownTensor> {
        let find = |tensors: &[Tensor], name: &str| tensors.iter().copied().find(|it| it.row().0 == name);
        let of_layer = || {
            let (layer, name) = name.strip_prefix("blk.")?.split_once('.')?;
            Some(find(Tensor::OF_LAYER, name)?.of_layer(layer.parse().ok()?))
        };
        let found = find(Tensor::OF_MODEL, name).map(Tensor::of_model).or_else(of_layer);
        found.ok_or_else(|| UnknownTensor(name.to_owned()))
    }
}

/// Properties of a model that determine which tensors it has.
#[derive(Clone, Copy, Debug)]
pub struct Inventory<'a> {
    /// The architecture.
    pub architecture: &'a Architecture,
    /// Number of layers.
    pub layers: u32,
    /// Whether the embedding serves as the output matrix.
    pub tied: bool,
    /// Whether RoPE's frequencies have divisors.
    pub rope_factors: bool,
}

impl<'a> Inventory<'a> {
    /// Names of the model's tensors: embedding and RoPE's divisors, the layers in order, then the head.
    pub fn names(self) -> impl Iterator<Item = TensorName> + use<'a> {
        let (before, after) = Tensor::OF_MODEL.split_at(2);
        let of_model = |tensors: &'static [Tensor]| tensors.iter().map(|tensor| tensor.of_model());
        let layers = (0..self.layers)
            .flat_map(|layer| Tensor::OF_LAYER.iter().map(move |tensor| tensor.of_layer(layer)));
        let names = of_model(before).chain(layers).chain(of_model(after));
        names.filter(move |name| self.has(name.tensor))
    }

    fn has(&self, tensor: Tensor) -> bool {
        match tensor.row().2 {
            Presence::Always => true,
            Presence::QkvBias => self.architecture.qkv_bias,
            Presence::QkNorm => self.architecture.qk_norm,
            Presence::Untied => !self.tied,
            Presence::RopeFactors => self.rope_factors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["token_embd.weight", "output.weight", "blk.0.attn_q.bias", "blk.31.ffn_down.weight"] {
            assert_eq!(name.parse::<TensorName>().unwrap().to_string(), name);
        }
        for name in ["blk.0.output.weight", "attn_q.weight", "blk.x.attn_q.weight", "blk.0.attn_sinks.weight"]
        {
            assert_eq!(name.parse::<TensorName>(), Err(UnknownTensor(name.to_owned())));
        }
    }
}
