//! What orders the threads of a CTA.

use std::sync::Arc;

use super::clock::{Clock, Clocks, Knowledge, Time};
use super::mark::Mark;

/// What a fence has released, for the strong writes that follow it.
#[derive(Clone)]
struct Fence {
    time: Time,
    knowledge: Knowledge,
}

/// Lanes that know the same.
#[derive(Clone)]
pub(super) struct Group {
    lanes: u32,
    knowledge: Knowledge,
    /// The last fence of at least the CTA's scope, and the last of a wider one.
    fences: [Option<Fence>; 2],
    /// What strong reads have seen released in the CTA, and by others, for the next fence.
    seen: [Option<Knowledge>; 2],
}

struct Warp {
    /// The time of the warp's accesses.
    now: Time,
    groups: Vec<Group>,
}

/// Who accesses: lanes of a warp, by what they know.
pub(super) struct Actors<'a> {
    pub(super) warp: usize,
    lanes: u32,
    /// The time and the place; `who` is the warp's first thread.
    pub(super) mark: Mark,
    groups: &'a [Group],
}

impl<'a> Actors<'a> {
    /// Whether all of them know enough.
    #[inline(always)]
    pub(super) fn all(&self, mut know: impl FnMut(&Clock) -> bool) -> bool {
        self.groups
            .iter()
            .filter(|group| group.lanes & self.lanes != 0)
            .all(|group| know(&group.knowledge.own))
    }

    /// What a lane knows; one that there is.
    pub(super) fn clock(&self, lane: u32) -> Option<&'a Clock> {
        let group = self.groups.iter().find(|group| group.lanes >> lane & 1 != 0);
        group.map(|group| &*group.knowledge.own)
    }
}

/// An mbarrier as far as it orders threads.
pub(super) struct Gate {
    pub(super) address: u64,
    /// Its number, for as long as the CTA runs.
    pub(super) slot: usize,
    /// Whether it is valid.
    pub(super) live: bool,
    phase: u64,
    /// Who initialised it, when and where.
    pub(super) by: (usize, u32, Time, u32),
    /// Whether a fence has made that visible to the engine of bulk copies.
    pub(super) fenced: bool,
    gathering: Knowledge,
    done: Knowledge,
}

/// Which threads of a CTA know what of each other.
pub(super) struct Sync {
    pub(super) cta: u64,
    clock: Time,
    warps: Vec<Warp>,
    barriers: [Knowledge; 16],
    pub(super) gates: Vec<Gate>,
    /// What was known of other CTAs, by warp, from when on: (warp, lanes, since, clocks).
    pub(super) history: Vec<(usize, u32, Time, Arc<Clocks>)>,
    /// The last time that a thread released something to other CTAs or learned of them.
    pub(super) last_foreign: Time,
    /// Whether some thread has released something to other CTAs.
    pub(super) released: bool,
}

/// How an access takes part in ordering others.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ordering {
    pub(super) acquires: bool,
    pub(super) releases: bool,
    /// Its scope is wider than the CTA.
    pub(super) wide: bool,
}

impl Sync {
    pub(super) fn new() -> Sync {
        Sync {
            cta: 0,
            clock: 0,
            warps: Vec::new(),
            barriers: Default::default(),
            gates: Vec::new(),
            history: Vec::new(),
            last_foreign: 0,
            released: false,
        }
    }

    /// Begins a CTA; marks up to the time returned are none of its own.
    pub(super) fn start(&mut self, cta: u64, warps: usize) -> Time {
        let base = self.clock;
        self.cta = cta;
        self.clock += 1;
        let nothing = Knowledge::default();
        self.warps.clear();
        self.warps.resize_with(warps, || {
            let group = Group {
                lanes: u32::MAX,
                knowledge: nothing.clone(),
                fences: [None, None],
                seen: [None, None],
            };
            Warp { now: base + 1, groups: vec![group] }
        });
        self.barriers = Default::default();
        self.gates.clear();
        self.history.clear();
        self.last_foreign = base;
        self.released = false;
        base
    }

    /// Whether times are about to run out.
    pub(super) fn is_worn(&self) -> bool {
        self.clock > u32::MAX / 2
    }

    fn tick(&mut self) -> Time {
        self.clock += 1;
        self.clock
    }

    /// A fresh time for what the engine of copies does.
    pub(super) fn engine_time(&mut self) -> Time {
        self.tick()
    }

    pub(super) fn now(&self, warp: usize) -> Time {
        self.warps[warp].now
    }

    /// The warp's accesses from here on can be told from those so far.
    fn advance(&mut self, warp: usize) {
        self.warps[warp].now = self.tick();
    }

