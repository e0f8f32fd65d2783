//! The bits of attention's output for a token do not depend on the rows beside it, in decode, verify and prefill steps, nor
//! on the pages of its sequence. Decode steps and verify steps give a token the same bits. All kinds of steps write the same
//! entries to the cache.

mod hooked;

use std::cell::RefCell;
use std::collections::HashMap;

use bespoke::builtin;
use bespoke::device::{Allocation, Device, Kernel, Launch};
use bespoke::engine::target_for;
use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::kernels::attention::{
    AppendShape, AttentionShape, ChunkShape, KvType, NormSpan, PAGE, QkNorm, ROW_GROUP, Rope, SharesShape,
};
use bespoke_kernels::kernels::launching::{CopyEngine, Trigger};
use bespoke_kernels::kernels::rope::{RopeKind, frequencies};
use bespoke_kernels::kernels::state::{Row, WORDS};
use bespoke_kernels::plan::StepKind;
use bespoke_kernels::spec::KernelSpec;
use hooked::emulator;

/// Positions of the tested sequence: two runs of pages, and a few positions of a third page.
const LENGTH: u32 = 2 * PAGE + 6;
/// Positions at borders of tiles, pages and runs.
const BORDERS: [u32; 12] = [0, 1, 15, 16, 31, 62, 63, 64, 65, 127, 128, LENGTH - 1];
/// Rows of a prefill step: more than one CTA has.
const CHUNK: usize = 37;
/// Entries of the page table for each sequence.
const ENTRIES: u32 = LENGTH.div_ceil(PAGE);

/// A value between -2 and 2 that depends on the arguments only.
fn noise(a: u64, b: u64, c: u64) -> f32 {
    let mut x = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.rotate_left(24) ^ c.rotate_left(48);
    for factor in [0xBF58_476D_1CE4_E5B9u64, 0x94D0_49BB_1331_11EB] {
        x = (x ^ (x >> 29)).wrapping_mul(factor);
    }
    (x >> 40) as f32 / (1 << 22) as f32 - 2.0
}

fn bytes_of<T: Copy, const N: usize>(
    values: impl IntoIterator<Item = T>,
    bytes: fn(T) -> [u8; N],
) -> Vec<u8> {
    values.into_iter().flat_map(bytes).collect()
}

/// Three sequences whose keys and values are in one cache.
struct Cache<'a> {
    device: &'a dyn Device,
    target: Target,
    shape: AttentionShape,
    kernels: RefCell<HashMap<String, Kernel>>,
    keys: Allocation,
    values: Allocation,
    page_table: Allocation,
    rope_table: Option<Allocation>,
    norms: Option<[Allocation; 2]>,
    /// Physical pages, [sequences, ENTRIES].
    pages: Vec<u32>,
}

