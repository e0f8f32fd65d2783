//! Checks and records of asynchronous copies.
//!
//! A copy accesses its source and target from its issue until its completion. The completion of a copy that signals an
//! mbarrier is part of the mbarrier's phase: the completion happened before all accesses that follow a wait for the
//! phase. A `cp.async` that several deferred arrivals wait for completes with one of them; the phases of the others'
//! mbarriers also happen after the completion. The accesses of a grouped copy are attributed to the thread that waited
//! for the group, at the time of the wait.

use super::copies::{BulkCopy, CopySource};
use super::copy_targets::CopyTarget;
use super::detector::{Accessor, RaceDetector};
use super::lane_map::{LaneMap, LaneMapKind};
use super::line_access::{LineAccess, lines_of};
use super::pages::{BLOCKS, PAGE};
use super::race::{EarlierAccess, Race};
use super::ranges::Ranges;
use super::shadow::LastOrdered;
use super::stamp::{COPY, IN_ASYNC_PROXY, STRONG_IN_CLUSTER, STRONG_IN_GRID, Stamp};
use super::unit::{BLOCK, Unit};
use crate::asynchronous::{AsyncCopy, DeferredArrival, Signal};
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

/// Conflict found when a bulk copy is issued.
pub(crate) enum BulkCopyConflict {
    Race {
        space: Space,
        race: Race,
    },
    /// No proxy fence follows an instruction's earlier write to the copied bytes.
    MissingProxyFence {
        space: Space,
        earlier: EarlierAccess,
        address: u64,
    },
    /// No fence follows the initialisation of the mbarrier at this address.
    UnfencedMbarrier {
        address: u64,
    },
}

/// Race found when a `cp.async` is issued.
pub(crate) struct CopyRace {
    pub(crate) space: Space,
    pub(crate) access: Access,
    pub(crate) race: Race,
}

impl RaceDetector {
    /// Checks a bulk copy that a lane issues, and records the copy as in flight. `group` is the number of the lane's open group.
    pub(crate) fn issue_bulk(
        &mut self,
        accessor: Accessor,
        group: u32,
        copy: &BulkCopy,
    ) -> Result<(), BulkCopyConflict> {
        let Accessor { warp, lanes, pc, .. } = accessor;
        if self.copies.is_repeated(warp, pc, copy) {
            return Ok(());
        }
        let lane = lanes.trailing_zeros();
        let outcome = self.check_bulk(warp, lane, pc, copy);
        let parts = || copy.parts.clone();
        let issued = Stamp { time: self.sync.now(warp), origin: warp as u32 * LANES as u32 + lane, pc };
        match (copy.source, copy.target) {
            (Some((Space::Global, from)), (_, shared)) => {
                let source = copy.span(from).map(|(address, bytes)| CopySource {
                    address,
                    bytes,
                    issued,
                    lanes: 1 << lane,
                    shared,
                    completed: None,
                    parts: parts(),
                });
                self.copies.sources.extend(source);
            }
            (Some((_, shared)), (Space::Global, to)) => {
                let target = copy.span(to).map(|(address, bytes)| CopyTarget {
                    address,
                    bytes,
                    issued,
                    group,
                    shared,
                    is_atomic: copy.is_atomic,
                    parts: parts(),
                });
                target.into_iter().for_each(|target| self.copies.targets.add(target));
            }
            _ => {}
        }
        outcome
    }

