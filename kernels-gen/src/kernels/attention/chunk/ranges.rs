//! The positions to which rows attend in a pass.

use bespoke_codegen::prelude::*;

use super::pass::{Pass, window_start};
use super::{ChunkShape, ROW_GROUP};

/// The positions to which rows attend in a pass.
#[derive(Clone, Copy, Carry)]
pub(super) struct Ranges {
    /// First positions; none without a window, where they are 0.
    starts: Option<Bounds>,
    /// Positions after the last; 0 for rows of other passes.
    ends: Bounds,
}

/// Starts, or exclusive ends, of the positions to which rows attend.
#[derive(Clone, Copy, Carry)]
struct Bounds {
    /// Of this lane's rows.
    own: [Val<u32>; 2],
    /// Smallest and largest of the warp's rows.
    of_warp: [Val<u32>; 2],
    /// Of all rows of the pass. The cache may have stale entries outside of these.
    of_pass: Val<u32>,
}

impl Ranges {
    /// The ranges of a pass for the warp whose first row of the CTA is `own_row`.
    #[device]
    pub fn new(pass: &Pass, own_row: Val<u32>, s: &ChunkShape) -> Ranges {
        let rows = [0u32, 8].map(|half| own_row + (lane() >> 2) + half);
        let within = rows.map(|row| (pass.rows[0] <= row) & (row < pass.rows[1]));
        // Rows of a pass have consecutive positions.
        let position = |row: Val<u32>| pass.first + (row - pass.rows[0]);
        let positions = rows.map(position);
        let ends = [0, 1].map(|i| select(within[i], positions[i] + 1, 0u32));
        let end = own_row + ROW_GROUP;
        let (first, last) = (own_row.max(pass.rows[0]), end.min(pass.rows[1]) - 1);
        let any = own_row.max(pass.rows[0]) < end.min(pass.rows[1]);
        let all = (pass.rows[0] <= own_row) & (end <= pass.rows[1]);
        let ends = Bounds {
            own: ends,
            of_warp: [select(all, position(first) + 1, 0u32), select(any, position(last) + 1, 0u32)],
            of_pass: pass.last + 1,
        };
        let starts = s.attention.window.map(|window| {
            let start = |is_in: Val<bool>, position: Val<u32>| {
                select(is_in, window_start(position, window), u32::MAX)
            };
            Bounds {
                own: [0, 1].map(|i| start(within[i], positions[i])),
                of_warp: [start(any, position(first)), start(all, position(last))],
                of_pass: window_start(pass.first, window),
            }
        });
        Ranges { starts, ends }
    }

    /// Whether a row of the warp is in the pass.
    #[device]
    pub fn has_rows(&self) -> Val<bool> {
        self.ends.of_warp[1] != 0
    }

    /// Whether a row of the warp attends to some of `count` positions from `first` on.
    #[device]
    pub fn some_attend(&self, first: Val<u32>, count: u32) -> Val<bool> {
        let mut attend = first < self.ends.of_warp[1];
        if let Some(starts) = &self.starts {
            attend &= first + count > starts.of_warp[0];
        }
        attend
    }

    /// Whether all rows of the warp attend to all of `count` positions from `first` on.
    #[device]
    pub fn all_attend(&self, first: Val<u32>, count: u32) -> Val<bool> {
        let mut attend = first + count <= self.ends.of_warp[0];
        if let Some(starts) = &self.starts {
            attend &= first >= starts.of_warp[1];
        }
        attend
    }

    /// Whether this lane's row g, or g + 8, attends to a position.
    #[device]
    pub fn attends(&self, row: usize, position: Val<u32>) -> Val<bool> {
        let mut attends = position < self.ends.own[row];
        if let Some(starts) = &self.starts {
            attends &= starts.own[row] <= position;
        }
        attends
    }

    /// Whether the cache may have stale entries among `count` positions from `first` on.
    #[device]
    pub fn has_stale(&self, first: Val<u32>, count: u32) -> Val<bool> {
        let stale = first + count > self.ends.of_pass;
        match &self.starts {
            Some(starts) => stale | (first < starts.of_pass),
            None => stale,
        }
    }

    /// Mask of a register with the values of positions `first` and `first + 1`: zeros for entries that may be stale, because
    /// a weight of zero times such a value is not always zero.
    #[device]
    pub fn mask(&self, first: Val<u32>) -> Val<u32> {
        let mask = |position: Val<u32>, bits: u32| {
            let end = select(position < self.ends.of_pass, val(bits), val(0u32));
            match &self.starts {
                Some(starts) => select(starts.of_pass <= position, end, val(0u32)),
                None => end,
            }
        };
        mask(first, 0xFFFF) | mask(first + 1, 0xFFFF_0000)
    }
}
