//! Times of steps as measured, and the number of drafted tokens of a step that gives the most tokens a second.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a draft of a sequence is expected to be worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Promise {
    /// Probability that a drafted token is right if the ones before it are.
    pub probability: f64,
    /// Largest number of tokens.
    pub most: u32,
    /// Whether the draft is as long as possible, whatever it costs.
    pub always: bool,
}

/// Kind of a step that chooses tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A row for each sequence.
    Decode,
    /// Several rows for a sequence.
    Verify,
}

/// Measured times of steps by kind and number of rows.
#[derive(Default)]
pub(crate) struct StepCosts {
    seconds: BTreeMap<(Kind, u32), Measured>,
    /// Number of measurements.
    count: u64,
}

#[derive(Clone, Copy)]
struct Measured {
    seconds: f64,
    /// Number of the last measurement.
    at: u64,
}

/// Weight of a new measurement.
const WEIGHT: f64 = 0.2;

/// Largest measurement relative to the mean so far. A longer step was disturbed.
const MOST: f64 = 2.0;

/// Number of measurements of other steps after which a time is measured anew: it may have been disturbed, or the context has
/// become longer.
const RENEWAL: u64 = 1000;

/// Gain below which nothing is drafted: a wrong estimate must not cost more than it may gain.
const LEAST_GAIN: f64 = 1.03;

impl StepCosts {
    /// Adds a measurement of a step of `size` rows.
    pub fn observe(&mut self, kind: Kind, size: u32, time: Duration) {
        self.count += 1;
        let at = self.count;
        let seconds = time.as_secs_f64();
        let measured = self.seconds.entry((kind, size)).or_insert(Measured { seconds, at });
        let is_old = at - measured.at > RENEWAL;
        let sample = if is_old { seconds } else { seconds.min(measured.seconds * MOST) };
        let weight = if is_old { 1.0 } else { WEIGHT };
        *measured = Measured { seconds: measured.seconds + (sample - measured.seconds) * weight, at };
    }

    /// Time of a step, unless it was not measured lately.
    fn of(&self, kind: Kind, size: u32) -> Option<f64> {
        let measured = self.seconds.get(&(kind, size))?;
        (self.count - measured.at <= RENEWAL).then_some(measured.seconds)
    }
}

/// The smallest of ascending `sizes` that holds `rows` rows.
fn size_for(sizes: &[u32], rows: u32) -> Option<u32> {
    sizes.iter().copied().find(|&size| size >= rows)
}

/// Numbers of tokens to draft for the sequences of a step, each of which has one row and may have a promise.
///
/// A step of n sequences gives n tokens, and a drafted token at place j of a draft gives pʲ tokens more. Of all sizes of verify
/// steps, whose rows go to the drafted tokens with the largest pʲ, the one with the most tokens a second is taken, if it is
/// better than a decode step. A size whose time is not known counts as fast as a smaller one, so that it is tried.
pub(crate) fn drafts(
    promises: &[Option<Promise>],
    decode: &[u32],
    verify: &[u32],
    costs: &StepCosts,
) -> Vec<u32> {
    let sequences = promises.len() as u32;
    let none = vec![0; promises.len()];
    let Some(&largest) = verify.last().filter(|&&largest| largest > sequences) else { return none };
    if promises.iter().flatten().any(|promise| promise.always) {
        return given(promises, largest - sequences).0;
    }
    if promises.iter().all(Option::is_none) {
        return none;
    }
    let Some(decoding) = size_for(decode, sequences).and_then(|size| costs.of(Kind::Decode, size)) else {
        return none;
    };
    let (mut best, mut best_rate) = (none, LEAST_GAIN * f64::from(sequences) / decoding);
    let mut seconds = decoding;
    for &size in verify.iter().filter(|&&size| size > sequences) {
        seconds = costs.of(Kind::Verify, size).unwrap_or(seconds);
        let (counts, tokens) = given(promises, size - sequences);
        let rate = (f64::from(sequences) + tokens) / seconds;
        if rate > best_rate {
            (best, best_rate) = (counts, rate);
        }
    }
    best
}

