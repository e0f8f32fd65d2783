//! Dimensions of tensors, in terms of a model's dimensions.

use super::Dimensions;

/// Length of one dimension of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Width of the residual stream.
    Hidden,
    /// Total width of all query heads.
    Queries,
    /// Total width of all key heads; value heads have the same.
    Keys,
    /// Total width of all query, key and value heads.
    QueriesKeysValues,
    /// Number of elements of a head.
    Head,
    /// Number of element pairs that RoPE rotates in a head: half of the rotated elements.
    RotatedPairs,
    /// Width of the feed-forward network.
    Ffn,
    /// Twice the width of the feed-forward network: gate and up.
    TwiceFfn,
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
            Extent::QueriesKeysValues => d.q_width() + 2 * d.kv_width(),
            Extent::Head => d.head_dim,
            Extent::RotatedPairs => d.rotated / 2,
            Extent::Ffn => d.ffn,
            Extent::TwiceFfn => 2 * d.ffn,
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
