//! Units in which accesses are recorded.

use super::stamp::GRANULE;

/// Number of units of a line.
pub(super) const UNITS: usize = 32;

/// Bytes of a block, which is one line of granules or [`QUARTERS`] lines of bytes.
pub(super) const BLOCK: u64 = UNITS as u64 * GRANULE;
/// Number of granules of a block.
pub(super) const GRANULES: usize = UNITS;
/// Number of lines of bytes of a block.
pub(super) const QUARTERS: usize = (BLOCK / UNITS as u64) as usize;

/// Unit of an access: each lane accesses a whole number of units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Unit {
    Byte,
    #[default]
    Granule,
}

impl Unit {
    /// The largest unit of accesses whose addresses and sizes, in bytes, are combined in `bits` by a bitwise or.
    #[inline(always)]
    pub(super) fn of(bits: u64) -> Unit {
        if bits.is_multiple_of(GRANULE) { Unit::Granule } else { Unit::Byte }
    }

    /// Binary logarithm of the bytes of a unit.
    #[inline(always)]
    pub(super) fn log_bytes(self) -> u32 {
        match self {
            Unit::Byte => 0,
            Unit::Granule => GRANULE.ilog2(),
        }
    }

    /// Bytes of a unit.
    #[inline(always)]
    pub(super) fn bytes(self) -> u64 {
        1 << self.log_bytes()
    }

    /// Bytes of a line, which has [`UNITS`] units.
    #[inline(always)]
    pub(super) fn line_bytes(self) -> u64 {
        (UNITS as u64) << self.log_bytes()
    }
}
