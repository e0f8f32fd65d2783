//! Cases of sampling, compared exactly: the host computes the same integers.

use bespoke::engine::SamplingParams;
use bespoke_kernels::kernels::sample::{SampleShape, key::LOWEST, key::NOT_FINITE};
use bespoke_kernels::kernels::state;
use bespoke_kernels::spec::KernelSpec;

use crate::case::{Case, Coordinates, Element, POISON, Want};
use crate::inputs::{Noise, f32s, state_record, u32s};
use crate::sampling::{choose, key, penalise};

fn words(params: &SamplingParams) -> Vec<u8> {
    u32s(&params.words())
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

/// Cases of no, one and all penalties, over no tokens, over some, and over more tokens than there are; of biases; of
/// NaN and infinities; and of a position within the prompt.
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
    history.copy_within(2..4, 4);
    history.copy_within(2..4, 10);
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
    [
        ("no penalty", &random, (7, 2), none()),
        ("a penalty over no token", &random, (7, 2), repetition(1.5, 0)),
        ("a penalty over 5 of 8 tokens", &random, (7, 2), repetition(1.5, 5)),
        ("a penalty over more tokens than there are", &random, (11, 12), repetition(1.25, u32::MAX)),
        ("a penalty below 1", &random, (7, 2), repetition(0.5, 6)),
        ("a presence penalty", &random, (7, 2), SamplingParams { presence_penalty: 1.5, ..none() }),
        ("a frequency penalty", &random, (11, 2), SamplingParams { frequency_penalty: 0.7, ..none() }),
        ("a frequency reward", &random, (11, 2), SamplingParams { frequency_penalty: -0.7, ..none() }),
        ("all penalties", &random, (11, 2), SamplingParams { repeat_last_n: 9, ..all() }),
        ("a bias", &random, (11, 2), SamplingParams { logit_bias: logit_bias.clone(), ..none() }),
        (
            "NaN, infinities and zeros, biased and penalised",
            &odd,
            (14, 2),
            SamplingParams { logit_bias, ..all() },
        ),
        ("a position within the prompt", &random, (2, 5), all()),
    ]
    .into_iter()
    .map(|(what, logits, (position, prompt), params)| {
        let next = position as usize + 1;
        let (keys, tops) = keys(s, logits, &penalise(logits, &history[..next], &params));
        let mut case = Case::new(what);
        // Without a bias, its buffer has any content.
        let bias =
            if params.logit_bias.is_empty() { vec![f32::NAN; vocab] } else { params.bias_row(s.vocab) };
        let args = [
            case.input("logits", f32s(logits)),
            case.input("bias", f32s(&bias)),
            case.input("sequence", u32s(&history)),
            case.input("sampling", words(&params)),
            case.input("state", state_record(position, prompt)),
            case.output("keys", Element::U32, keys.len()),
            case.output("tops", Element::U32, tops.len()),
        ];
        case.launch(KernelSpec::SampleKeys(s.clone()), &args);
        let goes_on = next < prompt as usize;
        for (buffer, axis, values) in [(args[5], "token", keys), (args[6], "group", tops)] {
            let want = if goes_on { vec![POISON; 4 * values.len()] } else { u32s(&values) };
            case.expect(buffer, Coordinates::line(axis), Want::Exactly(Element::U32, want));
        }
        case
    })
    .collect()
}

/// Number of positions of the sequences.
const CONTEXT: usize = 16;

/// Cases of every filter alone, of all filters and of none, with realistic logits, equal logits, ties, NaN and
/// infinities; and of tokens given by the prompt.
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
    let mut cases = Vec::new();
    for (logits_are, logits) in &inputs {
        for (filter, params) in &params {
            let seed = noise.bits();
            let params = SamplingParams { seed, ..params.clone() };
            let chosen = choose(logits, &params, 5);
            cases.push(step(s, &format!("{filter}, {logits_are}"), logits, &params, (4, 5, chosen)));
        }
    }
    let not_finite = with(&one, f32::NAN);
    for (what, position) in [("chosen", 4), ("given by the prompt", 3)] {
        let what = format!("a logit is NaN, {what}");
        let token = if position == 3 { SEQUENCE + 4 } else { 0 };
        let model = (keys(s, &not_finite, &not_finite), position == 4);
        cases.push(step_of(s, &what, model, &warm(1.0), (position, 5, token)));
    }
    // A token of the prompt is taken without reading the keys.
    let given = SEQUENCE + 4;
    cases.push(step(s, "given by the prompt", &random, &warm(1.0), (3, 5, given)));
    cases
}

/// The first token of the sequences.
const SEQUENCE: u32 = 1000;

fn step(
    s: &SampleShape,
    what: &str,
    logits: &[f32],
    params: &SamplingParams,
    choice: (u32, u32, u32),
) -> Case {
    // These infinities and NaNs come from bias and penalties.
    let finite = vec![0.0; logits.len()];
    step_of(s, what, (keys(s, &finite, logits), false), params, choice)
}

/// A step of keys and tops; `not_finite`: whether the host is told so instead of the token.
fn step_of(
    s: &SampleShape,
    what: &str,
    ((keys, tops), not_finite): ((Vec<u32>, Vec<u32>), bool),
    params: &SamplingParams,
    (position, prompt, token): (u32, u32, u32),
) -> Case {
    debug_assert!(tops.iter().all(|&top| top >= LOWEST));
    let next = position as usize + 1;
    let before: Vec<u32> = (SEQUENCE..).take(CONTEXT).collect();
    let mut sequence = before.clone();
    sequence[next] = token;
    let mut finished = vec![u32::from_le_bytes([POISON; 4]); CONTEXT];
    finished[next] = if not_finite { state::NOT_FINITE } else { token };

    let mut case = Case::new(what);
    let args = [
        case.input("keys", u32s(&keys)),
        case.input("tops", u32s(&tops)),
        case.input("sampling", words(params)),
        case.input("sequence", u32s(&before)),
        case.output("finished", Element::U32, CONTEXT),
        case.input("state", state_record(position, prompt)),
    ];
    case.launch(KernelSpec::ChooseSampled(s.clone()), &args);
    for (buffer, axis, bytes) in [
        (args[3], "position", u32s(&sequence)),
        (args[4], "position", u32s(&finished)),
        (args[5], "word", state_record(position + 1, prompt)),
    ] {
        case.expect(buffer, Coordinates::line(axis), Want::Exactly(Element::U32, bytes));
    }
    case
}
