//! The kernel's pointers and a CTA's share of the work.

use bespoke_codegen::prelude::*;

use super::shape::{AttentionShape, PAGE, TILE};
use crate::kernels::state;

/// Number of the named barrier of the consumer warps.
pub(super) const CONSUMER_BARRIER: u8 = 1;

/// The kernel's pointers; see [`super::attention`].
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub qkv: Ptr<Global, f32>,
    /// Weights of the RMSNorms of queries and keys; none without QK norms.
    pub norms: Option<(Ptr<Global, f32>, Ptr<Global, f32>)>,
    /// None without RoPE.
    pub rope_table: Option<Ptr<Global, f32>>,
    pub keys: Ptr<Global, u8>,
    pub values: Ptr<Global, u8>,
    pub page_table: Ptr<Global, u32>,
    pub partial: Ptr<Global, f32>,
    pub counters: Ptr<Global, u32>,
    pub y: Ptr<Global, f32>,
    pub state: Ptr<Global, u32>,
}

/// A CTA's heads and pages.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// The current position, which is also the number of positions in the cache.
    pub position: Val<u32>,
    /// Entries of the page table for the sequence's pages.
    pub pages: Ptr<Global, u32>,
    /// The first position of the window; none without a window.
    pub window_start: Option<Val<u32>>,
    /// Index of the first query head of the CTA.
    pub first_head: Val<u32>,
    /// Index of the key/value head of the CTA.
    pub kv_head: Val<u32>,
    /// The parts of the cache in the CTA's run of pages: the first, and the one after the last. A part is as many
    /// positions as a stage of the ring holds.
    pub parts: [Val<u32>; 2],
    /// Number of splits that have at least one page.
    pub runs: Val<u32>,
    /// Whether this CTA's run of pages includes the current position.
    pub last: Val<bool>,
}

impl Work {
    /// The heads and pages of this CTA.
    ///
    /// Reads the row's record before earlier launches are known to have completed. The launch that starts this one early
    /// must itself have waited for the launch that wrote the record (`Trigger::AfterWait`).
    pub fn of_cta(operands: &Operands, s: &AttentionShape) -> Work {
        let position = state::position(operands.state);
        let first_page = operands.state.at(state::PAGES).load();
        let all_pages = position / PAGE + 1;
        let window_start = s.window.map(|window| position - position.min(window - 1));
        // Splits divide the pages of the window.
        let before = window_start.map(|start| start / PAGE);
        let pages = before.map_or(all_pages, |before| all_pages - before);
        let run = ((pages + (s.splits - 1)) / s.splits).max(s.min_pages);
        let first = block_index_y() * run;
        let end = (first + run).min(pages);
        let first_head = block_index() * s.heads_per_block;
        let parts = |page: Val<u32>| {
            let page = before.map_or(page, |before| page + before);
            if s.parts_per_page() == 1 { page } else { page * s.parts_per_page() }
        };
        Work {
            position,
            pages: operands.page_table.at(first_page),
            window_start,
            first_head,
            kv_head: first_head / s.group(),
            parts: [parts(first), parts(end)],
            runs: (pages + run - 1) / run,
            last: is_last(first, end, pages),
        }
    }

    /// The physical page of page `page` of the sequence.
    pub fn page(&self, page: Val<u32>) -> Val<u32> {
        self.pages.at(page).load()
    }

    /// The positions of part `part` of the cache that the query attends to, without the current position.
    pub fn earlier_in(&self, part: Val<u32>, s: &AttentionShape) -> Earlier {
        let first = part * s.part_positions();
        // Only the first part of a page is known to start at or before the current position.
        let position = if s.parts_per_page() == 1 { self.position } else { self.position.max(first) };
        let end = (position - first).min(s.part_positions());
        Earlier { start: self.window_start.map(|start| start.max(first) - first), end }
    }
}

/// Positions of a part, counted from its start, that come before the current position and lie in the window.
#[derive(Clone, Copy)]
pub(super) struct Earlier {
    /// The first position, which may be past the end; none without a window, where it is 0.
    pub start: Option<Val<u32>>,
    /// The position after the last.
    pub end: Val<u32>,
}

impl Earlier {
    /// Whether there are such positions.
    pub fn exist(self) -> Val<bool> {
        match self.start {
            None => is_less(val(0), self.end),
            Some(start) => is_less(start, self.end),
        }
    }

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
    pub fn in_tile(self, tile: Val<u32>) -> Earlier {
        let first = tile * TILE;
        let start = self.start.map(|start| start.max(first) - first);
        Earlier { start, end: (self.end - first).min(TILE) }
    }
}

#[device]
fn is_less(a: Val<u32>, b: Val<u32>) -> Val<bool> {
    a < b
}

#[device]
fn is_last(first: Val<u32>, end: Val<u32>, pages: Val<u32>) -> Val<bool> {
    first < end && end == pages
}
