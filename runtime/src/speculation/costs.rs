//! Times of steps as measured, and the number of drafted tokens of a step that gives the most tokens a second.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Source;

/// Expected worth of a draft of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Proposal {
    /// Probability that a drafted token is right if the ones before it are.
    pub probability: f64,
    /// Largest number of tokens.
    pub most: u32,
    /// Whether the draft is as long as possible, whatever it costs.
    pub always: bool,
    /// Where the tokens come from; none for tokens that are given.
    pub source: Option<Source>,
    /// Number of the sequence's tokens that the draft model must process first.
    pub behind: u32,
    /// Largest number of tokens that may follow.
    pub left: u32,
}

/// Numbers of rows of an engine's steps, ascending.
pub(crate) struct StepSizes<'a> {
    /// Those of decode steps.
    pub decode: &'a [u32],
    /// Those of verify steps.
    pub verify: &'a [u32],
    /// Those of the draft model's decode steps; none without a draft model.
    pub draft: &'a [u32],
}

/// Work whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// A decode step: a row for each sequence.
    Decode,
    /// A verify step: several rows for a sequence.
    Verify,
    /// A step of the draft model.
    Draft,
    /// A token that the draft model processes before it drafts, in steps of many.
    CatchUp,
}

/// Measured times of steps by work and number of rows.
#[derive(Default)]
pub(crate) struct StepCosts {
    seconds: BTreeMap<(Work, u32), Measured>,
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

/// Limit of a measurement, as a multiple of the mean so far. A longer measurement was disturbed, and counts as the
/// limit.
const MOST: f64 = 2.0;

/// Number of measurements of other steps after which a time is measured anew: it may have been disturbed, or the context has
/// become longer.
const RENEWAL: u64 = 1000;

/// Maximum number of following tokens among which the time is divided that a draft model needs to catch up: most answers end
/// before their limit.
const HORIZON: u32 = 256;

/// Gain below which nothing is drafted: a wrong estimate must not cost more than it may gain.
const MIN_GAIN: f64 = 1.03;

impl StepCosts {
    /// Adds a measurement of a step of `size` rows.
    pub fn observe(&mut self, kind: Work, size: u32, time: Duration) {
        self.count += 1;
        let at = self.count;
        let seconds = time.as_secs_f64();
        let measured = self.seconds.entry((kind, size)).or_insert(Measured { seconds, at });
        let is_old = at - measured.at > RENEWAL;
        let sample = if is_old { seconds } else { seconds.min(measured.seconds * MOST) };
        let weight = if is_old { 1.0 } else { WEIGHT };
        *measured = Measured { seconds: measured.seconds + (sample - measured.seconds) * weight, at };
    }

