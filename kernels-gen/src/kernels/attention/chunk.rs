//! Attention of the rows of a prefill step, whose keys and values are in the cache: many queries against the same pages.
//!
//! A CTA has some query heads of one key head, and a block of consecutive rows. The rows of one sequence in the block are
//! a *pass*: the pages up to its last row's position go through a ring, and each warp multiplies them with the queries of
//! one head and 16 rows. Warp 0 also loads the pages, one whenever it has finished one: a warp more would leave too few
//! registers for the accumulators. These 16 rows are of one sequence, because zero weights do not
//! keep values that are not finite from other rows of a product.
//!
//! A row attends to 32 positions at a time, from the first page of the pass on, with a running maximum for each row. Masked
//! positions change nothing, so that a row's bits depend on its position, its query and the entries of its sequence
//! alone. Queries and softmax weights are rounded to f16.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::cache::TileReader;
use super::score;
use super::shape::{AttentionShape, PAGE, TILE};
use crate::kernels::state;

/// Rows of a warp: those of an A fragment. In a prefill step they are of one sequence.
pub const ROW_GROUP: u32 = 16;

/// Tiles of 16 positions that a warp attends to at a time.
const UNIT_TILES: u32 = 2;

/// Positions that a warp attends to at a time.
const UNIT: u32 = UNIT_TILES * TILE;

/// Score of a masked position.
const LOWEST_SCORE: f32 = -1e30;

/// Compile-time parameters of [`attention_chunk()`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkShape {
    /// Rows of the step, heads, cache, query heads per CTA, and ring, whose stages hold a whole page. The context is not split;
    /// the fields of splits have no effect.
    pub attention: AttentionShape,
    /// Groups of 16 rows of a CTA; at most 8.
    pub row_groups: u32,
}

impl ChunkShape {
    /// Rows of a CTA.
    pub fn block_rows(&self) -> u32 {
        self.row_groups * ROW_GROUP
    }

    /// The grid: blocks of query heads along x, blocks of rows along y.
    pub fn grid(&self) -> [u32; 3] {
        let s = &self.attention;
        [s.heads / s.heads_per_block, s.tokens.div_ceil(self.block_rows()), 1]
    }

    /// Warps of a CTA.
    fn warps(&self) -> u32 {
        self.attention.heads_per_block * self.row_groups
    }

    /// Threads of a CTA.
    pub fn threads(&self) -> u32 {
        self.warps() * WARP
    }

    /// Dynamic shared memory of a CTA in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.attention.stages * self.attention.stage_bytes()
    }

    /// Static shared memory of a CTA in bytes: two mbarriers for each stage, and a bit for each row.
    pub fn static_shared(&self) -> u32 {
        16 * self.attention.stages + self.end_words() * 4
    }

    /// Words with a bit for each row of a CTA.
    fn end_words(&self) -> u32 {
        self.block_rows().div_ceil(32)
    }
}

/// Size of the queries that [`append`](super::append()) writes, in bytes.
pub fn query_bytes(s: &AttentionShape) -> u64 {
    u64::from(s.tokens.next_multiple_of(ROW_GROUP)) * u64::from(s.heads * s.head_dim * 2)
}

/// The pointers of the kernel.
#[derive(Clone, Copy)]
struct Operands {
    queries: Ptr<Global, u8>,
    keys: Ptr<Global, u8>,
    values: Ptr<Global, u8>,
    page_table: Ptr<Global, u32>,
    y: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
}

/// y = softmax(b(q·Kᵀ·scale))·V for the position of each row, as in [`super::attention()`]. Rows that do not exist get no
/// output.
///
/// `queries`: from [`append`](super::append()); `keys`, `values`, `page_table` and `state`: as in
/// [`super::attention()`]; `y` f32 [rows, heads, head_dim]. Rows of a sequence follow each other in the order of positions,
/// and the first is a multiple of [`ROW_GROUP`].
#[kernel(threads = s.threads())]
pub fn attention_chunk(
    queries: Ptr<Global, u8>,
    keys: Ptr<Global, u8>,
    values: Ptr<Global, u8>,
    page_table: Ptr<Global, u32>,
    y: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
    s: &ChunkShape,
) {
    let operands = Operands { queries, keys, values, page_table, y, state };
    // The last rows of a prompt have the most work, and start first.
    let first_row = (s.grid()[1] - 1 - block_index_y()) * s.block_rows();
    if state::exists(operands.state, first_row) {
        let ring = ring(s);
        if thread_index() == 0 {
            ring.init();
        }
        let block = Block { first_row, ends: shared_array(s.end_words()), operands, s };
        find_ends(&block);
        barrier();
        attend(&block, ring);
    }
}

