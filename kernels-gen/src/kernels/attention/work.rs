//! The kernel's pointers and a CTA's share of the work.

use bespoke_codegen::prelude::*;

use super::shape::{AttentionShape, PAGE, TILE};
use crate::kernels::state;

/// Number of the named barrier of the consumer warps.
pub(super) const CONSUMER_BARRIER: u8 = 1;

/// Pointers for the key and value of a row, and for its query; see [`super::attention`].
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub qkv: Ptr<Global, f32>,
    /// Weights of the RMSNorm of queries; none without QK norms, and in `append`.
    pub q_norm: Option<Ptr<Global, f32>>,
    /// Weights of the RMSNorm of keys; none without QK norms, and in attention after `append`.
    pub k_norm: Option<Ptr<Global, f32>>,
    /// None without RoPE.
    pub rope_table: Option<Ptr<Global, f32>>,
    pub keys: Ptr<Global, u8>,
    pub values: Ptr<Global, u8>,
    pub page_table: Ptr<Global, u32>,
    pub state: Ptr<Global, u32>,
}

impl Operands {
    /// The pointers for row `row`; for row 0 if the step has one row.
    pub fn of_row(mut self, row: Val<u32>, s: &AttentionShape) -> Operands {
        if s.tokens > 1 {
            self.qkv = self.qkv.at(row * s.qkv_width());
            self.state = self.state.at(row * state::WORDS);
        }
        self
    }
}

/// Pointers for the results of a row; see [`super::attention`].
#[derive(Clone, Copy)]
pub(super) struct Results {
    pub partial: Ptr<Global, f32>,
    pub counters: Ptr<Global, u32>,
    pub y: Ptr<Global, f32>,
}

impl Results {
    /// The pointers for row `row`; for row 0 if the step has one row.
    pub fn of_row(self, row: Val<u32>, s: &AttentionShape) -> Results {
        if s.tokens == 1 {
            return self;
        }
        Results {
            partial: self.partial.at(row * s.row_workspace()),
            counters: self.counters.at(row * s.row_counters()),
            y: self.y.at(row * s.y_width()),
        }
    }
}

/// A token and the heads of a CTA.
#[derive(Clone, Copy)]
pub(super) struct Token {
    /// The token's position in its sequence.
    pub position: Val<u32>,
    /// Entries of the page table for the sequence's pages.
    pub pages: Ptr<Global, u32>,
    /// Whether the row exists.
    pub active: Val<bool>,
    /// Index of the first query head of the CTA.
    pub first_head: Val<u32>,
    /// Index of the key/value head of the CTA.
    pub kv_head: Val<u32>,
}

impl Token {
    /// The row's token, for a CTA with query heads from `first_head` on, and key head `kv_head`.
    pub fn of_row(operands: &Operands, first_head: Val<u32>, kv_head: Val<u32>) -> Token {
        let first_page = operands.state.at(state::PAGES).load();
        Token {
            position: state::position(operands.state),
            pages: operands.page_table.at(first_page),
            active: is_active(operands.state),
            first_head,
            kv_head,
        }
    }

    /// The physical page of page `page` of the sequence.
    pub fn page(&self, page: Val<u32>) -> Val<u32> {
        self.pages.at(page).load()
    }

    /// The token's position within its tile.
    pub fn in_tile(&self) -> Val<u32> {
        self.position % TILE
    }
}

/// A CTA's token and heads, and the runs of pages of the token's context.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub token: Token,
    /// The first position of the window; none without a window.
    pub window_start: Option<Val<u32>>,
    /// Number of runs; 0 if the row does not exist.
    pub runs: Val<u32>,
    /// Number of pages to which the token attends.
    pages: Val<u32>,
    /// Pages per run; the last run may have fewer.
    run_pages: Val<u32>,
}

/// A run of pages.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Index among the runs of the token's context.
    pub index: Val<u32>,
    /// The parts of the cache in the run: the first, and the one after the last. A part is as many positions as a stage of
    /// the ring holds. All have positions to which the token attends.
    pub parts: [Val<u32>; 2],
    /// Whether the run includes the token's position.
    pub last: Val<bool>,
}

impl Work {
    /// The token, heads and runs of this CTA.
    ///
    /// Reads the row's record before earlier launches are known to have completed. So the QKV launch must have waited before it
    /// lets its successor start (`Trigger::AfterWait` or `Trigger::AfterLoads`).
    pub fn of_cta(operands: &Operands, s: &AttentionShape) -> Work {
        let first_head = block_index() * s.heads_per_block;
        let token = Token::of_row(operands, first_head, first_head / s.group());
        let position = token.position;
        let all_pages = position / PAGE + 1;
        let window_start = s.window.map(|window| position - position.min(window - 1));
        // Splits divide the pages of the window.
        let pages = window_start.map_or(all_pages, |start| all_pages - start / PAGE);
        let pages = select(token.active, pages, 0u32);
        let run_pages = ((pages + (s.splits - 1)) / s.splits).max(s.min_pages);
        Work { token, window_start, runs: (pages + run_pages - 1) / run_pages, pages, run_pages }
    }

    /// Run `index`, which exists.
    pub fn run(&self, index: Val<u32>, s: &AttentionShape) -> Run {
        let first = index * self.run_pages;
        let end = (first + self.run_pages).min(self.pages);
        let parts = |page: Val<u32>| {
            let page = self.window_start.map_or(page, |start| page + start / PAGE);
            if s.parts_per_page() == 1 { page } else { page * s.parts_per_page() }
        };
        let mut parts = [parts(first), parts(end)];
        if s.parts_per_page() > 1 {
            if let Some(start) = self.window_start {
                parts[0] = parts[0].max(start / s.part_positions());
            }
            parts[1] = parts[1].min(self.token.position / s.part_positions() + 1);
        }
        Run { index, parts, last: is_last(end, self.pages) }
    }

    /// The positions of part `part` of the cache to which the token attends.
    pub fn positions_in(&self, part: Val<u32>, s: &AttentionShape) -> Positions {
        let first = part * s.part_positions();
        Positions {
            start: self.window_start.map(|start| start.max(first) - first),
            end: (self.token.position + 1 - first).min(s.part_positions()),
        }
    }
}

/// A range of positions in a part of the cache, counted from the start of the part; not empty.
#[derive(Clone, Copy)]
pub(super) struct Positions {
    /// The first position; none without a window, where it is 0.
    pub start: Option<Val<u32>>,
    /// The position after the last.
    pub end: Val<u32>,
}

impl Positions {
    /// Index in the part of the first tile with such positions; none without a window, where it is 0.
    pub fn first_tile(self) -> Option<Val<u32>> {
        self.start.map(|start| start / TILE)
    }

    /// Number of tiles from the first to the last with such positions.
    pub fn tiles(self) -> Val<u32> {
        let end = (self.end + (TILE - 1)) / TILE;
        self.first_tile().map_or(end, |first| end - first)
    }

    /// Those of the positions that lie in tile `tile` of the part, counted from the start of the tile.
    pub fn in_tile(self, tile: Val<u32>) -> Positions {
        let first = tile * TILE;
        let start = self.start.map(|start| start.max(first) - first);
        Positions { start, end: (self.end - first).min(TILE) }
    }
}

#[device]
fn is_active(record: Ptr<Global, u32>) -> Val<bool> {
    (record.at(state::FLAGS).load() & state::ACTIVE) != 0
}

#[device]
fn is_last(end: Val<u32>, pages: Val<u32>) -> Val<bool> {
    end == pages
}
