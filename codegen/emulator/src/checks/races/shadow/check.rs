//! Comparison of an access with the records of earlier accesses.

use super::lines::{AccessRecord, Lines, READS, WRITES};
use crate::checks::races::clock::{ClusterClock, Time};
use crate::checks::races::lane_map::{LaneMap, LaneMapKind};
use crate::checks::races::line_access::{LineAccess, MappedLine};
use crate::checks::races::stamp::{LaneStamp, Stamp, are_morally_strong};
use crate::checks::races::sync::AccessorClocks;
use crate::lanes::lanes_of;

/// An earlier access that races with the access being checked.
#[derive(Clone, Copy, Debug)]
pub(in crate::checks::races) struct Conflict {
    /// Stamp of the earlier access.
    pub(in crate::checks::races) stamp: Stamp,
    /// Whether the earlier access is a write.
    pub(in crate::checks::races) writes: bool,
    /// Address of the 4-byte granule with the conflict.
    pub(in crate::checks::races) address: u64,
    /// Lane of the access being checked.
    pub(in crate::checks::races) lane: u32,
}

/// The last record found to be ordered before the access: its time, origin and lanes. Neighbouring lines often have
/// records with the same time, origin and lanes.
#[derive(Default)]
pub(in crate::checks::races) struct LastOrdered((Time, u32, u32));

impl Lines {
    /// Fast check of an access of the line at `index`: true means that the access does not race, false that
    /// [`Lines::find_conflict`] must decide.
    #[inline(always)]
    pub(super) fn is_surely_ordered(
        &self,
        index: usize,
        access: MappedLine<'_>,
        writes: bool,
        accessor: &AccessorClocks<'_>,
        last_ordered: &mut LastOrdered,
    ) -> bool {
        for kind in if writes { &[WRITES, READS][..] } else { &[WRITES] } {
            let mut number = self.first(index, *kind);
            while number != 0 {
                let record = &self.records[number as usize];
                let units = record.units & access.0.units;
                let key = (record.stamp.time, record.stamp.origin, record.lanes);
                if units != 0 && last_ordered.0 != key && !is_of_same_run(record, access.0, accessor) {
                    if is_ordered(record, accessor) {
                        last_ordered.0 = key;
                    } else if !self.is_by_same_threads(record, units, access.1, accessor) {
                        return false;
                    }
                }
                number = record.next;
            }
        }
        true
    }

    /// Whether the same single thread made the recorded access and makes the new access, at each of `units`.
    fn is_by_same_threads(
        &self,
        record: &AccessRecord,
        units: u32,
        lanes: LaneMap<'_>,
        accessor: &AccessorClocks<'_>,
    ) -> bool {
        !record.stamp.is_copy()
            && record.stamp.warp() == accessor.warp
            && self.lane_map(record).is_same_single_lane(lanes, units)
    }

    /// Finds the lowest lane's first conflict in the line at `index`, unit by unit, ignoring conflicts that `is_excused`
    /// accepts.
    #[cold]
    pub(super) fn find_conflict(
        &self,
        index: usize,
        (access, lanes): MappedLine<'_>,
        writes: bool,
        accessor: &AccessorClocks<'_>,
        is_excused: impl Fn(&Conflict) -> bool,
    ) -> Option<Conflict> {
        let mut first: Option<Conflict> = None;
        for kind in if writes { &[WRITES, READS][..] } else { &[WRITES] } {
            for record in self.records(index, *kind) {
                if are_morally_strong(record.stamp.origin, accessor.stamp.origin) {
                    continue;
                }
                for unit in lanes_of(record.units & access.units) {
                    let earlier = self.access_at(record, *kind, unit as u32);
                    let address = self.granule_address(access.line, unit as u32);
                    for lane in lanes_of(lanes.lanes(unit as u32)) {
                        let Some(clock) = accessor.clock(lane as u32) else { continue };
                        let unordered = match earlier.stamp.is_copy() {
                            true => unordered_copy(earlier.stamp, clock),
                            false => {
                                let is_own_warp = earlier.stamp.warp() == accessor.warp;
                                let own_lane = if is_own_warp { 1 << lane } else { 0 };
                                unordered_lane(earlier, earlier.lanes & !own_lane, clock)
                                    .map(|lane| Stamp { origin: record.stamp.origin | lane, ..earlier.stamp })
                            }
                        };
                        let Some(stamp) = unordered else { continue };
                        let (writes, lane) = (*kind == WRITES, lane as u32);
                        let conflict = Conflict { stamp, writes, address, lane };
                        let is_first = first.is_none_or(|first| rank(conflict) < rank(first));
                        if is_first && !is_excused(&conflict) {
                            first = Some(conflict);
                        }
                    }
                }
            }
        }
        first
    }

    /// Finds the first write of `units` of the line at `index` that proxy fences have not made visible to the async
    /// proxy; `visible` is the clock of the visible writes. Returns the write's stamp and the number of its unit.
    pub(super) fn find_unfenced_write(
        &self,
        index: usize,
        units: u32,
        visible: Option<&ClusterClock>,
    ) -> Option<(Stamp, u32)> {
        let is_visible = |stamp: Stamp, lanes: u32| {
            visible.is_some_and(|visible| visible.covers(stamp.warp(), lanes, stamp.time))
        };
        for record in self.records(index, WRITES) {
            let units = record.units & units;
            if units == 0 || record.stamp.is_in_async_proxy() || is_visible(record.stamp, record.lanes) {
                continue;
            }
            for unit in lanes_of(units) {
                let stamp = self.access_at(record, WRITES, unit as u32).stamp;
                if !is_visible(stamp, 1 << stamp.lane()) {
                    return Some((stamp, unit as u32));
                }
            }
        }
        None
    }
}

/// Whether a record and an access are by the same warp and of the same run, so that one thread makes both at each unit.
#[inline(always)]
fn is_of_same_run(record: &AccessRecord, access: &LineAccess, accessor: &AccessorClocks<'_>) -> bool {
    matches!(access.kind, LaneMapKind::Run { .. })
        && record.kind == access.kind
        && !record.stamp.is_copy()
        && record.stamp.warp() == accessor.warp
}

/// Whether a whole record happened before the access, or is morally strong with the access.
fn is_ordered(record: &AccessRecord, accessor: &AccessorClocks<'_>) -> bool {
    let stamp = record.stamp;
    are_morally_strong(stamp.origin, accessor.stamp.origin)
        || match stamp.is_copy() {
            true => accessor.all(|clock| clock.covers_phase(stamp.number(), stamp.time)),
            false => accessor.all(|clock| clock.covers(stamp.warp(), record.lanes, stamp.time)),
        }
}

/// The stamp of a copy's recorded access, if the copy's completion is not in `clock`.
fn unordered_copy(stamp: Stamp, clock: &ClusterClock) -> Option<Stamp> {
    (!clock.covers_phase(stamp.number(), stamp.time)).then_some(stamp)
}

/// The first of `lanes` whose recorded access is not in `clock`.
fn unordered_lane(earlier: LaneStamp, lanes: u32, clock: &ClusterClock) -> Option<u32> {
    let LaneStamp { stamp, .. } = earlier;
    let is_unordered = |lane: &usize| !clock.covers(stamp.warp(), 1 << lane, stamp.time);
    lanes_of(lanes).find(is_unordered).map(|lane| lane as u32)
}

/// Order in which conflicts are reported: lowest lane, lowest address, writes first, lowest thread.
fn rank(conflict: Conflict) -> (u32, u64, bool, usize) {
    (conflict.lane, conflict.address, !conflict.writes, conflict.stamp.number())
}
