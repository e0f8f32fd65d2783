//! The CTAs of a cluster: what their barrier orders, and who uses whose shared memory while it is there.
//!
//! A CTA's shared memory is gone when its threads have exited. That none of its peers' accesses comes later is known
//! if some thread of the CTA knows of the access before it exits: most often from the cluster's barrier.

use std::collections::BTreeMap;

use super::Races;
use super::clock::Time;
use super::report;
use crate::context::cta::CtaState;
use crate::exec::lanes::LANES;
use crate::exec::{Fault, Launch, Machine, lanes_of};

/// The last use of a peer's shared memory by a thread.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    pub(super) time: Time,
    pub(super) pc: u32,
    pub(super) address: u64,
}

/// By rank of the CTA whose shared memory it is, and warp that uses it.
#[derive(Default)]
pub(super) struct Uses(BTreeMap<(usize, usize), Box<[Use; LANES]>>);

impl Uses {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Remembers that a lane uses the shared memory of a peer CTA, unless it is to come later; false if nothing tells that
/// this CTA has started.
pub(crate) fn reaches(m: &mut Machine<'_>, lane: usize, rank: usize, (address, later): (u64, bool)) -> bool {
    let (warp, pc) = (m.warp.index, m.warp.pc as u32);
    let Some(races) = m.cta.races.as_deref_mut() else { return true };
    if !races.sync.has_heard((warp, lane as u32), rank, races.base) {
        return false;
    }
    if later {
        return true;
    }
    let lanes = races.uses.0.entry((rank, warp)).or_default();
    lanes[lane] = Use { time: races.sync.now(warp), pc, address };
    true
}

/// The active lanes arrive at the cluster's barrier.
pub(crate) fn arrive_in_cluster(m: &mut Machine<'_>, releases: bool) {
    let (warp, lanes) = (m.warp.index, whole(m));
    if let Some(races) = m.cta.races.as_deref_mut() {
        races.sync.arrive_in_cluster(warp, lanes, releases);
    }
}

/// The active lanes find the cluster's barrier complete.
pub(crate) fn pass_cluster(m: &mut Machine<'_>) {
    let (warp, lanes) = (m.warp.index, whole(m));
    if let Some(races) = m.cta.races.as_deref_mut() {
        races.sync.pass_cluster(warp, lanes);
    }
}

/// The active lanes; all there can be, if all do it that the launch started.
fn whole(m: &Machine<'_>) -> u32 {
    if m.active == m.warp.launched { u32::MAX } else { m.active }
}

/// The cluster's barrier is complete; these lanes of warps have waited for it.
pub(crate) fn complete_cluster(cta: &mut CtaState, released: &[(usize, u32)]) {
    let Some(races) = cta.races.as_deref_mut() else { return };
    races.sync.complete_cluster();
    for &(warp, lanes) in released {
        races.sync.pass_cluster(warp, lanes);
    }
}

/// After the cluster's end: the use of a CTA's shared memory that nothing puts before this CTA's exit, if there is one.
pub(super) fn after_exit(launch: &Launch<'_>, cta: &CtaState, races: &Races) -> Option<(usize, Fault)> {
    for (&(rank, warp), uses) in &races.uses.0 {
        let late = |&lane: &usize| {
            let time = uses[lane].time;
            time > races.base && !races.sync.is_known_in(rank, (warp, lane as u32), time)
        };
        if let Some(lane) = lanes_of(u32::MAX).find(late) {
            return Some((warp, report::after_exit(launch, cta, (rank, lane), uses[lane])));
        }
    }
    None
}

impl Races {
    /// Remembers that a copy has read a range of shared memory.
    pub(super) fn note_copied(&mut self, start: u64, bytes: u64, mark: super::Mark) {
        use super::pieces::{By, Piece, Spread};
        for (line, bytes) in super::copies::lines(start, bytes) {
            let piece = Piece { line, index: line as usize, bytes, lanes: 0, by: By::All };
            self.shared.note_copied((&piece, Spread::All(0)), mark);
        }
    }
}
