//! What a GEMV computes: matrices, inputs, arithmetic and epilogue.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::kernels::activation::Activation;
use crate::weights::WeightType;

/// One matrix of a [`GemvShape`](super::GemvShape), or several of one type without padding between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// Type of the weights.
    pub ty: WeightType,
    /// Number of rows, one per output.
    pub rows: u32,
}

/// The vector that the matrices are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The vector x itself.
    Plain,
    /// RMSNorm of x: x·n / √(mean(x²) + ε). The norm's weights n, f32 `[cols]`, follow the matrices and biases.
    Normed {
        /// ε, which is added to the mean square.
        eps: f32,
    },
}

/// The epilogue: the computation of outputs from the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// y = W·x (+ b).
    Store,
    /// y += W·x (+ b): the residual connection.
    Residual,
    /// y = f(W₀·x + b₀) · (W₁·x + b₁); the two segments have the same number of rows.
    Glu(Activation),
    /// y = W·x, and the largest output of each CTA with its row.
    Argmax,
}

/// Operands of the multiplications, which decide the bits of outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arithmetic {
    /// Codes of weights and inputs of 14 or 16 bits, whose products are exact.
    #[default]
    Integers,
    /// Inputs and weights of type f16, with f32 sums; see `gemv/half_step.rs`. Eight tokens cost about as many instructions
    /// as one, and 32 and more less than with integers, but inputs have 11 bits.
    F16,
}

impl Arithmetic {
    /// All.
    pub const ALL: [Arithmetic; 2] = [Arithmetic::Integers, Arithmetic::F16];

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Arithmetic::default()
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arithmetic::Integers => "integers",
            Arithmetic::F16 => "f16",
        })
    }
}

/// Error of parsing an [`Arithmetic`].
#[derive(Debug, Error)]
#[error("unknown arithmetic `{0}`; known are integers and f16")]
pub struct UnknownArithmetic(String);

impl FromStr for Arithmetic {
    type Err = UnknownArithmetic;

    fn from_str(name: &str) -> Result<Arithmetic, UnknownArithmetic> {
        let found =
            Arithmetic::ALL.into_iter().find(|arithmetic| arithmetic.to_string() == name.to_lowercase());
        found.ok_or_else(|| UnknownArithmetic(name.to_owned()))
    }
}
