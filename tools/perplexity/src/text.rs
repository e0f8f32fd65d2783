//! Results as text.

use crate::{Comparison, Estimate, Perplexity, Work};

/// A measurement in two lines: perplexity with the number of scored tokens, and the speed.
pub fn perplexity(result: &Perplexity) -> String {
    let Work { scored, .. } = result.work;
    format!(
        "perplexity {} over {scored} tokens\n{}\n",
        estimate(result.score.perplexity, 4),
        speed(result.work)
    )
}

/// A comparison, a line each: perplexities, their ratio, the divergence, equal top tokens, and the speed.
pub fn comparison(result: &Comparison) -> String {
    let divergence = &result.divergence;
    let percent = |share: f64| share * 100.0;
    let same = Estimate {
        value: percent(result.same_top.value),
        standard_error: percent(result.same_top.standard_error),
    };
    format!(
        "perplexity      {}; reference {}; over {} tokens\n\
         ratio           {}\n\
         KL divergence   mean {}, median {:.6}, 99 % {:.6}, max {:.6}\n\
         same top token  {} %\n\
         {}\n",
        estimate(result.model.perplexity, 4),
        estimate(result.reference.perplexity, 4),
        result.work.scored,
        estimate(result.ratio, 6),
        estimate(divergence.mean, 6),
        divergence.median,
        divergence.percentile_99,
        divergence.max,
        estimate(same, 2),
        speed(result.work),
    )
}

fn estimate(estimate: Estimate, digits: usize) -> String {
    format!("{:.digits$} ± {:.digits$}", estimate.value, estimate.standard_error)
}

fn speed(work: Work) -> String {
    let Work { positions, seconds, tokens_per_second, .. } = work;
    format!("{positions} positions in {seconds:.1} s: {tokens_per_second:.2} tokens/s")
}
