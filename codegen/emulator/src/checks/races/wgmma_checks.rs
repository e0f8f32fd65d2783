//! Checks and records of the shared memory that `wgmma` reads.
//!
//! A warpgroup's operations complete like copies that signal an mbarrier of the warpgroup: the reads happened before all
//! accesses that follow a wait for the operations. A warp knows of the operations that it has waited for itself.

use super::copy_checks::{BulkCopyConflict, copy_line};
use super::detector::{Accessor, RaceDetector};
use super::lane_map::{LINE, LaneMap, LaneMapKind};
use super::line_access::{LineAccess, lines_of};
use super::race::{EarlierAccess, Race};
use super::shadow::LastOrdered;
use super::stamp::{COPY, GRANULE, Stamp};
use crate::asynchronous::{CompletedRead, first_in_warpgroup};
use crate::finding::Space;

/// Number of complete `wgmma` operations that are kept for each warpgroup.
const REMEMBERED: usize = 1024;

impl RaceDetector {
    /// Address that stands for the completion of the operations of a warp's warpgroup; no mbarrier has it.
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
        for (line, bytes) in ranges.iter().flat_map(|&(start, bytes)| lines_of(start, bytes)) {
            if !self.shared.is_accessed(line as usize) {
                continue;
            }
            let mut outcome = Ok(());
            for &lane in &lanes {
                outcome = self.check_line(warp, lane, pc, (line, bytes));
                if outcome.is_ok() {
                    break;
                }
            }
            outcome?;
        }
        Ok(())
    }

    fn check_line(
        &self,
        warp: usize,
        lane: u32,
        pc: u32,
        (line, bytes): (u64, u32),
    ) -> Result<(), BulkCopyConflict> {
        let clocks = self.sync.accessor(warp, 1 << lane, pc, 0);
        let index = line as usize;
        let access = LineAccess { line, index, bytes, lanes: 1 << lane, kind: LaneMapKind::Uniform };
        let part = (&access, LaneMap::Uniform(1 << lane));
        if !self.shared.is_surely_ordered(part, false, &clocks, &mut LastOrdered::default())
            && let Some(conflict) = self.shared.find_conflict(part, false, &clocks, |_| false)
        {
            let race = Race { lane, ..Race::new(conflict) };
            return Err(BulkCopyConflict::Race { space: Space::Shared, race });
        }
        let visible = self.sync.clock(warp, lane).async_proxy.as_deref();
        match self.shared.find_unfenced_write(index, bytes, visible) {
            Some((stamp, granule)) => Err(BulkCopyConflict::MissingProxyFence {
                space: Space::Shared,
                earlier: EarlierAccess::new(stamp, true),
                address: line * LINE + granule * GRANULE,
            }),
            None => Ok(()),
        }
    }

    /// Records that a warp has waited for the first `count` operations of its warpgroup; `reads` is what those of them have
    /// read that no other warp has waited for, in the order of the operations.
    pub(crate) fn complete_wgmma(&mut self, warp: usize, reads: &[CompletedRead], count: u64) {
        let address = self.completion_of_wgmma(warp);
        if self.sync.mbarrier(address).is_none() {
            self.sync.init_mbarrier(address, (warp, 0), 0);
        }
        let Some(mbarrier) = self.sync.mbarrier(address).map(|it| it.number) else { return };
        let first = first_in_warpgroup(warp, self.sync.warps_per_cta);
        let completed = self.completed_wgmma.entry(first).or_default();
        for of_operation in reads.chunk_by(|one, next| one.number == next.number) {
            let time = self.sync.tick();
            for read in of_operation {
                let stamp = Stamp { time, origin: COPY | mbarrier as u32, pc: read.pc as u32 };
                for (line, bytes) in read.ranges.iter().flat_map(|&(start, bytes)| lines_of(start, bytes)) {
                    self.shared.record_copy_read((&copy_line(line, bytes), LaneMap::Uniform(0)), stamp);
                }
            }
            completed.push_back((of_operation[0].number + 1, self.sync.tick()));
        }
        while completed.len() > REMEMBERED {
            completed.pop_front();
        }
        // Another warp may have waited for more operations. A warp that is far behind acquires too much.
        let waited_for = completed.iter().rfind(|(number, _)| *number <= count);
        let forgotten = || completed.front().filter(|_| completed.len() == REMEMBERED);
        if let Some(&(_, time)) = waited_for.or_else(forgotten) {
            self.sync.acquire_phase(warp, u32::MAX, mbarrier, time);
        }
    }
}
