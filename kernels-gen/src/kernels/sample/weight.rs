//! Weights of tokens: the probability relative to that of the most likely token, as an integer.

use bespoke_codegen::prelude::*;

use super::key;

/// Base-2 logarithm of the most likely token's weight. The sum over 2¹⁹ tokens, the largest vocabulary, fits 59 bits.
pub const SCALE_BITS: u32 = 39;

/// 2^f for f in [0, 1) is 1 + f·(c₀ + f·(c₁ + …)): a minimax fit of the relative error, 2^-28.9, below the roundings of
/// the Horner scheme in f32 (2^-23.9 altogether).
pub const EXP2: [f32; 6] =
    [0.693_147_06, 0.240_229_31, 0.055_485_282, 0.009_675_452, 0.001_246_784_6, 0.000_216_129_16];

/// Map from logits to weights, for one temperature and one largest logit.
#[derive(Clone, Copy, Carry)]
pub struct Scale {
    /// Sort key of the largest logit.
    pub top: Val<u32>,
    /// log₂e divided by the temperature.
    pub per_logit: Val<f32>,
}

impl Scale {
    /// The map for the largest sort key `top` and a temperature above 0.
    #[device]
    pub fn new(top: Val<u32>, temperature: Val<f32>) -> Scale {
        Scale { top, per_logit: std::f32::consts::LOG2_E / temperature }
    }

    /// Weight ⌊2³⁹·e^((x − max)/t)⌋ of the logit x with sort key `key`; 0 for −∞ and for key 0, which is no token.
    ///
    /// With y = (x − max)·(log₂e/t), each operation rounded to f32, and n = ⌊y⌋, the weight is ⌊2³⁰·2^(y−n)⌋·2⁹ shifted
    /// right by −n. IEEE 754 defines the bits of every operation.
    #[device]
    pub fn weight(&self, key: Val<u32>) -> Val<u64> {
        let below = key::logit(key) - key::logit(self.top);
        // Avoids the NaNs of ∞ − ∞ and 0·∞.
        let exponent = select(key == self.top, 0.0f32, below * self.per_logit);
        let whole = exponent.cast_rounded::<i32>(Rounding::Down);
        let fraction = exponent - whole.cast::<f32>();
        let mut power = val(EXP2[5]);
        for coefficient in [EXP2[4], EXP2[3], EXP2[2], EXP2[1], EXP2[0], 1.0] {
            power = fma(power, fraction, coefficient);
        }
        let fixed = (power * (1u32 << 30) as f32).cast::<u64>() << (SCALE_BITS - 30);
        let heavy = key > key::LOWEST && exponent > -(SCALE_BITS as f32 + 1.0);
        select(heavy, fixed >> (-whole).bitcast::<u32>(), 0u64)
    }
}
