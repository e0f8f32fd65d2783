//! The kernel's pointers and a CTA's share of the work.

use bespoke_codegen::prelude::*;

use super::shape::{AttentionShape, PAGE, TILE};
use super::share::{Runs, Share};
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
}

impl Operands {
    /// The pointers for row `row`; for row 0 if the step has one row.
    pub fn of_row(mut self, row: Val<u32>, s: &AttentionShape) -> Operands {
        if s.tokens > 1 {
            self.qkv = self.qkv.at(row * s.qkv_width());
        }
        self
    }
}

/// Pointers for the results of a row; see [`super::attention`].
#[derive(Clone, Copy)]
pub(super) struct Results {
    pub partial: Ptr<Global, f32>,
    pub counters: Ptr<Global, u32>,
    /// The row's output as f32; `None` if it is quantised.
    pub y: Option<Ptr<Global, f32>>,
    /// The quantised outputs of all rows, which are the inputs of the next product, in [`AttentionShape::output_layout`]; `None` if
    /// the output is f32.
    pub inputs: Option<Ptr<Global, u8>>,
    /// Index of the row.
    pub row: Val<u32>,
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
            y: self.y.map(|y| y.at(row * s.y_width())),
            inputs: self.inputs,
            row,
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
    pub exists: Val<bool>,
    /// Index of the first query head of the CTA.
    pub first_head: Val<u32>,
    /// Index of the key/value head of the CTA.
    pub kv_head: Val<u32>,
}

impl Token {
    /// The token at `position` of the sequence with entries `pages`, in a row that `exists` or not, for a CTA with query heads from
    /// `first_head` on.
    fn new(
        position: Val<u32>,
        pages: Ptr<Global, u32>,
        exists: Val<bool>,
        first_head: Val<u32>,
        s: &AttentionShape,
    ) -> Token {
        Token { position, pages, exists, first_head, kv_head: first_head / s.group() }
    }

    /// The token of a row with record `record`, for a CTA with query heads from `first_head` on.
    pub fn of_record(
        record: Ptr<Global, u32>,
        page_table: Ptr<Global, u32>,
        first_head: Val<u32>,
        s: &AttentionShape,
    ) -> Token {
        let position = state::position(record);
        let pages = page_table.at(record.at(state::PAGES).load());
        Token::new(position, pages, state::exists(record, val(0u32)), first_head, s)
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
    pub runs: Runs,
    /// The CTA's share of the runs.
    pub share: Share,
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
    /// The token, heads and runs of this CTA, which has a `share` of the token's row.
    pub fn of_share(share: Share, page_table: Ptr<Global, u32>, s: &AttentionShape) -> Work {
        let first_head = block_index() * s.heads_per_block;
        let token = Token::new(share.position, page_table.at(share.pages), share.exists, first_head, s);
        Work { token, runs: Runs::of(share.position, share.exists, s.window, [s.splits, s.min_pages]), share }
    }

    /// Run `index`, which exists.
    pub fn run(&self, index: Val<u32>, s: &AttentionShape) -> Run {
        let Runs { window_start, pages, run_pages, .. } = self.runs;
        let first = index * run_pages;
        let end = (first + run_pages).min(pages);
        let parts = |page: Val<u32>| {
            let page = window_start.map_or(page, |start| page + start / PAGE);
            if s.parts_per_page() == 1 { page } else { page * s.parts_per_page() }
        };
        let mut parts = [parts(first), parts(end)];
        if s.parts_per_page() > 1 {
            if let Some(start) = window_start {
                parts[0] = parts[0].max(start / s.part_positions());
            }
            parts[1] = parts[1].min(self.token.position / s.part_positions() + 1);
        }
        Run { index, parts, last: is_last(end, pages) }
    }

    /// The physical page of part `part` of the cache.
    pub fn page_of(&self, part: Val<u32>, s: &AttentionShape) -> Val<u32> {
        let parts = s.parts_per_page();
        self.token.page(if parts == 1 { part } else { part / parts })
    }

    /// The positions of part `part` of the cache to which the token attends.
    pub fn positions_in(&self, part: Val<u32>, s: &AttentionShape) -> Positions {
        let first = part * s.part_positions();
        Positions {
            start: self.runs.window_start.map(|start| start.max(first) - first),
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

    /// The positions of this range in tile `tile` of the part, counted from the start of the tile.
    pub fn in_tile(self, tile: Val<u32>) -> Positions {
        let first = tile * TILE;
        let start = self.start.map(|start| start.max(first) - first);
        Positions { start, end: (self.end - first).min(TILE) }
    }
}

#[device]
fn is_last(end: Val<u32>, pages: Val<u32>) -> Val<bool> {
    end == pages
}
