//! Reference of sampling on the host: sorts all tokens, and computes with the same integers as the device.

use std::collections::BTreeMap;

use bespoke::engine::SamplingParams;
use bespoke_kernels::kernels::sample::key::LOWEST;
use bespoke_kernels::kernels::sample::weight::{EXP2, SCALE_BITS};

/// Sort key of a logit: ordered like the logit; +0 and −0 have equal keys, and NaN has the key of −∞.
pub(super) fn key(logit: f32) -> u32 {
    let number = if logit.is_nan() { f32::NEG_INFINITY } else { logit + 0.0 };
    let bits = number.to_bits();
    if number.is_sign_negative() { !bits } else { bits | 0x8000_0000 }
}

/// The logits after bias and penalties; `history` is the sequence so far.
pub(super) fn penalise(logits: &[f32], history: &[u32], params: &SamplingParams) -> Vec<f32> {
    let mut penalised = logits.to_vec();
    if !params.logit_bias.is_empty() {
        let row = params.bias_row(logits.len() as u32);
        penalised.iter_mut().zip(row).for_each(|(logit, bias)| *logit += bias);
    }
    let window = history.len().min(params.repeat_last_n as usize);
    let mut counts = BTreeMap::new();
    history[history.len() - window..].iter().for_each(|&token| *counts.entry(token).or_insert(0u32) += 1);
    for (token, count) in counts {
        let logit = &mut penalised[token as usize];
        let penalty = params.repeat_penalty;
        *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        *logit -= count as f32 * params.frequency_penalty + params.presence_penalty;
    }
    penalised
}

/// ⌊2³⁹·e^((logit − max)/temperature)⌋ as the device computes it.
fn weight(logit: f32, max: f32, temperature: f32) -> u64 {
    let exponent = if logit == max { 0.0 } else { (logit - max) * (std::f32::consts::LOG2_E / temperature) };
    if exponent <= -(SCALE_BITS as f32 + 1.0) || exponent.is_nan() {
        return 0;
    }
    let fraction = exponent - exponent.floor();
    let series =
        EXP2.iter().rev().fold(0.0f32, |sum, &c| if sum == 0.0 { c } else { sum.mul_add(fraction, c) });
    let power = series.mul_add(fraction, 1.0);
    ((power * (1u32 << 30) as f32) as u64) << (SCALE_BITS - 30) >> (-exponent.floor() as u32)
}