/// The rows of a CTA.
struct Block<'a> {
    /// The first row.
    first_row: Val<u32>,
    /// A bit for each row: whether it is the last one of its sequence in the block.
    ends: Ptr<Shared, u32>,
    operands: Operands,
    s: &'a ChunkShape,
}

impl Operands {
    fn record(&self, row: Val<u32>) -> Ptr<Global, u32> {
        self.state.at(row * state::WORDS)
    }
}

fn ring(s: &ChunkShape) -> Pipeline {
    let shape = PipelineShape {
        stages: s.attention.stages,
        stage_bytes: s.attention.stage_bytes(),
        consumers: s.warps() * WARP,
        copy: s.attention.copy.engine(),
    };
    Pipeline::new(shape, dynamic_shared(), mbarrier_array(shape.barriers()))
}

/// Sets the bit of each row of the CTA that is the last one of its sequence in the block. A CTA barrier must follow.
#[device]
fn find_ends(block: &Block<'_>) {
    let &Block { first_row, ends, operands, s } = block;
    // Whole warps have the rows of a word.
    if warp_index() < s.end_words() {
        let (rows, tokens) = (s.block_rows(), s.attention.tokens);
        let within = thread_index();
        let row = (first_row + within).min(tokens - 1);
        let next = (row + 1).min(tokens - 1);
        let exists = (within < rows) & (first_row + within < tokens) & state::exists(operands.state, row);
        let has_next = (within + 1 < rows) & (row + 1 < tokens) & state::exists(operands.state, next);
        let pages = |row| operands.record(row).at(state::PAGES).load();
        let is_last = exists & (!has_next | (pages(row) != pages(next)));
        let word = ballot(is_last);
        if lane() == 0 {
            ends.at(warp_index()).store(word);
        }
    }
}

/// The rows of one sequence in a block.
#[derive(Clone, Copy, Carry)]
struct Pass {
    /// Half-open range of rows of the CTA.
    rows: [Val<u32>; 2],
    /// The page table of the sequence.
    pages: Ptr<Global, u32>,
    /// Position of the first row.
    first: Val<u32>,
    /// Position of the last row.
    last: Val<u32>,
}

impl Pass {
    /// The pass whose first row is `start`.
    #[device]
    fn new(start: Val<u32>, block: &Block<'_>) -> Pass {
        let (ends, operands, first_row) = (block.ends, &block.operands, block.first_row);
        let mut word = start / 32;
        let mut bits = ends.at(word).load() & (val(u32::MAX) << (start % 32));
        while bits == 0 {
            word += 1;
            bits = ends.at(word).load();
        }
        let last = word * 32 + bits.reverse_bits().leading_zeros();
        let (record, end) = (operands.record(first_row + start), operands.record(first_row + last));
        Pass {
            rows: [start, last + 1],
            pages: operands.page_table.at(record.at(state::PAGES).load()),
            first: state::position(record),
            last: state::position(end),
        }
    }

    /// First row of the next pass.
    fn next_row(&self) -> Val<u32> {
        (self.rows[1] + (ROW_GROUP - 1)) / ROW_GROUP * ROW_GROUP
    }

    /// Half-open range of the pages to which the rows attend.
    fn page_range(&self, s: &ChunkShape) -> [Val<u32>; 2] {
        let first = match s.attention.window {
            Some(window) => window_start(self.first, window) / PAGE,
            None => val(0u32),
        };
        [first, self.last / PAGE + 1]
    }
}

/// First position of the window of a position.
fn window_start(position: Val<u32>, window: u32) -> Val<u32> {
    position - position.min(window - 1)
}

/// Whether a pass begins at row `row` of the CTA.
#[device]
fn begins(row: Val<u32>, block: &Block<'_>) -> Val<bool> {
    let mut begins = val(false);
    if (row < block.s.block_rows()) & (block.first_row + row < block.s.attention.tokens) {
        begins = state::exists(block.operands.state, block.first_row + row);
    }
    begins
}

