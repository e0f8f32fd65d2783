//! Vector clocks of threads, compressed: most often all lanes of a warp have got to the same place.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::lanes::{LANES, lanes_of};

/// A moment in a CTA's logical time, which advances whenever one of its threads releases something.
pub(super) type Time = u32;

/// What happened before some moment: how far each thread of a CTA had got, and which phases of its mbarriers, with
/// the copies that they wait for, had completed.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Clock {
    /// How far all lanes of warp `w` had got, at `2 * w`; which phases of mbarrier `g`, at `2 * g + 1`.
    times: Vec<Time>,
    /// Warps of which some lanes had got further.
    ahead: Vec<(usize, [Time; LANES])>,
}

impl Clock {
    /// Whether all that these lanes of a warp did up to `time` happened before.
    #[inline(always)]
    pub(super) fn knows(&self, warp: usize, lanes: u32, time: Time) -> bool {
        self.time(2 * warp) >= time || !self.ahead.is_empty() && self.knows_lanes(warp, lanes, time)
    }

    fn knows_lanes(&self, warp: usize, lanes: u32, time: Time) -> bool {
        let each = self.ahead.iter().find(|(other, _)| *other == warp);
        each.is_some_and(|(_, each)| lanes_of(lanes).all(|lane| each[lane] >= time))
    }

    /// Whether the copies into phases of mbarrier `slot` up to `time` had completed.
    #[inline(always)]
    pub(super) fn knows_phase(&self, slot: usize, time: Time) -> bool {
        self.time(2 * slot + 1) >= time
    }

    #[inline(always)]
    fn time(&self, index: usize) -> Time {
        self.times.get(index).copied().unwrap_or(0)
    }

    fn raise_time(&mut self, index: usize, time: Time) {
        if self.times.len() <= index {
            self.times.resize(index + 1, 0);
        }
        self.times[index] = self.times[index].max(time);
    }

    pub(super) fn raise(&mut self, warp: usize, lanes: u32, time: Time) {
        if lanes == u32::MAX {
            self.raise_time(2 * warp, time);
            return self.forget_overtaken();
        }
        let each = self.ahead_of(warp);
        lanes_of(lanes).for_each(|lane| each[lane] = each[lane].max(time));
    }

    pub(super) fn raise_phase(&mut self, slot: usize, time: Time) {
        self.raise_time(2 * slot + 1, time);
    }

    fn ahead_of(&mut self, warp: usize) -> &mut [Time; LANES] {
        let known = self.ahead.iter().position(|(other, _)| *other == warp);
        let index = known.unwrap_or_else(|| {
            self.ahead.push((warp, [0; LANES]));
            self.ahead.len() - 1
        });
        &mut self.ahead[index].1
    }

    fn forget_overtaken(&mut self) {
        let times = &self.times;
        self.ahead.retain(|(warp, each)| {
            let all = times.get(2 * warp).copied().unwrap_or(0);
            each.iter().any(|&time| time > all)
        });
    }

    fn clear(&mut self) {
        self.times.clear();
        self.ahead.clear();
    }

    /// Whether this says all that `other` does.
    fn includes(&self, other: &Clock) -> bool {
        let longer = other.times.get(self.times.len()..).unwrap_or_default();
        let lanes = |(warp, each): &(usize, [Time; LANES])| {
            each.iter().enumerate().all(|(lane, &time)| self.knows(*warp, 1 << lane, time))
        };
        // Without a way out of the loop it is one over several at a time.
        let behind =
            self.times.iter().zip(&other.times).fold(false, |any, (mine, theirs)| any | (mine < theirs));
        !behind && longer.iter().all(|&time| time == 0) && other.ahead.iter().all(lanes)
    }

    fn join(&mut self, other: &Clock) {
        if self.times.len() < other.times.len() {
            self.times.resize(other.times.len(), 0);
        }
        self.times.iter_mut().zip(&other.times).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
        for (warp, theirs) in &other.ahead {
            let each = self.ahead_of(*warp);
            each.iter_mut().zip(theirs.iter()).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
        }
        if !self.ahead.is_empty() {
            self.forget_overtaken();
        }
    }
}

/// Joins shared clocks, copying only what changes.
fn join(mine: &mut Arc<Clock>, theirs: &Arc<Clock>) {
    if Arc::ptr_eq(mine, theirs) || mine.includes(theirs) {
        return;
    }
    // What is nobody else's is changed where it is: one that is shared now would have to be copied later.
    if let Some(mine) = Arc::get_mut(mine) {
        mine.join(theirs);
    } else if theirs.includes(mine) {
        *mine = theirs.clone();
    } else {
        Arc::make_mut(mine).join(theirs);
    }
}

/// Clocks of CTAs by their position in the grid.
pub(super) type Clocks = BTreeMap<u64, Arc<Clock>>;

/// Adds what `theirs` knows; returns whether that was anything new.
pub(super) fn join_clocks(mine: &mut Clocks, theirs: &Clocks) -> bool {
    let mut news = false;
    for (&cta, theirs) in theirs {
        let known = mine.entry(cta).or_default();
        let before = known.clone();
        join(known, theirs);
        news |= !Arc::ptr_eq(&before, known) && before != *known;
    }
    news
}

/// What a thread knows to have happened.
#[derive(Clone, Default)]
pub(super) struct Knowledge {
    /// In its own CTA.
    pub(super) own: Arc<Clock>,
    /// The part of that which a proxy fence has made visible to the engine of bulk copies.
    pub(super) fenced: Option<Arc<Clock>>,
    /// In other CTAs of the grid.
    pub(super) foreign: Option<Arc<Clocks>>,
}

impl Knowledge {
    /// Adds what `other` knows; returns whether it knew more of other CTAs.
    pub(super) fn join(&mut self, other: &Knowledge) -> bool {
        join(&mut self.own, &other.own);
        match (&mut self.fenced, &other.fenced) {
            (Some(mine), Some(theirs)) => join(mine, theirs),
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        }
        match (&mut self.foreign, &other.foreign) {
            (Some(mine), Some(theirs)) if !Arc::ptr_eq(mine, theirs) => {
                join_clocks(Arc::make_mut(mine), theirs)
            }
            (mine @ None, Some(theirs)) => {
                *mine = Some(theirs.clone());
                true
            }
            _ => false,
        }
    }

    /// Nothing is known any more.
    pub(super) fn clear(&mut self) {
        match Arc::get_mut(&mut self.own) {
            Some(own) => own.clear(),
            None => self.own = Arc::default(),
        }
        (self.fenced, self.foreign) = (None, None);
    }

    /// All of it, by CTA; `cta` is the thread's own.
    pub(super) fn by_cta(&self, cta: u64) -> Clocks {
        let mut clocks = self.foreign.as_deref().cloned().unwrap_or_default();
        join(clocks.entry(cta).or_default(), &self.own);
        clocks
    }

    /// Adds what is known of CTAs; returns whether any of it is new and about another CTA than `cta`.
    pub(super) fn learn(&mut self, cta: u64, mut clocks: Clocks) -> bool {
        if let Some(own) = clocks.remove(&cta) {
            join(&mut self.own, &own);
        }
        if clocks.is_empty() {
            return false;
        }
        join_clocks(Arc::make_mut(self.foreign.get_or_insert_default()), &clocks)
    }
}
