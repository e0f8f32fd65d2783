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
/// if all values are equal. The error is the sum of `loss` of the residues, times `weights`.
pub fn with_min<const N: usize>(
    values: &[f32; N],
    weights: &[f32; N],
    max: f32,
    spreads: &Spreads,
    loss: fn(f32) -> f32,
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
        residues.zip(weights).map(|(residue, weight)| weight * loss(residue)).sum()
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
    let extreme = extreme(values);
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

/// Fits `scale·q` as [`signed`] does, but from one rounding on: repeatedly replaces a quant by the best one for the scale
/// that the other quants give, while the error decreases.
pub fn signed_by_steps<const N: usize>(values: &[f32; N], half: f32) -> f32 {
    let extreme = extreme(values);
    if extreme.abs() < TINY {
        return 0.0;
    }
    let rounded = |x: f32| x.round_ties_even().clamp(-half, half - 1.0);
    let mut quants = values.map(|x| rounded(-half / extreme * x));
    let (mut sum_xq, mut sum_qq) = (0.0, 0.0);
    for (x, q) in values.iter().zip(&quants) {
        let weight = x * x;
        sum_xq += weight * x * q;
        sum_qq += weight * q * q;
    }
    for _ in 0..5 {
        let mut changed = false;
        for (&x, q) in values.iter().zip(&mut quants) {
            let weight = x * x;
            let (other_xq, other_qq) = (sum_xq - weight * x * *q, sum_qq - weight * *q * *q);
            if other_xq <= 0.0 {
                continue;
            }
            let new = rounded(x * other_qq / other_xq);
            let (new_xq, new_qq) = (other_xq + weight * x * new, other_qq + weight * new * new);
            if new != *q && new_qq > 0.0 && new_xq * new_xq * sum_qq > sum_xq * sum_xq * new_qq {
                (*q, sum_xq, sum_qq) = (new, new_xq, new_qq);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    if sum_qq > 0.0 { sum_xq / sum_qq } else { 0.0 }
}

/// Fits `scale·v` to `values`, with `v` from a table of ascending values and errors weighted by the squares of the values.
/// The scales that are tried map the value of the largest magnitude to numbers around the ends of the table.
pub fn of_table<const N: usize>(values: &[f32; N], table: &[i8; 16]) -> f32 {
    let extreme = extreme(values);
    if extreme.abs() < TINY {
        return 0.0;
    }
    let least = f32::from(table[0]);
    let (mut best, mut most) = (0.0, 0.0);
    for at_extreme in std::iter::once(-least).chain((-7i8..=7).map(|step| f32::from(step) + least)) {
        let per_unit = at_extreme / extreme;
        let (mut sum_xv, mut sum_vv) = (0.0, 0.0);
        for &x in values {
            let v = f32::from(table[nearest(table, per_unit * x)]);
            sum_xv += x * x * v * x;
            sum_vv += x * x * v * v;
        }
        if sum_vv > 0.0 && sum_xv * sum_xv > most * sum_vv {
            best = sum_xv / sum_vv;
            most = best * sum_xv;
        }
    }
    best
}

/// Index of the value of an ascending table that is nearest to `x`; of two at the same distance, the larger.
pub fn nearest(table: &[i8; 16], x: f32) -> usize {
    let above = table.partition_point(|&value| f32::from(value) <= x);
    match above {
        0 => 0,
        16 => 15,
        _ if x - f32::from(table[above - 1]) < f32::from(table[above]) - x => above - 1,
        _ => above,
    }
}

/// The value of the largest magnitude, with its sign.
pub fn extreme<const N: usize>(values: &[f32; N]) -> f32 {
    values.iter().fold(0.0, |most: f32, &w| if w.abs() > most.abs() { w } else { most })
}

/// Magnitude below which a group is quantised to zeros (ggml's `GROUP_MAX_EPS`).
pub const TINY: f32 = 1e-15;
