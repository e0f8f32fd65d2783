//! Vector clocks of threads, compressed: most often all lanes of a warp have got to the same place.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::exec::lanes::LANES;
use crate::exec::lanes_of;

/// A moment in a CTA's logical time, which advances whenever one of its threads releases something.
pub(super) type Time = u32;

/// How far each lane of a warp is known to have got.
#[derive(Clone, Default, PartialEq, Debug)]
struct Lanes {
    all: Time,
    /// Lanes that are known beyond `all`.
    each: Option<Box<[Time; LANES]>>,
}

impl Lanes {
    #[inline(always)]
    fn reach(&self, lanes: u32, time: Time) -> bool {
        self.all >= time
            || self.each.as_ref().is_some_and(|each| lanes_of(lanes).all(|lane| each[lane] >= time))
    }

    fn raise(&mut self, lanes: u32, time: Time) {
        if lanes == u32::MAX {
            *self = Lanes {
                all: time.max(self.all),
                each: self.each.take().filter(|each| each.iter().any(|&t| t > time)),
            };
            return;
        }
        let each = self.each.get_or_insert_with(|| Box::new([0; LANES]));
        lanes_of(lanes).for_each(|lane| each[lane] = each[lane].max(time));
    }

    fn join(&mut self, other: &Lanes) {
        self.all = self.all.max(other.all);
        if let Some(theirs) = &other.each {
            let each = self.each.get_or_insert_with(|| Box::new([0; LANES]));
            each.iter_mut().zip(theirs.iter()).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
        }
        if self.each.as_ref().is_some_and(|each| each.iter().all(|&time| time <= self.all)) {
            self.each = None;
        }
    }
}

/// What happened before some moment: how far each thread of a CTA had got, and which phases of its mbarriers, with
/// the copies that they wait for, had completed.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Clock {
    warps: Vec<Lanes>,
    phases: Vec<Time>,
}

impl Clock {
    /// Whether all that these lanes of a warp did up to `time` happened before.
    #[inline(always)]
    pub(super) fn knows(&self, warp: usize, lanes: u32, time: Time) -> bool {
        self.warps.get(warp).is_some_and(|known| known.reach(lanes, time))
    }

    /// Whether the copies into phases of mbarrier `slot` up to `time` had completed.
    #[inline(always)]
    pub(super) fn knows_phase(&self, slot: usize, time: Time) -> bool {
        self.phases.get(slot).is_some_and(|&known| known >= time)
    }

    pub(super) fn raise(&mut self, warp: usize, lanes: u32, time: Time) {
        if self.warps.len() <= warp {
            self.warps.resize_with(warp + 1, Lanes::default);
        }
        self.warps[warp].raise(lanes, time);
    }

    pub(super) fn raise_phase(&mut self, slot: usize, time: Time) {
        if self.phases.len() <= slot {
            self.phases.resize(slot + 1, 0);
        }
        self.phases[slot] = self.phases[slot].max(time);
    }

    fn join(&mut self, other: &Clock) {
        if self.warps.len() < other.warps.len() {
            self.warps.resize_with(other.warps.len(), Lanes::default);
        }
        self.warps.iter_mut().zip(&other.warps).for_each(|(mine, theirs)| mine.join(theirs));
        if self.phases.len() < other.phases.len() {
            self.phases.resize(other.phases.len(), 0);
        }
        self.phases.iter_mut().zip(&other.phases).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
    }
}

/// Joins shared clocks, copying only what changes.
fn join(mine: &mut Arc<Clock>, theirs: &Arc<Clock>) {
    if !Arc::ptr_eq(mine, theirs) {
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
    pub(super) fenced: Arc<Clock>,
    /// In other CTAs of the grid.
    pub(super) foreign: Option<Arc<Clocks>>,
}

impl Knowledge {
    /// Adds what `other` knows; returns whether it knew more of other CTAs.
    pub(super) fn join(&mut self, other: &Knowledge) -> bool {
        join(&mut self.own, &other.own);
        join(&mut self.fenced, &other.fenced);
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