    /// Checks a `cp.async` from global memory `from` to shared memory `to`. Each lane writes `bytes` consecutive bytes,
    /// of which the first `copied` are read and the rest are zeros.
    pub(crate) fn issue_cp_async(
        &mut self,
        accessor: Accessor,
        (to, from): (u64, u64),
        bytes: u64,
        copied: u64,
    ) -> Result<(), CopyRace> {
        let Accessor { warp, lanes, pc, .. } = accessor;
        self.set_consecutive(lanes, to, bytes);
        self.locate_lines(Space::Shared);
        if let Some(conflict) = self.check(accessor, Space::Shared, true) {
            return Err(CopyRace { space: Space::Shared, access: Access::Store, race: Race::new(conflict) });
        }
        if copied == 0 {
            return Ok(());
        }
        match copied == bytes {
            true => self.set_consecutive(lanes, from, bytes),
            false => self.lines.set(lanes, &consecutive(lanes, from, bytes), copied),
        }
        self.locate_lines(Space::Global);
        let mut conflict = self.check(accessor, Space::Global, false);
        if conflict.is_none() && self.copies.may_conflict(Access::Load) {
            let sources = consecutive(lanes, from, bytes);
            conflict = self.find_copy_conflict(accessor, Access::Load, &sources, copied);
        }
        let issued =
            Stamp { time: self.sync.now(warp), origin: (warp * LANES) as u32 + lanes.trailing_zeros(), pc };
        let bytes = copied * lanes.count_ones() as u64;
        let source =
            CopySource { address: from, bytes, issued, lanes, shared: to, completed: None, parts: None };
        self.copies.sources.push(source);
        conflict.map_or(Ok(()), |conflict| {
            Err(CopyRace { space: Space::Global, access: Access::Load, race: Race::new(conflict) })
        })
    }

    /// Records the accesses of completed copies. The copies have signalled the mbarrier at address `mbarrier`, or a
    /// thread has waited for their groups. `pending` are the deferred arrivals that have not taken place.
    pub(crate) fn complete_copies(
        &mut self,
        completed: &[AsyncCopy],
        mbarrier: Option<u64>,
        pending: &mut [DeferredArrival],
    ) {
        for copy in completed {
            let pc = copy.pc as u32;
            let number = mbarrier.and_then(|address| self.sync.mbarrier(address)).map(|it| it.number as u32);
            let stamp = match number {
                Some(number) => {
                    let time = self.sync.tick();
                    if let Signal::Group(_) = copy.signal {
                        let others = pending.iter_mut().filter(|arrival| arrival.waits_for(copy));
                        others.for_each(|arrival| arrival.complete_elsewhere(number as usize, time));
                    }
                    Stamp { time, origin: COPY | number, pc }
                }
                None => {
                    let thread = copy.warp * LANES + copy.lanes.trailing_zeros() as usize;
                    Stamp { time: self.sync.now(copy.warp), origin: thread as u32, pc }
                }
            };
            let is_source = |source: &&mut CopySource| source.completed.is_none() && source.is_of(copy);
            if copy.reads_global()
                && let Some(source) = self.copies.sources.iter_mut().rev().find(is_source)
            {
                source.completed = Some(stamp);
            }
            if let Some(from) = copy.from_shared {
                self.record_copy_read(from, copy.bytes as u64, stamp);
            }
            match stamp.is_copy() {
                true => {
                    let strength = if copy.is_atomic() { STRONG_IN_CLUSTER } else { 0 };
                    let stamp = Stamp { origin: stamp.origin | strength, ..stamp };
                    self.record_copy_write(copy.shared, copy.bytes as u64, stamp);
                }
                false => self.record_grouped_copy(copy),
            }
        }
    }

