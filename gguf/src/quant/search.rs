//! Search for the scale of a group of elements: least squares over several roundings.
//!
//! For given quants, linear equations determine the best scale (and minimum); for a given scale, rounding determines
//! the best quants. Alternating the two may miss the optimum. Therefore several initial scales are tried, which spread
//! the values over slightly different ranges of quants, and the fit with the smallest weighted error is chosen.

use std::ops::RangeInclusive;

/// Changes of the largest quant that the search tries: `offset` plus a tenth of each of `tenths`.
pub struct Spreads {
    pub offset: f32,
    pub tenths: RangeInclusive<i8>,
}

impl Spreads {
    fn iter(&self) -> impl Iterator<Item = f32> + '_ {
        self.tenths.clone().map(|tenths| self.offset + 0.1 * f32::from(tenths))
    }
}

/// Fits `scale·q − min` to `values`, with `q` from 0 to `max` and `min ≥ 0`, and returns `(scale, min)`. The scale is 0
/// if all values are equal. `weights` are the weights of the squared errors.
pub fn with_min<const N: usize>(
    values: &[f32; N],
    weights: &[f32; N],
    max: f32,
    spreads: &Spreads,
) -> (f32, f32) {
    let low = values.iter().fold(0.0, |low: f32, &w| low.min(w));
    let high = values.iter().fold(f32::MIN, |high, &w| high.max(w));
    if high <= low {
        return (0.0, -low);
    }
    let sum_w: f32 = weights.iter().sum();
    let sum_x: f32 = weights.iter().zip(values).map(|(weight, x)| weight * x).sum();
    let quants = |levels: f32, low: f32| {
        let per_unit = levels / (high - low);
        values.map(|x| (per_unit * (x - low)).round_ties_even().clamp(0.0, max))
    };
    let error = |quants: &[f32; N], scale: f32, low: f32| -> f32 {
        let residues = quants.iter().zip(values).map(|(q, x)| scale * q + low - x);
        residues.zip(weights).map(|(residue, weight)| weight * residue * residue).sum()
    };
    let mut best = ((high - low) / max, low);
    let mut least_error = error(&quants(max, low), best.0, best.1);
    for spread in spreads.iter() {
        // Starts from the best minimum so far instead of the smallest value, so that the minimum changes as well.
        let quants = quants(max + spread, best.1);
        let (mut sum_q, mut sum_qq, mut sum_qx) = (0.0, 0.0, 0.0);
        for ((q, x), weight) in quants.iter().zip(values).zip(weights) {
            sum_q += weight * q;
            sum_qq += weight * q * q;
            sum_qx += weight * q * x;
        }
        let determinant = sum_w * sum_qq - sum_q * sum_q;
        if determinant <= 0.0 {
            continue;
        }
        let mut scale = (sum_w * sum_qx - sum_x * sum_q) / determinant;
        let mut low = (sum_qq * sum_x - sum_q * sum_qx) / determinant;
        if low > 0.0 {
            (scale, low) = (sum_qx / sum_qq, 0.0);
        }
        let error = error(&quants, scale, low);
        if error < least_error {
            (least_error, best) = (error, (scale, low));
        }
    }
    (best.0, -best.1)
}

/// Fits `scale·q` to `values`, with `q` from −`half` to `half` − 1 and errors weighted by the squares of the values.
/// Returns the scale, which may be negative: the value of the largest magnitude gets the quant −`half`.
pub fn signed<const N: usize>(values: &[f32; N], half: f32, spreads: &Spreads) -> f32 {
    let extreme = values.iter().fold(0.0, |most: f32, &w| if w.abs() > most.abs() { w } else { most });
    if extreme.abs() < TINY {
        return 0.0;
    }
    // The best scale is Σ w·x·q / Σ w·q², and its error a constant minus (Σ w·x·q)² / Σ w·q².
    let (mut best, mut most) = (0.0, 0.0);
    for spread in [0.0].into_iter().chain(spreads.iter()) {
        let per_unit = -(half + spread) / extreme;
        let (mut sum_xq, mut sum_qq) = (0.0, 0.0);
        for &x in values {
            let q = (per_unit * x).round_ties_even().clamp(-half, half - 1.0);
            sum_xq += x * x * x * q;
            sum_qq += x * x * q * q;
        }
        if sum_qq > 0.0 && sum_xq * sum_xq > most * sum_qq {
            best = sum_xq / sum_qq;
            most = best * sum_xq;
        }
    }
    best
}

/// Magnitude below which a group is quantised to zeros (ggml's `GROUP_MAX_EPS`).
pub const TINY: f32 = 1e-15;
