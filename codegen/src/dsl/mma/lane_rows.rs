//! The rows of matrices whose addresses the lanes give to `ldmatrix`.

use crate::dsl::threads::lane;
use crate::dsl::value::Val;

/// Order of the matrices of an `ldmatrix`, each of 8 rows of 16 bytes.
#[derive(Clone, Copy)]
pub(super) enum LaneRows {
    /// 16 rows, then the same rows 16 bytes further.
    Sixteen,
    /// 8 rows, then the same rows 16 bytes further.
    Eight,
    /// As [`LaneRows::Eight`], and then the next 8 rows in the same way.
    EightTwice,
}

impl LaneRows {
    /// Row of the lane.
    #[track_caller]
    pub(super) fn row(self) -> Val<u32> {
        match self {
            LaneRows::Sixteen => lane() & 15,
            LaneRows::Eight => lane() & 7,
            LaneRows::EightTwice => (lane() & 7) + (lane() >> 4) * 8,
        }
    }

    /// Number of the 16 bytes of the lane in the row, 0 or 1.
    #[track_caller]
    pub(super) fn chunk(self) -> Val<u32> {
        match self {
            LaneRows::Sixteen => lane() >> 4,
            LaneRows::Eight | LaneRows::EightTwice => lane() >> 3 & 1,
        }
    }
}