/// The next page to load.
#[derive(Clone, Copy, Carry)]
struct Feed {
    producer: Producer,
    /// Half-open range of pages of the pass that are not loaded; empty after the last pass.
    pages: [Val<u32>; 2],
    /// The page table of the pass.
    table: Ptr<Global, u32>,
    /// First row of the next pass.
    next_row: Val<u32>,
}

impl Feed {
    fn new(block: &Block<'_>, ring: Pipeline) -> Feed {
        let pass = Pass::new(val(0u32), block);
        let (pages, next_row) = (pass.page_range(block.s), pass.next_row());
        Feed { producer: ring.producer(lane()), pages, table: pass.pages, next_row }
    }
}

/// Loads the next page, if there is one. Called by all lanes.
#[device]
fn load_next(feed: &mut Feed, block: &Block<'_>) {
    let a = &block.s.attention;
    if (warp_index() == 0) & a.copy.takes_lane() {
        if feed.pages[0] < feed.pages[1] {
            let (kv_head, bytes) = (block_index() * a.heads_per_block / a.group(), a.page_bytes());
            let at = mul_wide(feed.table.at(feed.pages[0]).load() * a.kv_heads + kv_head, bytes);
            feed.producer.acquire(bytes * 2);
            feed.producer.copy(0, block.operands.keys.bytes(at), bytes, None);
            feed.producer.copy(bytes, block.operands.values.bytes(at), bytes, None);
            feed.producer.commit();
            feed.producer.advance();
            feed.pages[0] += 1;
            if feed.pages[0] == feed.pages[1] {
                if begins(feed.next_row, block) {
                    let pass = Pass::new(feed.next_row, block);
                    feed.pages = pass.page_range(block.s);
                    feed.table = pass.pages;
                    feed.next_row = pass.next_row();
                }
            }
        }
    }
}

/// Online softmax of rows g and g + 8 in lane 4g + t.
#[derive(Clone, Carry)]
struct Running {
    /// Largest score of each row so far.
    largest: [Val<f32>; 2],
    /// This lane's parts of the denominators.
    denominators: [Val<f32>; 2],
    /// Numerators: a C fragment for every 8 elements.
    numerators: Vec<FragmentC<f32>>,
}

/// The positions to which rows attend in a pass.
#[derive(Clone, Copy, Carry)]
struct Ranges {
    /// First positions; none without a window, where they are 0.
    starts: Option<Bounds>,
    /// Positions after the last; 0 for rows of other passes.
    ends: Bounds,
}

/// First positions to which rows attend, or positions after the last.
#[derive(Clone, Copy, Carry)]
struct Bounds {
    /// Of this lane's rows.
    own: [Val<u32>; 2],
    /// Smallest and largest of the warp's rows.
    of_warp: [Val<u32>; 2],
    /// Of all rows of the pass. The cache may have stale entries outside of these.
    of_pass: Val<u32>,
}

impl Bounds {
    fn new(own: [Val<u32>; 2], of_pass: Val<u32>) -> Bounds {
        Bounds { own, of_warp: [redux_min(own[0].min(own[1])), redux_max(own[0].max(own[1]))], of_pass }
    }
}

/// Attends to the pages of each pass, and writes the outputs.
#[device]
fn attend(block: &Block<'_>, ring: Pipeline) {
    let (s, a, operands) = (block.s, &block.s.attention, &block.operands);
    let mut feed = Feed::new(block, ring);
    for _ in 0..a.stages.max(2) - 1 {
        load_next(&mut feed, block);
    }
    let head = block_index() * a.heads_per_block + warp_index() % a.heads_per_block;
    // This warp's first row of the CTA.
    let own_row = warp_index() / a.heads_per_block * ROW_GROUP;
    let query = load_query(block.first_row + own_row, head, operands, a);
    let mut running = Running {
        largest: [val(LOWEST_SCORE); 2],
        denominators: [val(0.0f32); 2],
        numerators: vec![FragmentC::zero(); (a.head_dim / 8) as usize],
    };
    let mut consumer = ring.consumer();
    let mut row = val(0u32);
    while begins(row, block) {
        let pass = Pass::new(row, block);
        let ranges = ranges(&pass, own_row, s);
        let [mut page, end] = pass.page_range(s);
        while page < end {
            consumer.wait();
            let mut unit = val(0u32);
            while unit < PAGE / UNIT {
                let first = page * PAGE + unit * UNIT;
                let at = consumer.data().bytes(unit * (UNIT_TILES * a.tile_bytes()));
                if some_attend(first, &ranges) {
                    if all_attend(first, &ranges) {
                        attend_to_unit(at, first, None, &query, &mut running, a);
                    } else {
                        attend_to_unit(at, first, Some(&ranges), &query, &mut running, a);
                    }
                }
                unit += 1;
            }
            consumer.release();
            consumer.advance();
            load_next(&mut feed, block);
            page += 1;
        }
        row = pass.next_row();
    }
    store(&running, block.first_row + own_row, head, operands, a);
}

