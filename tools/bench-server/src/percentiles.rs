//! Percentiles of durations.

use std::time::Duration;

use serde::Serialize;

/// Median and 99th percentile in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of the durations are at most this.
    pub p50: f64,
    /// 99% of the durations are at most this.
    pub p99: f64,
}

impl Percentiles {
    /// Percentiles of durations; none without any.
    pub fn of(durations: &[Duration]) -> Option<Percentiles> {
        let mut sorted = durations.to_vec();
        sorted.sort_unstable();
        let at = |percent| nearest_rank(&sorted, percent).map(|it| it.as_secs_f64() * 1e3);
        Some(Percentiles { p50: at(50)?, p99: at(99)? })
    }
}

/// The smallest value that at least `percent` of the sorted values do not exceed.
fn nearest_rank(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let of = |values: &[u64]| {
            let durations: Vec<Duration> = values.iter().map(|&ms| Duration::from_millis(ms)).collect();
            Percentiles::of(&durations).map(|it| (it.p50, it.p99))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some((7.0, 7.0)));
        assert_eq!(of(&[30, 10, 20]), Some((20.0, 30.0)));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(of(&hundred), Some((50.0, 99.0)));
        let more: Vec<u64> = (1..=200).collect();
        assert_eq!(of(&more), Some((100.0, 198.0)));
    }
}