impl<'a> Cache<'a> {
    /// A cache of stale NaN whose page `i` (counted over all sequences) is physical page `pages[i]`.
    fn new(device: &'a dyn Device, shape: &AttentionShape, pages: Vec<u32>) -> Cache<'a> {
        let pool = shape.cache_bytes(pages.len() as u32 * PAGE);
        let filled = |name: &str| {
            let memory = device.alloc(name, pool).unwrap();
            device.fill(memory.address(), pool, 0xFF).unwrap();
            memory
        };
        let weights = |seed: u64, count: u32| (0..count).map(move |i| 1.0 + 0.2 * noise(seed, i.into(), 7));
        let norms = shape.norm_widths().map(|widths| {
            [0, 1].map(|i| upload(device, &bytes_of(weights(i as u64, widths[i]), f32::to_le_bytes)))
        });
        let rope = shape.rope.map(|rope| frequencies(1e4, rope.rotated, &[]));
        Cache {
            device,
            target: target_for(device).unwrap(),
            shape: shape.clone(),
            kernels: RefCell::default(),
            keys: filled("keys"),
            values: filled("values"),
            page_table: upload(device, &bytes_of(pages.iter().copied(), u32::to_le_bytes)),
            rope_table: rope.map(|table| upload(device, &bytes_of(table, f32::to_le_bytes))),
            norms,
            pages,
        }
    }

    fn kernel(&self, spec: &KernelSpec) -> Kernel {
        let name = spec.name();
        if let Some(kernel) = self.kernels.borrow().get(&name) {
            return kernel.clone();
        }
        let ptx = emit::compile(std::slice::from_ref(spec), self.target).unwrap().remove(0).compiled.ptx;
        let module = self.device.load_source(&builtin::source(self.target, &name, &ptx)).unwrap();
        let kernel = module.kernel(&name).unwrap();
        self.kernels.borrow_mut().insert(name, kernel.clone());
        kernel
    }

    fn launch(&self, spec: &KernelSpec, args: &[&Allocation]) -> Launch {
        let geometry = spec.geometry();
        Launch {
            kernel: self.kernel(spec),
            grid: geometry.grid,
            block: [geometry.threads, 1, 1],
            dynamic_shared: geometry.dynamic_shared,
            params: args.iter().flat_map(|arg| arg.address().0.to_le_bytes()).collect(),
            programmatic: false,
        }
    }

    /// Runs a step whose rows are tokens, given by sequence and position, or do not exist. Returns the bits of each row's
    /// output.
    fn step(&self, kind: StepKind, rows: &[Option<(u32, u32)>]) -> Vec<Vec<u32>> {
        let tokens = rows.len() as u32;
        // With several rows, the first CTA has the first split and the last one.
        let run_blocks = if tokens == 1 { self.shape.splits } else { self.shape.splits - 1 };
        // Steps with an odd number of rows divide the CTAs by the lengths of the contexts.
        let at_once = (tokens % 2 == 1 && tokens > 1).then_some(tokens + 1);
        let s = AttentionShape { tokens, run_blocks, at_once, ..self.shape.clone() };
        let width = (s.heads + 2 * s.kv_heads) * s.head_dim;
        let token = |row: &Option<(u32, u32)>| {
            let (sequence, position) = row.unwrap_or((9, 9));
            (0..width).map(move |i| noise(sequence.into(), position.into(), i.into()))
        };
        let record = |row: &Option<(u32, u32)>| match *row {
            Some((sequence, position)) => {
                let pages = sequence * ENTRIES;
                Row { position, prompt: 1, chooses: true, pages, ..Row::default() }.words()
            }
            None => [0; WORDS as usize],
        };
        let qkv = upload(self.device, &bytes_of(rows.iter().flat_map(token), f32::to_le_bytes));
        let state = upload(self.device, &bytes_of(rows.iter().flat_map(record), u32::to_le_bytes));
        let y_width = (s.heads * s.head_dim) as usize;
        let y = upload(self.device, &vec![0xFF; rows.len() * y_width * 4]);
        let norms = self.norms.iter().flatten();
        let cache = [&self.keys, &self.values, &self.page_table];
        let mut args: Vec<&Allocation> = [&qkv].into_iter().chain(norms).chain(&self.rope_table).collect();
        match kind {
            StepKind::Decode | StepKind::Verify | StepKind::FirstToken => {
                let appended = kind == StepKind::Verify;
                let append = appended.then(|| {
                    let args: Vec<&Allocation> = args.iter().copied().chain(cache).chain([&state]).collect();
                    self.launch(&KernelSpec::Append(AppendShape::of(&s, false)), &args)
                });
                let s = AttentionShape { appended, ..s };
                let partial = self.device.alloc("partial", u64::from(s.workspace()) * 4).unwrap();
                let counters = upload(self.device, &vec![0; s.counters() as usize * 4]);
                let shares = SharesShape::of(&s).map(|shape| {
                    let shares = self.device.alloc("shares", u64::from(shape.words()) * 4).unwrap();
                    let args = [&self.page_table, &state, &shares];
                    (self.launch(&KernelSpec::AttentionShares(shape), &args), shares)
                });
                let (division, shares) = shares.unzip();
                let last = shares.as_ref().unwrap_or(&state);
                args.extend(cache.into_iter().chain([&partial, &counters, &y, last]));
                let attention = self.launch(&KernelSpec::Attention(s), &args);
                let launches = division.into_iter().chain(append).chain([attention]).collect();
                self.run(launches, &y, y_width, rows.len())
            }
            StepKind::Prefill => {
                let stage_tiles = AttentionShape::PAGE_TILES;
                let append = AppendShape::of(&s, true);
                let queries = upload(self.device, &vec![0; append.query_bytes() as usize]);
                args.extend([&queries].into_iter().chain(cache).chain([&state]));
                let append = self.launch(&KernelSpec::Append(append), &args);
                let takes_warpgroups = s.kv == KvType::F16 && s.copy == CopyEngine::Bulk;
                let attention = AttentionShape { stage_tiles, ..s };
                let mut chunk = ChunkShape { attention, row_groups: 2, warpgroups: false };
                chunk.warpgroups = takes_warpgroups && chunk.fills_warpgroups();
                let args: Vec<&Allocation> =
                    [&queries].into_iter().chain(cache).chain([&y, &state]).collect();
                let attention = self.launch(&KernelSpec::AttentionChunk(chunk), &args);
                self.run(vec![append, attention], &y, y_width, rows.len())
            }
        }
    }

    /// Runs launches, and returns the bits of the rows of `y`.
    fn run(&self, launches: Vec<Launch>, y: &Allocation, width: usize, rows: usize) -> Vec<Vec<u32>> {
        let mut sequence = self.device.sequence(launches).unwrap();
        sequence.run_eager().unwrap();
        sequence.wait().unwrap();
        let mut bytes = vec![0; rows * width * 4];
        self.device.download(y.address(), &mut bytes).unwrap();
        let bits: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        bits.chunks(width).map(<[u32]>::to_vec).collect()
    }

    /// Appends positions of a sequence by prefill steps. Returns the bits of their outputs.
    fn prefill(&self, sequence: u32, positions: std::ops::Range<u32>) -> Vec<Vec<u32>> {
        let positions: Vec<u32> = positions.collect();
        let step = |chunk: &[u32]| {
            let row = |row: usize| chunk.get(row).map(|&position| (sequence, position));
            let mut found = self.step(StepKind::Prefill, &(0..CHUNK).map(row).collect::<Vec<_>>());
            found.truncate(chunk.len());
            found
        };
        positions.chunks(CHUNK).flat_map(step).collect()
    }

    /// Keys and values of a sequence's complete pages, in the order of positions.
    fn entries(&self, sequence: u32) -> Vec<Vec<u8>> {
        let page = self.shape.kv_heads * self.shape.page_bytes();
        let pages = &self.pages[(sequence * ENTRIES) as usize..][..(LENGTH / PAGE) as usize];
        let pools = [&self.keys, &self.values];
        let pages = pools.iter().flat_map(|pool| pages.iter().map(move |&at| (pool, at)));
        let read = |(pool, at): (&&Allocation, u32)| {
            let mut bytes = vec![0; page as usize];
            let address = pool.address().offset(u64::from(at) * u64::from(page));
            self.device.download(address, &mut bytes).unwrap();
            bytes
        };
        pages.map(read).collect()
    }
}

fn upload(device: &dyn Device, bytes: &[u8]) -> Allocation {
    let memory = device.alloc("buffer", bytes.len() as u64).unwrap();
    device.upload(memory.address(), bytes).unwrap();
    memory
}

/// Compares a token alone in a step with the token among other rows.
fn check(shape: AttentionShape) {
    let device = emulator();
    let alone = |kind, cache: &Cache<'_>| -> Vec<Vec<u32>> {
        (0..LENGTH).map(|position| cache.step(kind, &[Some((0, position))]).remove(0)).collect()
    };
    let cache = |pages: [u32; 9]| Cache::new(&*device, &shape, pages.into());
    let (decoded, prefilled) = (cache([0, 1, 2, 3, 4, 5, 6, 7, 8]), cache([2, 1, 0, 3, 4, 5, 6, 7, 8]));
    let (decode, prefill) = (alone(StepKind::Decode, &decoded), alone(StepKind::Prefill, &prefilled));
    let zeros = vec![0; decode[0].len()];
    for y in decode.iter().chain(&prefill) {
        assert!(*y != zeros && y.iter().all(|&bits| f32::from_bits(bits).is_finite()));
    }
    assert!(decoded.entries(0) == prefilled.entries(0), "the cache differs");