    /// Checks the ranges that a bulk copy reads and writes.
    fn check_bulk(
        &mut self,
        warp: usize,
        lane: u32,
        pc: u32,
        copy: &BulkCopy,
    ) -> Result<(), BulkCopyConflict> {
        let &BulkCopy { source, target, mbarrier, is_atomic, .. } = copy;
        // A store has no source in memory that the async proxy would read.
        let needs_fences = self.proxy_fences && source.is_some();
        let RaceDetector { sync, shared, global, pages, copies, .. } = self;
        if needs_fences
            && let Some(address) = mbarrier
            && let Some(mbarrier) =
                sync.mbarriers.iter().find(|mbarrier| mbarrier.is_valid && mbarrier.address == address)
            && !mbarrier.is_init_fenced
        {
            return Err(BulkCopyConflict::UnfencedMbarrier { address });
        }
        let strength = match target.0 {
            _ if !is_atomic => 0,
            Space::Global => STRONG_IN_CLUSTER | STRONG_IN_GRID,
            _ => STRONG_IN_CLUSTER,
        };
        let [reading, writing] = [0, strength].map(|strength| sync.accessor(warp, 1 << lane, pc, strength));
        // Check shared memory first.
        let ranges = match (target.0, source) {
            (Space::Shared, _) => [Some((target, true)), source.map(|from| (from, false))],
            _ => [source.map(|from| (from, false)), Some((target, true))],
        };
        let ranges = ranges.into_iter().flatten().map(|(at, writes)| (at.0, copy.ranges(at), writes));
        let ranges: Vec<_> = ranges.collect();
        let each = |(space, all, writes): &(Space, Ranges<'_>, bool)| {
            all.as_slice().iter().map(|&range| (*space, range, *writes)).collect::<Vec<_>>()
        };
        for (space, (start, bytes), writes) in ranges.iter().flat_map(each) {
            let shadow = if space == Space::Shared { &mut *shared } else { &mut *global };
            let visible = sync.clock(warp, lane).visible_to_async_proxy(space);
            let clocks = if writes { &writing } else { &reading };
            let end = start + bytes;
            let unit = Unit::of(start | bytes);
            let mut last_ordered = LastOrdered::default();
            // Check page by page: most copied pages, such as those of weights, have no recorded access.
            for page in start / PAGE..end.div_ceil(PAGE) {
                let first = match space {
                    Space::Shared => Some((page * BLOCKS) as usize),
                    _ => pages.get(&page).map(|blocks| blocks.first),
                };
                let Some(first) = first else { continue };
                let from = start.max(page * PAGE);
                for (line, units) in lines_of(unit, from, end.min((page + 1) * PAGE) - from) {
                    let block = first + (line * unit.line_bytes() / BLOCK % BLOCKS) as usize;
                    if !shadow.is_accessed(block) {
                        continue;
                    }
                    let kind = LaneMapKind::Uniform;
                    let access = LineAccess { line, block, units, lanes: 1 << lane, kind };
                    let part = (unit, (&access, LaneMap::Uniform(1 << lane)));
                    if let Some(conflict) = shadow.check(part, writes, clocks, &mut last_ordered, |_| false) {
                        let race = Race { lane, ..Race::new(conflict) };
                        return Err(BulkCopyConflict::Race { space, race });
                    }
                    if needs_fences && let Some((stamp, address)) = shadow.find_unfenced_write(part, visible)
                    {
                        return Err(BulkCopyConflict::MissingProxyFence {
                            space,
                            earlier: EarlierAccess::new(stamp, true),
                            address,
                        });
                    }
                }
            }
        }
        let write = if is_atomic { Access::Atomic } else { Access::Store };
        let accesses = [(target, write)].into_iter().chain(source.map(|from| (from, Access::Load)));
        for (at, access) in accesses.filter(|((space, _), _)| *space == Space::Global) {
            let conflict = copy
                .ranges(at)
                .as_slice()
                .iter()
                .find_map(|&range| copies.find_conflict(sync, (warp, lane), access, range));
            if let Some(conflict) = conflict {
                return Err(BulkCopyConflict::Race { space: Space::Global, race: Race::new(conflict) });
            }
        }
        Ok(())
    }

    /// Sets the access to check to consecutive ranges of `bytes` bytes, one for each of `lanes`, from `start`.
    fn set_consecutive(&mut self, lanes: u32, start: u64, bytes: u64) {
        match lanes == u32::MAX && bytes.is_power_of_two() {
            true => self.lines.set_run(start, bytes),
            false => self.lines.set(lanes, &consecutive(lanes, start, bytes), bytes),
        }
    }

