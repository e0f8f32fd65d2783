//! Cases of the greedy choice, compared exactly.

use bespoke_kernels::kernels::argmax::ChooseShape;
use bespoke_kernels::kernels::state;
use bespoke_kernels::spec::KernelSpec;

use crate::case::{Case, Coordinates, Element, POISON, Want};
use crate::cases::rows::{self, StepRow};
use crate::inputs::{Noise, f32s, u32s};

/// Largest value and the smallest token with it; −∞ and token 0 if there are only NaN and −∞.
fn best(candidates: impl Iterator<Item = (f32, u32)>) -> (f32, u32) {
    candidates.fold((f32::NEG_INFINITY, 0), |best, (value, token)| {
        let better = value > best.0 || (value == best.0 && token < best.1);
        if better { (value, token) } else { best }
    })
}

/// Cases of steps with rows of every kind. With one row, also cases of tokens chosen, or given by the prompt, at several
/// positions; of ties; and of no candidate.
pub(crate) fn choose_greedy(s: &ChooseShape) -> Vec<Case> {
    let mut noise = Noise::new(&KernelSpec::ChooseGreedy(s.clone()).name());
    let mut cases = if s.tokens == 1 { of_one_row(s, &mut noise) } else { Vec::new() };
    for turn in 0..rows::turns(s.tokens) {
        let candidates = |row: StepRow| {
            let (mut values, tokens) = random(s, &mut noise);
            if row.record.slot % 5 == turn {
                values[s.candidates as usize / 2] = f32::INFINITY;
            }
            Candidates::new(row, values, tokens)
        };
        let step: Vec<Candidates> = rows::rows(s.tokens, turn).into_iter().map(candidates).collect();
        cases.push(choose(s, &format!("rows of every kind, step {turn}"), &step));
    }
    cases
}

/// Number of additional random cases of one row.
const DRAWS: usize = 24;

/// Random candidates of a row: values and tokens. The largest value is at a random place, and its token may be any of them.
fn random(s: &ChooseShape, noise: &mut Noise) -> (Vec<f32>, Vec<u32>) {
    (noise.normal(s.candidates as usize, 3.0), noise.words(s.candidates as usize, 100_000))
}

fn of_one_row(s: &ChooseShape, noise: &mut Noise) -> Vec<Case> {
    let blocks = s.candidates as usize;
    let random_values = noise.normal(blocks, 3.0);
    let tokens = noise.words(blocks, 100_000);
    let mut not_finite = random_values.clone();
    not_finite[blocks / 2] = f32::INFINITY;
    let mut cases = Vec::new();
    for (what, position, prompt, values) in [
        ("chosen after a prompt of 1", 0, 1, random_values.clone()),
        ("given by the prompt", 2, 5, random_values.clone()),
        ("the prompt's last token is given", 3, 5, random_values.clone()),
        ("chosen after a prompt of 5", 4, 5, random_values),
        ("all candidates share the maximum", 6, 2, vec![1.5; blocks]),
        ("all candidates are -infinity", 6, 2, vec![f32::NEG_INFINITY; blocks]),
        ("a logit is not finite", 6, 2, not_finite.clone()),
        ("a logit within the prompt is not finite", 2, 5, not_finite),
    ] {
        // Tokens as the output-head kernel writes them: token 0 where there is no candidate.
        let none = values.iter().all(|&value| value == f32::NEG_INFINITY);
        let tokens = if none { vec![0; blocks] } else { tokens.clone() };
        cases.push(choose(s, what, &[Candidates::new(StepRow::single(position, prompt), values, tokens)]));
    }
    for draw in 0..DRAWS {
        let (values, tokens) = random(s, noise);
        let candidates = Candidates::new(StepRow::single(0, 1), values, tokens);
        cases.push(choose(s, &format!("draw {draw}"), &[candidates]));
    }
    cases
}

/// Candidates of a row, and the token to choose.
struct Candidates {
    row: StepRow,
    values: Vec<f32>,
    tokens: Vec<u32>,
    chosen: u32,
}

impl Candidates {
    fn new(row: StepRow, values: Vec<f32>, tokens: Vec<u32>) -> Candidates {
        let (_, chosen) = best(values.iter().copied().zip(tokens.iter().copied()));
        Candidates { row, values, tokens, chosen }
    }
}

/// Case of a step with the candidates of each row.
fn choose(s: &ChooseShape, what: &str, candidates: &[Candidates]) -> Case {
    let mut sequence: Vec<u32> = (1000..).take(rows::token_count(s.tokens)).collect();
    let before = sequence.clone();
    let mut finished = vec![u32::from_le_bytes([POISON; 4]); sequence.len()];
    for Candidates { row, values, chosen, .. } in candidates.iter().filter(|it| it.row.advances()) {
        let next = row.next();
        if row.draws() {
            sequence[next] = *chosen;
        }
        let not_finite = row.draws() && values.contains(&f32::INFINITY);
        finished[next] = if not_finite { state::NOT_FINITE } else { sequence[next] };
    }
    let step_rows: Vec<StepRow> = candidates.iter().map(|it| it.row).collect();
    let values: Vec<f32> = candidates.iter().flat_map(|it| it.values.clone()).collect();
    let tokens: Vec<u32> = candidates.iter().flat_map(|it| it.tokens.clone()).collect();

    let mut case = Case::new(what);
    let args = [
        case.input("values", f32s(&values)),
        case.input("tokens", u32s(&tokens)),
        case.input("sequence", u32s(&before)),
        case.output("finished", Element::U32, finished.len()),
        case.input("state", rows::records(&step_rows)),
    ];
    case.launch(KernelSpec::ChooseGreedy(s.clone()), &args);
    for (buffer, axis, bytes) in [
        (args[2], "position", u32s(&sequence)),
        (args[3], "position", u32s(&finished)),
        (args[4], "word", rows::advanced(&step_rows)),
    ] {
        case.expect(buffer, Coordinates::line(axis), Want::Exactly(Element::U32, bytes));
    }
    case
}
