//! Rotary position embedding (RoPE): (a, b) ← (a·cos θ − b·sin θ, a·sin θ + b·cos θ) with θ = position · frequency(i),
//! for every pair i of a head. Some scalings of long contexts also multiply sin and cos by a magnitude.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// Pairing of the elements of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeKind {
    /// Adjacent pairs (2i, 2i + 1): Llama in GGUF.
    Norm,
    /// Halves (i, i + n/2): GPT-NeoX, Qwen.
    Neox,
}

/// `magnitude` · sin θ and `magnitude` · cos θ for θ = position · frequency(`pair`).
///
/// `table` f32 [rotated/2, 2]: frequency(i)/2π as the sum of two f32; see [`frequencies`]. The number of turns is
/// reduced modulo 1 before it becomes an angle, so the angle has an error of about 2^-22 at any position; position ·
/// frequency computed in f32 loses a bit whenever the position doubles.
#[device]
pub(crate) fn sin_cos(
    table: Ptr<Global, f32>,
    pair: Val<u32>,
    position: Val<u32>,
    magnitude: f32,
) -> [Val<f32>; 2] {
    let position = position.cast::<f32>();
    let [high, low] = table.at(pair * 2).load_vector::<2>();
    let turns = position * high;
    let rest = fma(position, low, fma(position, high, -turns));
    let nearest = turns.cast_rounded::<i32>(Rounding::Nearest).cast::<f32>();
    let angle = (turns - nearest + rest) * std::f32::consts::TAU;
    let sin_cos = [angle.sin_approx(), angle.cos_approx()];
    if magnitude == 1.0 { sin_cos } else { sin_cos.map(|value| value * magnitude) }
}

/// Table of frequency(i)/2π as (high, low) pairs of f32, f32 [rotated/2, 2], where `frequency(i) = base^(−2i/rotated) /
/// divisors[i]`. `divisors` has rotated/2 elements, or is empty for none.
pub fn frequencies(base: f64, rotated: u32, divisors: &[f64]) -> Vec<f32> {
    (0..rotated / 2)
        .flat_map(|i| {
            let divisor = divisors.get(i as usize).copied().unwrap_or(1.0);
            let turns = base.powf(-2.0 * f64::from(i) / f64::from(rotated)) / divisor / std::f64::consts::TAU;
            let high = turns as f32;
            [high, (turns - f64::from(high)) as f32]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn frequency_pairs_hold_double_precision() {
        let table = super::frequencies(500_000.0, 128, &[]);
        for (i, pair) in table.chunks(2).enumerate() {
            let exact = 500_000f64.powf(-(i as f64) / 64.0) / std::f64::consts::TAU;
            let sum = f64::from(pair[0]) + f64::from(pair[1]);
            assert!((sum / exact - 1.0).abs() < 1e-14, "{i}: {sum} {exact}");
        }
        assert_eq!(
            super::frequencies(10_000.0, 4, &[1.0, 8.0])[2],
            super::frequencies(10_000.0, 4, &[])[2] / 8.0
        );
    }
}
