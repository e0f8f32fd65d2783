//! Cases of sampling, compared exactly: the host computes the same integers.

use bespoke::engine::SamplingParams;
use bespoke_kernels::kernels::sample::{SampleShape, WORDS, key::LOWEST, key::NOT_FINITE};
use bespoke_kernels::kernels::state;
use bespoke_kernels::spec::KernelSpec;

use crate::case::{Case, Coordinates, Element, POISON, Want};
use crate::cases::rows::{self, CONTEXT, StepRow};
use crate::inputs::{Noise, f32s, u32s};
use crate::sampling::{choose, key, penalise};

/// Sampling parameters of all slots; those of slots without a row are [`POISON`].
fn words<'a>(step: impl IntoIterator<Item = (&'a StepRow, &'a SamplingParams)>, slots: u32) -> Vec<u8> {
    let mut bytes = vec![POISON; (slots * WORDS * 4) as usize];
    for (row, params) in step {
        let words = u32s(&params.words());
        bytes[row.record.slot as usize * words.len()..][..words.len()].copy_from_slice(&words);
    }
    bytes
}

/// Arrays that the first launch passes to the second: the sort keys of the logits, padded to a multiple of 32, and the
/// largest key of every 32. `logits`: those of the model; `penalised`: with bias and penalties.
fn keys(s: &SampleShape, logits: &[f32], penalised: &[f32]) -> (Vec<u32>, Vec<u32>) {
    let key = |(logit, &penalised): (&f32, &f32)| if logit.is_finite() { key(penalised) } else { NOT_FINITE };
    let mut keys: Vec<u32> = logits.iter().zip(penalised).map(key).collect();
    keys.resize(s.padded() as usize, 0);
    let tops = keys.chunks_exact(32).map(|group| group.iter().copied().max().unwrap_or(0)).collect();
    (keys, tops)
}

/// Cases of steps with rows of every kind, whose sequences have different parameters. With one row, also cases of no, one and
/// all penalties, over no tokens, over some, and over more tokens than there are; of biases and masks; of NaN and infinities; and
/// of a position within the prompt.
pub(crate) fn sample_keys(s: &SampleShape) -> Vec<Case> {
    let mut noise = Noise::new(&KernelSpec::SampleKeys(s.clone()).name());
    let vocab = s.vocab as usize;
    let random = noise.normal(vocab, 3.0);
    let mut odd = random.clone();
    for (token, value) in noise
        .words(64, s.vocab)
        .into_iter()
        .zip([f32::NAN, f32::INFINITY, -0.0, 0.0, f32::NEG_INFINITY].iter().cycle())
    {
        odd[token as usize] = *value;
    }
    // Tokens repeat in the history, and the biases are for some of them and for others.
    let mut history = noise.words(CONTEXT, s.vocab);
    repeat_tokens(&mut history);
    let values = [4.0, -2.5, f32::NEG_INFINITY, 0.0, -100.0].into_iter().cycle();
    let logit_bias: Vec<(u32, f32)> =
        history[2..8].iter().copied().chain(noise.words(20, s.vocab)).zip(values).collect();
    let all = || SamplingParams {
        repeat_penalty: 1.25,
        presence_penalty: 0.4,
        frequency_penalty: 0.3,
        ..SamplingParams::default()
    };
    let repetition = |repeat_penalty, repeat_last_n| SamplingParams {
        repeat_penalty,
        repeat_last_n,
        ..SamplingParams::default()
    };
    let none = SamplingParams::default;
    let several: Vec<SamplingParams> = vec![
        SamplingParams { repeat_last_n: 9, ..all() },
        none(),
        SamplingParams { logit_bias: logit_bias.clone(), ..none() },
        repetition(1.5, 5),
        SamplingParams { logit_bias: logit_bias[3..].to_vec(), repeat_last_n: 3, ..all() },
        SamplingParams { frequency_penalty: -0.7, ..none() },
        repetition(0.5, u32::MAX),
        SamplingParams { masked: true, ..none() },
        SamplingParams { masked: true, logit_bias: logit_bias.clone(), ..all() },
    ];
    let mut cases = Vec::new();
    if s.tokens == 1 {
        let alone = |(what, logits, (position, prompt), params): (_, &Vec<f32>, _, _)| {
            let row = StepRow::single(position, prompt);
            keys_case(s, what, &[Logits { row, logits: logits.clone(), params }], &history)
        };
        cases.extend(
            [
                ("no penalty", &random, (7, 2), none()),
                ("a penalty over no token", &random, (7, 2), repetition(1.5, 0)),
                ("a penalty over 5 of 8 tokens", &random, (7, 2), repetition(1.5, 5)),
                ("a penalty over more tokens than there are", &random, (11, 12), repetition(1.25, u32::MAX)),
                ("a penalty below 1", &random, (7, 2), repetition(0.5, 6)),
                ("a presence penalty", &random, (7, 2), SamplingParams { presence_penalty: 1.5, ..none() }),
                (
                    "a frequency penalty",
                    &random,
                    (11, 2),
                    SamplingParams { frequency_penalty: 0.7, ..none() },
                ),
                (
                    "a frequency reward",
                    &random,
                    (11, 2),
                    SamplingParams { frequency_penalty: -0.7, ..none() },
                ),
                ("all penalties", &random, (11, 2), SamplingParams { repeat_last_n: 9, ..all() }),
                ("a bias", &random, (11, 2), SamplingParams { logit_bias: logit_bias.clone(), ..none() }),
                ("a mask", &random, (7, 2), SamplingParams { masked: true, ..none() }),
                (
                    "NaN, infinities and zeros, masked",
                    &odd,
                    (9, 2),
                    SamplingParams { masked: true, logit_bias: logit_bias.clone(), ..all() },
                ),
                (
                    "NaN, infinities and zeros, biased and penalised",
                    &odd,
                    (14, 2),
                    SamplingParams { logit_bias, ..all() },
                ),
                ("a position within the prompt", &random, (2, 5), all()),
            ]
            .map(alone),
        );
    }
    for turn in 0..rows::turns(s.tokens) {
        let mut sequences = noise.words(rows::token_count(s.tokens), s.vocab);
        sequences.chunks_mut(CONTEXT).for_each(repeat_tokens);
        let logits = |row: StepRow| {
            let mut logits = noise.normal(vocab, 3.0);
            if row.record.slot.is_multiple_of(3) {
                let value = if row.record.slot.is_multiple_of(2) { f32::NAN } else { f32::INFINITY };
                logits[noise.words(1, s.vocab)[0] as usize] = value;
            }
            let params = several[(row.record.slot + turn) as usize % several.len()].clone();
            Logits { row, logits, params }
        };
        let step: Vec<Logits> = rows::rows(s.tokens, turn).into_iter().map(logits).collect();
        cases.push(keys_case(s, &format!("rows of every kind, step {turn}"), &step, &sequences));
    }
    cases
}

