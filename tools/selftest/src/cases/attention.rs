//! Cases of attention: decode steps over a cache, and steps of several rows.

use bespoke_kernels::kernels::attention::{
    AppendShape, AttentionShape, BIAS, BLOCK, ChunkShape, KvType, PAGE, SharesShape, TILE,
};
use bespoke_kernels::kernels::gemv::tokens::PrepareShape;
use bespoke_kernels::kernels::launching::{CopyEngine, Trigger};
use bespoke_kernels::kernels::rope::frequencies;
use bespoke_kernels::kernels::state::{FLAGS, Row, WORDS};
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

/// Attention of prefill steps computes with queries as one f16, whose rounding changes a score by about its size times 2⁻¹²;
/// weights change by as much.
fn chunk_limit(s: &AttentionShape, deviation: f32) -> Limit {
    let nmse = limit(s).nmse + (f64::from(deviation) / f64::from(1 << 11)).powi(2);
    Limit { nmse, reason: "queries and softmax weights are rounded to f16" }
}

/// A length near the longest context of current models. The error of sin and cos must not grow with the position.
const DEEP: usize = 131_000;

/// Lengths of the cache in positions: 0; within a tile, in each of its pairs of positions; around a tile, a page and the shortest
/// split; enough to fill the shortest splits, and more; around the window, and where its start crosses a page; near the longest
/// context, if the window or the head is small.
fn lengths(s: &AttentionShape) -> Vec<usize> {
    let page = PAGE as usize;
    let run = s.min_pages as usize * page;
    let full = run * s.splits as usize;
    let mut lengths = vec![0, 1, 5, 8, 10, 12, 15, 16, 62, 63, 64, run - 1, run, run + 17];
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

/// Cases of attention: at each of several lengths two decode steps, of which the second reads the cache entries of the first.
/// With one row also a step whose row does not exist. An output that is quantised for the next product is compared with that of a
/// launch that quantises an output of f32.
pub(crate) fn attention(s: &AttentionShape) -> Vec<Case> {
    let name = KernelSpec::Attention(s.clone()).name();
    let lengths = lengths(s);
    let longest = lengths.iter().copied().rfind(|&length| length < DEEP);
    // With a standard deviation of two some positions weigh much more than others.
    let usual = lengths.into_iter().map(|length| (length, 2.0));
    let all: Vec<(usize, f32)> = usual.chain(longest.map(|length| (length, FAR_APART))).collect();
    let case = |&(length, deviation): &(usize, f32)| {
        let noise = &mut Noise::new(&format!("{name} {length} {deviation}"));
        let steps =
            if s.tokens == 1 { vec![vec![Some(0)], vec![Some(0)], vec![None]] } else { vec![rows(s); 2] };
        let count = steps[0].iter().flatten().max().map_or(0, |most| most + 1);
        // The other sequences have other lengths.
        let starts: Vec<usize> = (0..count).map(|index| all[(index * 5) % all.len()].0.min(length)).collect();
        let starts = [vec![length], starts].concat();
        Steps::new(s, &starts[..count.max(1)], &steps, noise).case(&steps, None, deviation, noise)
    };
    all.par_iter().map(case).collect()
}

/// Cases of attention of a prefill step: rows of one sequence and of several, at some lengths; and several of which one has values of NaN,
/// which must not reach the others.
pub(crate) fn chunk(s: &ChunkShape) -> Vec<Case> {
    let name = KernelSpec::AttentionChunk(s.clone()).name();
    let attention = &s.attention;
    let tokens = attention.tokens as usize;
    let one = vec![Some(0); tokens];
    // Two short sequences, of which the first fills its rows if there are others, a longer one, and rows that do not exist.
    let sequence = |row: usize| match row {
        0..16 if row < 3 || tokens > 16 => Some(0),
        16..25 => Some(1),
        32.. if row + row / 8 < tokens => Some(2),
        _ => None,
    };
    let several: Vec<Option<usize>> = (0..tokens).map(sequence).collect();
    let window = attention.window.map_or(0, |window| window as usize);
    // At length `window` + 56, rows 0 to 7 of a group attend to another first position of 32 than rows 8 to 15.
    let lengths = [0, 1, 63, 130, window + 56].map(|length| (length, 2.0));
    let cases = [&lengths[..], &[(window + 77, FAR_APART)]].concat();
    let case = |length: usize, deviation, rows: &Vec<Option<usize>>, not_finite| {
        let noise = &mut Noise::new(&format!("{name} {length} {deviation} {:?}", rows.last()));
        let count = rows.iter().flatten().max().map_or(1, |most| most + 1);
        let starts: Vec<usize> = (0..count).map(|index| length + 40 * index).collect();
        let steps = vec![rows.clone()];
        let mut buffers = Steps::new(attention, &starts, &steps, noise);
        buffers.not_finite = not_finite;
        buffers.case(&steps, Some(s), deviation, noise)
    };
    let all = cases
        .iter()
        .flat_map(|&(length, deviation)| [&one, &several].map(|rows| case(length, deviation, rows, None)));
    // Integers of a cache of q8_0 are finite.
    let with_nan = (s.attention.kv == KvType::F16 && tokens > 16).then(|| case(130, 2.0, &several, Some(1)));
    all.chain(with_nan).collect()
}

/// Cases of the append, before attention to the appended entries.
pub(crate) fn append(s: &AppendShape) -> Vec<Case> {
    let attention = AttentionShape {
        tokens: s.tokens,
        heads: s.heads,
        kv_heads: s.kv_heads,
        head_dim: s.head_dim,
        rope: s.rope,
        qk_norm: s.qk_norm,
        window: None,
        scale: s.scale,
        softcap: s.softcap,
        kv: s.kv,
        heads_per_block: s.heads_per_block,
        splits: 1,
        run_blocks: 1,
        at_once: None,
        min_pages: 1,
        stages: 2,
        stage_tiles: AttentionShape::PAGE_TILES,
        copy: CopyEngine::Async,
        trigger: Trigger::Never,
        appended: true,
        output_layout: None,
    };
    chunk(&ChunkShape { attention, row_groups: 1, warpgroups: false })
}

/// The sequence of each row of a decode step, which has no two rows of one sequence, or of a verify step, which has up to
/// five; none for a row that does not exist.
fn rows(s: &AttentionShape) -> Vec<Option<usize>> {
    let of_sequence = if s.appended { 5 } else { 1 };
    let row = |row: usize| (row != 1).then(|| (row - usize::from(row > 1)) / of_sequence);
    (0..s.tokens as usize).map(row).collect()
}

/// A sequence of a case.
struct Sequence {
    /// Its tokens' keys and values as in the cache.
    context: Context,
    /// Index in the page table of its first entry.
    pages: u32,
}

/// Buffers of a case of several steps.
struct Steps<'a> {
    s: &'a AttentionShape,
    case: Case,
    sequences: Vec<Sequence>,
    /// Sequence whose rows in the steps have values of NaN; its outputs are not compared.
    not_finite: Option<usize>,
    factors: Vec<f32>,
    norms: [Vec<f32>; 2],
    keys: usize,
    values: usize,
    page_table: usize,
    rope_table: Option<usize>,
    norm_buffers: [Option<usize>; 2],
}

