//! Checks and records of the shared memory that `wgmma` reads.
//!
//! A warpgroup's operations complete like copies that signal an mbarrier of the warpgroup: the reads happened before all
//! accesses that follow a wait for the operations. A warp acquires only the operations that it has waited for itself.

use super::copy_checks::BulkCopyConflict;
use super::detector::{Accessor, RaceDetector};
use super::lane_map::{LaneMap, LaneMapKind};
use super::line_access::{LineAccess, lines_of};
use super::race::{EarlierAccess, Race};
use super::shadow::{LastOrdered, LinePart};
use super::stamp::{COPY, Stamp};
use super::unit::Unit;
use crate::asynchronous::{CompletedRead, first_in_warpgroup};
use crate::finding::Space;

/// Number of complete `wgmma` operations that are kept for each warpgroup.
const REMEMBERED: usize = 1024;

impl RaceDetector {
    /// Pseudo-address of the mbarrier that models the completion of a warpgroup's operations; `warp` is one of its
    /// warps. No real mbarrier has this address.
    fn completion_of_wgmma(&self, warp: usize) -> u64 {
        u64::MAX - first_in_warpgroup(warp, self.sync.warps_per_cta) as u64
    }

    /// Checks the ranges that a warp's part of an operation reads. What one lane of the warp has waited for counts for
    /// all lanes, which issue the operation together.
    pub(crate) fn read_by_wgmma(
        &mut self,
        accessor: Accessor,
        ranges: &[(u64, u64)],
    ) -> Result<(), BulkCopyConflict> {
        let Accessor { warp, pc, .. } = accessor;
        let lanes = self.sync.representatives(warp);
        // Matrices in shared memory consist of rows of 16 bytes.
        let unit = Unit::Granule;
        for (line, units) in ranges.iter().flat_map(|&(start, bytes)| lines_of(unit, start, bytes)) {
            let block = line as usize;
            if !self.shared.is_accessed(block) {
                continue;
            }
            let mut outcome = Ok(());
            for &lane in &lanes {
                let access = LineAccess { line, block, units, lanes: 1 << lane, kind: LaneMapKind::Uniform };
                outcome = self.check_line(warp, lane, pc, (unit, (&access, LaneMap::Uniform(1 << lane))));
                if outcome.is_ok() {
                    break;
                }
            }
            outcome?;
        }
        Ok(())
    }

    fn check_line(
        &mut self,
        warp: usize,
        lane: u32,
        pc: u32,
        part: LinePart<'_>,
    ) -> Result<(), BulkCopyConflict> {
        let RaceDetector { sync, shared, proxy_fences, .. } = self;
        let clocks = sync.accessor(warp, 1 << lane, pc, 0);
        if let Some(conflict) = shared.check(part, false, &clocks, &mut LastOrdered::default(), |_| false) {
            let race = Race { lane, ..Race::new(conflict) };
            return Err(BulkCopyConflict::Race { space: Space::Shared, race });
        }
        let visible = sync.clock(warp, lane).visible_to_async_proxy(Space::Shared);
        match shared.find_unfenced_write(part, visible) {
            Some((stamp, address)) if *proxy_fences => Err(BulkCopyConflict::MissingProxyFence {
                space: Space::Shared,
                earlier: EarlierAccess::new(stamp, true),
                address,
            }),
            _ => Ok(()),
        }
    }

    /// Records that a warp has waited for the first `count` operations of its warpgroup. `reads` are the reads of those
    /// operations that no other warp has waited for, in the order of the operations.
    pub(crate) fn complete_wgmma(&mut self, warp: usize, reads: &[CompletedRead], count: u64) {
        let address = self.completion_of_wgmma(warp);
        if self.sync.mbarrier(address).is_none() {
            self.sync.init_mbarrier(address, (warp, 0), 0);
        }
        let Some(mbarrier) = self.sync.mbarrier(address).map(|it| it.number) else { return };
        let first = first_in_warpgroup(warp, self.sync.warps_per_cta);
        for of_operation in reads.chunk_by(|one, next| one.number == next.number) {
            let time = self.sync.tick();
            for read in of_operation {
                let stamp = Stamp { time, origin: COPY | mbarrier as u32, pc: read.pc as u32 };
                for &(start, bytes) in read.ranges.iter() {
                    self.record_copy_read(start, bytes, stamp);
                }
            }
            let complete = (of_operation[0].number + 1, self.sync.tick());
            self.completed_wgmma.entry(first).or_default().push_back(complete);
        }
        let completed = self.completed_wgmma.entry(first).or_default();
        while completed.len() > REMEMBERED {
            completed.pop_front();
        }
        // Another warp may have waited for more operations. A warp more than [`REMEMBERED`] operations behind
        // acquires too many.
        let waited_for = completed.iter().rfind(|(number, _)| *number <= count);
        let forgotten = || completed.front().filter(|_| completed.len() == REMEMBERED);
        if let Some(&(_, time)) = waited_for.or_else(forgotten) {
            self.sync.acquire_phase(warp, u32::MAX, mbarrier, time);
        }
    }
}