/// Lets tokens of a sequence occur several times.
fn repeat_tokens(sequence: &mut [u32]) {
    sequence.copy_within(2..4, 4);
    sequence.copy_within(2..4, 10);
}

/// Logits of a row, and the parameters of its sequence.
struct Logits {
    row: StepRow,
    logits: Vec<f32>,
    params: SamplingParams,
}

/// Case of a step with the logits of each row. `sequences`: the tokens of all sequences.
fn keys_case(s: &SampleShape, what: &str, step: &[Logits], sequences: &[u32]) -> Case {
    let slots = rows::slots(s.tokens);
    // The bias of a slot without a bias has any content, and so has a mask.
    let mut bias = vec![f32::NAN; (slots * s.vocab) as usize];
    let mask = Noise::new(what).words((slots * s.groups()) as usize, u32::MAX);
    let (mut want_keys, mut want_tops) = (Vec::new(), Vec::new());
    for Logits { row, logits, params } in step {
        if !params.logit_bias.is_empty() {
            bias[(row.record.slot * s.vocab) as usize..][..s.vocab as usize]
                .copy_from_slice(&params.bias_row(s.vocab));
        }
        let history = &sequences[row.record.tokens as usize..row.next()];
        let mut penalised = penalise(logits, history, params);
        let mask = &mask[(row.record.slot * s.groups()) as usize..];
        for (token, logit) in penalised.iter_mut().enumerate().filter(|_| params.masked) {
            if mask[token / 32] >> (token % 32) & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
        let (keys, tops) = keys(s, logits, &penalised);
        for (want, values) in [(&mut want_keys, keys), (&mut want_tops, tops)] {
            want.extend(if row.draws() { u32s(&values) } else { vec![POISON; 4 * values.len()] });
        }
    }
    let step_rows: Vec<StepRow> = step.iter().map(|it| it.row).collect();
    let logits: Vec<f32> = step.iter().flat_map(|it| it.logits.clone()).collect();
    let sampling = words(step.iter().map(|it| (&it.row, &it.params)), slots);
    let mut case = Case::new(what);
    let args = [
        case.input("logits", f32s(&logits)),
        case.input("bias", f32s(&bias)),
        case.input("mask", u32s(&mask)),
        case.input("sequence", u32s(sequences)),
        case.input("sampling", sampling),
        case.input("state", rows::records(&step_rows)),
        case.output("keys", Element::U32, want_keys.len() / 4),
        case.output("tops", Element::U32, want_tops.len() / 4),
    ];
    case.launch(KernelSpec::SampleKeys(s.clone()), &args);
    for (buffer, axis, want) in [(args[6], "token", want_keys), (args[7], "group", want_tops)] {
        let place = Coordinates::Axes(vec![("row", step.len()), (axis, want.len() / 4 / step.len())]);
        case.expect(buffer, place, Want::Exactly(Element::U32, want));
    }
    case
}

/// Cases of steps with rows of every kind, with different logits and parameters. With one row, also cases of every filter
/// alone, of all filters and of none, with realistic logits, equal logits, ties, NaN and infinities; and of tokens
/// given by the prompt.
pub(crate) fn choose_sampled(s: &SampleShape) -> Vec<Case> {
    let mut noise = Noise::new(&KernelSpec::ChooseSampled(s.clone()).name());
    let vocab = s.vocab as usize;
    let random = noise.normal(vocab, 3.0);
    let with = |tokens: &[u32], value: f32| {
        let mut logits = random.clone();
        tokens.iter().for_each(|&token| logits[token as usize] = value);
        logits
    };
    let (some, one) = (noise.words(vocab.div_ceil(8), s.vocab), noise.words(1, s.vocab));
    let inputs = [
        ("random", random.clone()),
        ("flat", random.iter().map(|value| value * 0.01).collect()),
        ("steep", random.iter().map(|value| value * 10.0).collect()),
        ("rounded to halves", random.iter().map(|value| (value * 2.0).round() / 2.0).collect()),
        ("all equal", vec![-1.5; vocab]),
        ("an eighth is NaN", with(&some, f32::NAN)),
        ("an eighth is -infinity", with(&some, f32::NEG_INFINITY)),
        ("an eighth is +infinity", with(&some, f32::INFINITY)),
        ("one stands out", with(&one, 60.0)),
        ("all -infinity", vec![f32::NEG_INFINITY; vocab]),
        ("one above the rest", {
            // In the first digit of a search over all keys one token has a value and all others the next lower one, and
            // different threads count them.
            let near = random.iter().map(|value| 1.75 + (value * 0.02).clamp(-0.2, 0.2));
            let mut logits: Vec<f32> = near.collect();
            logits[one[0] as usize] = 2.5;
            logits
        }),
    ];
    let warm = |temperature| SamplingParams { temperature, ..SamplingParams::default() };
    let default = SamplingParams { top_k: 40, top_p: 0.95, min_p: 0.05, ..warm(0.8) };
    let params = [
        ("defaults", default.clone()),
        ("greedy", SamplingParams { temperature: 0.0, ..default }),
        ("no filter", warm(1.0)),
        ("no filter, hot", warm(30.0)),
        ("no filter, cold", warm(1e-30)),
        ("top-k 1", SamplingParams { top_k: 1, ..warm(1.0) }),
        ("top-k 7", SamplingParams { top_k: 7, ..warm(1.0) }),
        ("top-k of all but one", SamplingParams { top_k: s.vocab.saturating_sub(1), ..warm(2.0) }),
        ("top-k of more than all", SamplingParams { top_k: u32::MAX, ..warm(1.0) }),
        ("top-p 0", SamplingParams { top_p: 0.0, ..warm(1.0) }),
        ("top-p 0.5", SamplingParams { top_p: 0.5, ..warm(1.0) }),
        ("top-p 0.999", SamplingParams { top_p: 0.999, ..warm(1.0) }),
        ("top-k half and top-p 0.9", SamplingParams { top_k: s.vocab / 2, top_p: 0.9, ..warm(1.0) }),
        ("min-p 0.02", SamplingParams { min_p: 0.02, ..warm(1.0) }),
        ("min-p 1", SamplingParams { min_p: 1.0, ..warm(1.0) }),
        ("top-k 40 and min-p 0.5", SamplingParams { top_k: 40, min_p: 0.5, ..warm(1.0) }),
    ];
    let not_finite = with(&one, f32::NAN);
    let mut cases = Vec::new();
    if s.tokens == 1 {
        for (logits_are, logits) in &inputs {
            for (filter, params) in &params {
                let params = SamplingParams { seed: noise.bits(), ..params.clone() };
                let draw = Draw::of(s, StepRow::single(4, 5), logits, params);
                cases.push(draw_case(s, &format!("{filter}, {logits_are}"), &[draw]));
            }
        }
        for (what, position) in [("chosen", 4), ("given by the prompt", 3)] {
            let draw = Draw::not_finite(s, StepRow::single(position, 5), &not_finite, warm(1.0));
            cases.push(draw_case(s, &format!("a logit is NaN, {what}"), &[draw]));
        }
        // A token of the prompt is taken without reading the keys.
        let draw = Draw::of(s, StepRow::single(3, 5), &random, warm(1.0));
        cases.push(draw_case(s, "given by the prompt", &[draw]));
    }
    // Steps of a few rows have few draws: more of them meet more pairs of filters and logits.
    let turns = if s.tokens <= 4 { 12 } else { 1 } * rows::turns(s.tokens);
    for turn in 0..turns {
        let draw = |row: StepRow| {
            let slot = row.record.slot as usize;
            let params = &params[(slot + 5 * turn as usize) % params.len()].1;
            let params = SamplingParams { seed: noise.bits(), ..params.clone() };
            match slot % 5 {
                0 => Draw::not_finite(s, row, &not_finite, params),
                _ => Draw::of(s, row, &inputs[(3 * slot + turn as usize) % inputs.len()].1, params),
            }
        };
        let step: Vec<Draw> = rows::rows(s.tokens, turn).into_iter().map(draw).collect();
        cases.push(draw_case(s, &format!("rows of every kind, step {turn}"), &step));
    }
    cases
}

/// The first token of the sequences.
const SEQUENCE: u32 = 1000;

/// Keys and tops of a row, and what they become.
struct Draw {
    row: StepRow,
    params: SamplingParams,
    keys: Vec<u32>,
    tops: Vec<u32>,
    /// The token that is drawn.
    token: u32,
    /// Whether the host is told that a logit is not finite, instead of the token.
    not_finite: bool,
}

impl Draw {
    /// A draw from `logits`, whose infinities and NaNs come from bias and penalties.
    fn of(s: &SampleShape, row: StepRow, logits: &[f32], params: SamplingParams) -> Draw {
        let (keys, tops) = keys(s, &vec![0.0; logits.len()], logits);
        let token = choose(logits, &params, row.record.position + 1);
        Draw { row, params, keys, tops, token, not_finite: false }
    }

    /// No draw, because a logit of the model is not finite.
    fn not_finite(s: &SampleShape, row: StepRow, logits: &[f32], params: SamplingParams) -> Draw {
        let (keys, tops) = keys(s, logits, logits);
        Draw { row, params, keys, tops, token: 0, not_finite: true }
    }
}

/// Case of a step with a draw for each row.
fn draw_case(s: &SampleShape, what: &str, step: &[Draw]) -> Case {
    let before: Vec<u32> = (SEQUENCE..).take(rows::token_count(s.tokens)).collect();
    let mut sequence = before.clone();
    let mut finished = vec![u32::from_le_bytes([POISON; 4]); before.len()];
    for draw in step.iter().filter(|draw| draw.row.advances()) {
        debug_assert!(draw.tops.iter().all(|&top| top >= LOWEST));
        let next = draw.row.next();
        if draw.row.draws() {
            sequence[next] = draw.token;
        }
        let told_of_it = draw.row.draws() && draw.not_finite;
        finished[next] = if told_of_it { state::NOT_FINITE } else { sequence[next] };
    }
    let step_rows: Vec<StepRow> = step.iter().map(|draw| draw.row).collect();
    let sampling = words(step.iter().map(|draw| (&draw.row, &draw.params)), rows::slots(s.tokens));
    let [keys, tops] = [|draw: &Draw| draw.keys.clone(), |draw: &Draw| draw.tops.clone()]
        .map(|of| step.iter().flat_map(of).collect::<Vec<u32>>());

    let mut case = Case::new(what);
    let args = [
        case.input("keys", u32s(&keys)),
        case.input("tops", u32s(&tops)),
        case.input("sampling", sampling),
        case.input("sequence", u32s(&before)),
        case.output("finished", Element::U32, finished.len()),
        case.input("state", rows::records(&step_rows)),
    ];
    case.launch(KernelSpec::ChooseSampled(s.clone()), &args);
    for (buffer, axis, bytes) in [
        (args[3], "position", u32s(&sequence)),
        (args[4], "position", u32s(&finished)),
        (args[5], "word", rows::advanced(&step_rows)),
    ] {
        case.expect(buffer, Coordinates::line(axis), Want::Exactly(Element::U32, bytes));
    }
    case
}