    // In prefill steps, between rows of other sequences, and in other pages.
    let mixed = cache([7, 2, 5, 0, 8, 3, 6, 1, 4]);
    let mut first = 0;
    for count in [1, 16, 30, 2, 31, 20, 33, 1].into_iter().cycle() {
        let end = (first + count).min(LENGTH);
        let mut rows: Vec<Option<(u32, u32)>> = Vec::new();
        for (sequence, positions) in
            [(1, first / 5..first / 5 + first % 5), (0, first..end), (2, first / 3..end / 3)]
        {
            rows.extend(positions.map(|position| Some((sequence, position))));
            rows.resize(rows.len().next_multiple_of(ROW_GROUP as usize), None);
        }
        for (row, y) in rows.iter().zip(mixed.step(StepKind::Prefill, &rows)) {
            if let Some((0, position)) = row {
                assert!(y == prefill[*position as usize], "prefill, position {position}");
            }
        }
        first = end;
        if first == LENGTH {
            break;
        }
    }
    assert!(decoded.entries(0) == mixed.entries(0), "the cache differs");

    // In decode steps, beside sequences of other lengths, in other pages, after prefill.
    let batch = cache([4, 8, 0, 6, 1, 7, 3, 2, 5]);
    let (mut filled, mut second, mut third) = (0, 17, PAGE + 15);
    batch.prefill(1, 0..second);
    batch.prefill(2, 0..third);
    for position in BORDERS {
        let found = batch.prefill(0, filled..position);
        assert!(found == prefill[filled as usize..position as usize], "prefill, up to {position}");
        let rows = [Some((1, second)), Some((0, position)), None, Some((2, third))];
        let found = batch.step(StepKind::Decode, &rows);
        assert!(found[1] == decode[position as usize], "batch, position {position}");
        assert_eq!(found[2], zeros);
        (filled, second, third) = (position + 1, second + 1, third + 1);
    }
    assert!(decoded.entries(0) == batch.entries(0), "the cache differs");