impl<'a> Steps<'a> {
    /// The buffers for sequences with `starts` positions in the cache before the steps.
    fn new(
        s: &'a AttentionShape,
        starts: &[usize],
        steps: &[Vec<Option<usize>>],
        noise: &mut Noise,
    ) -> Steps<'a> {
        let dim = s.head_dim as usize;
        let all_rows = || steps.iter().flatten().flatten();
        let lengths = starts.iter().enumerate();
        let lengths = lengths.map(|(index, start)| start + all_rows().filter(|&&row| row == index).count());
        let table = PageTable::new(&lengths.collect::<Vec<_>>(), noise);
        let mut case = Case::new(format!("{starts:?} positions and more"));
        let mut pools = [(); 2].map(|()| vec![0xFF; s.cache_bytes(table.pool * PAGE) as usize]);
        let mut sequences = Vec::new();
        for (index, &length) in starts.iter().enumerate() {
            let pages = table.first[index];
            let skipped = skipped(s, length);
            let count = (length - skipped) * s.kv_heads as usize * dim;
            let [keys, values] = [count; 2]
                .map(|count| noise.normal(count, 1.0).into_iter().map(f64::from).collect::<Vec<_>>());
            for ((pool, rows), kind) in pools.iter_mut().zip([&keys, &values]).zip([Kind::Keys, Kind::Values])
            {
                fill(pool, s, skipped, rows, kind, &table.entries[pages as usize..]);
            }
            let (keys, values) = (rounded(s, &keys), rounded(s, &values));
            let context = Context { q: Vec::new(), skipped, keys, values, length };
            sequences.push(Sequence { context, pages });
        }
        let [keys, values] = pools;
        let (keys, values) = (case.input("keys", keys), case.input("values", values));
        case.may_change([keys, values]);
        let page_table = case.input("page_table", u32s(&table.entries));
        let factors = noise.uniform((s.rotated() / 2) as usize, 1.0, 8.0);
        let divisors: Vec<f64> = factors.iter().map(|&factor| f64::from(factor)).collect();
        let frequencies = s.rope.map(|rope| f32s(&frequencies(5e5, rope.rotated, &divisors)));
        let rope_table = frequencies.map(|table| case.input("rope_table", table));
        let norms = s.norm_widths().unwrap_or([s.head_dim; 2]).map(|n| noise.uniform(n as usize, 0.5, 1.5));
        let names = ["q_norm", "k_norm"];
        let norm_buffers = [0, 1].map(|i| s.qk_norm.map(|_| case.input(names[i], f32s(&norms[i]))));
        let not_finite = None;
        Steps {
            s,
            case,
            sequences,
            not_finite,
            factors,
            norms,
            keys,
            values,
            page_table,
            rope_table,
            norm_buffers,
        }
    }

    /// The case of these steps, by decode steps or by prefill steps of a shape; `deviation` is the standard deviation of the
    /// scores.
    fn case(
        mut self,
        steps: &[Vec<Option<usize>>],
        chunk: Option<&ChunkShape>,
        deviation: f32,
        noise: &mut Noise,
    ) -> Case {
        let s = self.s;
        self.case.what = format!("{}, scores of {deviation}", self.case.what);
        if let Some(index) = self.not_finite {
            self.case.what += &format!(", values of sequence {index} not finite");
        }
        let partial = self.case.output("partial", Element::F32, s.workspace() as usize);
        let counters = self.case.input("counters", u32s(&vec![0; s.counters() as usize]));
        self.case.may_change([partial]);
        for (step, rows) in steps.iter().enumerate() {
            let (mut qkv, mut records, mut want) = (Vec::new(), Vec::new(), Vec::new());
            for &row in rows {
                let (x, record, y) = self.row(row, deviation, noise);
                qkv.extend(x);
                records.extend(record);
                want.extend(y);
            }
            let case = &mut self.case;
            let qkv = case.input("qkv", f32s(&qkv));
            let state = case.input("state", u32s(&records));
            let y = case.output(&format!("y of step {step}"), Element::F32, want.len());
            let cache = [self.keys, self.values, self.page_table];
            let [q_norm, k_norm] = self.norm_buffers;
            let mut args = vec![qkv];
            args.extend(q_norm.into_iter().chain(k_norm).chain(self.rope_table));
            if let Some(chunk) = chunk {
                let append = AppendShape::of(s, true);
                let words = append.query_bytes() as usize / 4;
                // Rows that do not exist have no queries.
                let queries = case.input("queries", vec![0; words * 4]);
                case.may_change([queries]);
                args.extend([queries].into_iter().chain(cache).chain([state]));
                case.launch(KernelSpec::Append(append), &args);
                let args: Vec<usize> = [queries].into_iter().chain(cache).chain([y, state]).collect();
                case.launch(KernelSpec::AttentionChunk(chunk.clone()), &args);
                want_missing(&mut want, rows, s);
            } else {
                if s.appended {
                    let args: Vec<usize> = args.iter().copied().chain(cache).chain([state]).collect();
                    case.launch(KernelSpec::Append(AppendShape::of(s, false)), &args);
                }
                let mut last = state;
                if let Some(shape) = SharesShape::of(s) {
                    last = case.input("shares", u32s(&vec![0; shape.words() as usize]));
                    case.may_change([last]);
                    case.launch(KernelSpec::AttentionShares(shape), &[self.page_table, state, last]);
                }
                let launch = |output_layout, to, case: &mut Case| {
                    let spec = KernelSpec::Attention(AttentionShape { output_layout, ..s.clone() });
                    let rest = cache.into_iter().chain([partial, counters, to, last]);
                    case.launch(spec, &args.iter().copied().chain(rest).collect::<Vec<_>>());
                };
                if let Some(layout) = s.output_layout {
                    let words = layout.bytes() as usize / 4;
                    let [found, expected] = ["inputs", "inputs by another launch"]
                        .map(|name| case.output(&format!("{name}, step {step}"), Element::U32, words));
                    // First, since a later launch finds the new entries in the cache.
                    launch(Some(layout), found, case);
                    launch(None, y, case);
                    let (cols, trigger) = (s.heads * s.head_dim, Trigger::Never);
                    let prepare = PrepareShape { cols, normed: false, layout, trigger };
                    case.launch(KernelSpec::Prepare(prepare), &[y, expected]);
                    case.expect(found, Coordinates::line("word"), Want::Same(expected));
                } else {
                    launch(None, y, case);
                }
            }
            let (heads, dim) = (s.heads as usize, s.head_dim as usize);
            let place = Coordinates::Axes(vec![("row", rows.len()), ("head", heads), ("element", dim)]);
            let want = match rows.iter().any(Option::is_some) {
                true => {
                    let limit = chunk.map_or_else(|| limit(s), |_| chunk_limit(s, deviation));
                    let is_finite = |row: &Option<usize>| row.is_none() || *row != self.not_finite;
                    let at = (0..want.len()).filter(|at| is_finite(&rows[at / (heads * dim)]));
                    let (at, values) = at.map(|at| (at, want[at])).unzip();
                    Want::Close(Close { at, values, scale: None, limit })
                }
                false => Want::Exactly(Element::F32, vec![0; want.len() * 4]),
            };
            case.expect(y, place, want);
        }
        let zeros = u32s(&vec![0; s.counters() as usize]);
        self.case.expect(counters, Coordinates::line("block"), Want::Exactly(Element::U32, zeros));
        self.case
    }

    /// Queries, keys and values of a row with the next token of its sequence; its record; its expected output.
    fn row(
        &mut self,
        sequence: Option<usize>,
        deviation: f32,
        noise: &mut Noise,
    ) -> (Vec<f32>, [u32; WORDS as usize], Vec<f64>) {
        let (s, dim) = (self.s, self.s.head_dim as usize);
        let (heads, kv_heads) = (s.heads as usize, s.kv_heads as usize);
        let q = noise.normal(heads * dim, deviation);
        let (k, mut v) = (noise.normal(kv_heads * dim, 1.0), noise.normal(kv_heads * dim, 1.0));
        if sequence.is_some() && sequence == self.not_finite {
            v.fill(f32::NAN);
        }
        let mut row = Row { position: 17, prompt: 1, chooses: true, pages: PAGES, ..Row::default() };
        let Some(index) = sequence else {
            let mut record = row.words();
            record[FLAGS as usize] = 0;
            return ([q, k, v].concat(), record, vec![0.0; heads * dim]);
        };
        let Sequence { context, pages } = &mut self.sequences[index];
        (row.position, row.pages) = (context.length as u32, *pages);
        // Whether the row chooses, the prompt and the slot make no difference.
        (row.chooses, row.prompt, row.slot) =
            (row.position % 3 != 1, row.position % 4 * 50, index as u32 * 2 + 2);
        let rotation = Rotation { base: 5e5, factors: &self.factors, position: row.position };
        let prepare = |x: &[f32], norm: &[f32]| rope(&qk_norm(x, norm, s), s, &rotation);
        context.q = prepare(&q, &self.norms[0]);
        context.keys.extend(rounded(s, &prepare(&k, &self.norms[1])));
        context.values.extend(rounded(s, &v.iter().map(|&value| f64::from(value)).collect::<Vec<_>>()));
        context.length += 1;
        let context = &*context;
        let y = (0..heads).into_par_iter().flat_map_iter(|head| attend(s, context, head)).collect();
        ([q, k, v].concat(), row.words(), y)
    }
}