/// Whether a row of the warp attends to positions of the unit from `first` on.
#[device]
fn some_attend(first: Val<u32>, ranges: &Ranges) -> Val<bool> {
    let mut attend = first < ranges.ends.of_warp[1];
    if let Some(starts) = &ranges.starts {
        attend &= first + UNIT > starts.of_warp[0];
    }
    attend
}

/// Whether all rows of the warp attend to all positions of the unit from `first` on.
#[device]
fn all_attend(first: Val<u32>, ranges: &Ranges) -> Val<bool> {
    let mut attend = first + UNIT <= ranges.ends.of_warp[0];
    if let Some(starts) = &ranges.starts {
        attend &= first >= starts.of_warp[1];
    }
    attend
}

/// The queries of 16 rows and a head: an A fragment for every 16 elements.
fn load_query(
    row: Val<u32>,
    head: Val<u32>,
    operands: &Operands,
    s: &AttentionShape,
) -> Vec<FragmentA<f16, 4>> {
    // Groups behind the last one have no rows.
    let group = (row / ROW_GROUP).min((s.tokens - 1) / ROW_GROUP);
    let at = mul_wide(group * s.heads + head, s.steps() * 512);
    let at = operands.queries.bytes(at).bytes(lane() * 16);
    let step = |step: u32| FragmentA::from_registers(at.bytes(step * 512).cast::<u32>().load_vector::<4>());
    (0..s.steps()).map(step).collect()
}

/// The positions to which this lane's rows attend in a pass.
#[device]
fn ranges(pass: &Pass, own_row: Val<u32>, s: &ChunkShape) -> Ranges {
    let rows = [0u32, 8].map(|half| own_row + (lane() >> 2) + half);
    let within = rows.map(|row| (pass.rows[0] <= row) & (row < pass.rows[1]));
    // Rows of a pass have consecutive positions.
    let positions = rows.map(|row| pass.first + (row - pass.rows[0]));
    let ends = [0, 1].map(|i| select(within[i], positions[i] + 1, 0u32));
    let starts = s.attention.window.map(|window| {
        let own = [0, 1].map(|i| select(within[i], window_start(positions[i], window), u32::MAX));
        Bounds::new(own, window_start(pass.first, window))
    });
    Ranges { starts, ends: Bounds::new(ends, pass.last + 1) }
}

