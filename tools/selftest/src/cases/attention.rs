//! Cases of attention: decode steps over a cache.

use bespoke_kernels::kernels::attention::{AttentionShape, BIAS, BLOCK, KvType, PAGE, TILE};
use bespoke_kernels::kernels::rope::frequencies;
use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::spec::KernelSpec;
use half::f16;
use rayon::prelude::*;

use crate::case::{Case, Close, Coordinates, Element, Limit, Want};
use crate::inputs::{Noise, f32s, u32s};
use crate::reference::{Context, Rotation, attend, qk_norm, rope};

/// The kernel computes with query and softmax weights as sums of two f16. The new key and value are rounded as in the
/// reference, but a key is rounded from values that differ in the last bits.
fn limit(s: &AttentionShape) -> Limit {
    let computed = s.rope.is_some() || s.qk_norm.is_some();
    match s.kv {
        KvType::Q8_0 if computed => {
            Limit { nmse: 1e-6, reason: "a new key may round to the neighbouring integer" }
        }
        _ => Limit { nmse: 4e-9, reason: "a new key may round to the neighbouring f16" },
    }
}

/// A length near the longest context of current models. The error of sin and cos must not grow with the position.
const DEEP: usize = 131_000;

/// Lengths of the cache in positions: 0; around a tile, a page and the shortest split; enough to fill the shortest
/// splits, and more; around the window, and where its start crosses a page; near the longest context, if the window or
/// the head is small.
fn lengths(s: &AttentionShape) -> Vec<usize> {
    let page = PAGE as usize;
    let run = s.min_pages as usize * page;
    let full = run * s.splits as usize;
    let mut lengths = vec![0, 1, 15, 16, 62, 63, 64, run - 1, run, run + 17];
    match s.window {
        None => lengths.extend([full - 1, full, 2 * full + 7]),
        Some(window) => {
            let window = window as usize;
            lengths.extend([window.max(2) - 2, window - 1, window, page + window - 2, 3 * page + window - 1]);
            lengths.push(DEEP);
        }
    }
    if s.head_dim == 16 && s.window.is_none() {
        lengths.push(DEEP);
    }
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Standard deviation of scores whose exponentials overflow unless the largest score is subtracted.
const FAR_APART: f32 = 150.0;

/// Cases of two decode steps at each of several lengths; the second step reads the cache entry of the first.
pub(crate) fn attention(s: &AttentionShape) -> Vec<Case> {
    let name = KernelSpec::Attention(s.clone()).name();
    let lengths = lengths(s);
    let longest = lengths.iter().copied().rfind(|&length| length < DEEP);
    // With a standard deviation of two some positions weigh much more than others.
    let usual = lengths.into_iter().map(|length| (length, 2.0));
    let all: Vec<(usize, f32)> = usual.chain(longest.map(|length| (length, FAR_APART))).collect();
    let case = |(length, deviation)| {
        steps(s, length, deviation, &mut Noise::new(&format!("{name} {length} {deviation}")))
    };
    all.into_par_iter().map(case).collect()
}

/// Case of two decode steps after `length` positions; `deviation` is the standard deviation of the scores.
fn steps(s: &AttentionShape, length: usize, deviation: f32, noise: &mut Noise) -> Case {
    let (heads, kv_heads, dim) = (s.heads as usize, s.kv_heads as usize, s.head_dim as usize);
    let mut context =
        Context { q: Vec::new(), skipped: skipped(s, length), keys: Vec::new(), values: Vec::new(), length };
    let rows = (length - context.skipped) * kv_heads * dim;
    let [keys, values] =
        [rows; 2].map(|rows| noise.normal(rows, 1.0).into_iter().map(f64::from).collect::<Vec<_>>());
    (context.keys, context.values) = (rounded(s, &keys), rounded(s, &values));
    let mut case = Case::new(format!("{length} positions and two more, scores of {deviation}"));
    let table = PageTable::new(length + 2, noise);
    let caches = [(&keys, Kind::Keys), (&values, Kind::Values)]
        .map(|(rows, kind)| cache(s, &context, rows, kind, &table));
    let [keys, values] = caches;
    let page_table = case.input("page_table", u32s(&table.entries));
    let (keys, values) = (case.input("keys", keys), case.input("values", values));
    let factors = noise.uniform((s.rotated() / 2) as usize, 1.0, 8.0);
    let divisors: Vec<f64> = factors.iter().map(|&factor| f64::from(factor)).collect();
    let rope_table =
        s.rope.map(|rope| case.input("rope_table", f32s(&frequencies(5e5, rope.rotated, &divisors))));
    let partial = case.output("partial", Element::F32, s.workspace() as usize);
    let counters = case.input("counters", u32s(&vec![0; s.counters() as usize]));
    case.may_change([keys, values, partial]);
    let norms = s.norm_widths().unwrap_or([s.head_dim; 2]).map(|n| noise.uniform(n as usize, 0.5, 1.5));
    let norm_buffers: Vec<usize> = match s.qk_norm {
        Some(_) => vec![case.input("q_norm", f32s(&norms[0])), case.input("k_norm", f32s(&norms[1]))],
        None => Vec::new(),
    };
    for position in length..length + 2 {
        let q = noise.normal(heads * dim, deviation);
        let (k, v) = (noise.normal(kv_heads * dim, 1.0), noise.normal(kv_heads * dim, 1.0));
        let rotation = Rotation { base: 5e5, factors: &factors, position: position as u32 };
        let prepare = |x: &[f32], norm: &[f32]| {
            let normed = qk_norm(x, norm, s);
            rope(&normed, s, &rotation)
        };
        context.q = prepare(&q, &norms[0]);
        context.keys.extend(rounded(s, &prepare(&k, &norms[1])));
        context.values.extend(rounded(s, &v.iter().map(|&value| f64::from(value)).collect::<Vec<_>>()));
        context.length = position + 1;

        let qkv = case.input("qkv", f32s(&[q, k, v].concat()));
        let y = case.output(&format!("y of position {position}"), Element::F32, heads * dim);
        let row = Row { position: position as u32, prompt: 1, chooses: true, pages: PAGES, ..Row::default() };
        let state = case.input("state", u32s(&row.words()));
        let mut args = vec![qkv];
        args.extend(&norm_buffers);
        args.extend(rope_table);
        args.extend([keys, values, page_table, partial, counters, y, state]);
        case.launch(KernelSpec::Attention(s.clone()), &args);
        let want = (0..heads).into_par_iter().flat_map_iter(|head| attend(s, &context, head)).collect();
        let place = Coordinates::Axes(vec![("head", heads), ("element", dim)]);
        case.expect(y, place, Want::Close(Close::all(want, limit(s))));
    }
    let zeros = u32s(&vec![0; s.counters() as usize]);
    case.expect(counters, Coordinates::line("block"), Want::Exactly(Element::U32, zeros));
    case
}

/// Number of positions before the tile in which the window of position `length` starts.
fn skipped(s: &AttentionShape, length: usize) -> usize {
    let start = s.window.map_or(0, |window| (length + 1).saturating_sub(window as usize));
    start / TILE as usize * TILE as usize
}

/// Scale and integers of a block of GGML's Q8_0.
fn quantise(block: &[f64]) -> (f16, Vec<i32>) {
    let largest = block.iter().fold(0.0f32, |largest, &x| largest.max((x as f32).abs()));
    let scale = largest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    (f16::from_f32(scale), block.iter().map(|&x| (x as f32 * inverse).round_ties_even() as i32).collect())
}

/// Keys or values [.., head_dim], rounded as in the cache.
fn rounded(s: &AttentionShape, rows: &[f64]) -> Vec<f64> {
    match s.kv {
        KvType::F16 => rows.iter().map(|&x| f16::from_f64(x).to_f64()).collect(),
        KvType::Q8_0 => {
            let blocks = rows.chunks(s.head_dim as usize).flat_map(|head| head.chunks(BLOCK as usize));
            let values = blocks.flat_map(|block| {
                let (scale, integers) = quantise(block);
                integers.into_iter().map(move |q| f16::from_f64(scale.to_f64() * f64::from(q)).to_f64())
            });
            values.collect()
        }
    }
}

/// What a cache holds.
#[derive(Clone, Copy)]
enum Kind {
    Keys,
    Values,
}

/// Index in the page table of the sequence's first entry.
const PAGES: u32 = 3;

/// Physical pages that no position uses.
const SPARE_PAGES: u32 = 2;

/// Page table of a sequence whose pages are in random places of the pool. The other entries refer to a page that no
/// position uses.
struct PageTable {
    entries: Vec<u32>,
    /// Number of physical pages of the pool.
    pool: u32,
}

impl PageTable {
    fn new(positions: usize, noise: &mut Noise) -> PageTable {
        let count = (positions as u32).div_ceil(PAGE);
        let pool = count + SPARE_PAGES;
        let mut pages: Vec<u32> = (0..pool).collect();
        for (last, random) in (1..pool).rev().zip(noise.words(pool as usize, u32::MAX)) {
            pages.swap(last as usize, (random % (last + 1)) as usize);
        }
        let unused = pages[count as usize];
        pages.truncate(count as usize);
        let entries = [vec![unused; PAGES as usize], pages, vec![unused]].concat();
        PageTable { entries, pool }
    }

    /// The place in the pool of a position of the sequence, counted in positions.
    fn place(&self, position: u32) -> u32 {
        self.entries[(PAGES + position / PAGE) as usize] * PAGE + position % PAGE
    }
}

/// A pool of keys or values in the device's layout, with room for two more positions. All memory behind the last position,
/// before the tiles of the window, and in pages of no position is NaN, so that using it changes the result.
fn cache(s: &AttentionShape, context: &Context, rows: &[f64], kind: Kind, table: &PageTable) -> Vec<u8> {
    let (kv_heads, dim) = (s.kv_heads as usize, s.head_dim as usize);
    let mut cache = vec![0xFF; s.cache_bytes(table.pool * PAGE) as usize];
    for (at, head) in rows.chunks(dim).enumerate() {
        let (position, kv_head) = ((context.skipped + at / kv_heads) as u32, (at % kv_heads) as u32);
        let place = table.place(position);
        let offset = |element: u32| match kind {
            Kind::Keys => s.key_offset(place, kv_head, element) as usize,
            Kind::Values => s.value_offset(place, kv_head, element) as usize,
        };
        let scale_offset = |block: u32| match kind {
            Kind::Keys => s.key_scale_offset(place, kv_head, block) as usize,
            Kind::Values => s.value_scale_offset(place, kv_head, block) as usize,
        };
        match s.kv {
            KvType::F16 => {
                for (element, &value) in (0..).zip(head) {
                    cache[offset(element)..][..2].copy_from_slice(&f16::from_f64(value).to_le_bytes());
                }
            }
            KvType::Q8_0 => {
                for (block, values) in (0..).zip(head.chunks(BLOCK as usize)) {
                    let (scale, integers) = quantise(values);
                    cache[scale_offset(block)..][..2].copy_from_slice(&scale.to_le_bytes());
                    for (element, q) in (block * BLOCK..).zip(integers) {
                        cache[offset(element)] = (q + BIAS as i32) as u8;
                    }
                }
            }
        }
    }
    cache
}
