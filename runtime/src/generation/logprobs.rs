//! Log-probabilities of tokens.

/// Log-probabilities of a generated token and of the most likely tokens at its position.
///
/// They are natural logarithms of the model's probabilities, softmax of the logits in double precision, before logit
/// bias, penalties, temperature and filters.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Log-probability of the generated token.
    pub logprob: f64,
    /// The most likely tokens with their log-probabilities, most likely first; of equal ones, the smaller id first.
    pub top: Vec<(u32, f64)>,
}

impl TokenLogprobs {
    /// Log-probabilities of `chosen` and of the `count` most likely tokens; log p(i) = xᵢ − max − ln Σ e^(xⱼ − max) for
    /// the logits x, f32 `[vocab]`. A NaN counts as −∞.
    pub fn of(logits: &[f32], chosen: u32, count: u32) -> TokenLogprobs {
        let value = |logit: f32| if logit.is_nan() { f64::NEG_INFINITY } else { f64::from(logit) };
        let max = logits.iter().map(|&logit| value(logit)).fold(f64::NEG_INFINITY, f64::max);
        // Avoids the NaN of ∞ − ∞.
        let below = |logit: f32| if value(logit) == max { 0.0 } else { value(logit) - max };
        let sum: f64 = logits.iter().map(|&logit| below(logit).exp()).sum();
        let logprob =
            |token: u32| logits.get(token as usize).map_or(f64::NEG_INFINITY, |&x| below(x) - sum.ln());

        let mut ranked: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&logit| value(logit))).collect();
        let order = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let count = (count as usize).min(ranked.len());
        if count < ranked.len() {
            ranked.select_nth_unstable_by(count, order);
            ranked.truncate(count);
        }
        ranked.sort_unstable_by(order);
        // Collects from `iter`: collecting from `into_iter` would reuse the allocation of `ranked`, and so keep
        // memory for the whole vocabulary for each token of an answer.
        let top = ranked.iter().map(|&(token, _)| (token, logprob(token))).collect();
        TokenLogprobs { logprob: logprob(chosen), top }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_logarithms_of_softmax() {
        // Probabilities 1/2, 1/4, 1/8, 1/8.
        let logits = [3.0, 2.0, 1.0, 1.0].map(|power: f32| power * std::f32::consts::LN_2 + 7.0);
        let TokenLogprobs { logprob, top } = TokenLogprobs::of(&logits, 1, 3);
        let close = |value: f64, expected: f64| assert!((value - expected.ln()).abs() < 1e-6, "{value}");
        close(logprob, 0.25);
        assert_eq!(top.iter().map(|&(token, _)| token).collect::<Vec<_>>(), [0, 1, 2]);
        top.iter().zip([0.5, 0.25, 0.125]).for_each(|(&(_, logprob), expected)| close(logprob, expected));
        let all = TokenLogprobs::of(&logits, 3, 99).top;
        let sum: f64 = all.iter().map(|(_, logprob)| logprob.exp()).sum();
        assert!(all.len() == 4 && (sum - 1.0).abs() < 1e-12, "{all:?}");
    }

    #[test]
    fn a_token_keeps_no_more_memory_than_its_entries_need() {
        let TokenLogprobs { top, .. } = TokenLogprobs::of(&[0.0; 10_000], 1, 3);
        assert!(top.len() == 3 && top.capacity() < 10, "{}", top.capacity());
    }

    #[test]
    fn odd_logits_give_no_nan() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        let of = |logits: &[f32], chosen| {
            let TokenLogprobs { logprob, top } = TokenLogprobs::of(logits, chosen, 2);
            (logprob, top)
        };
        let least = f64::NEG_INFINITY;
        assert_eq!(of(&[nan, 5.0, -infinity], 1), (0.0, vec![(1, 0.0), (0, least)]));
        assert_eq!(of(&[infinity, 5.0, 1e30], 0), (0.0, vec![(0, 0.0), (2, least)]));
        assert_eq!(of(&[0.0, 1e30], 9).0, least);
        let uniform = -(2f64.ln());
        assert_eq!(of(&[-infinity, nan], 0), (uniform, vec![(0, uniform), (1, uniform)]));
    }
}