    /// Mean time of a step in seconds; none if it was not measured within the last [`RENEWAL`] measurements.
    fn of(&self, kind: Work, size: u32) -> Option<f64> {
        let measured = self.seconds.get(&(kind, size))?;
        (self.count - measured.at <= RENEWAL).then_some(measured.seconds)
    }
}

/// The smallest of ascending `sizes` that holds `rows` rows.
fn size_for(sizes: &[u32], rows: u32) -> Option<u32> {
    sizes.iter().copied().find(|&size| size >= rows)
}

/// Numbers of tokens to draft for the sequences of a step, each of which has one row and may have a proposal.
///
/// A step of n sequences gives n tokens. The drafted token at place j is accepted if all before it are right too, with probability
/// pʲ; the rows of a verify step go to the tokens for which this is largest. Of all numbers of rows the one with the most tokens a second is taken, if it is
/// better than a decode step. The time is that of the smallest verify step with so many rows, and of the draft model's
/// steps. A size whose time is not known counts as fast as a smaller one, so that it is tried.
pub(crate) fn drafts(proposals: &[Option<Proposal>], sizes: &StepSizes<'_>, costs: &StepCosts) -> Vec<u32> {
    let sequences = proposals.len() as u32;
    let none = vec![0; proposals.len()];
    let Some(&largest) = sizes.verify.last().filter(|&&largest| largest > sequences) else { return none };
    let mut shares = Shares::new(proposals);
    if proposals.iter().flatten().any(|proposal| proposal.always) {
        while sequences + shares.rows < largest && shares.add_row() {}
        return shares.counts;
    }
    if proposals.iter().all(Option::is_none) {
        return none;
    }
    let Some(decoding) = size_for(sizes.decode, sequences).and_then(|size| costs.of(Work::Decode, size))
    else {
        return none;
    };
    let (mut best, mut best_rate) = (none, MIN_GAIN * f64::from(sequences) / decoding);
    let mut verifying = decoding;
    for &size in sizes.verify.iter().filter(|&&size| size > sequences) {
        verifying = costs.of(Work::Verify, size).unwrap_or(verifying);
        while sequences + shares.rows < size && shares.add_row() {
            let seconds = verifying + shares.drafting(sizes.draft, costs) + shares.catching_up(costs);
            let rate = (f64::from(sequences) + shares.expected) / seconds;
            if rate > best_rate {
                (best, best_rate) = (shares.counts.clone(), rate);
            }
        }
    }
    best
}

/// Rows given to the most probable drafted tokens, one after another.
struct Shares<'a> {
    proposals: &'a [Option<Proposal>],
    /// Number of tokens of each proposal.
    counts: Vec<u32>,
    /// Probability that the next drafted token of each proposal is accepted.
    next: Vec<f64>,
    /// Number of rows given.
    rows: u32,
    /// Expected number of accepted tokens.
    expected: f64,
}

