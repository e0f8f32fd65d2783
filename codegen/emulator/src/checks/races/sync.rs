//! What orders the threads of a CTA, and those of the CTAs of its cluster.

mod cluster;

use std::sync::Arc;

use super::clock::{Clock, Clocks, Knowledge, Time};
use super::mark::Mark;
use crate::geometry::BARRIERS;
use cluster::ClusterSync;

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
    /// By scope: the last fence of at least that.
    fences: [Option<Fence>; SCOPES],
    /// By scope: what strong reads have seen released, for the next fence.
    seen: [Option<Knowledge>; SCOPES],
}

/// Which threads something is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Scope {
    #[default]
    Cta,
    /// Those of the cluster; the same where clusters have one CTA.
    Cluster,
    /// All.
    Wide,
}

pub(super) const SCOPES: usize = 3;

struct Warp {
    /// The time of the warp's accesses.
    now: Time,
    groups: Vec<Group>,
    /// How many times it has waited at the cluster's barrier.
    met: u32,
}

impl Warp {
    /// Adds to `gathering` what lanes of this warp, number `warp`, know together, and have done up to now.
    fn gather(&self, warp: usize, lanes: u32, gathering: &mut Knowledge) {
        for group in self.groups.iter().filter(|group| group.lanes & lanes != 0) {
            gathering.join(&group.knowledge);
        }
        Arc::make_mut(&mut gathering.own).raise(warp, lanes, self.now);
    }
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
    /// The phase of the cluster's barrier whose relaxed arrivals make it known, after a fence of initialisations.
    announced: Option<u32>,
    gathering: Knowledge,
    done: Knowledge,
    /// The same by arrivals of other CTAs, for waits of the cluster's scope.
    far: [Knowledge; 2],
}

/// Which threads of a cluster know what of each other.
pub(super) struct Sync {
    /// The cluster's position in the grid.
    pub(super) cta: u64,
    clock: Time,
    warps: Vec<Warp>,
    /// Warps of a CTA.
    each: usize,
    barriers: Vec<Knowledge>,
    cluster: ClusterSync,
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
pub(crate) struct Ordering {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
    pub(crate) scope: Scope,
}

impl Sync {
    pub(super) fn new() -> Sync {
        Sync {
            cta: 0,
            clock: 0,
            warps: Vec::new(),
            each: 1,
            barriers: Vec::new(),
            cluster: ClusterSync::default(),
            gates: Vec::new(),
            history: Vec::new(),
            last_foreign: 0,
            released: false,
        }
    }

    /// Begins a cluster of so many CTAs of so many warps; marks up to the time returned are none of its own.
    pub(super) fn start(&mut self, cta: u64, [size, each]: [usize; 2]) -> Time {
        let base = self.clock;
        (self.cta, self.each) = (cta, each);
        self.clock += 1;
        let nothing = Knowledge::default();
        self.warps.clear();
        self.warps.resize_with(size * each, || {
            let (fences, seen) = Default::default();
            let group = Group { lanes: u32::MAX, knowledge: nothing.clone(), fences, seen };
            Warp { now: base + 1, groups: vec![group], met: 0 }
        });
        self.barriers.clear();
        self.barriers.resize_with(size * BARRIERS, Knowledge::default);
        self.cluster = ClusterSync::default();
        self.gates.clear();
        self.history.clear();
        self.last_foreign = base;
        self.released = false;
        base
    }

    /// Whether the cluster has several CTAs.
    pub(super) fn has_peers(&self) -> bool {
        self.warps.len() > self.each
    }

    /// The rank of a warp's CTA.
    pub(super) fn rank(&self, warp: usize) -> usize {
        warp / self.each
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
        let Warp { now, groups, .. } = &self.warps[warp];
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
        let Warp { now, groups, .. } = &self.warps[warp];
        for group in groups.iter().filter(|group| group.lanes & lanes != 0) {
            if let Some(foreign) = &group.knowledge.foreign {
                self.history.push((warp, group.lanes, *now, foreign.clone()));
            }
        }
    }

    /// `lanes` meet: all know what each knew and did.
    pub(super) fn meet(&mut self, warp: usize, lanes: u32) {
        if let Warp { now, groups, .. } = &mut self.warps[warp]
            && let [group] = &mut groups[..]
            && lanes == u32::MAX
        {
            // They know the same as it is, but for what the others have just done.
            Arc::make_mut(&mut group.knowledge.own).raise(warp, lanes, *now);
            return self.advance(warp);
        }
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
            let (fences, seen) = Default::default();
            groups.push(Group { lanes: lanes & !apart, knowledge: all.clone(), fences, seen });
        }
        self.note_news(warp, if news { lanes } else { 0 });
    }

    /// Adds to `gathering` what `lanes` know together, and have done up to now.
    fn release_into(&mut self, warp: usize, lanes: u32, gathering: &mut Knowledge) {
        self.warps[warp].gather(warp, lanes, gathering);
        self.advance(warp);
    }

    /// A warp arrives at a barrier.
    pub(super) fn arrive(&mut self, warp: usize, id: usize) {
        self.warps[warp].gather(warp, u32::MAX, &mut self.barriers[id]);
        self.advance(warp);
    }

