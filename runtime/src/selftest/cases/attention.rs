//! Attention, its two launches alone and together.

use bespoke_kernels::kernels::attention::AttentionShape;
use bespoke_kernels::spec::KernelSpec;
use half::f16;

use crate::selftest::case::{Case, Close, Element, Limit, Place, Rest, Want};
use crate::selftest::inputs::{Noise, f16s, f32s, state_record};
use crate::selftest::reference::{Context, attend, runs};

const LIMIT: Limit = Limit { nmse: 2e-12, reason: "scores and sums in f32, ex2.approx" };

/// Rows of the cache behind the present position: filled with NaN, so that reading one shows.
const BEHIND: usize = 3;

/// One position; around the shortest run; as many as fill the shortest runs, and one more; many.
fn lengths(s: &AttentionShape) -> Vec<usize> {
    let (run, full) = (s.min_run as usize, (s.min_run * s.splits) as usize);
    let mut lengths = vec![1, run - 1, run, run + 1, full, full + 1, 3 * full + 7];
    lengths.retain(|&length| length > 0);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

fn context(s: &AttentionShape, length: usize, noise: &mut Noise) -> Context {
    let width = (s.kv_heads * s.head_dim) as usize;
    let mut cache = || {
        let mut rows: Vec<f16> = noise.normal(length * width, 1.0).into_iter().map(f16::from_f32).collect();
        rows.resize((length + BEHIND) * width, f16::NAN);
        rows
    };
    let (keys, values) = (cache(), cache());
    // Scores with a standard deviation of two: some positions weigh much more than others.
    let q = noise.normal((s.heads * s.head_dim) as usize, 2.0);
    Context { q, keys, values, length }
}

/// The partial results alone, and joined, at several lengths.
pub(in crate::selftest) fn attention(s: &AttentionShape) -> Vec<Case> {
    let mut noise = Noise::new(&KernelSpec::Attention(s.clone()).name());
    lengths(s)
        .into_iter()
        .flat_map(|length| {
            let context = context(s, length, &mut noise);
            [partial(s, &context), joined(s, &context)]
        })
        .collect()
}

/// The first launch over a context: buffers and launch; returns the state's and the partial results' buffers.
fn first_launch(s: &AttentionShape, context: &Context, case: &mut Case) -> (usize, usize) {
    let q = case.input("q", f32s(&context.q));
    let keys = case.input("keys", f16s(&context.keys));
    let values = case.input("values", f16s(&context.values));
    let partial = case.output("partial", Element::F32, s.workspace() as usize);
    let state = case.input("state", state_record(context.length as u32 - 1, 1));
    case.launch(KernelSpec::Attention(s.clone()), &[q, keys, values, partial, state]);
    (state, partial)
}

fn partial(s: &AttentionShape, context: &Context) -> Case {
    let mut case = Case::new(format!("{} positions", context.length));
    let (_, partial) = first_launch(s, context, &mut case);
    let dim = s.head_dim as usize;
    let runs = runs(s, context.length);
    let mut want = vec![f64::NAN; s.workspace() as usize];
    for head in 0..s.heads as usize {
        for (split, run) in runs.iter().enumerate() {
            let sum = attend(s, context, head, run.clone());
            let slot = &mut want[(head * s.splits as usize + split) * (dim + 2)..][..dim + 2];
            slot[..dim].copy_from_slice(&sum.numerator);
            slot[dim..].copy_from_slice(&[sum.largest, sum.denominator]);
        }
    }
    // Numerators, maxima and denominators are of different sizes: each by itself.
    for columns in [0..dim, dim..dim + 1, dim + 1..dim + 2] {
        let at: Vec<usize> = (0..want.len()).filter(|at| columns.contains(&(at % (dim + 2)))).collect();
        let values = at.iter().map(|&at| want[at]).collect();
        let place =
            Place::Axes(vec![("head", s.heads as usize), ("split", s.splits as usize), ("element", dim + 2)]);
        let close = Close { at, rest: Rest::Any, ..Close::all(values, LIMIT) };
        case.expect(partial, place, Want::Close(close));
    }
    case
}

fn joined(s: &AttentionShape, context: &Context) -> Case {
    let mut case = Case::new(format!("{} positions", context.length));
    let (state, partial) = first_launch(s, context, &mut case);
    let y = case.output("y", Element::F32, (s.heads * s.head_dim) as usize);
    case.launch(KernelSpec::AttentionCombine(s.clone()), &[partial, y, state]);
    let want = (0..s.heads as usize)
        .flat_map(|head| {
            let sum = attend(s, context, head, 0..context.length);
            sum.numerator.into_iter().map(move |value| value / sum.denominator)
        })
        .collect();
    case.expect(y, heads(s), Want::Close(Close::all(want, LIMIT)));
    case
}

fn heads(s: &AttentionShape) -> Place {
    Place::Axes(vec![("head", s.heads as usize), ("element", s.head_dim as usize)])
}

/// The second launch over random partial results; those of runs that there are none of are NaN.
pub(in crate::selftest) fn combine(s: &AttentionShape) -> Vec<Case> {
    let spec = KernelSpec::AttentionCombine(s.clone());
    let mut noise = Noise::new(&spec.name());
    let dim = s.head_dim as usize;
    let mut cases = Vec::new();
    for length in lengths(s) {
        let runs = runs(s, length).len();
        let mut partial = vec![f32::NAN; s.workspace() as usize];
        let mut want = Vec::new();
        for head in partial.chunks_exact_mut(s.splits as usize * (dim + 2)) {
            let (mut numerator, mut denominator) = (vec![0.0; dim], 0.0);
            for slot in head.chunks_exact_mut(dim + 2).take(runs) {
                slot[..dim].copy_from_slice(&noise.normal(dim, 4.0));
                slot[dim..].copy_from_slice(&[noise.normal(1, 5.0), noise.uniform(1, 1.0, 30.0)].concat());
                let weight = f64::from(slot[dim]).exp2();
                numerator.iter_mut().zip(&*slot).for_each(|(sum, &value)| *sum += weight * f64::from(value));
                denominator += weight * f64::from(slot[dim + 1]);
            }
            want.extend(numerator.into_iter().map(|value| value / denominator));
        }
        let mut case = Case::new(format!("{length} positions in {runs} runs"));
        let partial = case.input("partial", f32s(&partial));
        let y = case.output("y", Element::F32, s.heads as usize * dim);
        let state = case.input("state", state_record(length as u32 - 1, 1));
        case.launch(spec.clone(), &[partial, y, state]);
        case.expect(y, heads(s), Want::Close(Close::all(want, LIMIT)));
        cases.push(case);
    }
    cases
}
