//! Strong accesses: what they release to a location, and what they acquire from it.

use std::sync::MutexGuard;

use super::clock::Knowledge;
use super::detector::{ALL_RANKS, Races, Seen, Who};
use super::grid::{Grid, Locations};
use super::mark::Mark;
use super::sync::{Ordering, Scope};
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

/// A strong access of the active lanes to global memory excludes those of other CTAs from before its first part
/// ([`Races::publish`]) to after its last ([`Races::observe`]).
pub(crate) type Turn<'a> = Option<MutexGuard<'a, Locations>>;

/// A location of each lane.
pub(crate) type Located<'a> = (Space, &'a [u64; LANES]);

impl Races {
    /// Before a strong write: gives what its lanes release to the location.
    pub(crate) fn publish<'a>(
        &mut self,
        grid: &'a Grid,
        who: Who,
        how: Ordering,
        access: Access,
        (space, addresses): Located<'_>,
    ) -> Turn<'a> {
        let mut turn = (space == Space::Global).then(|| grid.locations());
        if access != Access::Load {
            for lane in lanes_of(who.lanes) {
                let (address, cta, warp) = (addresses[lane], self.sync.cta, who.warp);
                if let Some(turn) = &mut turn
                    && how.scope == Scope::Wide
                {
                    turn.write(address, (cta, (warp * LANES + lane) as u32), self.sync.now(warp));
                }
                let [here, around, beyond] = self.sync.released_by(warp, lane as u32, how);
                if let (Some(turn), Some(released)) = (&mut turn, beyond) {
                    turn.release(address, &released.by_cta(cta));
                }
                self.release(warp, (space, address), access, [here, around]);
            }
        }
        turn
    }

    /// After a strong read: its lanes learn what was released at the location.
    pub(crate) fn observe(
        &mut self,
        who: Who,
        how: Ordering,
        access: Access,
        (space, addresses): Located<'_>,
        turn: Turn<'_>,
    ) {
        if access == Access::Store {
            return;
        }
        for lane in lanes_of(who.lanes) {
            let (address, warp) = (addresses[lane], who.warp);
            for (ranks, scope) in [(self.sync.rank(warp), Scope::Cta), (ALL_RANKS, Scope::Cluster)] {
                if scope <= how.scope
                    && let Some(here) = self.locations.get(&(space, address, ranks)).cloned()
                {
                    self.sync.observe((warp, lane as u32), how.acquires, scope, &here);
                }
            }
            let Some(turn) = turn.as_ref().filter(|_| how.scope == Scope::Wide) else { continue };
            let Some(location) = turn.at(address) else { continue };
            if !location.released.is_empty() {
                let released = self.sync.knowledge_of(&location.released);
                self.sync.observe((warp, lane as u32), how.acquires, Scope::Wide, &released);
            }
            let by = Mark { time: self.sync.now(warp), who: (warp * LANES + lane) as u32, pc: 0 };
            self.see(Seen { address, by, writes: location.writes.clone() });
        }
    }

    /// A strong write has released something at a location, to its CTA and to its cluster.
    fn release(
        &mut self,
        warp: usize,
        (space, address): (Space, u64),
        access: Access,
        [here, around]: [Option<Knowledge>; 2],
    ) {
        let peers = self.sync.has_peers();
        // A store ends what was released there before.
        if access == Access::Store {
            self.locations.remove(&(space, address, self.sync.rank(warp)));
            if peers {
                self.locations.retain(|&(other, at, _), _| (other, at) != (space, address));
            }
        }
        if let Some(released) = here {
            self.locations.entry((space, address, self.sync.rank(warp))).or_default().join(&released);
        }
        if let Some(released) = around.filter(|_| peers) {
            self.locations.entry((space, address, ALL_RANKS)).or_default().join(&released);
        }
    }

    /// Remembers what a thread has seen at an address.
    fn see(&mut self, seen: Seen) {
        let same = |old: &&Seen| old.address == seen.address && old.by.who == seen.by.who;
        if self.seen.iter().rev().find(same).is_none_or(|old| old.writes != seen.writes) {
            self.seen.push(seen);
        }
    }
}