/// Gives `rows` rows to the most probable drafted tokens. Returns the numbers of tokens of each promise, and the expected number
/// of accepted tokens.
fn given(promises: &[Option<Promise>], rows: u32) -> (Vec<u32>, f64) {
    let mut counts = vec![0; promises.len()];
    // Probability that the next drafted token is accepted.
    let mut next: Vec<f64> =
        promises.iter().map(|promise| promise.map_or(0.0, |it| it.probability)).collect();
    let mut expected = 0.0;
    for _ in 0..rows {
        let open = promises.iter().enumerate().filter_map(|(index, promise)| {
            promise.filter(|promise| counts[index] < promise.most).map(|it| (index, it))
        });
        let Some((index, promise)) = open.max_by(|a, b| next[a.0].total_cmp(&next[b.0]).then(b.0.cmp(&a.0)))
        else {
            break;
        };
        counts[index] += 1;
        expected += next[index];
        next[index] *= promise.probability;
    }
    (counts, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECODE: [u32; 4] = [1, 2, 4, 8];
    const VERIFY: [u32; 4] = [2, 4, 8, 16];

    fn promise(probability: f64, most: u32) -> Option<Promise> {
        Some(Promise { probability, most, always: false })
    }

    /// Costs of steps that take `base` and `row` microseconds for each row.
    fn linear(base: u64, row: u64) -> StepCosts {
        let mut costs = StepCosts::default();
        for (kind, sizes) in [(Kind::Decode, DECODE), (Kind::Verify, VERIFY)] {
            for size in sizes {
                costs.observe(kind, size, Duration::from_micros(base + row * u64::from(size)));
            }
        }
        costs
    }

    #[test]
    fn the_length_depends_on_probability_and_costs() {
        let one =
            |probability, costs: &StepCosts| drafts(&[promise(probability, 7)], &DECODE, &VERIFY, costs)[0];
        let (flat, steep) = (linear(1000, 20), linear(0, 1000));
        assert_eq!([0.02, 0.3, 0.5, 0.9].map(|probability| one(probability, &flat)), [0, 3, 3, 7]);
        // A step of twice as many rows takes twice as long: nothing is gained.
        assert_eq!([0.3, 0.9, 1.0].map(|probability| one(probability, &steep)), [0, 0, 0]);
        assert_eq!(drafts(&[None], &DECODE, &VERIFY, &flat), [0]);
        assert_eq!(drafts(&[promise(1.0, 7)], &DECODE, &[], &flat), [0]);
        // Nothing is drafted before a decode step was measured.
        assert_eq!(one(0.9, &StepCosts::default()), 0);
    }

    #[test]
    fn rows_go_to_the_most_probable_tokens() {
        let costs = linear(1000, 1);
        let promises = [promise(0.9, 9), None, promise(0.5, 9), promise(0.99, 2)];
        // 12 rows: two for the last one, then those of 0.9, 0.81, … and of 0.5, which is more than 0.9¹⁰.
        assert_eq!(drafts(&promises, &DECODE, &VERIFY, &costs), [9, 0, 1, 2]);
        let all: u32 = drafts(&[promise(0.9, 9); 8], &DECODE, &VERIFY, &costs).iter().sum();
        assert_eq!(all, 8);
        assert_eq!(drafts(&[promise(0.9, 9); 16], &DECODE, &VERIFY, &costs), [0; 16]);
    }

    #[test]
    fn a_draft_that_must_be_as_long_as_possible_is() {
        let always = Some(Promise { probability: 0.0, most: 7, always: true });
        let none = StepCosts::default();
        assert_eq!(drafts(&[always], &DECODE, &VERIFY, &none), [7]);
        assert_eq!(drafts(&[always, None, always, always], &DECODE, &VERIFY, &none).iter().sum::<u32>(), 12);
    }

    #[test]
    fn an_unknown_size_is_tried_and_a_slow_one_avoided_for_a_while() {
        let mut costs = StepCosts::default();
        let one = |costs: &StepCosts| drafts(&[promise(0.8, 7)], &DECODE, &VERIFY, costs)[0];
        costs.observe(Kind::Decode, 1, Duration::from_millis(1));
        assert_eq!(one(&costs), 7);
        for size in [8, 4, 2] {
            costs.observe(Kind::Verify, size, Duration::from_millis(u64::from(size)));
        }
        assert_eq!(one(&costs), 0);
        for _ in 0..RENEWAL {
            costs.observe(Kind::Decode, 1, Duration::from_millis(1));
        }
        assert!(one(&costs) > 0);
    }

    #[test]
    fn a_disturbed_step_changes_little() {
        let mut costs = StepCosts::default();
        (0..9).for_each(|_| costs.observe(Kind::Decode, 1, Duration::from_millis(10)));
        costs.observe(Kind::Decode, 1, Duration::from_secs(9));
        let seconds = costs.of(Kind::Decode, 1).unwrap();
        assert!((0.010..0.0125).contains(&seconds), "{seconds}");
    }
}
