//! The choice of a token, and the read probe: all exact.

use bespoke_kernels::kernels::argmax::ArgmaxShape;
use bespoke_kernels::kernels::probe::ProbeShape;
use bespoke_kernels::spec::KernelSpec;

use crate::selftest::case::{Arg, Case, Element, POISON, Place, Want};
use crate::selftest::inputs::{Noise, f32s, state_record, u32s};

/// The largest value and the smallest token that has it; −∞ and token 0 if there are only NaN and −∞.
fn best(candidates: impl Iterator<Item = (f32, u32)>) -> (f32, u32) {
    candidates.fold((f32::NEG_INFINITY, 0), |best, (value, token)| {
        let better = value > best.0 || (value == best.0 && token < best.1);
        if better { (value, token) } else { best }
    })
}

/// Random logits; a maximum that several tokens share; logits with NaN; nothing but NaN; nothing but −∞; the maximum
/// in the last place.
pub(in crate::selftest) fn argmax(s: &ArgmaxShape) -> Vec<Case> {
    let spec = KernelSpec::Argmax(s.clone());
    let mut noise = Noise::new(&spec.name());
    let vocab = s.vocab as usize;
    let random = noise.normal(vocab, 3.0);
    let at = noise.words(64, s.vocab);
    let with = |tokens: &[u32], value: f32| {
        let mut logits = random.clone();
        tokens.iter().for_each(|&token| logits[token as usize] = value);
        logits
    };
    let inputs = [
        ("random", random.clone()),
        ("64 tokens share the maximum", with(&at, 50.0)),
        ("a NaN in 64 places", with(&at, f32::NAN)),
        ("+infinity in 64 places", with(&at, f32::INFINITY)),
        ("all NaN", vec![f32::NAN; vocab]),
        ("all -infinity", vec![f32::NEG_INFINITY; vocab]),
        ("all negative", random.iter().map(|value| -1.0 - value.abs()).collect()),
        ("maximum in the last place", with(&[s.vocab - 1], 50.0)),
    ];
    let (blocks, threads) = (s.blocks as usize, s.threads as usize);
    let mut cases = Vec::new();
    for (what, input) in inputs {
        let shares: Vec<(f32, u32)> = (0..blocks)
            .map(|block| {
                best((0..vocab).filter(|i| i / threads % blocks == block).map(|i| (input[i], i as u32)))
            })
            .collect();
        let mut case = Case::new(what);
        let logits = case.input("logits", f32s(&input));
        let values = case.output("values", Element::F32, blocks);
        let tokens = case.output("tokens", Element::U32, blocks);
        case.launch(spec.clone(), &[logits, values, tokens]);
        let (best_values, best_tokens): (Vec<f32>, Vec<u32>) = shares.into_iter().unzip();
        case.expect(values, Place::line("CTA"), Want::Exactly(Element::F32, f32s(&best_values)));
        case.expect(tokens, Place::line("CTA"), Want::Exactly(Element::U32, u32s(&best_tokens)));
        cases.push(case);
    }
    cases
}

/// A token that is chosen, or that the prompt gives, at several positions; ties; no candidate.
pub(in crate::selftest) fn choose_greedy(s: &ArgmaxShape) -> Vec<Case> {
    let mut noise = Noise::new(&KernelSpec::ChooseGreedy(s.clone()).name());
    let blocks = s.blocks as usize;
    let random = noise.normal(blocks, 3.0);
    let tokens = noise.words(blocks, s.vocab);
    let mut cases = Vec::new();
    for (what, position, prompt, values) in [
        ("chosen after a prompt of 1", 0, 1, random.clone()),
        ("given by the prompt", 2, 5, random.clone()),
        ("the prompt's last token is given", 3, 5, random.clone()),
        ("chosen after a prompt of 5", 4, 5, random),
        ("all candidates share the maximum", 6, 2, vec![1.5; blocks]),
        ("all candidates are -infinity", 6, 2, vec![f32::NEG_INFINITY; blocks]),
    ] {
        let (_, chosen) = best(values.iter().copied().zip(tokens.iter().copied()));
        // As the first launch leaves them: without any candidate, token 0.
        let none = values.iter().all(|&value| value == f32::NEG_INFINITY);
        let candidates = if none { vec![0; blocks] } else { tokens.clone() };
        cases.push(choose(s, what, (position, prompt), (values, candidates, if none { 0 } else { chosen })));
    }
    cases
}

/// Positions that the sequences of [`choose`] have.
const CONTEXT: usize = 16;

fn choose(
    s: &ArgmaxShape,
    what: &str,
    (position, prompt): (u32, u32),
    (values, candidates, chosen): (Vec<f32>, Vec<u32>, u32),
) -> Case {
    let next = position as usize + 1;
    let mut sequence: Vec<u32> = (0..CONTEXT as u32).map(|i| 1000 + i).collect();
    let before = sequence.clone();
    if next >= prompt as usize {
        sequence[next] = chosen;
    }
    let mut finished = vec![u32::from_le_bytes([POISON; 4]); CONTEXT];
    finished[next] = sequence[next];

    let mut case = Case::new(what);
    let args = [
        case.input("values", f32s(&values)),
        case.input("tokens", u32s(&candidates)),
        case.input("sequence", u32s(&before)),
        case.output("finished", Element::U32, CONTEXT),
        case.input("state", state_record(position, prompt)),
    ];
    case.launch(KernelSpec::ChooseGreedy(s.clone()), &args);
    for (buffer, axis, bytes) in [
        (args[2], "position", u32s(&sequence)),
        (args[3], "position", u32s(&finished)),
        (args[4], "word", state_record(position + 1, prompt)),
    ] {
        case.expect(buffer, Place::line(axis), Want::Exactly(Element::U32, bytes));
    }
    case
}

/// What [`read_probe`](bespoke_kernels::kernels::probe::read_probe) looks for.
const MAGIC: u32 = 0x5EED_1E55;

/// Nothing to find; and the magic number in the last 16 bytes, which the probe finds only if it reads that far.
pub(in crate::selftest) fn read_probe(s: &ProbeShape) -> Vec<Case> {
    // Not a whole number of rounds; the last unit is the second of its thread's four.
    let units = 6 * s.grid * s.threads - 5;
    [false, true]
        .map(|hidden| {
            let mut words = vec![0; units as usize * 4];
            let mut found = u32::from_le_bytes([POISON; 4]);
            if hidden {
                words[units as usize * 4 - 1] = MAGIC;
                found = MAGIC;
            }
            let mut case = Case::new(if hidden { "a find in the last place" } else { "nothing to find" });
            let data = case.input("data", u32s(&words));
            let out = case.output("out", Element::U32, 1);
            let args = vec![Arg::Buffer(data), Arg::Word(units), Arg::Buffer(out)];
            case.launches.push((KernelSpec::ReadProbe(s.clone()), args));
            case.expect(out, Place::line("word"), Want::Exactly(Element::U32, u32s(&[found])));
            case
        })
        .into()
}
