//! RoPE's frequencies: their description, read from metadata, and the tables computed from it.
//!
//! A pair i of n rotated elements turns by frequency(i) = base^(−2i/n) / divisor(i) per position. Scaling for long
//! contexts makes frequencies smaller:
//!
//! - linear: frequency / factor ("Extending Context Window of LLMs via Positional Interpolation", 2023);
//! - YaRN: between that and the unscaled frequency, by how often a pair turns within the original context ("YaRN:
//!   Efficient Context Window Extension of LLMs", 2023). sin and cos are also multiplied by a magnitude;
//! - Llama 3.1: divisors in `rope_freqs.weight`;
//! - LongRoPE (Phi-3): one of two sets of divisors, by the length of the context, and a magnitude.

use bespoke_gguf::Gguf;
use serde::{Deserialize, Serialize};

use super::architecture::Architecture;
use super::settings::Settings;
use super::tensors::{Tensor, TensorName};
use super::{Dimensions, ModelShape, ShapeError};
use crate::kernels::rope::{RopeKind, frequencies};

/// Description of a table of frequencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeTable {
    /// Pairing of the rotated elements.
    pub kind: RopeKind,
    /// Base of the frequencies.
    pub base: f32,
    /// Scaling by formula.
    pub scaling: RopeScaling,
    /// Scaling by tensors.
    pub divisors: Divisors,
    /// Factor of sin and cos.
    pub magnitude: f32,
}

/// Scaling of frequencies by formula.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Every frequency is divided by `factor`.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// YaRN.
    Yarn {
        /// The divisor of the lowest frequencies.
        factor: f32,
        /// Context that the model was trained for before it was extended, in positions.
        original_context: u32,
        /// Pairs with more turns than this in the original context are not scaled.
        beta_fast: f32,
        /// Pairs with fewer turns than this in the original context are divided by `factor`.
        beta_slow: f32,
    },
}

/// Tensors of divisors of the frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Divisors {
    /// None.
    None,
    /// `rope_freqs.weight`.
    Fixed,
    /// `rope_factors_long.weight` if the context has more than `original_context` positions, else
    /// `rope_factors_short.weight`.
    ByContext {
        /// Longest context for the short factors, in positions.
        original_context: u32,
    },
}

impl Divisors {
    /// Names of the tensors.
    pub(super) fn tensors(self) -> impl Iterator<Item = TensorName> {
        let tensors: &[Tensor] = match self {
            Divisors::None => &[],
            Divisors::Fixed => &[Tensor::RopeFreqs],
            Divisors::ByContext { .. } => &[Tensor::RopeFactorsLong, Tensor::RopeFactorsShort],
        };
        tensors.iter().map(|tensor| tensor.of_model())
    }
}

/// RoPE of the layers without a sliding window, and of those with one.
pub(super) struct Ropes {
    pub global: RopeTable,
    pub local: RopeTable,
}

impl Ropes {
    /// Reads RoPE's metadata. `has` tells which tensors the file has.
    pub fn read(
        settings: &Settings<'_>,
        architecture: &Architecture,
        d: &Dimensions,
        has: impl Fn(Tensor) -> bool,
    ) -> Result<Ropes, ShapeError> {
        let original_context = original_context(settings)?.unwrap_or(d.context);
        let base = base(settings)?;
        let local_base = first_positive(settings, ["rope.freq_base_swa", "rope.local.freq_base"])?;
        let (scaling, magnitude) = scaling(settings, original_context)?;
        let long = [Tensor::RopeFactorsLong, Tensor::RopeFactorsShort].map(&has);
        let divisors = match (has(Tensor::RopeFreqs), long) {
            (true, [false, false]) => Divisors::Fixed,
            (false, [false, false]) => Divisors::None,
            (false, _) => Divisors::ByContext { original_context },
            (true, _) => {
                return Err(ShapeError::Unsupported(
                    "the file has rope_freqs.weight and rope_factors_long.weight: one of them is supported"
                        .into(),
                ));
            }
        };
        let global = RopeTable { kind: architecture.rope, base, scaling, divisors, magnitude };
        let mut local =
            RopeTable { base: local_base.or(architecture.local_rope.base).unwrap_or(base), ..global.clone() };
        if !architecture.local_rope.scaled {
            local.scaling = RopeScaling::None;
            local.divisors = Divisors::None;
            local.magnitude = 1.0;
        }
        Ok(Ropes { global, local })
    }
}