    /// A barrier lets these warps go.
    pub(super) fn leave(&mut self, id: usize, warps: impl Iterator<Item = usize>) {
        let all = std::mem::take(&mut self.barriers[id]);
        for warp in warps {
            self.give(warp, u32::MAX, &all);
        }
    }

    /// A fence: what was seen released counts from here on, and what is known here may be released.
    pub(super) fn fence(&mut self, warp: usize, lanes: u32, scope: Scope) {
        self.split(warp, lanes);
        let mut news = 0;
        let now = self.warps[warp].now;
        for group in self.warps[warp].groups.iter_mut().filter(|group| group.lanes & lanes != 0) {
            for seen in group.seen[..=scope as usize].iter_mut().filter_map(Option::take) {
                news |= if group.knowledge.join(&seen) { group.lanes } else { 0 };
            }
            let fence = Fence { time: now, knowledge: group.knowledge.clone() };
            group.fences[..=scope as usize].fill(Some(fence));
        }
        self.note_news(warp, news);
        self.advance(warp);
    }

    /// A proxy fence: what is known here is visible to the engine of bulk copies.
    pub(super) fn fence_engine(&mut self, warp: usize, lanes: u32) {
        self.split(warp, lanes);
        let now = self.warps[warp].now;
        for group in self.warps[warp].groups.iter_mut().filter(|group| group.lanes & lanes != 0) {
            let mut fenced = Clock::clone(&group.knowledge.own);
            fenced.raise(warp, group.lanes, now);
            group.knowledge.fenced = Some(Arc::new(fenced));
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

    /// By scope: what a strong write by a lane releases.
    pub(super) fn released_by(
        &mut self,
        warp: usize,
        lane: u32,
        how: Ordering,
    ) -> [Option<Knowledge>; SCOPES] {
        let mut released = Default::default();
        let within = |scope: usize| scope <= how.scope as usize;
        if how.releases {
            let all = self.release(warp, 1 << lane);
            released = std::array::from_fn(|scope| within(scope).then(|| all.clone()));
        } else if let Some(group) = self.warps[warp].groups.iter().find(|group| group.lanes >> lane & 1 != 0)
        {
            let release = |fence: &Fence| {
                let mut released = fence.knowledge.clone();
                Arc::make_mut(&mut released.own).raise(warp, 1 << lane, fence.time);
                released
            };
            let fence = |scope: usize| group.fences[scope].as_ref().filter(|_| within(scope));
            released = std::array::from_fn(|scope| fence(scope).map(release));
        }
        if released[Scope::Wide as usize].is_some() {
            self.last_foreign = self.clock;
            self.released = true;
        }
        released
    }

    /// A strong read by a lane has seen something released within a scope.
    pub(super) fn observe(
        &mut self,
        (warp, lane): (usize, u32),
        acquires: bool,
        scope: Scope,
        from: &Knowledge,
    ) {
        if acquires {
            return self.acquire(warp, 1 << lane, from);
        }
        self.split(warp, 1 << lane);
        for group in self.warps[warp].groups.iter_mut().filter(|group| group.lanes == 1 << lane) {
            match &mut group.seen[scope as usize] {
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
        let (gathering, done, far, announced) = Default::default();
        let gate =
            Gate { address, slot, live: true, phase: 0, by, fenced: false, announced, gathering, done, far };
        match self.gates.get_mut(slot) {
            Some(old) => *old = gate,
            None => self.gates.push(gate),
        }
    }

    /// Lanes arrive at an mbarrier, which is their CTA's or, if the scope has it, a peer's.
    pub(super) fn arrive_at(&mut self, warp: usize, lanes: u32, address: u64, scope: Scope) {
        let each = self.each;
        let Some(gate) = self.gates.iter_mut().find(|gate| gate.live && gate.address == address) else {
            return;
        };
        let gathering = match gate.by.0 / each == warp / each {
            true => &mut gate.gathering,
            false if scope >= Scope::Cluster => &mut gate.far[0],
            false => return,
        };
        self.warps[warp].gather(warp, lanes, gathering);
        self.advance(warp);
    }

    /// The mbarrier is in phase `phase` now.
    pub(super) fn settle(&mut self, address: u64, phase: u64) {
        let live = |gate: &Gate| gate.live && gate.address == address && gate.phase != phase;
        let Some(slot) = self.gates.iter().position(live) else { return };
        let time = self.tick();
        let gate = &mut self.gates[slot];
        gate.phase = phase;
        gate.done.join(&gate.gathering);
        gate.gathering.clear();
        Arc::make_mut(&mut gate.done.own).raise_phase(gate.slot, time);
        let [gathered, done] = &mut gate.far;
        done.join(gathered);
        gathered.clear();
    }

    /// Lanes have found a phase of the mbarrier complete.
    pub(super) fn pass(&mut self, warp: usize, lanes: u32, address: u64, scope: Scope) {
        let peers = self.has_peers() && scope >= Scope::Cluster;
        if let Some(gate) = self.gate(address) {
            let (done, far) = (gate.done.clone(), peers.then(|| gate.far[1].clone()));
            self.acquire(warp, lanes, &done);
            if let Some(far) = far {
                self.acquire(warp, lanes, &far);
            }
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