/// Expects that the outputs of rows that do not exist are not written.
fn want_missing(want: &mut [f64], rows: &[Option<usize>], s: &AttentionShape) {
    let outputs = want.chunks_mut((s.heads * s.head_dim) as usize);
    for (row, _) in outputs.zip(rows).filter(|(_, row)| row.is_none()) {
        row.fill(f64::NAN);
    }
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

/// Index in the page table of the first sequence's first entry.
const PAGES: u32 = 3;

/// Physical pages that no position uses.
const SPARE_PAGES: u32 = 2;

/// Page table of sequences whose pages are in random places of the pool. The entries before, between and behind those of
/// the sequences refer to a page that no position uses.
struct PageTable {
    entries: Vec<u32>,
    /// Index of each sequence's first entry.
    first: Vec<u32>,
    /// Number of physical pages of the pool.
    pool: u32,
}

impl PageTable {
    /// The table for sequences of `lengths` positions.
    fn new(lengths: &[usize], noise: &mut Noise) -> PageTable {
        let counts: Vec<usize> = lengths.iter().map(|length| length.div_ceil(PAGE as usize)).collect();
        let pool = counts.iter().sum::<usize>() as u32 + SPARE_PAGES;
        let mut pages: Vec<u32> = (0..pool).collect();
        for (last, random) in (1..pool).rev().zip(noise.words(pool as usize, u32::MAX)) {
            pages.swap(last as usize, (random % (last + 1)) as usize);
        }
        let unused = pages[0];
        let mut entries = vec![unused; PAGES as usize];
        let (mut first, mut next) = (Vec::new(), 1);
        for count in counts {
            first.push(entries.len() as u32);
            entries.extend(&pages[next..next + count]);
            entries.push(unused);
            next += count;
        }
        PageTable { entries, first, pool }
    }
}

/// Writes the keys or values of a sequence, from position `skipped` on, to a pool in the device's layout. All other memory
/// (behind the last position, before the tiles of the window, and in pages of no position) is NaN, so that using it changes
/// the result.
fn fill(pool: &mut [u8], s: &AttentionShape, skipped: usize, rows: &[f64], kind: Kind, pages: &[u32]) {
    let (kv_heads, dim) = (s.kv_heads as usize, s.head_dim as usize);
    for (at, head) in rows.chunks(dim).enumerate() {
        let (position, kv_head) = ((skipped + at / kv_heads) as u32, (at % kv_heads) as u32);
        let place = pages[(position / PAGE) as usize] * PAGE + position % PAGE;
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
                    pool[offset(element)..][..2].copy_from_slice(&f16::from_f64(value).to_le_bytes());
                }
            }
            KvType::Q8_0 => {
                for (block, values) in (0..).zip(head.chunks(BLOCK as usize)) {
                    let (scale, integers) = quantise(values);
                    pool[scale_offset(block)..][..2].copy_from_slice(&scale.to_le_bytes());
                    for (element, q) in (block * BLOCK..).zip(integers) {
                        pool[offset(element)] = (q + BIAS as i32) as u8;
                    }
                }
            }
        }
    }
}