/// Context that the model was trained for before it was extended, in positions.
pub(super) fn original_context(settings: &Settings<'_>) -> Result<Option<u32>, ShapeError> {
    Ok(settings.opt_u32("rope.scaling.original_context_length")?)
}

/// A positive float; 0 and a missing key are `None`.
fn positive(settings: &Settings<'_>, name: &str) -> Result<Option<f32>, ShapeError> {
    match settings.opt_f32(name)? {
        Some(value) if !(value.is_finite() && value > 0.0) => Err(ShapeError::Unsupported(format!(
            "metadata key {} is {value}; it must be positive",
            settings.key(name)
        ))),
        value => Ok(value),
    }
}

/// Base of the frequencies. Ollama's converter has its own names of Gemma 3's bases.
pub(super) fn base(settings: &Settings<'_>) -> Result<f32, ShapeError> {
    Ok(first_positive(settings, ["rope.freq_base", "rope.global.freq_base"])?.unwrap_or(10_000.0))
}

/// The positive float of the first of two keys that the file has.
fn first_positive(settings: &Settings<'_>, names: [&str; 2]) -> Result<Option<f32>, ShapeError> {
    let [first, second] = names.map(|name| positive(settings, name));
    Ok(first?.or(second?))
}

/// The scaling by formula, and the magnitude of sin and cos.
fn scaling(settings: &Settings<'_>, original_context: u32) -> Result<(RopeScaling, f32), ShapeError> {
    // The second is the older key, which applies only without the first.
    let factors = ["rope.scaling.factor", "rope.scale_linear"];
    let [factor, older] = factors.map(|name| settings.opt_nonzero(name));
    let (factor, older) = (factor?, older?);
    let factor = if settings.opt_f32(factors[0])?.is_some() { factor } else { older }.unwrap_or(1.0);
    let attention_factor = positive(settings, "rope.scaling.attn_factor")?.unwrap_or(1.0);
    let beta_fast = positive(settings, "rope.scaling.yarn_beta_fast")?.unwrap_or(32.0);
    let beta_slow = positive(settings, "rope.scaling.yarn_beta_slow")?.unwrap_or(1.0);
    let yarn_magnitude = positive(settings, "rope.scaling.yarn_attn_factor")?;
    let log_multiplier = settings.opt_nonzero("rope.scaling.yarn_log_multiplier")?;
    match settings.opt_str("rope.scaling.type")? {
        None | Some("linear" | "longrope") if factor == 1.0 => Ok((RopeScaling::None, attention_factor)),
        None | Some("linear" | "longrope") => Ok((RopeScaling::Linear { factor }, attention_factor)),
        Some("none") => Ok((RopeScaling::None, attention_factor)),
        Some("yarn") => {
            if original_context == 0 {
                return Err(ShapeError::Unsupported(format!(
                    "metadata key {} is 0; YaRN needs the original context",
                    settings.key("rope.scaling.original_context_length")
                )));
            }
            // 0.1 · multiplier · ln(factor) + 1: the paper's temperature of the scores, in sin and cos.
            let temperature = |multiplier: f32| 0.1 * multiplier * factor.max(1.0).ln() + 1.0;
            // For YaRN both keys are the whole magnitude: older converters wrote `attention_factor` of `config.json` to
            // the second. 1 is what llama.cpp writes there if nothing is given.
            let given = yarn_magnitude.or((attention_factor != 1.0).then_some(attention_factor));
            let magnitude = match (given, log_multiplier) {
                (Some(magnitude), _) => magnitude,
                (None, Some(multiplier)) => temperature(1.0) / temperature(multiplier),
                (None, None) => temperature(1.0),
            };
            Ok((RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow }, magnitude))
        }
        Some(other) => Err(ShapeError::Unsupported(format!(
            "metadata key {}: RoPE scaling '{other}' is not supported: none, linear, yarn, longrope and the divisors \
             of rope_freqs.weight (llama3) are",
            settings.key("rope.scaling.type")
        ))),
    }
}

