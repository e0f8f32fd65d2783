//! The rows of one sequence in a block, and the load of the pages to which they attend.

use bespoke_codegen::prelude::*;

use super::{Block, ChunkShape, ROW_GROUP};
use crate::kernels::attention::shape::PAGE;
use crate::kernels::state;

/// The rows of one sequence in a block.
#[derive(Clone, Copy, Carry)]
pub(super) struct Pass {
    /// Half-open range of rows of the CTA.
    pub rows: [Val<u32>; 2],
    /// The page table of the sequence.
    pages: Ptr<Global, u32>,
    /// Position of the first row.
    pub first: Val<u32>,
    /// Position of the last row.
    pub last: Val<u32>,
}

impl Pass {
    /// The pass whose first row is `start`.
    #[device]
    pub fn new(start: Val<u32>, block: &Block<'_>) -> Pass {
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
    pub fn next_row(&self) -> Val<u32> {
        (self.rows[1] + (ROW_GROUP - 1)) / ROW_GROUP * ROW_GROUP
    }

    /// Half-open range of the pages to which the rows attend.
    pub fn page_range(&self, s: &ChunkShape) -> [Val<u32>; 2] {
        let first = match s.attention.window {
            Some(window) => window_start(self.first, window) / PAGE,
            None => val(0u32),
        };
        [first, self.last / PAGE + 1]
    }
}

/// First position of the window of a position.
pub(super) fn window_start(position: Val<u32>, window: u32) -> Val<u32> {
    position - position.min(window - 1)
}

/// Whether a pass begins at row `row` of the CTA.
#[device]
pub(super) fn begins(row: Val<u32>, block: &Block<'_>) -> Val<bool> {
    let mut begins = val(false);
    if (row < block.s.block_rows()) & (block.first_row + row < block.s.attention.tokens) {
        begins = state::exists(block.operands.state, block.first_row + row);
    }
    begins
}

/// The next page to load.
#[derive(Clone, Copy, Carry)]
pub(super) struct Feed {
    producer: Producer,
    /// Half-open range of pages of the pass that are not loaded; empty after the last pass.
    pages: [Val<u32>; 2],
    /// The page table of the pass.
    table: Ptr<Global, u32>,
    /// First row of the next pass.
    next_row: Val<u32>,
}

impl Feed {
    pub fn new(block: &Block<'_>, ring: Pipeline) -> Feed {
        let pass = Pass::new(val(0u32), block);
        let (pages, next_row) = (pass.page_range(block.s), pass.next_row());
        Feed { producer: ring.producer(lane()), pages, table: pass.pages, next_row }
    }
}

/// Loads the next page, if there is one. Called by all lanes.
#[device]
pub(super) fn load_next(feed: &mut Feed, block: &Block<'_>) {
    let a = &block.s.attention;
    if (warp_index() == 0) & a.copy.takes_lane() {
        if feed.pages[0] < feed.pages[1] {
            let (kv_head, bytes) = (block_index() * a.heads_per_block / a.group(), a.page_bytes());
            let at = mul_wide(feed.table.at(feed.pages[0]).load() * a.kv_heads + kv_head, bytes);
            feed.producer.acquire(bytes * 2);
            feed.producer.copy(0, block.operands.keys.byte_add(at), bytes, None);
            feed.producer.copy(bytes, block.operands.values.byte_add(at), bytes, None);
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
