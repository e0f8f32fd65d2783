//! Copies into a stage by `cp.async`, divided among threads.

use super::RowsShape;
use crate::device;
use crate::dsl::async_copy::{copy_async, copy_async_filled, copy_async_with};
use crate::dsl::cache_policy::CachePolicy;
use crate::dsl::hooks::range;
use crate::dsl::math::{mul_wide, select};
use crate::dsl::pointer::{Global, Index, Ptr, Shared};
use crate::dsl::value::Val;

/// The part of a `cp.async` copy that thread `worker` of `threads` makes: every `threads`-th 16 bytes.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) to: Ptr<Shared, u8>,
    pub(super) from: Ptr<Global, u8>,
    pub(super) worker: Val<u32>,
    pub(super) threads: u32,
    pub(super) policy: Option<CachePolicy>,
}

impl Share {
    #[track_caller]
    fn copy(self, at: impl Index) {
        let (to, from) = (self.to.bytes(at), self.from.bytes(at));
        match self.policy {
            Some(policy) => copy_async_with::<16>(to, from, policy),
            None => copy_async::<16>(to, from),
        }
    }
}

/// Copies `bytes` bytes, of which the thread copies its part.
#[device]
pub(super) fn copy_share(share: Share, bytes: u32) {
    let round = share.threads * 16;
    let first = share.worker * 16;
    let own = Share { to: share.to.bytes(first), from: share.from.bytes(first), ..share };
    for i in 0..bytes / round {
        own.copy(i * round);
    }
    let rest = bytes % round;
    if rest > 0 {
        if first < rest {
            own.copy(bytes - rest);
        }
    }
}

/// As [`copy_share`], for a number of bytes that is known at run time.
#[device]
pub(super) fn copy_share_of(share: Share, bytes: Val<u32>) {
    for at in range(share.worker * 16, bytes).step_by(share.threads * 16) {
        share.copy(at);
    }
}

/// A two-dimensional `cp.async` copy; `inside` is the number of rows, and of bytes of each, that are not zero-filled.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) to: Ptr<Shared, u8>,
    pub(super) from: Ptr<Global, u8>,
    pub(super) stride: Val<u32>,
    pub(super) shape: RowsShape,
    pub(super) inside: Option<(Val<u32>, Val<u32>)>,
}

impl Rows {
    /// Copies the 16 bytes from byte `column` of row `row` on.
    #[device]
    fn copy(self, row: Val<u32>, column: Val<u32>) {
        let to = self.to.bytes(row * self.shape.stage_stride).bytes(column);
        let from = self.from.bytes(mul_wide(row, self.stride)).bytes(column);
        match self.inside {
            Some((rows, bytes)) => {
                let left = select(row < rows, bytes, 0);
                copy_async_filled::<16>(to, from, (left.max(column) - column).min(16));
            }
            None => copy_async::<16>(to, from),
        }
    }
}

/// Copies rows, 16 bytes after the other by one thread after the other.
#[device]
pub(super) fn copy_rows(rows: Rows, worker: Val<u32>, threads: u32) {
    let in_row = rows.shape.row_bytes / 16;
    let total = in_row * rows.shape.rows;
    if threads % in_row == 0 {
        // A thread copies the same columns of every row.
        let (first, column) = (worker / in_row, worker % in_row * 16);
        let step = threads / in_row;
        for round in 0..total / threads {
            rows.copy(first + round * step, column);
        }
    } else {
        for round in 0..total / threads {
            let at = worker + round * threads;
            rows.copy(at / in_row, at % in_row * 16);
        }
    }
    if total % threads > 0 {
        let at = worker + total / threads * threads;
        if at < total {
            rows.copy(at / in_row, at % in_row * 16);
        }
    }
}