/// Tokens that can be drawn, in order, each with its weight, which is proportional to its probability. Empty if no
/// logit is above −∞.
pub(super) fn distribution(logits: &[f32], params: &SamplingParams) -> Vec<(u32, u64)> {
    let mut ranked: Vec<(u32, u32)> = logits.iter().map(|&logit| key(logit)).zip(0..).collect();
    ranked.sort_by_key(|&(key, token)| (std::cmp::Reverse(key), token));
    let Some(&(top, best)) = ranked.first().filter(|&&(key, _)| key > LOWEST) else { return Vec::new() };
    if params.temperature == 0.0 {
        return vec![(best, 1)];
    }
    let max = logits[best as usize];
    let weigh = |(key, token): (u32, u32), temperature| {
        if key > LOWEST { weight(logits[token as usize], max, temperature) } else { 0 }
    };
    if params.top_k > 0 {
        ranked.truncate(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        let weights: Vec<u64> = ranked.iter().map(|&token| weigh(token, 1.0)).collect();
        let total: u64 = weights.iter().sum();
        let p = (params.top_p * 2f32.powi(64)) as u64;
        let target = (u128::from(p) * u128::from(total)).div_ceil(1 << 64).max(1) as u64;
        let sums = weights.iter().scan(0, |sum, &weight| Some(std::mem::replace(sum, *sum + weight)));
        let length = sums.take_while(|&before| before < target);
        ranked.truncate(length.count());
    }
    let margin = -f64::from(params.min_p).ln() as f32;
    let least = key(max - margin).min(top);
    let mut kept: Vec<(u32, u64)> = ranked
        .iter()
        .filter(|&&(key, _)| key >= least)
        .map(|&token| (token.1, weigh(token, params.temperature)))
        .filter(|&(_, weight)| weight > 0)
        .collect();
    kept.sort_unstable();
    kept
}

/// Draws the token at `position` from `logits`, after bias and penalties.
pub(super) fn choose(logits: &[f32], params: &SamplingParams, position: u32) -> u32 {
    let tokens = distribution(logits, params);
    let total: u64 = tokens.iter().map(|&(_, weight)| weight).sum();
    let words = philox([position, 0, 0, 0], [params.seed as u32, (params.seed >> 32) as u32]);
    let random = u64::from(words[0]) | u64::from(words[1]) << 32;
    let mut point = ((u128::from(random) * u128::from(total)) >> 64) as u64;
    for (token, weight) in tokens {
        if point < weight {
            return token;
        }
        point -= weight;
    }
    0
}

/// Philox-4x32-10 in 64-bit arithmetic.
fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    for round in 0..10u32 {
        let first = key[0].wrapping_add(0x9E37_79B9u32.wrapping_mul(round));
        let second = key[1].wrapping_add(0xBB67_AE85u32.wrapping_mul(round));
        let (low, high) = (u64::from(a) * 0xD251_1F53, u64::from(c) * 0xCD9E_8D57);
        (a, b, c, d) =
            ((high >> 32) as u32 ^ b ^ first, high as u32, (low >> 32) as u32 ^ d ^ second, low as u32);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use bespoke_random::rng::stream;

    use super::*;

    /// The known answers of the authors' library, Random123 1.14, `kat_vectors`.
    #[test]
    fn philox_gives_the_known_answers() {
        for (counter, key, words) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox(counter, key), words);
        }
    }

    /// Probabilities after all filters, in double precision by the definitions.
    fn exact(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
        let value =
            |token: usize| if logits[token].is_nan() { f64::NEG_INFINITY } else { logits[token].into() };
        let mut ranked: Vec<usize> = (0..logits.len()).collect();
        ranked.sort_by(|&a, &b| value(b).total_cmp(&value(a)).then(a.cmp(&b)));
        if params.top_k > 0 {
            ranked.truncate(params.top_k as usize);
        }
        let max = value(ranked[0]);
        let likelihood = |token: usize, temperature: f64| ((value(token) - max) / temperature).exp();
        let total: f64 = ranked.iter().map(|&token| likelihood(token, 1.0)).sum();
        let mut sum = 0.0;
        let before: Vec<f64> = ranked
            .iter()
            .map(|&token| {
                let before = sum;
                sum += likelihood(token, 1.0) / total;
                before
            })
            .collect();
        if params.top_p < 1.0 {
            let length = before.iter().take_while(|&&sum| sum < f64::from(params.top_p)).count();
            ranked.truncate(length.max(1));
        }
        ranked.retain(|&token| likelihood(token, 1.0) >= f64::from(params.min_p));
        let mut out = vec![0.0; logits.len()];
        let temperature = f64::from(params.temperature);
        let total: f64 = ranked.iter().map(|&token| likelihood(token, temperature)).sum();
        ranked.iter().for_each(|&token| out[token] = likelihood(token, temperature) / total);
        out
    }

    fn probabilities(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
        let tokens = distribution(logits, params);
        let total: u64 = tokens.iter().map(|&(_, weight)| weight).sum();
        let mut out = vec![0.0; logits.len()];
        tokens.iter().for_each(|&(token, weight)| out[token as usize] = weight as f64 / total as f64);
        out
    }

    /// Parameters with each filter alone, all together and none.
    fn parameter_sets() -> Vec<SamplingParams> {
        let warm = |temperature| SamplingParams { temperature, ..SamplingParams::default() };
        vec![
            warm(1.0),
            warm(0.3),
            warm(7.0),
            SamplingParams { top_k: 40, ..warm(0.8) },
            SamplingParams { top_p: 0.9, ..warm(1.5) },
            SamplingParams { min_p: 0.05, ..warm(1.0) },
            SamplingParams { top_k: 40, top_p: 0.95, min_p: 0.05, ..warm(0.8) },
            SamplingParams { top_k: 3, top_p: 0.0, ..warm(1.0) },
        ]
    }

    /// Random logits, with tokens that share a value, and with −∞ and NaN.
    fn logits(seed: u64, count: usize) -> Vec<f32> {
        let mut rng = stream(seed, 0, 0);
        let mut logits: Vec<f32> = (0..count).map(|_| rng.normal() * 3.0).collect();
        logits[count / 2] = f32::NAN;
        logits[count / 3] = f32::NEG_INFINITY;
        logits[..count / 10].iter_mut().for_each(|logit| *logit = (*logit * 2.0).round() / 2.0);
        logits
    }

    #[test]
    fn probabilities_are_those_of_the_definitions() {
        for params in parameter_sets() {
            for seed in 0..4 {
                let logits = logits(seed, 700);
                let (got, want) = (probabilities(&logits, &params), exact(&logits, &params));
                for (token, (got, want)) in got.iter().zip(&want).enumerate() {
                    // Small weights are exact to 2^-39 of the most likely token, others to a few f32 roundings.
                    let error = (got - want).abs();
                    assert!(error <= 1e-11 + want * 4e-6, "{params:?}: token {token}: {got} for {want}");
                }
            }
        }
    }

    /// Pearson's statistic over draws at many positions; tokens with few expected draws are grouped.
    #[test]
    fn draws_are_distributed_as_the_probabilities() {
        let draws = 20_000u32;
        for params in parameter_sets() {
            let params = SamplingParams { seed: 12, ..params };
            let logits = logits(5, 200);
            let want = exact(&logits, &params);
            let mut counts = vec![0u32; logits.len()];
            (0..draws).for_each(|position| counts[choose(&logits, &params, position) as usize] += 1);
            let (mut rare, mut rare_count, mut statistic, mut cells) = (0.0, 0.0, 0.0, 0.0);
            for (&count, &probability) in counts.iter().zip(&want) {
                let expected = probability * f64::from(draws);
                if expected < 10.0 {
                    rare += expected;
                    rare_count += f64::from(count);
                } else {
                    statistic += (f64::from(count) - expected).powi(2) / expected;
                    cells += 1.0;
                }
            }
            if rare > 5.0 {
                statistic += (rare_count - rare) * (rare_count - rare) / rare;
                cells += 1.0;
            }
            let freedom: f64 = cells - 1.0;
            // Four standard deviations above the mean.
            assert!(
                statistic <= freedom + 4.0 * (2.0 * freedom).sqrt() + 1e-9,
                "{params:?}: {statistic} over {freedom} degrees of freedom"
            );
        }
    }

    #[test]
    fn ties_at_a_bound_keep_the_smallest_tokens() {
        let tied = [1.0, 2.0, 1.0, 1.0, 2.0, 1.0];
        let tokens = |params: SamplingParams| -> Vec<u32> {
            distribution(&tied, &params).into_iter().map(|(token, _)| token).collect()
        };
        let warm = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
        assert_eq!(tokens(SamplingParams { top_k: 3, ..warm.clone() }), [0, 1, 4]);
        assert_eq!(tokens(SamplingParams { top_k: 1, ..warm.clone() }), [1]);
        // The two likelier tokens have 0.576 of the probability together, the other tokens 0.106 each.
        assert_eq!(tokens(SamplingParams { top_p: 0.6, ..warm.clone() }), [0, 1, 4]);
        assert_eq!(tokens(SamplingParams { min_p: 0.5, ..warm }), [1, 4]);
    }

    #[test]
    fn penalties_and_bias_follow_their_formulas() {
        let none = || SamplingParams { repeat_last_n: 5, ..SamplingParams::default() };
        let logits = [4.0, -4.0, 4.0, 0.0];
        // The last five tokens: twice 0, twice 1, once 3.
        let history = [2, 2, 0, 1, 0, 3, 1];
        let forbid = (2, f32::NEG_INFINITY);
        for (params, expected) in [
            (none(), logits),
            (SamplingParams { repeat_penalty: 2.0, ..none() }, [2.0, -8.0, 4.0, 0.0]),
            (SamplingParams { presence_penalty: 0.5, ..none() }, [3.5, -4.5, 4.0, -0.5]),
            (SamplingParams { frequency_penalty: 0.5, ..none() }, [3.0, -5.0, 4.0, -0.5]),
            (SamplingParams { frequency_penalty: -1.0, repeat_last_n: 1, ..none() }, [4.0, -3.0, 4.0, 0.0]),
            (
                SamplingParams { presence_penalty: 1.0, repeat_last_n: u32::MAX, ..none() },
                [3.0, -5.0, 3.0, -1.0],
            ),
            (SamplingParams { presence_penalty: 9.0, repeat_last_n: 0, ..none() }, logits),
            // The bias comes first: it makes the logit of token 1 positive, and that of token 0 negative.
            (
                SamplingParams {
                    logit_bias: vec![(1, 8.0), (0, -6.0), forbid],
                    repeat_penalty: 2.0,
                    presence_penalty: 1.0,
                    frequency_penalty: 0.25,
                    ..none()
                },
                [-5.5, 0.5, f32::NEG_INFINITY, -1.25],
            ),
        ] {
            assert_eq!(penalise(&logits, &history, &params), expected, "{params:?}");
        }
    }

    #[test]
    fn keys_compare_like_logits() {
        let ascending = [f32::NEG_INFINITY, f32::MIN, -1.0, -1e-45, 0.0, 1e-45, 1.0, f32::MAX, f32::INFINITY];
        assert!(ascending.map(key).is_sorted_by(|a, b| a < b));
        assert_eq!((key(-0.0), key(f32::NAN), key(-f32::NAN)), (key(0.0), LOWEST, LOWEST));
    }
}
