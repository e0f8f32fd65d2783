//! Checks and records of the shared memory that `wgmma` reads.
//!
//! A warpgroup's operations complete like copies that signal an mbarrier of the warpgroup: the reads happened before all
//! accesses that follow a wait for the operations.

use super::copy_checks::{BulkCopyConflict, copy_line};
use super::detector::{Accessor, RaceDetector};
use super::lane_map::{LINE, LaneMap, LaneMapKind};
use super::line_access::{LineAccess, lines_of};
use super::race::{EarlierAccess, Race};
use super::shadow::LastOrdered;
use super::stamp::{COPY, GRANULE, Stamp};
use super::sync::MemoryScope;
use crate::asynchronous::first_in_warpgroup;
use crate::finding::Space;

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

    /// Records that operations of a warp's warpgroup are complete, with the instructions and the ranges that they read,
    /// and that the warp has waited for them.
    pub(crate) fn complete_wgmma(&mut self, warp: usize, reads: &[(usize, Vec<(u64, u64)>)]) {
        let address = self.completion_of_wgmma(warp);
        if self.sync.mbarrier(address).is_none() {
            self.sync.init_mbarrier(address, (warp, 0), 0);
        }
        let Some(number) = self.sync.mbarrier(address).map(|it| it.number as u32) else { return };
        if !reads.is_empty() {
            let time = self.sync.tick();
            for (pc, ranges) in reads {
                let stamp = Stamp { time, origin: COPY | number, pc: *pc as u32 };
                for (line, bytes) in ranges.iter().flat_map(|&(start, bytes)| lines_of(start, bytes)) {
                    self.shared.record_copy_read((&copy_line(line, bytes), LaneMap::Uniform(0)), stamp);
                }
            }
            let phase = self.sync.mbarrier(address).map_or(0, |it| it.phase + 1);
            self.sync.set_mbarrier_phase(address, phase);
        }
        self.sync.acquire_mbarrier(warp, u32::MAX, address, MemoryScope::Cta);
    }
}
