//! Cases of the greedy choice, compared exactly.

use bespoke_kernels::kernels::argmax::ChooseShape;
use bespoke_kernels::kernels::state;
use bespoke_kernels::spec::KernelSpec;

use crate::case::{Case, Coordinates, Element, POISON, Want};
use crate::inputs::{Noise, f32s, state_record, u32s};

/// Largest value and the smallest token with it; −∞ and token 0 if there are only NaN and −∞.
fn best(candidates: impl Iterator<Item = (f32, u32)>) -> (f32, u32) {
    candidates.fold((f32::NEG_INFINITY, 0), |best, (value, token)| {
        let better = value > best.0 || (value == best.0 && token < best.1);
        if better { (value, token) } else { best }
    })
}

/// Cases of tokens chosen, or given by the prompt, at several positions; of ties; and of no candidate.
pub(crate) fn choose_greedy(s: &ChooseShape) -> Vec<Case> {
    let mut noise = Noise::new(&KernelSpec::ChooseGreedy(s.clone()).name());
    let blocks = s.candidates as usize;
    let random = noise.normal(blocks, 3.0);
    let tokens = noise.words(blocks, 100_000);
    let mut not_finite = random.clone();
    not_finite[blocks / 2] = f32::INFINITY;
    let mut cases = Vec::new();
    for (what, position, prompt, values) in [
        ("chosen after a prompt of 1", 0, 1, random.clone()),
        ("given by the prompt", 2, 5, random.clone()),
        ("the prompt's last token is given", 3, 5, random.clone()),
        ("chosen after a prompt of 5", 4, 5, random),
        ("all candidates share the maximum", 6, 2, vec![1.5; blocks]),
        ("all candidates are -infinity", 6, 2, vec![f32::NEG_INFINITY; blocks]),
        ("a logit is not finite", 6, 2, not_finite.clone()),
        ("a logit within the prompt is not finite", 2, 5, not_finite),
    ] {
        let (_, chosen) = best(values.iter().copied().zip(tokens.iter().copied()));
        // Tokens as the output-head kernel writes them: token 0 where there is no candidate.
        let none = values.iter().all(|&value| value == f32::NEG_INFINITY);
        let candidates = if none { vec![0; blocks] } else { tokens.clone() };
        cases.push(choose(s, what, (position, prompt), (values, candidates, if none { 0 } else { chosen })));
    }
    // Random values and tokens: the maximum is at a random place, and its token may be any of them.
    for draw in 0..DRAWS {
        let (values, tokens) = (noise.normal(blocks, 3.0), noise.words(blocks, 100_000));
        let (_, chosen) = best(values.iter().copied().zip(tokens.iter().copied()));
        cases.push(choose(s, &format!("draw {draw}"), (0, 1), (values, tokens, chosen)));
    }
    cases
}

/// Number of additional random cases.
const DRAWS: usize = 24;

/// Number of positions of the sequences in [`choose`].
const CONTEXT: usize = 16;

fn choose(
    s: &ChooseShape,
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
    let told_of_it = next >= prompt as usize && values.contains(&f32::INFINITY);
    finished[next] = if told_of_it { state::NOT_FINITE } else { sequence[next] };

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
        case.expect(buffer, Coordinates::line(axis), Want::Exactly(Element::U32, bytes));
    }
    case
}
