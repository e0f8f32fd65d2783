//! Scalar functions of the kernels' epilogues: activations of gated feed-forward layers, and the soft cap of logits.
//!
//! The relative errors below were measured on the emulator by `tests/tests/activation.rs`, against double precision.

use std::f32::consts::LOG2_E;

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// Activation function of a gated feed-forward layer: y = f(gate) · up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// x · sigmoid(x). The gated layer is known as SwiGLU.
    Silu,
    /// GELU, the tanh form. The gated layer is known as GeGLU.
    Gelu,
}

impl Activation {
    /// Name of the gated layer, for names of kernels.
    pub fn gated_name(self) -> &'static str {
        match self {
            Activation::Silu => "swiglu",
            Activation::Gelu => "geglu",
        }
    }

    /// Divisor d(x) of the activation: f(x) = x / d(x).
    #[device]
    fn divisor(self, x: Val<f32>) -> Val<f32> {
        let exponent = match self {
            Activation::Silu => x * -LOG2_E,
            // −2u·log₂ e = x · (LINEAR + CUBIC·x²).
            Activation::Gelu => x * fma(x * x, CUBIC, LINEAR),
        };
        1.0f32 + exponent.exp2_approx()
    }

    /// f(x). Errors are relative to the exact result.
    ///
    /// | activation | formula | error for \|x\| ≤ 5 | error where \|f(x)\| ≥ 1e-30 |
    /// | --- | --- | --- | --- |
    /// | SiLU | x / (1 + e^−x) | 3e-7 | 4e-6 |
    /// | GELU, tanh form | x/2 · (1 + tanh u) = x / (1 + e^−2u), u = √(2/π) · (x + 0.044715·x³) | 1.3e-6 | 7e-6 |
    ///
    /// Source of the tanh form: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2. The form with
    /// e^−2u has no cancellation for negative x.
    pub fn apply(self, x: Val<f32>) -> Val<f32> {
        x.div_approx(self.divisor(x))
    }
}

/// −2·√(2/π)·log₂ e: coefficient of x in GELU's exponent.
const LINEAR: f32 = (-2.0 * SQRT_2_OVER_PI * std::f64::consts::LOG2_E) as f32;

/// Coefficient of x³ in GELU's exponent.
const CUBIC: f32 = (-2.0 * SQRT_2_OVER_PI * std::f64::consts::LOG2_E * 0.044_715) as f32;

/// √(2/π).
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;

/// Soft cap: cap · tanh(x / cap), with `cap` > 0. Relative error 2e-7. An infinite x gives ±cap; a NaN gives a NaN.
///
/// Up to a quarter of the cap, tanh is its Taylor polynomial of degree 9; above, (1 − e^−2z) / (1 + e^−2z).
#[device]
pub fn softcap(x: Val<f32>, cap: f32) -> Val<f32> {
    let z = (x * (1.0 / cap)).abs();
    // tanh z / z = 1 − z²/3 + 2z⁴/15 − 17z⁶/315 + 62z⁸/2835 − …: the rest is below 9e-9 for z < 1/4.
    let z2 = z * z;
    let mut ratio = val(62.0f32 / 2835.0);
    for coefficient in [-17.0f32 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0] {
        ratio = fma(ratio, z2, coefficient);
    }
    let e = (z * (-2.0 * LOG2_E)).exp2_approx();
    let tanh = (1.0f32 - e).div_approx(1.0f32 + e);
    let large = select(x < 0.0, -cap, cap) * tanh;
    select(z < 0.25, x * ratio, large)
}
