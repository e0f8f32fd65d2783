//! The bits of attention's output for a token do not depend on the step that computes it: alone, beside rows of other
//! sequences, or among the rows of a prefill step; nor on the pages of its sequence.

mod hooked;

use std::cell::RefCell;
use std::collections::HashMap;

use bespoke::builtin;
use bespoke::device::{Allocation, Device, Kernel, Launch};
use bespoke::engine::target_for;
use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::kernels::attention::{
    AppendShape, AttentionShape, Entry, KvType, NormSpan, PAGE, QkNorm, Rope,
};
use bespoke_kernels::kernels::launching::{CopyEngine, Trigger};
use bespoke_kernels::kernels::rope::{RopeKind, frequencies};
use bespoke_kernels::kernels::state::{Row, WORDS};
use bespoke_kernels::spec::KernelSpec;
use hooked::emulator;

/// Positions of the tested sequence: two runs of pages, and a few positions of a third page.
const LENGTH: u32 = 2 * PAGE + 6;
/// Positions at borders of tiles, pages and runs.
const BORDERS: [u32; 12] = [0, 1, 15, 16, 31, 62, 63, 64, 65, 127, 128, LENGTH - 1];
/// Rows of a prefill step.
const CHUNK: usize = 7;
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
    fn step(&self, entry: Entry, rows: &[Option<(u32, u32)>]) -> Vec<Vec<u32>> {
        let tokens = rows.len() as u32;
        // With several rows, the first CTA has the first split and the last one.
        let run_blocks = if tokens == 1 { self.shape.splits } else { self.shape.splits - 1 };
        let s = AttentionShape { tokens, entry, run_blocks, ..self.shape.clone() };
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
        let partial = self.device.alloc("partial", u64::from(s.workspace()) * 4).unwrap();
        let counters = upload(self.device, &vec![0; s.counters() as usize * 4]);
        let y_width = (s.heads * s.head_dim) as usize;
        let y = upload(self.device, &vec![0xFF; rows.len() * y_width * 4]);

        let norm = |index: usize| self.norms.as_ref().map(|norms| &norms[index]);
        let common = || self.rope_table.iter().chain([&self.keys, &self.values, &self.page_table]);
        let mut launches = Vec::new();
        let mut args = vec![&qkv];
        if entry == Entry::Appended {
            args.extend(norm(1).into_iter().chain(common()).chain([&state]));
            launches.push(self.launch(&KernelSpec::Append(AppendShape::of(&s)), &args));
            args = vec![&qkv];
            args.extend(norm(0));
        } else {
            args.extend(norm(0).into_iter().chain(norm(1)));
        }
        args.extend(common().chain([&partial, &counters, &y, &state]));
        launches.push(self.launch(&KernelSpec::Attention(s), &args));
        let mut sequence = self.device.sequence(launches).unwrap();
        sequence.run_eager().unwrap();
        sequence.wait().unwrap();
        let mut bytes = vec![0; rows.len() * y_width * 4];
        self.device.download(y.address(), &mut bytes).unwrap();
        let bits: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        bits.chunks(y_width).map(<[u32]>::to_vec).collect()
    }

    /// Appends positions of a sequence by prefill steps.
    fn prefill(&self, sequence: u32, positions: std::ops::Range<u32>) {
        let positions: Vec<u32> = positions.collect();
        for chunk in positions.chunks(CHUNK) {
            let row = |row: usize| chunk.get(row).map(|&position| (sequence, position));
            self.step(Entry::Appended, &(0..CHUNK).map(row).collect::<Vec<_>>());
        }
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

/// Compares the steps that may compute a token.
fn check(shape: AttentionShape) {
    let device = emulator();
    // Alone, in decode steps of one row.
    let alone = Cache::new(&*device, &shape, (0..3 * ENTRIES).collect());
    let expected: Vec<Vec<u32>> =
        (0..LENGTH).map(|position| alone.step(Entry::Append, &[Some((0, position))]).remove(0)).collect();
    let zeros = vec![0; expected[0].len()];
    assert!(expected.iter().all(|y| *y != zeros && y.iter().all(|&bits| f32::from_bits(bits).is_finite())));

    // In prefill steps, between rows of another sequence, and in other pages.
    let prefill = Cache::new(&*device, &shape, vec![7, 2, 5, 0, 8, 3, 6, 1, 4]);
    let mut others = 0..;
    for first in (0..LENGTH).step_by(CHUNK) {
        let mut rows: Vec<Option<(u32, u32)>> = (first..(first + CHUNK as u32))
            .map(|position| (position < LENGTH).then_some((0, position)))
            .collect();
        rows.insert(3, others.next().map(|position| (1, position)));
        let found = prefill.step(Entry::Appended, &rows);
        for (row, y) in rows.iter().zip(&found) {
            match row {
                Some((0, position)) => {
                    assert!(*y == expected[*position as usize], "prefill, position {position}")
                }
                Some(_) => assert_ne!(*y, zeros),
                None => assert_eq!(*y, zeros),
            }
        }
    }
    assert!(alone.entries(0) == prefill.entries(0), "the cache differs");

    // In decode steps, beside sequences of other lengths, in other pages, after prefill.
    let batch = Cache::new(&*device, &shape, vec![4, 8, 0, 6, 1, 7, 3, 2, 5]);
    let (mut filled, mut second, mut third) = (0, 17, PAGE + 15);
    batch.prefill(1, 0..second);
    batch.prefill(2, 0..third);
    for position in BORDERS {
        batch.prefill(0, filled..position);
        let found =
            batch.step(Entry::Append, &[Some((1, second)), Some((0, position)), None, Some((2, third))]);
        assert!(found[1] == expected[position as usize], "batch, position {position}");
        assert_eq!(found[2], zeros);
        (filled, second, third) = (position + 1, second + 1, third + 1);
    }
    batch.prefill(0, filled..LENGTH);
    assert!(alone.entries(0) == batch.entries(0), "the cache differs");
}

/// A shape with splits of one page or two, for `heads` [queries, keys], and dimensions [head, rotated].
fn shape([heads, kv_heads]: [u32; 2], [head_dim, rotated]: [u32; 2]) -> AttentionShape {
    AttentionShape {
        tokens: 1,
        entry: Entry::Append,
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
        min_pages: 1,
        stages: 2,
        stage_tiles: AttentionShape::PAGE_TILES,
        copy: CopyEngine::Bulk,
        trigger: Trigger::AtStart,
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