impl<'a> Shares<'a> {
    fn new(proposals: &'a [Option<Proposal>]) -> Shares<'a> {
        let next = proposals.iter().map(|proposal| proposal.map_or(0.0, |it| it.probability)).collect();
        Shares { proposals, counts: vec![0; proposals.len()], next, rows: 0, expected: 0.0 }
    }

    /// Gives a row to the most probable token. Returns false if no proposal has a further one.
    fn add_row(&mut self) -> bool {
        let open = self.proposals.iter().enumerate().filter_map(|(index, proposal)| {
            proposal.filter(|proposal| self.counts[index] < proposal.most).map(|it| (index, it))
        });
        let best = open.max_by(|a, b| self.next[a.0].total_cmp(&self.next[b.0]).then(b.0.cmp(&a.0)));
        let Some((index, proposal)) = best else { return false };
        self.counts[index] += 1;
        self.rows += 1;
        self.expected += self.next[index];
        self.next[index] *= proposal.probability;
        true
    }

    /// A step's share of the time in which the draft model processes tokens that it has not seen. That time is divided among the
    /// tokens that may follow.
    fn catching_up(&self, costs: &StepCosts) -> f64 {
        let Some(token) = costs.of(Work::CatchUp, 1) else { return 0.0 };
        let of_one = |(proposal, &count): (&Option<Proposal>, &u32)| {
            let proposal = proposal.filter(|it| count > 0 && it.source == Some(Source::Model))?;
            let given = 1.0 + (1..=count as i32).map(|place| proposal.probability.powi(place)).sum::<f64>();
            let part = given / f64::from(proposal.left.clamp(1, HORIZON));
            Some(f64::from(proposal.behind) * token * part.min(1.0))
        };
        self.proposals.iter().zip(&self.counts).filter_map(of_one).sum()
    }

    /// Time of the draft model's steps: each drafts the next token of all sequences whose drafts are that long.
    fn drafting(&self, sizes: &[u32], costs: &StepCosts) -> f64 {
        let counts = self.counts.iter().zip(self.proposals);
        let by_model =
            |proposal: &Option<Proposal>| proposal.is_some_and(|it| it.source == Some(Source::Model));
        let counts: Vec<u32> =
            counts.filter(|(_, proposal)| by_model(proposal)).map(|(&count, _)| count).collect();
        let longest = counts.iter().copied().max().unwrap_or(0);
        let seconds = |place: u32| {
            let rows = counts.iter().filter(|&&count| count > place).count() as u32;
            let known = |&&size: &&u32| size >= rows && costs.of(Work::Draft, size).is_some();
            sizes.iter().find(known).and_then(|&size| costs.of(Work::Draft, size)).unwrap_or(0.0)
        };
        (0..longest).map(seconds).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{ModelPrior, Offer, Speculation, Speculator, Synthetic};
    use super::*;

    const DECODE: [u32; 4] = [1, 2, 4, 8];
    const VERIFY: [u32; 4] = [2, 4, 8, 16];
    const SIZES: StepSizes<'_> = StepSizes { decode: &DECODE, verify: &VERIFY, draft: &DECODE };

    fn proposal(probability: f64, most: u32) -> Option<Proposal> {
        Some(Proposal {
            probability,
            most,
            always: false,
            source: Some(Source::Lookup),
            behind: 0,
            left: 1000,
        })
    }

    fn of_model(probability: f64, most: u32) -> Option<Proposal> {
        proposal(probability, most).map(|proposal| Proposal { source: Some(Source::Model), ..proposal })
    }

    /// Costs of steps that take `base` and `row` microseconds for each row.
    fn linear(base: u64, row: u64) -> StepCosts {
        let mut costs = StepCosts::default();
        for (kind, sizes) in [(Work::Decode, DECODE), (Work::Verify, VERIFY)] {
            for size in sizes {
                costs.observe(kind, size, Duration::from_micros(base + row * u64::from(size)));
            }
        }
        costs
    }

    #[test]
    fn the_length_depends_on_probability_and_costs() {
        let one = |probability, costs: &StepCosts| drafts(&[proposal(probability, 7)], &SIZES, costs)[0];
        let (flat, steep) = (linear(1000, 20), linear(0, 1000));
        assert_eq!([0.02, 0.3, 0.5, 0.9].map(|probability| one(probability, &flat)), [0, 3, 3, 7]);
        // A step of twice as many rows takes twice as long: nothing is gained.
        assert_eq!([0.3, 0.9, 1.0].map(|probability| one(probability, &steep)), [0, 0, 0]);
        assert_eq!(drafts(&[None], &SIZES, &flat), [0]);
        assert_eq!(drafts(&[proposal(1.0, 7)], &StepSizes { verify: &[], ..SIZES }, &flat), [0]);
        // Nothing is drafted before a decode step was measured.
        assert_eq!(one(0.9, &StepCosts::default()), 0);
    }

    #[test]
    fn rows_go_to_the_most_probable_tokens() {
        let costs = linear(1000, 1);
        let proposals = [proposal(0.9, 9), None, proposal(0.5, 9), proposal(0.99, 2)];
        // 12 rows: two for the last one, then those of 0.9, 0.81, … and of 0.5, which is more than 0.9¹⁰.
        assert_eq!(drafts(&proposals, &SIZES, &costs), [9, 0, 1, 2]);
        let all: u32 = drafts(&[proposal(0.9, 9); 8], &SIZES, &costs).iter().sum();
        assert_eq!(all, 8);
        assert_eq!(drafts(&[proposal(0.9, 9); 16], &SIZES, &costs), [0; 16]);
    }

    #[test]
    fn a_draft_that_must_be_as_long_as_possible_is() {
        let always =
            Some(Proposal { probability: 0.0, most: 7, always: true, source: None, behind: 0, left: 7 });
        let none = StepCosts::default();
        assert_eq!(drafts(&[always], &SIZES, &none), [7]);
        assert_eq!(drafts(&[always, None, always, always], &SIZES, &none).iter().sum::<u32>(), 12);
    }

    #[test]
    fn an_unknown_size_is_tried_and_a_slow_one_avoided_for_a_while() {
        let mut costs = StepCosts::default();
        let one = |costs: &StepCosts| drafts(&[proposal(0.8, 7)], &SIZES, costs)[0];
        costs.observe(Work::Decode, 1, Duration::from_millis(1));
        assert_eq!(one(&costs), 7);
        for size in [8, 4, 2] {
            costs.observe(Work::Verify, size, Duration::from_millis(u64::from(size)));
        }
        assert_eq!(one(&costs), 0);
        for _ in 0..RENEWAL {
            costs.observe(Work::Decode, 1, Duration::from_millis(1));
        }
        assert!(one(&costs) > 0);
    }

    #[test]
    fn a_disturbed_step_changes_little() {
        let mut costs = StepCosts::default();
        (0..9).for_each(|_| costs.observe(Work::Decode, 1, Duration::from_millis(10)));
        costs.observe(Work::Decode, 1, Duration::from_secs(9));
        let seconds = costs.of(Work::Decode, 1).unwrap();
        assert!((0.010..0.0125).contains(&seconds), "{seconds}");
    }

    /// Costs of steps of one, two, four and eight rows, and of a draft step, in microseconds.
    fn measured(decode: u64, verify: [u64; 3], draft: u64) -> StepCosts {
        let mut costs = StepCosts::default();
        let mut observe = |kind, size, time| costs.observe(kind, size, Duration::from_micros(time));
        observe(Work::Decode, 1, decode);
        VERIFY.into_iter().zip(verify).for_each(|(size, time)| observe(Work::Verify, size, time));
        observe(Work::Verify, 16, verify[2] * 2);
        observe(Work::Draft, 1, draft);
        costs
    }

    /// The length of a draft, from what was measured.
    #[test]
    fn the_length_of_a_models_draft_depends_on_what_its_steps_cost() {
        let (nearly_flat, steep) = ([1050, 1100, 1200], [1800, 3400, 6600]);
        #[rustfmt::skip]
        let cases = [
            // share of right tokens, verify steps of 2, 4 and 8 rows, a draft step, length
            (0.9, nearly_flat,    0, 7), // look-up costs nothing: as long as the step has rows
            (0.9, nearly_flat,   20, 7),
            (0.9, nearly_flat,  150, 7), // the 8B model and its 1B draft, about
            (0.9, nearly_flat,  400, 3), // 3.44 tokens in 2.3 ms, but 5.7 in 4 ms
            (0.9, nearly_flat, 1000, 0), // the draft is as slow as the model
            (0.7, nearly_flat,  150, 3),
            (0.7, nearly_flat,  400, 1), // 1.7 in 1.45 ms; 2.19 in 1.9 ms are fewer
            (0.5, nearly_flat,  100, 2), // 1.75 in 1.3 ms; 1.5 in 1.15 ms are fewer
            (0.5, nearly_flat,  150, 1), // 1.5 in 1.2 ms
            (0.5, nearly_flat,  420, 0), // 1.5 in 1.47 ms: a gain below 3%
            (0.3, nearly_flat,  150, 1),
            (0.2, nearly_flat,  200, 0),
            (0.9, steep,          0, 1), // 1.9 tokens in 1.8 ms
            (0.8, steep,          0, 0),
            (0.9, steep,        100, 0),
        ];
        for (probability, verify, draft, length) in cases {
            let costs = measured(1000, verify, draft);
            let found = drafts(&[of_model(probability, 7)], &SIZES, &costs);
            assert_eq!(found, [length], "{probability} {verify:?} {draft}");
        }
    }

    #[test]
    fn what_a_draft_model_must_process_first_counts() {
        #[rustfmt::skip]
        let cases = [
            // tokens to process, tokens that may follow, length; each takes 20 microseconds
            (   0,    5, 3),
            (  10,    5, 3),
            (2000,    5, 0), // 40 ms before at most five tokens of 1 ms each
            ( 100,    5, 0), // 2 ms for 5 tokens, of which each gains 0.4 ms at most
            ( 100,   20, 3),
            ( 100, 1000, 3),
            (2000, 1000, 3), // 40 ms for 256 tokens
            (9000, 1000, 0), // 180 ms for 256 tokens
        ];
        for (behind, left, length) in cases {
            let mut costs = measured(1000, [1050, 1100, 1200], 150);
            assert_eq!(drafts(&[of_model(0.7, 7)], &SIZES, &costs), [3], "nothing is known about it");
            costs.observe(Work::CatchUp, 1, Duration::from_micros(20));
            let proposal = of_model(0.7, 7).map(|proposal| Proposal { behind, left, ..proposal });
            assert_eq!(drafts(&[proposal], &SIZES, &costs), [length], "{behind} {left}");
        }
    }

    #[test]
    fn drafts_of_several_sequences_share_the_steps_of_the_model() {
        let mut costs = linear(1000, 10);
        DECODE.iter().for_each(|&size| costs.observe(Work::Draft, size, Duration::from_micros(300)));
        let both = [of_model(0.8, 7), of_model(0.8, 7)];
        // One draft of three tokens for one sequence costs as much as one for both.
        assert_eq!(drafts(&both[..1], &SIZES, &costs), [3]);
        assert_eq!(drafts(&both, &SIZES, &costs), [3, 3]);
        // Look-up does not pay for the model's steps.
        let mixed = [of_model(0.1, 7), proposal(0.8, 7)];
        assert_eq!(drafts(&mixed, &SIZES, &costs), [0, 6]);
    }

    /// Speculation with made-up costs and shares never takes much more time than decode steps.
    #[test]
    fn what_loses_is_switched_off_and_tried_again() {
        #[rustfmt::skip]
        let cases = [
            // share of right tokens, draft step, bounds of the time relative to decode steps alone
            (0.0, 150, 0.99, 1.04),
            (0.2, 150, 0.95, 1.05),
            (0.5, 150, 0.75, 0.95),
            (0.7, 150, 0.60, 0.75),
            (0.9, 150, 0.35, 0.50),
            (0.9, 900, 0.99, 1.04),
        ];
        for (rate, draft, least, most) in cases {
            let mut costs = measured(1000, [1050, 1100, 1200], draft);
            let synthetic = Arc::new(Synthetic { answer: vec![1; 4000], rate, seed: 5 });
            let speculation = Speculation { lookup: false, ..Speculation::up_to(7) };
            let mut prior = ModelPrior::default();
            let mut speculator =
                Speculator::new(speculation, &[1], Some(&prior), Some(synthetic.clone())).unwrap();
            let (mut generated, mut time) = (0, 0);
            while generated < 4000 {
                let proposal = speculator.proposal(u32::MAX, Offer::default());
                let count = drafts(&[proposal], &SIZES, &costs)[0];
                let (kind, size) = if count == 0 {
                    (Work::Decode, 1)
                } else {
                    (Work::Verify, size_for(&VERIFY, count + 1).unwrap())
                };
                let micros = match (kind, size) {
                    (Work::Decode, _) => 1000,
                    (_, 2) => 1050,
                    (_, 4) => 1100,
                    _ => 1200,
                };
                costs.observe(kind, size, Duration::from_micros(micros));
                if count > 0 {
                    costs.observe(Work::Draft, 1, Duration::from_micros(draft));
                }
                time += micros + draft * u64::from(count);
                let drafted = speculator.synthetic(generated, count).unwrap();
                speculator.drafted(Source::Model, &drafted);
                let right = drafted.iter().take_while(|&&token| token == 1).count();
                for _ in 0..=right {
                    speculator.push(1, &mut prior);
                }
                generated += right + 1;
            }
            let relative = time as f64 / (generated as f64 * 1000.0);
            assert!((least..most).contains(&relative), "{rate} {draft}: {relative}");
        }
    }
}
