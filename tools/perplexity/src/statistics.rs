//! Probabilities from logits, and estimates from samples, in double precision.

use serde::Serialize;

/// Mean of samples, with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// Standard error of the mean: √(variance / (n − 1)), as if the samples were independent; 0 for a single sample.
    pub standard_error: f64,
}

impl Estimate {
    /// Mean of samples; NaN without samples.
    pub fn of(samples: &[f64]) -> Estimate {
        let count = samples.len() as f64;
        let value = samples.iter().sum::<f64>() / count;
        let variance = samples.iter().map(|sample| (sample - value).powi(2)).sum::<f64>() / count;
        let standard_error = if samples.len() > 1 { (variance / (count - 1.0)).sqrt() } else { 0.0 };
        Estimate { value, standard_error }
    }

    /// e^x of an estimate x, with the standard error to first order: e^x · error.
    pub fn exp(self) -> Estimate {
        let value = self.value.exp();
        Estimate { value, standard_error: value * self.standard_error }
    }
}

/// Quantile of sorted samples by linear interpolation: `share` 0.5 is the median. NaN without samples.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * sorted.len().saturating_sub(1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    match (sorted.get(low), sorted.get(low + 1)) {
        (Some(low), Some(high)) if part > 0.0 => low + (high - low) * part,
        (Some(low), _) => *low,
        (None, _) => f64::NAN,
    }
}

/// Natural logarithms of the softmax of finite logits: logit − ln Σ e^logit.
pub(crate) fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    let normaliser = largest + sum.ln();
    logits.iter().map(|&logit| f64::from(logit) - normaliser).collect()
}

/// Kullback–Leibler divergence Σ p · (ln p − ln q) of two distributions, given by their logarithms. Never negative.
pub(crate) fn kl_divergence(p: &[f64], q: &[f64]) -> f64 {
    let terms = p.iter().zip(q).filter(|(p, _)| **p > f64::NEG_INFINITY);
    terms.map(|(&p, &q)| p.exp() * (p - q)).sum::<f64>().max(0.0)
}

/// Index of the largest value; the smallest index if several are equal.
pub(crate) fn largest(values: &[f64]) -> usize {
    let better = |best: usize, i: usize| if values[i] > values[best] { i } else { best };
    (1..values.len()).fold(0, better)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_quantiles() {
        let samples = [1.0, 2.0, 3.0, 6.0];
        let estimate = Estimate::of(&samples);
        assert_eq!(estimate.value, 3.0);
        // Variance 3.5.
        assert!((estimate.standard_error - (3.5f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!(Estimate::of(&[2.0]), Estimate { value: 2.0, standard_error: 0.0 });
        for (share, expected) in [(0.0, 1.0), (0.5, 2.5), (1.0, 6.0), (0.9, 5.1)] {
            assert!((quantile(&samples, share) - expected).abs() < 1e-12, "{share}");
        }
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn softmax_and_divergence() {
        let p = log_softmax(&[1000.0, 1000.0 + 3f32.ln()]);
        assert!((p[0] - 0.25f64.ln()).abs() < 1e-4 && (p[1] - 0.75f64.ln()).abs() < 1e-4);
        let q = log_softmax(&[0.0, 0.0]);
        let expected = 0.25 * 0.5f64.ln() + 0.75 * 1.5f64.ln();
        assert!((kl_divergence(&p, &q) - expected).abs() < 1e-4);
        assert_eq!(kl_divergence(&p, &p), 0.0);
        let p = [0.0, f64::NEG_INFINITY];
        assert_eq!(kl_divergence(&p, &q), 2f64.ln());
        assert_eq!(kl_divergence(&q, &p), f64::INFINITY);
        assert_eq!(largest(&[0.5, 2.0, 2.0, -1.0]), 1);
    }
}