impl RopeScaling {
    /// Divisor of the frequency of each pair of `rotated` elements, for frequencies of base `base`.
    fn divisors(self, base: f64, rotated: u32) -> Vec<f64> {
        let pairs = rotated / 2;
        match self {
            RopeScaling::None => vec![1.0; pairs as usize],
            RopeScaling::Linear { factor } => vec![f64::from(factor); pairs as usize],
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow } => {
                // The pair, as a real number, that turns `turns` times in the original context.
                let pair = |turns: f32| {
                    let wavelength = f64::from(original_context) / (f64::from(turns) * std::f64::consts::TAU);
                    f64::from(rotated) * wavelength.ln() / (2.0 * base.ln())
                };
                let low = pair(beta_fast).floor().max(0.0);
                let high = pair(beta_slow).ceil().min(f64::from(rotated) - 1.0);
                let divisor = |i: u32| {
                    let ramp = ((f64::from(i) - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    1.0 / (ramp / f64::from(factor) + 1.0 - ramp)
                };
                (0..pairs).map(divisor).collect()
            }
        }
    }
}

/// Table of the frequencies of `shape.ropes[table]`, in the form of [`frequencies`], for a cache of `context` positions.
pub fn rope_table(
    gguf: &Gguf,
    shape: &ModelShape,
    table: usize,
    context: u32,
) -> Result<Vec<f32>, ShapeError> {
    let (rope, rotated) = (&shape.ropes[table], shape.dimensions.rotated);
    let mut divisors = rope.scaling.divisors(f64::from(rope.base), rotated);
    let tensor = match rope.divisors {
        Divisors::None => None,
        Divisors::Fixed => Some(Tensor::RopeFreqs),
        Divisors::ByContext { original_context } if context > original_context => {
            Some(Tensor::RopeFactorsLong)
        }
        Divisors::ByContext { .. } => Some(Tensor::RopeFactorsShort),
    };
    if let Some(tensor) = tensor {
        let name = tensor.of_model().to_string();
        let data = gguf.data(gguf.require(&name)?)?;
        for (pair, (divisor, &bytes)) in divisors.iter_mut().zip(data.as_chunks::<4>().0).enumerate() {
            let factor = f32::from_le_bytes(bytes);
            if !(factor.is_finite() && factor > 0.0) {
                return Err(ShapeError::Unsupported(format!(
                    "tensor {name}: element {pair} is {factor}; divisors of RoPE's frequencies must be positive"
                )));
            }
            *divisor *= f64::from(factor);
        }
    }
    Ok(frequencies(f64::from(rope.base), rotated, &divisors))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Divisors of Qwen2.5's YaRN configuration (factor 4, original context 32768, base 10⁶, heads of 128), at the pairs
    /// where they begin and end to change. From `_compute_yarn_parameters` of Hugging Face transformers.
    #[test]
    fn yarn_divides_slow_pairs_only() {
        let yarn =
            RopeScaling::Yarn { factor: 4.0, original_context: 32_768, beta_fast: 32.0, beta_slow: 1.0 };
        let divisors = yarn.divisors(1e6, 128);
        assert_eq!((divisors[0], divisors[23], divisors[40], divisors[63]), (1.0, 1.0, 4.0, 4.0));
        let middle = 17.0 / (8.0 + 9.0 / 4.0);
        assert!((divisors[32] - middle).abs() < 1e-12, "{}", divisors[32]);
        assert!(divisors.is_sorted());
    }
}