/// Attends to the 32 positions from `first` on, whose keys are at `at`: updates the running softmax. With `ranges`, masks
/// the positions outside of them.
#[device]
fn attend_to_unit(
    at: Ptr<Shared, u8>,
    first: Val<u32>,
    ranges: Option<&Ranges>,
    query: &[FragmentA<f16, 4>],
    running: &mut Running,
    s: &AttentionShape,
) {
    let readers: Vec<TileReader> =
        (0..UNIT_TILES).map(|tile| TileReader::of_keys(at.bytes(tile * s.tile_bytes()), s)).collect();
    // Scores of eight positions each.
    let mut scores = vec![FragmentC::<f32>::zero(); 2 * UNIT_TILES as usize];
    for (tile, reader) in readers.iter().enumerate() {
        for (step, &query) in (0u32..).zip(query) {
            for (half, keys) in reader.fragments(step).into_iter().enumerate() {
                scores[2 * tile + half] = mma(query, keys, scores[2 * tile + half]);
            }
        }
    }
    let own = first + (lane() & 3) * 2;
    for (at, scores) in (0u32..).zip(&mut scores) {
        for (i, score) in scores.0.iter_mut().enumerate() {
            *score = score::of_product(*score, s);
            if let Some(ranges) = ranges {
                let position = own + (at * 8 + i as u32 % 2);
                let mut is_valid = position < ranges.ends.own[i / 2];
                if let Some(starts) = &ranges.starts {
                    is_valid &= starts.own[i / 2] <= position;
                }
                *score = select(is_valid, *score, LOWEST_SCORE);
            }
        }
    }
    let mut rescale = [val(1.0f32); 2];
    for row in 0..2 {
        let of_row = scores.iter().flat_map(|scores| [scores.0[2 * row], scores.0[2 * row + 1]]);
        let mut largest = of_row.reduce(|a, b| a.max(b)).expect("a unit has positions");
        largest = largest.max(shuffle_xor(largest, 1));
        largest = running.largest[row].max(largest.max(shuffle_xor(largest, 2)));
        rescale[row] = (running.largest[row] - largest).exp2_approx();
        running.largest[row] = largest;
        let mut sum = val(0.0f32);
        for scores in &mut scores {
            for score in &mut scores.0[2 * row..2 * row + 2] {
                let weight = (*score - largest).exp2_approx();
                // Before its first position a row has no other scores than those of masked positions.
                *score = match ranges {
                    Some(_) => select(*score > LOWEST_SCORE, weight, 0.0f32),
                    None => weight,
                };
                sum += *score;
            }
        }
        running.denominators[row] = fma(running.denominators[row], rescale[row], sum);
    }
    for sum in &mut running.numerators {
        *sum = FragmentC(std::array::from_fn(|i| sum.0[i] * rescale[i / 2]));
    }
    for (tile, reader) in readers.iter().enumerate() {
        let [a, b] = [&scores[2 * tile].0, &scores[2 * tile + 1].0];
        let pair = |of: &[Val<f32>; 4], at: usize| pack_rounded::<F16x2>(of[at], of[at + 1]).bitcast::<u32>();
        let weights = FragmentA::<f16, 4>::from_registers([pair(a, 0), pair(a, 2), pair(b, 0), pair(b, 2)]);
        let masks = ranges.map(|ranges| masks(own + tile as u32 * TILE, ranges));
        let reader = reader.of_values(at.bytes(tile as u32 * s.tile_bytes()), s);
        for step in 0..s.steps() {
            for (half, values) in reader.fragments(step).into_iter().enumerate() {
                let values = match masks {
                    Some(masks) => {
                        let words = values.registers();
                        FragmentB::from_registers([words[0] & masks[0], words[1] & masks[1]])
                    }
                    None => values,
                };
                let sum = &mut running.numerators[2 * step as usize + half];
                *sum = mma(weights, values, *sum);
            }
        }
    }
}

/// Masks of the registers of values, which have positions `own` and `own + 1`, and `own + 8` and `own + 9`: zeros for
/// entries that may be stale, because a weight of zero times such a value is not always zero.
#[device]
fn masks(own: Val<u32>, ranges: &Ranges) -> [Val<u32>; 2] {
    let mask = |position: Val<u32>, bits: u32| {
        let end = select(position < ranges.ends.of_pass, val(bits), val(0u32));
        match &ranges.starts {
            Some(starts) => select(starts.of_pass <= position, end, val(0u32)),
            None => end,
        }
    };
    [0u32, 8].map(|half| mask(own + half, 0xFFFF) | mask(own + (half + 1), 0xFFFF_0000))
}

/// Writes the outputs of the warp's rows that exist.
#[device]
fn store(running: &Running, first: Val<u32>, head: Val<u32>, operands: &Operands, s: &AttentionShape) {
    for half in 0..2u32 {
        let row = first + (lane() >> 2) + half * 8;
        let denominator = running.denominators[half as usize];
        let denominator = denominator + shuffle_xor(denominator, 1);
        let factor = (denominator + shuffle_xor(denominator, 2)).rcp();
        let mut exists = row < s.tokens;
        exists &= state::exists(operands.state, row.min(s.tokens - 1));
        if exists {
            let y = operands.y.bytes(mul_wide(row, s.y_width() * 4)).at(head * s.head_dim);
            let y = y.at((lane() & 3) * 2);
            for (at, sum) in (0u32..).zip(&running.numerators) {
                let pair = [sum.0[2 * half as usize], sum.0[2 * half as usize + 1]];
                y.at(at * 8).store_vector(pair.map(|value| value * factor));
            }
        }
    }
}