    /// Lanes that execute an instruction; `flags` says whether what it does is strong.
    pub(super) fn actors(&self, warp: usize, lanes: u32, pc: u32, flags: u32) -> Actors<'_> {
        let Warp { now, groups } = &self.warps[warp];
        let mark = Mark { time: *now, who: (warp as u32) << 5 | flags, pc };
        Actors { warp, lanes, mark, groups }
    }

    pub(super) fn knowledge(&self, warp: usize, lane: u32) -> &Knowledge {
        let groups = &self.warps[warp].groups;
        let found = groups.iter().find(|group| group.lanes >> lane & 1 != 0);
        &found.unwrap_or(&groups[0]).knowledge
    }

    /// Makes `lanes` a union of groups.
    fn split(&mut self, warp: usize, lanes: u32) {
        let groups = &mut self.warps[warp].groups;
        for index in 0..groups.len() {
            let inside = groups[index].lanes & lanes;
            if inside != 0 && inside != groups[index].lanes {
                let mut rest = groups[index].clone();
                rest.lanes &= !inside;
                groups[index].lanes = inside;
                groups.push(rest);
            }
        }
    }

    /// What `lanes` know together, and have done up to now.
    fn release(&mut self, warp: usize, lanes: u32) -> Knowledge {
        let mut all = Knowledge::default();
        self.release_into(warp, lanes, &mut all);
        all
    }

    fn acquire(&mut self, warp: usize, lanes: u32, from: &Knowledge) {
        self.split(warp, lanes);
        let mut news = 0;
        for group in self.warps[warp].groups.iter_mut().filter(|group| group.lanes & lanes != 0) {
            if group.knowledge.join(from) {
                news |= group.lanes;
            }
        }
        self.note_news(warp, news);
    }

    /// Remembers since when lanes know what they know of other CTAs.
    fn note_news(&mut self, warp: usize, lanes: u32) {
        if lanes == 0 {
            return;
        }
        self.last_foreign = self.clock;
        self.advance(warp);
        let Warp { now, groups } = &self.warps[warp];
        for group in groups.iter().filter(|group| group.lanes & lanes != 0) {
            if let Some(foreign) = &group.knowledge.foreign {
                self.history.push((warp, group.lanes, *now, foreign.clone()));
            }
        }
    }

    /// `lanes` meet: all know what each knew and did.
    pub(super) fn meet(&mut self, warp: usize, lanes: u32) {
        let all = self.release(warp, lanes);
        self.give(warp, lanes, &all);
    }

    /// Gives lanes the knowledge of all of them, in one group.
    fn give(&mut self, warp: usize, lanes: u32, all: &Knowledge) {
        self.split(warp, lanes);
        let groups = &mut self.warps[warp].groups;
        let mut news = false;
        let mut fences: Vec<Group> = Vec::new();
        groups.retain_mut(|group| {
            if group.lanes & lanes == 0 {
                return true;
            }
            news |= group.knowledge.join(all);
            if group.fences[0].is_some() || group.seen.iter().any(Option::is_some) {
                fences.push(group.clone());
            }
            false
        });
        // Lanes whose fences differ stay apart.
        let apart = fences.iter().fold(0, |lanes, group| lanes | group.lanes);
        for group in fences {
            groups.push(Group { knowledge: all.clone(), ..group });
        }
        if lanes & !apart != 0 {
            groups.push(Group {
                lanes: lanes & !apart,
                knowledge: all.clone(),
                fences: [None, None],
                seen: [None, None],
            });
        }
        self.note_news(warp, if news { lanes } else { 0 });
    }

    /// Adds to `gathering` what `lanes` know together, and have done up to now.
    fn release_into(&mut self, warp: usize, lanes: u32, gathering: &mut Knowledge) {
        let Warp { now, groups } = &self.warps[warp];
        for group in groups.iter().filter(|group| group.lanes & lanes != 0) {
            gathering.join(&group.knowledge);
        }
        Arc::make_mut(&mut gathering.own).raise(warp, lanes, *now);
        self.advance(warp);
    }

    /// A warp arrives at a barrier.
    pub(super) fn arrive(&mut self, warp: usize, id: usize) {
        let mut gathering = std::mem::take(&mut self.barriers[id]);
        self.release_into(warp, u32::MAX, &mut gathering);
        self.barriers[id] = gathering;
    }

    /// A barrier lets these warps go.
    pub(super) fn leave(&mut self, id: usize, warps: impl Iterator<Item = usize>) {
        let all = std::mem::take(&mut self.barriers[id]);
        for warp in warps {
            self.give(warp, u32::MAX, &all);
        }
    }

    /// A fence: what was seen released counts from here on, and what is known here may be released.
    pub(super) fn fence(&mut self, warp: usize, lanes: u32, wide: bool) {
        self.split(warp, lanes);
        let mut news = 0;
        let now = self.warps[warp].now;
        for group in self.warps[warp].groups.iter_mut().filter(|group| group.lanes & lanes != 0) {
            for seen in group.seen[..1 + wide as usize].iter_mut().filter_map(Option::take) {
                news |= if group.knowledge.join(&seen) { group.lanes } else { 0 };
            }
            let fence = Fence { time: now, knowledge: group.knowledge.clone() };
            if wide {
                group.fences[1] = Some(fence.clone());
            }
            group.fences[0] = Some(fence);
        }
        self.note_news(warp, news);
        self.advance(warp);
    }

    /// A proxy fence: what is known here is visible to the engine of bulk copies.
    pub(super) fn fence_engine(&mut self, warp: usize, lanes: u32) {
        self.split(warp, lanes);
        let now = self.warps[warp].now;
        for group in self.warps[warp].groups.iter_mut().filter(|group| group.lanes & lanes != 0) {
            group.knowledge.fenced = group.knowledge.own.clone();
            Arc::make_mut(&mut group.knowledge.fenced).raise(warp, group.lanes, now);
        }
        self.advance(warp);
        self.fence_inits(warp, lanes);
    }

    /// What these lanes have initialised, or know of, is visible to the engine.
    pub(super) fn fence_inits(&mut self, warp: usize, lanes: u32) {
        let groups = &self.warps[warp].groups;
        for gate in &mut self.gates {
            let (by, lane, time, _) = gate.by;
            gate.fenced |= by == warp && lanes >> lane & 1 != 0
                || groups
                    .iter()
                    .any(|group| group.lanes & lanes != 0 && group.knowledge.own.knows(by, 1 << lane, time));
        }
    }

    /// What a strong write by a lane releases to its CTA, and to others.
    pub(super) fn released_by(&mut self, warp: usize, lane: u32, how: Ordering) -> [Option<Knowledge>; 2] {
        let released = if how.releases {
            let all = self.release(warp, 1 << lane);
            [Some(all.clone()), how.wide.then_some(all)]
        } else {
            let groups = &self.warps[warp].groups;
            let Some(group) = groups.iter().find(|group| group.lanes >> lane & 1 != 0) else {
                return [None, None];
            };
            let release = |fence: &Fence| {
                let mut released = fence.knowledge.clone();
                Arc::make_mut(&mut released.own).raise(warp, 1 << lane, fence.time);
                released
            };
            let [narrow, wide] = &group.fences;
            [narrow.as_ref().map(release), wide.as_ref().filter(|_| how.wide).map(release)]
        };
        if released[1].is_some() {
            self.last_foreign = self.clock;
            self.released = true;
        }
        released
    }

    /// A strong read by a lane has seen something released, in the CTA or `beyond` it.
    pub(super) fn observe(
        &mut self,
        (warp, lane): (usize, u32),
        acquires: bool,
        beyond: bool,
        from: &Knowledge,
    ) {
        if acquires {
            return self.acquire(warp, 1 << lane, from);
        }
        self.split(warp, 1 << lane);
        for group in self.warps[warp].groups.iter_mut().filter(|group| group.lanes == 1 << lane) {
            match &mut group.seen[beyond as usize] {
                Some(seen) => _ = seen.join(from),
                none => *none = Some(from.clone()),
            }
        }
    }

    /// What CTAs have released, as a lane here would learn it.
    pub(super) fn knowledge_of(&self, clocks: &Clocks) -> Knowledge {
        let mut knowledge = Knowledge::default();
        knowledge.learn(self.cta, clocks.clone());
        knowledge
    }

    /// The mbarrier at an address.
    pub(super) fn gate(&mut self, address: u64) -> Option<&mut Gate> {
        self.gates.iter_mut().find(|gate| gate.live && gate.address == address)
    }

    pub(super) fn init_gate(&mut self, address: u64, by: (usize, u32), pc: u32) {
        let by = (by.0, by.1, self.now(by.0), pc);
        let slot = self.gates.iter().position(|gate| gate.address == address).unwrap_or(self.gates.len());
        let (gathering, done) = Default::default();
        let gate = Gate { address, slot, live: true, phase: 0, by, fenced: false, gathering, done };
        match self.gates.get_mut(slot) {
            Some(old) => *old = gate,
            None => self.gates.push(gate),
        }
    }

    /// Lanes arrive at an mbarrier.
    pub(super) fn arrive_at(&mut self, warp: usize, lanes: u32, address: u64) {
        let Some(gate) = self.gate(address) else { return };
        let slot = gate.slot;
        let mut gathering = std::mem::take(&mut gate.gathering);
        self.release_into(warp, lanes, &mut gathering);
        self.gates[slot].gathering = gathering;
    }

    /// The mbarrier is in phase `phase` now.
    pub(super) fn settle(&mut self, address: u64, phase: u64) {
        let time = self.tick();
        if let Some(gate) = self.gate(address)
            && gate.phase != phase
        {
            gate.phase = phase;
            let gathered = std::mem::take(&mut gate.gathering);
            gate.done.join(&gathered);
            Arc::make_mut(&mut gate.done.own).raise_phase(gate.slot, time);
        }
    }

    /// Lanes have found a phase of the mbarrier complete.
    pub(super) fn pass(&mut self, warp: usize, lanes: u32, address: u64) {
        if let Some(gate) = self.gate(address) {
            let done = gate.done.clone();
            self.acquire(warp, lanes, &done);
        }
    }

    /// What a lane of a warp knew of other CTAs at a time.
    pub(super) fn known_at(
        history: &[(usize, u32, Time, Arc<Clocks>)],
        warp: usize,
        lane: u32,
        time: Time,
    ) -> Option<&Arc<Clocks>> {
        let mine = history
            .iter()
            .rev()
            .find(|(w, lanes, since, _)| *w == warp && lanes >> lane & 1 != 0 && *since <= time);
        mine.map(|(.., clocks)| clocks)
    }
}