    // In verify steps: consecutive rows of one sequence beside those of another.
    let drafted = cache([1, 5, 0, 6, 8, 7, 3, 2, 4]);
    let mut first = 0;
    for count in [1, 5, 2, 16, 3, 9].into_iter().cycle() {
        let end = (first + count).min(LENGTH);
        let other = (first / 2..end / 2).map(|position| Some((1, position)));
        let mut rows: Vec<Option<(u32, u32)>> = other.chain([None]).collect();
        let before = rows.len();
        rows.extend((first..end).map(|position| Some((0, position))));
        let found = drafted.step(StepKind::Verify, &rows);
        for (position, y) in (first..end).zip(&found[before..]) {
            assert!(*y == decode[position as usize], "verify, position {position}");
        }
        first = end;
        if first == LENGTH {
            break;
        }
    }
    assert!(decoded.entries(0) == drafted.entries(0), "the cache differs");
}

/// A shape with splits of one page or two, for `heads` [queries, keys], and dimensions [head, rotated].
fn shape([heads, kv_heads]: [u32; 2], [head_dim, rotated]: [u32; 2]) -> AttentionShape {
    AttentionShape {
        tokens: 1,
        heads,
        kv_heads,
        head_dim,
        rope: Some(Rope { kind: RopeKind::Neox, rotated, magnitude: 1.0 }),
        qk_norm: None,
        window: None,
        scale: AttentionShape::default_scale(head_dim),
        softcap: None,
        kv: KvType::F16,
        heads_per_block: heads / kv_heads,
        splits: 2,
        run_blocks: 2,
        at_once: None,
        min_pages: 1,
        stages: 2,
        stage_tiles: AttentionShape::PAGE_TILES,
        copy: CopyEngine::Bulk,
        trigger: Trigger::AtStart,
        appended: false,
        output_layout: None,
    }
}

fn normed(span: NormSpan, shape: AttentionShape) -> AttentionShape {
    AttentionShape { qk_norm: Some(QkNorm { eps: 1e-6, span }), ..shape }
}

#[test]
fn f16() {
    check(shape([4, 2], [64, 64]));
}

#[test]
fn f16_by_warpgroups() {
    check(shape([4, 1], [64, 64]));
}

#[test]
fn warpgroups_with_a_warp_without_a_head() {
    check(shape([6, 2], [64, 64]));
}

#[test]
fn window_by_warpgroups() {
    check(AttentionShape { window: Some(70), ..shape([4, 1], [32, 32]) });
}

#[test]
fn q8_0() {
    check(AttentionShape { kv: KvType::Q8_0, splits: 3, run_blocks: 3, ..shape([2, 1], [128, 128]) });
}

#[test]
fn window_and_two_blocks_of_heads() {
    let window = AttentionShape { window: Some(70), rope: None, ..shape([4, 1], [64, 2]) };
    check(AttentionShape { heads_per_block: 2, ..window });
}

#[test]
fn window_of_q8_0_in_parts_of_pages() {
    let bytes = AttentionShape { kv: KvType::Q8_0, softcap: Some(30.0), ..shape([1, 1], [80, 64]) };
    check(AttentionShape { window: Some(40), stage_tiles: 1, stages: 3, ..bytes });
}

#[test]
fn norm_of_heads_with_asynchronous_copies() {
    let copies =
        AttentionShape { copy: CopyEngine::Async, trigger: Trigger::Never, ..shape([2, 2], [128, 96]) };
    check(normed(NormSpan::Head, copies));
}

#[test]
fn norm_of_projections_with_large_heads() {
    check(normed(NormSpan::Projection, AttentionShape { stage_tiles: 2, ..shape([2, 1], [256, 256]) }));
}

#[test]
fn norm_of_projections_of_q8_0() {
    check(normed(NormSpan::Projection, AttentionShape { kv: KvType::Q8_0, ..shape([4, 2], [64, 32]) }));
}