    /// Records that a copy has written a range of shared memory.
    fn record_copy_write(&mut self, start: u64, bytes: u64, stamp: Stamp) {
        let unit = Unit::of(start | bytes);
        for (line, units) in lines_of(unit, start, bytes) {
            let access = copy_line(unit, line, units);
            self.shared.record_write((unit, (&access, LaneMap::Uniform(0))), stamp);
        }
    }

    /// Records that a copy has read a range of shared memory.
    pub(super) fn record_copy_read(&mut self, start: u64, bytes: u64, stamp: Stamp) {
        let unit = Unit::of(start | bytes);
        for (line, units) in lines_of(unit, start, bytes) {
            let access = copy_line(unit, line, units);
            self.shared.record_copy_read((unit, (&access, LaneMap::Uniform(0))), stamp);
        }
    }

    /// Records the accesses of shared memory by a grouped copy as accesses of its threads, which have waited for the group.
    fn record_grouped_copy(&mut self, copy: &AsyncCopy) {
        let bytes = (copy.bytes / copy.lanes.count_ones()) as u64;
        let accessor = Accessor::new(copy.warp, copy.lanes, copy.pc);
        self.set_consecutive(copy.lanes, copy.shared, bytes);
        self.locate_lines(Space::Shared);
        self.record(accessor, Space::Shared, copy.into_shared);
    }

    /// Records the writes to global memory by bulk copies for which lanes of a warp have waited: those in groups below the limit
    /// of the lane.
    pub(crate) fn complete_writes(&mut self, warp: usize, limits: &[u32; LANES]) {
        for (lane, &limit) in limits.iter().enumerate().filter(|(_, limit)| **limit != 0) {
            for target in self.copies.targets.take_written(warp * LANES + lane, limit) {
                self.record_target(&target);
            }
        }
    }

    /// Records that lanes of a warp have waited, with `.read`, for bulk copies in groups below the limit of the lane: the copies
    /// have read their sources. `copies` are those that no wait has covered before.
    pub(crate) fn complete_reads(&mut self, copies: &[AsyncCopy], warp: usize, limits: &[u32; LANES]) {
        copies.iter().for_each(|copy| self.record_grouped_copy(copy));
        for (lane, &limit) in limits.iter().enumerate().filter(|(_, limit)| **limit != 0) {
            self.copies.targets.mark_read(warp * LANES + lane, limit);
        }
    }

    /// Records the writes to global memory that nothing has waited for, at the end of the cluster: nothing in the launch is
    /// ordered after them.
    pub(super) fn record_unawaited_writes(&mut self) {
        for target in self.copies.targets.take_all() {
            self.record_target(&target);
        }
    }

    /// Records the write of a bulk copy to global memory as an access of its thread.
    fn record_target(&mut self, target: &CopyTarget) {
        let strong = if target.is_atomic { STRONG_IN_CLUSTER | STRONG_IN_GRID } else { 0 };
        let (warp, lanes) = (target.issued.warp(), 1 << target.issued.lane());
        let accessor = Accessor {
            strength: IN_ASYNC_PROXY | strong,
            ..Accessor::new(warp, lanes, target.issued.pc as usize)
        };
        for &(address, bytes) in target.ranges().as_slice() {
            self.lines.set_range(lanes, address, bytes);
            self.locate_lines(Space::Global);
            self.record(accessor, Space::Global, true);
        }
    }
}

/// Access of units of a line of shared memory by a copy, which has no lanes.
fn copy_line(unit: Unit, line: u64, units: u32) -> LineAccess {
    let block = (line * unit.line_bytes() / BLOCK) as usize;
    LineAccess { line, block, units, lanes: 0, kind: LaneMapKind::Uniform }
}

/// Addresses of `lanes` that access consecutive ranges of `bytes` bytes each, from `start`.
fn consecutive(lanes: u32, start: u64, bytes: u64) -> [u64; LANES] {
    let mut addresses = [0; LANES];
    (0..).zip(lanes_of(lanes)).for_each(|(position, lane)| addresses[lane] = start + position * bytes);
    addresses
}
