//! Lane maps: the lanes that access each unit of a line.

use super::unit::UNITS;
use crate::lanes::{LANES, lanes_of};

/// Masks of the lanes that access each unit of a line.
pub(super) type LaneTable = [u32; UNITS];

/// Representation of a lane map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum LaneMapKind {
    /// All lanes of the access access all its units in the line.
    #[default]
    Uniform,
    /// Consecutive lanes access 2^`log` units each: lane `first` plus n >> `log` accesses unit n. `first` is negative if
    /// the line begins before the access.
    Run { log: u8, first: i8 },
    /// A lane table that is stored with the access.
    Table,
}

/// The lanes that access each unit of a line.
#[derive(Clone, Copy)]
pub(super) enum LaneMap<'a> {
    /// The same lanes for all units.
    Uniform(u32),
    /// As [`LaneMapKind::Run`].
    Run {
        log: u8,
        first: i8,
    },
    PerUnit(&'a LaneTable),
}

impl<'a> LaneMap<'a> {
    /// Lane map of the given kind; [`LaneMapKind::Uniform`] uses `lanes`, [`LaneMapKind::Table`] uses `table`.
    #[inline(always)]
    pub(super) fn new(kind: LaneMapKind, lanes: u32, table: &'a LaneTable) -> LaneMap<'a> {
        match kind {
            LaneMapKind::Uniform => LaneMap::Uniform(lanes),
            LaneMapKind::Run { log, first } => LaneMap::Run { log, first },
            LaneMapKind::Table => LaneMap::PerUnit(table),
        }
    }

    /// Mask of the lanes that access unit number `unit` of the line.
    #[inline(always)]
    pub(super) fn lanes(self, unit: u32) -> u32 {
        match self {
            LaneMap::Uniform(lanes) => lanes,
            LaneMap::Run { log, first } => {
                let lane = first as i32 + (unit >> log) as i32;
                ((0..LANES as i32).contains(&lane) as u32) << (lane & 31)
            }
            LaneMap::PerUnit(table) => table[unit as usize % UNITS],
        }
    }

    pub(super) fn to_table(self) -> LaneTable {
        match self {
            LaneMap::PerUnit(table) => *table,
            map => std::array::from_fn(|unit| map.lanes(unit as u32)),
        }
    }

    /// Whether exactly one lane, the same in both maps, accesses each unit of the mask `units`.
    pub(super) fn is_same_single_lane(self, other: LaneMap<'_>, units: u32) -> bool {
        self.all_units(other, units, |lanes, other| lanes == other && lanes & lanes.wrapping_sub(1) == 0)
    }

    /// Whether, at each unit of the mask `units`, `self` has all lanes that `other` has.
    pub(super) fn includes(self, other: LaneMap<'_>, units: u32) -> bool {
        self.all_units(other, units, |lanes, other| other & !lanes == 0)
    }

    /// Whether `holds` is true of the lanes of both maps at each unit of the mask `units`.
    fn all_units(self, other: LaneMap<'_>, units: u32, holds: impl Fn(u32, u32) -> bool) -> bool {
        if let (LaneMap::PerUnit(lanes), LaneMap::PerUnit(others)) = (self, other) {
            // No early exit: the compiler vectorises this loop.
            return (0..UNITS)
                .fold(true, |all, unit| all & (units >> unit & 1 == 0 || holds(lanes[unit], others[unit])));
        }
        lanes_of(units).all(|unit| holds(self.lanes(unit as u32), other.lanes(unit as u32)))
    }
}
