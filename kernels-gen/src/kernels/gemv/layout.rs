//! Order of the inputs of products of several tokens.

use serde::{Deserialize, Serialize};

/// Forms of the inputs that the segments of a product need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InputForms {
    /// Whether a segment multiplies quantised inputs.
    pub chunks: bool,
    /// Whether operand B of the products with mins is stored: with integers, for types with exact sums, the sums of chunks as bytes
    /// (`min_words`); with f16 the sums of half chunks as f16.
    pub mins: bool,
    /// Whether the sums of chunks are stored as i32, for other types with an offset per chunk.
    pub sums: bool,
    /// Whether the sums of half chunks are stored, for types with an offset per half chunk.
    pub half_sums: bool,
    /// Whether the inputs are stored as f32, for float types.
    pub floats: bool,
    /// Whether f16 inputs are stored for weight types whose lanes hold four consecutive columns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short_halves: bool,
    /// Whether f16 inputs are stored for weight types whose lanes hold eight consecutive columns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub long_halves: bool,
}

impl InputForms {
    /// No form.
    pub const NONE: InputForms = InputForms {
        chunks: false,
        mins: false,
        sums: false,
        half_sums: false,
        floats: false,
        short_halves: false,
        long_halves: false,
    };

    /// Number of forms of f16.
    pub(super) fn halves(self) -> u32 {
        u32::from(self.short_halves) + u32::from(self.long_halves)
    }
}

/// Layout of the inputs of several tokens: see `tokens/inputs.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InputLayout {
    /// Number of tokens.
    pub tokens: u32,
    /// Number of granules of 128 columns.
    pub granules: u32,
    /// Forms of the inputs.
    pub forms: InputForms,
    /// Tokens of a block in the order of warpgroups, a multiple of 8; 0 in the order of warps.
    #[serde(default, skip_serializing_if = "super::schedule::is_zero")]
    pub block_tokens: u32,
}

/// Inputs of the next product: outputs of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NextInputs {
    /// Layout of the inputs.
    pub layout: InputLayout,
    /// Whether the next product has a norm before it.
    pub normed: bool,
}
