//! Cases of attention: decode steps over a cache.

use bespoke_kernels::kernels::attention::{AttentionShape, PAGE, TILE};
use bespoke_kernels::kernels::rope::frequencies;
use bespoke_kernels::spec::KernelSpec;
use half::f16;

use crate::case::{Case, Close, Coordinates, Element, Limit, Want};
use crate::inputs::{Noise, f16s, f32s, state_record, u32s};
use crate::reference::{Context, Rotation, attend, head_norm, rope};

/// The kernel computes with query and softmax weights as sums of two f16. The new key and value are rounded to f16 as
/// in the reference, but from values that differ in the last bits.
const LIMIT: Limit = Limit { nmse: 4e-9, reason: "a new key or value may round to the neighbouring f16" };

/// Lengths of the cache in positions: 0; around a tile, a page and the shortest split; enough to fill the shortest
/// splits, and more.
fn lengths(s: &AttentionShape) -> Vec<usize> {
    let run = (s.min_pages * PAGE) as usize;
    let full = run * s.splits as usize;
    let mut lengths = vec![0, 1, 15, 16, 62, 63, 64, run - 1, run, run + 17, full - 1, full, 2 * full + 7];
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Standard deviation of scores whose exponentials overflow unless the largest score is subtracted.
const FAR_APART: f32 = 150.0;

/// Cases of two decode steps at each of several lengths; the second step reads the cache entry of the first.
pub(crate) fn attention(s: &AttentionShape) -> Vec<Case> {
    let mut noise = Noise::new(&KernelSpec::Attention(s.clone()).name());
    let lengths = lengths(s);
    let longest = lengths.last().copied();
    // With a standard deviation of two some positions weigh much more than others.
    let usual = lengths.into_iter().map(|length| steps(s, length, 2.0, &mut noise));
    let mut cases: Vec<Case> = usual.collect();
    cases.extend(longest.map(|length| steps(s, length, FAR_APART, &mut noise)));
    cases
}

/// Case of two decode steps after `length` positions; `deviation` is the standard deviation of the scores.
fn steps(s: &AttentionShape, length: usize, deviation: f32, noise: &mut Noise) -> Case {
    let (heads, kv_heads, dim) = (s.heads as usize, s.kv_heads as usize, s.head_dim as usize);
    let mut context = context(s, length, noise);
    let mut case = Case::new(format!("{length} positions and two more, scores of {deviation}"));
    let [keys, values] = caches(s, &context).map(|cache| f16s(&cache));
    let (keys, values) = (case.input("keys", keys), case.input("values", values));
    let factors = noise.uniform((s.rotated / 2) as usize, 1.0, 8.0);
    let table = case.input("rope_table", f32s(&frequencies(5e5, s.rotated, &factors)));
    let partial = case.output("partial", Element::F32, s.workspace() as usize);
    let counters = case.input("counters", u32s(&vec![0; s.counters() as usize]));
    case.may_change([keys, values, partial]);
    let norms = [noise.uniform(dim, 0.5, 1.5), noise.uniform(dim, 0.5, 1.5)];
    let norm_buffers: Vec<usize> = match s.qk_norm {
        Some(_) => vec![case.input("q_norm", f32s(&norms[0])), case.input("k_norm", f32s(&norms[1]))],
        None => Vec::new(),
    };
    for position in length..length + 2 {
        let q = noise.normal(heads * dim, deviation);
        let (k, v) = (noise.normal(kv_heads * dim, 1.0), noise.normal(kv_heads * dim, 1.0));
        let rotation = Rotation { base: 5e5, factors: &factors, position: position as u32 };
        let prepare = |x: &[f32], norm: &[f32]| {
            let normed = head_norm(x, norm, s);
            rope(&normed, s, &rotation)
        };
        context.q = prepare(&q, &norms[0]);
        context.keys.extend(prepare(&k, &norms[1]).into_iter().map(f16::from_f64));
        context.values.extend(v.iter().copied().map(f16::from_f32));
        context.length = position + 1;

        let qkv = case.input("qkv", f32s(&[q, k, v].concat()));
        let y = case.output(&format!("y of position {position}"), Element::F32, heads * dim);
        let state = case.input("state", state_record(position as u32, 1));
        let mut args = vec![qkv];
        args.extend(&norm_buffers);
        args.extend([table, keys, values, partial, counters, y, state]);
        case.launch(KernelSpec::Attention(s.clone()), &args);
        let want = (0..heads).flat_map(|head| attend(s, &context, head)).collect();
        let place = Coordinates::Axes(vec![("head", heads), ("element", dim)]);
        case.expect(y, place, Want::Close(Close::all(want, LIMIT)));
    }
    let zeros = u32s(&vec![0; s.counters() as usize]);
    case.expect(counters, Coordinates::line("block"), Want::Exactly(Element::U32, zeros));
    case
}

/// Random keys and values of `length` positions; the query is empty.
fn context(s: &AttentionShape, length: usize, noise: &mut Noise) -> Context {
    let width = (s.kv_heads * s.head_dim) as usize;
    let mut rows = || noise.normal(length * width, 1.0).into_iter().map(f16::from_f32).collect();
    let (keys, values) = (rows(), rows());
    Context { q: Vec::new(), keys, values, length }
}

/// Keys and values in the device's layout, with room for two more positions. The rest of the last position's tile is
/// zeros, as after an append; all memory behind the tile is NaN, so that reading it changes the result.
fn caches(s: &AttentionShape, context: &Context) -> [Vec<f16>; 2] {
    let (kv_heads, dim) = (s.kv_heads as usize, s.head_dim as usize);
    let elements = |positions: usize| (s.cache_bytes(positions as u32) / 2) as usize;
    let make = |rows: &[f16], index: &dyn Fn(u32, u32, u32) -> u64| {
        let mut cache = vec![f16::NAN; elements(context.length + 2 + PAGE as usize)];
        for position in 0..context.length.next_multiple_of(TILE as usize) {
            for (head, element) in (0..kv_heads).flat_map(|head| (0..dim).map(move |at| (head, at))) {
                cache[index(position as u32, head as u32, element as u32) as usize] = f16::ZERO;
            }
        }
        for (at, &value) in rows.iter().enumerate() {
            let (position, head, element) = (at / dim / kv_heads, at / dim % kv_heads, at % dim);
            cache[index(position as u32, head as u32, element as u32) as usize] = value;
        }
        cache
    };
    [
        make(&context.keys, &|position, head, element| s.key_index(position, head, element)),
        make(&context.values, &|position, head, element| s.value_index(position, head, element)),
    ]
}
