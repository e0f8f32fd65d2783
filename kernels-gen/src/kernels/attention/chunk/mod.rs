//! Attention of the rows of a prefill step, whose keys and values are in the cache: many queries against the same pages.
//!
//! A CTA has some query heads of one key head, and a block of consecutive rows. The rows of one sequence in the block are
//! a *pass*: the pages up to its last row's position go through a ring, and each warp multiplies them with the queries of
//! one head and 16 rows. Warp 0 is also the producer: it loads a page after each page that it has processed. A producer warp
//! of its own would leave too few registers for the accumulators. The 16 rows of a warp belong to one sequence: a softmax
//! weight of zero does not mask a value of another sequence, since 0 · NaN is NaN.
//!
//! On compute capability 9.0 four warps multiply as a warpgroup (`wgmma`), if the cache is f16 and the ring has at least two
//! stages. The four warps have the same 16 rows and different heads. If the heads of a CTA are no multiple of four, the warps
//! without a head compute the last one, too, and store nothing.
//!
//! A row attends to a unit of 32 positions at a time, or 64 with `wgmma`, from the first page of the pass on, with a running
//! maximum for each row. Masked positions change nothing, so that a row's bits depend on its position, its query and the
//! entries of its sequence alone. Queries and softmax weights are rounded to f16.

mod pages;
mod pass;
mod ranges;
mod unit;

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::shape::{AttentionShape, PAGE, TILE};
use crate::kernels::state;
use pages::{Progress, attend_to_pages};
use pass::{Feed, Pass, begins, load_next};
use ranges::Ranges;
use unit::Running;

/// Rows of a warp: those of an A fragment. In a prefill step they are of one sequence.
pub const ROW_GROUP: u32 = 16;

/// Tiles of 16 positions that a warp attends to at a time, without `wgmma`.
const UNIT_TILES: u32 = 2;

/// Compile-time parameters of [`attention_chunk()`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkShape {
    /// Rows of the step, heads, cache, query heads per CTA, and ring, whose stages hold a whole page. The context is not split;
    /// the fields of splits have no effect.
    pub attention: AttentionShape,
    /// Groups of 16 rows of a CTA; at most 8.
    pub row_groups: u32,
    /// Whether warpgroups multiply, with `wgmma`, instead of warps: on devices of compute capability 9.0 only, with elements of
    /// type f16. A warpgroup has the same 16 rows as its warps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warpgroups: bool,
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

    /// Warps of a group of rows: one for each head of the CTA, or whole warpgroups.
    pub fn warps_per_group(&self) -> u32 {
        let heads = self.attention.heads_per_block;
        if self.warpgroups { heads.next_multiple_of(4) } else { heads }
    }

    /// Number of a CTA's warps that have a query head of their own.
    pub fn warps_with_head(&self) -> u32 {
        self.attention.heads_per_block * self.row_groups
    }

    /// Whether at least three quarters of the warps would have a head, if warpgroups multiplied.
    pub fn fills_warpgroups(&self) -> bool {
        let heads = self.attention.heads_per_block;
        4 * heads >= 3 * heads.next_multiple_of(4)
    }

    /// Warps of a CTA.
    fn warps(&self) -> u32 {
        self.warps_per_group() * self.row_groups
    }

    /// Threads of a CTA.
    pub fn threads(&self) -> u32 {
        self.warps() * WARP
    }

    /// Positions that a row attends to at a time.
    fn unit(&self) -> u32 {
        if self.warpgroups { PAGE } else { UNIT_TILES * TILE }
    }

    /// Number of pages that are loaded before the loop. One stage stays free, so that a load does not wait for slower warps. A warpgroup
    /// holds a page while it waits for the next one, so it needs at least two.
    fn pages_ahead(&self) -> u32 {
        let least = if self.warpgroups { 2 } else { 1 };
        self.attention.stages.saturating_sub(1).max(least)
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
        consumers: Consumers::Threads(s.warps() * WARP),
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

/// Attends to the pages of each pass, and writes the outputs.
#[device]
fn attend(block: &Block<'_>, ring: Pipeline) {
    let (s, a, operands) = (block.s, &block.s.attention, &block.operands);
    let mut feed = Feed::new(block, ring);
    for _ in 0..s.pages_ahead() {
        load_next(&mut feed, block);
    }
    let slot = warp_index() % s.warps_per_group();
    let all_have_heads = s.warps_per_group() == a.heads_per_block;
    let own_head = if all_have_heads { slot } else { slot.min(a.heads_per_block - 1) };
    let head = block_index() * a.heads_per_block + own_head;
    // This warp's first row of the CTA.
    let own_row = warp_index() / s.warps_per_group() * ROW_GROUP;
    let query = load_query(block.first_row + own_row, head, operands, a);
    let mut progress = Progress { feed, consumer: ring.consumer(), running: Running::new(a) };
    let mut row = val(0u32);
    while begins(row, block) {
        let pass = Pass::new(row, block);
        let ranges = Ranges::new(&pass, own_row, s);
        attend_to_pages(pass.page_range(s), &query, &ranges, &mut progress, block);
        row = pass.next_row();
    }
    let has_head = if all_have_heads { val(true) } else { slot < a.heads_per_block };
    if has_head {
        store(&progress.running, block.first_row + own_row, head, operands, a);
    }
}

/// The queries of 16 rows and a head: an A fragment for every 16 elements.
fn load_query(
    row: Val<u32>,
    head: Val<u32>,
    operands: &Operands,
    s: &AttentionShape,
) -> Vec<FragmentA<f16, 4>> {
    // Groups after the last one have no rows.
    let group = (row / ROW_GROUP).min((s.tokens - 1) / ROW_GROUP);
    let at = mul_wide(group * s.heads + head, s.steps() * 512);
    let at = operands.queries.byte_add(at).byte_add(lane() * 16);
    let step =
        |step: u32| FragmentA::from_registers(at.byte_add(step * 512).cast::<u32>().load_vector::<4>());
    (0..s.steps()).map(step).collect()
}

/// Writes the outputs of the warp's rows that exist.
#[device]
fn store(running: &Running, first: Val<u32>, head: Val<u32>, operands: &Operands, s: &AttentionShape) {
    for half in 0..2u32 {
        let row = first + (lane() >> 2) + half * 8;
        let outputs = running.outputs(half as usize);
        let mut exists = row < s.tokens;
        exists &= state::exists(operands.state, row.min(s.tokens - 1));
        if exists {
            let y = operands.y.byte_add(mul_wide(row, s.y_width() * 4)).at(head * s.head_dim);
            let y = y.at((lane() & 3) * 2);
            for (at, pair) in (0u32..).zip(outputs) {
                y.at(at * 8).store_vector(pair);
            }
        }
    }
}
