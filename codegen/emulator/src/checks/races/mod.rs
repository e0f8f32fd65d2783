//! Accesses that nothing orders.
//!
//! Two accesses race if they touch a byte, at least one writes it, and neither happened before the other. What
//! happened before what is followed by vector clocks ([`clock`]), through whatever the ISA says orders memory
//! ([`sync`]): program order, barriers, `bar.warp.sync`, mbarriers, waits for copies, fences with strong accesses,
//! and acquire and release. Every access leaves a mark ([`shadow`]) that later ones of its CTA are compared with;
//! CTAs are compared with each other as they end ([`grid`]). Nothing depends on how the emulator happened to take
//! turns: accesses that a barrier orders are clean, others are found though they came one after the other.

mod clock;
mod cluster;
mod copies;
mod grid;
mod mark;
mod pages;
mod pieces;
mod report;
mod shadow;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::MutexGuard;

use crate::context::cta::CtaState;
use crate::exec::lanes::LANES;
use crate::exec::resolve::{
    Access, FLAG_ACQUIRE, FLAG_CLUSTER, FLAG_CTA, FLAG_ORDERED, FLAG_RELEASE, FLAGS, Resolved, located,
    located_first,
};
use crate::exec::{Fault, Inst, Launch, Machine, lanes_of};
use crate::finding::Space;
use clock::{Knowledge, Time};
pub(crate) use cluster::{arrive_in_cluster, complete_cluster, pass_cluster, reaches};
pub(crate) use copies::{Bulk, complete, issue_bulk, issue_grouped};
pub(crate) use grid::Grid;
use grid::Locations;
use mark::{GRANULE, LOCAL, Mark, RANK, STRONG, WIDE};
use pages::{ByNumber, PAGE};
use pieces::{LINE, Pieces};
pub(crate) use report::collision;
use shadow::{Found, Known, Shadow};
pub(crate) use sync::Scope;
use sync::{Ordering, Sync};

/// Lines of a page.
const LINES: u64 = PAGE / LINE;

/// What the threads of one cluster's CTAs (of one CTA, most often) have accessed, and what orders them.
pub(crate) struct Races {
    sync: Sync,
    shared: Shadow,
    global: Shadow,
    /// The first line of each page of global memory, and the first time of the CTA that touched it last.
    pages: ByNumber<(usize, Time)>,
    last_page: (u64, usize),
    /// The pages that the CTA has touched.
    touched: Vec<u64>,
    base: Time,
    /// What was accessed last, and whether each byte of that by one lane.
    pieces: Box<Pieces>,
    apart: bool,
    /// By instruction, what it accessed last: the next time it is often the same elsewhere.
    patterns: Vec<Option<Box<Pieces>>>,
    copies: copies::Copies,
    /// What was released at addresses of shared memory, or of global memory within the cluster, and for whom: the
    /// CTA of a rank, or [`ALL_RANKS`].
    locations: HashMap<(Space, u64, usize), Knowledge>,
    uses: cluster::Uses,
    /// Strong writes of other CTAs that a thread has seen at an address of global memory.
    seen: Vec<Seen>,
}

/// In [`Races::locations`]: all CTAs of the cluster.
const ALL_RANKS: usize = usize::MAX;

/// What a thread has seen written to a location, by whom and when.
struct Seen {
    address: u64,
    by: Mark,
    writes: HashMap<(u64, u32), Time>,
}

impl Races {
    pub(crate) fn new(shared_bytes: u64) -> Races {
        Races {
            sync: Sync::new(),
            shared: Shadow::new(shared_bytes),
            global: Shadow::archiving(),
            pages: ByNumber::default(),
            last_page: (u64::MAX, 0),
            touched: Vec::new(),
            base: 0,
            pieces: Box::default(),
            apart: false,
            patterns: Vec::new(),
            copies: copies::Copies::default(),
            locations: HashMap::new(),
            uses: cluster::Uses::default(),
            seen: Vec::new(),
        }
    }

    /// Begins a cluster of so many CTAs of so many warps; the bytes are all CTAs'.
    pub(crate) fn start(&mut self, cta: u64, warps: [usize; 2], shared_bytes: u64) {
        /// Pages beyond these are given back when a CTA ends.
        const KEPT_PAGES: usize = 256;
        if self.sync.is_worn() || self.pages.len() > KEPT_PAGES {
            *self = Races::new(shared_bytes);
        }
        let base = self.sync.start(cta, warps);
        self.base = base;
        self.last_page.0 = u64::MAX;
        self.touched.clear();
        self.shared.reset(base);
        self.global.reset(base);
        self.copies.clear();
        self.locations.clear();
        self.uses.clear();
        self.seen.clear();
    }

    /// Finds the lines of `pieces` in the shadow.
    fn locate(&mut self, space: Space) {
        // Those of shared memory are where they are.
        if space == Space::Global {
            for piece in 0..self.pieces.list.len() {
                let line = self.pieces.list[piece].line;
                self.pieces.list[piece].index = self.index(line);
            }
        }
    }

    #[inline(always)]
    fn index(&mut self, line: u64) -> usize {
        let page = line / LINES;
        if self.last_page.0 != page {
            self.last_page = (page, self.page(page));
        }
        self.last_page.1 + (line % LINES) as usize
    }

    fn page(&mut self, page: u64) -> usize {
        let (first, since) = self.pages.entry(page).or_insert_with(|| (self.global.grow(PAGE), Time::MAX));
        if *since != self.base {
            *since = self.base;
            self.touched.push(page);
        }
        *first
    }

    /// Checks an access of every active lane and remembers it; the conflict comes with its address and lane.
    fn touch(&mut self, who: Who, what: &Touch<'_>) -> Option<Found> {
        let pc = who.pc as usize;
        if self.patterns.len() <= pc {
            self.patterns.resize_with(pc + 1, || None);
        }
        let own = self.patterns[pc].take().unwrap_or_default();
        let pieces = std::mem::replace(&mut self.pieces, own);
        let found = self.touch_lines(who, what);
        self.patterns[pc] = Some(std::mem::replace(&mut self.pieces, pieces));
        found
    }

    fn touch_lines(&mut self, who: Who, what: &Touch<'_>) -> Option<Found> {
        match what.places {
            Places::Each(addresses) => self.pieces.set(who.lanes, addresses, what.bytes),
            Places::Run(start) => self.pieces.set_run(start, what.bytes),
            Places::Same(address) => {
                self.pieces.clear();
                self.pieces.add(who.lanes, address, what.bytes);
            }
        }
        self.locate(what.space);
        let writes = what.access != Access::Load;
        self.apart = writes && self.pieces.count() == what.bytes * who.lanes.count_ones() as u64;
        self.go_over::<true>(who, what.space, writes)
    }

    /// Looks for conflicts of what `pieces` says.
    fn check(&mut self, who: Who, space: Space, writes: bool) -> Option<Found> {
        self.go_over::<false>(who, space, writes)
    }

    /// Looks for conflicts of what `pieces` says, and finds the one of the lowest lane, and of that the first; up to
    /// there it remembers what they say if it is to.
    fn go_over<const NOTES: bool>(&mut self, who: Who, space: Space, writes: bool) -> Option<Found> {
        if NOTES && writes {
            self.archive_from_here(space);
        }
        let Races { sync, shared, global, pieces, seen, .. } = self;
        let shadow = if space == Space::Shared { shared } else { global };
        let actors = sync.actors(who.warp, who.lanes, who.pc, who.flags);
        let mut known = Known::default();
        let mut first: Option<Found> = None;
        for (index, piece) in pieces.list.iter().enumerate() {
            let part = (piece, pieces.spread(index));
            if !shadow.allows(part, writes, &actors, &mut known) {
                // Within the CTA a lane may have seen a strong write without anything else ordering it.
                let excused = |(conflict, address, lane): &Found| {
                    space == Space::Global
                        && !conflict.mark.is_engine()
                        && has_seen(seen, sync, (*address, conflict.mark), (who.warp, *lane))
                };
                let found = shadow.conflict(part, writes, &actors, excused);
                first = first.into_iter().chain(found).min_by_key(|found| (found.2, found.1));
            }
            match writes {
                _ if !NOTES || first.is_some() => {}
                true => shadow.note_write(part, actors.mark),
                false => shadow.note_read(part, &actors),
            }
        }
        first
    }

    /// Records that are replaced from here on may look different from another CTA than those to come.
    fn archive_from_here(&mut self, space: Space) {
        if space == Space::Global {
            self.global.archive_until(self.sync.last_foreign);
        }
    }

    /// Remembers what `pieces` says.
    fn note(&mut self, who: Who, space: Space, writes: bool) {
        if writes {
            self.archive_from_here(space);
        }
        let Races { sync, shared, global, pieces, .. } = self;
        let shadow = if space == Space::Shared { shared } else { global };
        let actors = sync.actors(who.warp, who.lanes, who.pc, who.flags);
        for (index, piece) in pieces.list.iter().enumerate() {
            let part = (piece, pieces.spread(index));
            match writes {
                true => shadow.note_write(part, actors.mark),
                false => shadow.note_read(part, &actors),
            }
        }
    }
}

/// Whether a lane had seen a write of its CTA with an operation of its own, or one that it knows of, on the same
/// address.
fn has_seen(seen: &[Seen], sync: &Sync, (address, write): (u64, Mark), (warp, lane): (usize, u32)) -> bool {
    let clock = &sync.knowledge(warp, lane).own;
    seen.iter().filter(|seen| seen.address / GRANULE == address / GRANULE).any(|seen| {
        let covers =
            seen.writes.get(&(sync.cta, write.number() as u32)).is_some_and(|&time| time >= write.time);
        let own = (seen.by.warp(), seen.by.lane()) == (warp, lane);
        covers && (own || clock.knows(seen.by.warp(), 1 << seen.by.lane(), seen.by.time))
    })
}

/// Who accesses.
#[derive(Clone, Copy)]
struct Who {
    warp: usize,
    lanes: u32,
    pc: u32,
    flags: u32,
}

/// What active lanes access: `bytes` each.
struct Touch<'a> {
    space: Space,
    access: Access,
    places: Places<'a>,
    bytes: u64,
}

/// Where lanes access.
enum Places<'a> {
    Each(&'a [u64; LANES]),
    /// All lanes, one after the other.
    Run(u64),
    /// All at one place.
    Same(u64),
}

/// How an access orders others, by its instruction's flags; `None` for a weak one.
fn ordering_of(flags: u32, access: Access) -> Option<Ordering> {
    let strong = access == Access::Atomic || flags & FLAG_ORDERED != 0;
    strong.then_some(Ordering {
        acquires: flags & FLAG_ACQUIRE != 0 && access != Access::Store,
        releases: flags & FLAG_RELEASE != 0 && access != Access::Load,
        scope: scope_of(flags),
    })
}

/// The scope in an instruction's flags.
pub(crate) fn scope_of(flags: u32) -> Scope {
    match flags & (FLAG_CTA | FLAG_CLUSTER) {
        0 => Scope::Wide,
        FLAG_CLUSTER => Scope::Cluster,
        _ => Scope::Cta,
    }
}

impl Races {
    /// The flags in the marks of a strong access by a warp.
    fn flags_of(&self, how: Ordering, warp: usize) -> u32 {
        let wide = if how.scope == Scope::Wide { WIDE } else { 0 };
        if !self.sync.has_peers() {
            return STRONG | wide;
        }
        let all = if how.scope >= Scope::Cluster { STRONG } else { 0 };
        all | wide | LOCAL | (self.sync.rank(warp) as u32) << RANK
    }
}

/// Checks and remembers an access of the active lanes, which has been resolved; false if it races.
#[inline(never)]
pub(crate) fn access(m: &mut Machine<'_>, i: &Inst, access: Access, bytes: u64, resolved: &Resolved) -> bool {
    let Some(mut races) = m.cta.races.take() else { return true };
    races.apart = false;
    let flags = ordering_of(i.slots[FLAGS], access).map_or(0, |how| races.flags_of(how, m.warp.index));
    let who = Who { warp: m.warp.index, lanes: m.active, pc: m.warp.pc as u32, flags };
    let addresses;
    let at = match resolved {
        Resolved::Run(_) => located_first(m, i).map(|(space, start)| (space, Places::Run(start))),
        Resolved::Same(_) => located_first(m, i).map(|(space, start)| (space, Places::Same(start))),
        Resolved::Lanes(_) | Resolved::Fault => {
            addresses = located(m, i);
            addresses.as_ref().map(|(space, addresses)| (*space, Places::Each(addresses)))
        }
    };
    let found = at.filter(|_| access != Access::Prefetch).and_then(|(space, places)| {
        let mut found = races.touch(who, &Touch { space, access, places, bytes });
        let copied = space == Space::Global && found.is_none() && races.copies.concern(access);
        if copied && let Some((_, addresses)) = located(m, i) {
            found = races.touch_copied(who, access, &addresses, bytes);
        }
        found.map(|found| (space, found))
    });
    m.cta.races = Some(races);
    let Some((space, (conflict, address, lane))) = found else { return true };
    report::race(m, (space, access), (conflict, address, bytes), lane);
    false
}

/// A strong access of the active lanes to global memory excludes those of other CTAs from before its first part
/// ([`publish`]) to after its last ([`observe`]).
pub(crate) type Turn<'a> = Option<MutexGuard<'a, Locations>>;

/// Before a strong write: gives what its lanes release to the location.
#[inline(never)]
pub(crate) fn publish<'a>(m: &mut Machine<'a>, i: &Inst, access: Access) -> Turn<'a> {
    let grid = m.launch.races.as_ref()?;
    let (space, addresses) = located(m, i)?;
    let mut races = m.cta.races.take()?;
    let how = ordering_of(i.slots[FLAGS], access).unwrap_or_default();
    let mut turn = (space == Space::Global).then(|| grid.locations());
    if access != Access::Load {
        for lane in lanes_of(m.active) {
            let (address, cta, warp) = (addresses[lane], races.sync.cta, m.warp.index);
            if let Some(turn) = &mut turn
                && how.scope == Scope::Wide
            {
                turn.write(address, (cta, (warp * LANES + lane) as u32), races.sync.now(warp));
            }
            let [here, around, beyond] = races.sync.released_by(warp, lane as u32, how);
            if let (Some(turn), Some(released)) = (&mut turn, beyond) {
                turn.release(address, &released.by_cta(cta));
            }
            races.release(warp, (space, address), access, [here, around]);
        }
    }
    m.cta.races = Some(races);
    turn
}

/// After a strong read: its lanes learn what was released at the location.
#[inline(never)]
pub(crate) fn observe(m: &mut Machine<'_>, i: &Inst, access: Access, turn: Turn<'_>) {
    let Some((space, addresses)) = located(m, i) else { return };
    let Some(mut races) = m.cta.races.take() else { return };
    let how = ordering_of(i.slots[FLAGS], access).unwrap_or_default();
    if access != Access::Store {
        for lane in lanes_of(m.active) {
            let (address, warp) = (addresses[lane], m.warp.index);
            for (ranks, scope) in [(races.sync.rank(warp), Scope::Cta), (ALL_RANKS, Scope::Cluster)] {
                if scope <= how.scope
                    && let Some(here) = races.locations.get(&(space, address, ranks)).cloned()
                {
                    races.sync.observe((warp, lane as u32), how.acquires, scope, &here);
                }
            }
            let Some(turn) = turn.as_ref().filter(|_| how.scope == Scope::Wide) else { continue };
            let Some(location) = turn.at(address) else { continue };
            if !location.released.is_empty() {
                let released = races.sync.knowledge_of(&location.released);
                races.sync.observe((warp, lane as u32), how.acquires, Scope::Wide, &released);
            }
            let by = Mark { time: races.sync.now(warp), who: (warp * LANES + lane) as u32, pc: 0 };
            races.see(Seen { address, by, writes: location.writes.clone() });
        }
    }
    m.cta.races = Some(races);
}

impl Races {
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

/// What a fence instruction does for other threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum FenceKind {
    /// A fence of the CTA's scope.
    Cta = 0,
    /// A fence of a wider scope.
    Wide = 1,
    /// Between instructions and the engine of bulk copies.
    Engine = 2,
    /// Of what initialised mbarriers.
    MbarrierInit = 3,
    /// Of something that is not modelled.
    Other = 4,
    /// A fence of the cluster's scope.
    Cluster = 5,
}

impl FenceKind {
    fn of(code: u64) -> FenceKind {
        match code {
            0 => FenceKind::Cta,
            1 => FenceKind::Wide,
            2 => FenceKind::Engine,
            3 => FenceKind::MbarrierInit,
            5 => FenceKind::Cluster,
            _ => FenceKind::Other,
        }
    }
}

/// A fence by the active lanes; `code` is its [`FenceKind`].
pub(crate) fn fence(m: &mut Machine<'_>, code: u64) {
    let (warp, lanes) = (m.warp.index, m.active);
    let Some(races) = m.cta.races.as_deref_mut() else { return };
    match FenceKind::of(code) {
        FenceKind::Cta => races.sync.fence(warp, lanes, Scope::Cta),
        FenceKind::Cluster => races.sync.fence(warp, lanes, Scope::Cluster),
        FenceKind::Wide => races.sync.fence(warp, lanes, Scope::Wide),
        FenceKind::Engine => races.sync.fence_engine(warp, lanes),
        FenceKind::MbarrierInit => races.sync.fence_inits(warp, lanes),
        FenceKind::Other => {}
    }
}

/// The active lanes have met at `bar.warp.sync`.
pub(crate) fn meet(m: &mut Machine<'_>) {
    let (warp, lanes) = (m.warp.index, m.active);
    if let Some(races) = m.cta.races.as_deref_mut() {
        races.sync.meet(warp, lanes);
    }
}

/// The warp has arrived at barrier `id`; it and those put on the CTA's `released` from `from` on may go, if any.
pub(crate) fn arrive(m: &mut Machine<'_>, id: usize, from: usize) {
    let (warp, complete) = (m.warp.index, m.cta.is_idle(id));
    let Some(races) = m.cta.races.as_deref_mut() else { return };
    races.sync.arrive(warp, id);
    if complete {
        races.sync.leave(id, m.cta.released[from..].iter().map(|release| release.warp));
    }
}

/// A lane has initialised an mbarrier.
pub(crate) fn init_gate(m: &mut Machine<'_>, lane: usize, address: u64) {
    let (warp, pc) = (m.warp.index, m.warp.pc as u32);
    if let Some(races) = m.cta.races.as_deref_mut() {
        races.sync.init_gate(address, (warp, lane as u32), pc);
    }
}

/// An mbarrier is ordinary memory again.
pub(crate) fn close_gate(m: &mut Machine<'_>, address: u64) {
    if let Some(gate) = m.cta.races.as_deref_mut().and_then(|races| races.sync.gate(address)) {
        gate.live = false;
    }
}

/// Lanes are about to use an mbarrier, perhaps to arrive there, releasing at a scope; false if nothing orders that
/// with its initialisation.
pub(crate) fn use_gate(m: &mut Machine<'_>, lanes: u32, address: u64, releases: Option<Scope>) -> bool {
    let warp = m.warp.index;
    let Some(races) = m.cta.races.as_deref_mut() else { return true };
    let Some(&mut sync::Gate { by, slot, .. }) = races.sync.gate(address) else { return true };
    let own = if by.0 == warp { 1 << by.1 } else { 0 };
    let others = lanes & !own;
    let actors = races.sync.actors(warp, others, 0, 0);
    if !actors.all(|clock| clock.knows(by.0, 1 << by.1, by.2))
        && !races.sync.is_announced(warp, &races.sync.gates[slot])
    {
        let knows =
            |lane: usize| actors.clock(lane as u32).is_some_and(|clock| clock.knows(by.0, 1 << by.1, by.2));
        let lane = lanes_of(others).find(|&lane| !knows(lane)).unwrap_or_default();
        report::unordered_init(m, lane, address, by);
        return false;
    }
    if let Some(scope) = releases {
        races.sync.arrive_at(warp, lanes, address, scope);
    }
    true
}

/// Lanes look at an mbarrier, and copies that signal it may have been completed; false as [`use_gate`].
pub(crate) fn waits(m: &mut Machine<'_>, lanes: u32, address: u64) -> bool {
    if !m.cta.finished.is_empty() {
        complete(m, Some(address));
    }
    if let Some(phase) = m.cta.asynchronous.mbarrier(address).map(|mbarrier| mbarrier.phase) {
        settle(m, address, phase);
    }
    use_gate(m, lanes, address, None)
}

/// An mbarrier may have gone on to phase `phase`.
pub(crate) fn settle(m: &mut Machine<'_>, address: u64, phase: u64) {
    if let Some(races) = m.cta.races.as_deref_mut() {
        races.sync.settle(address, phase);
    }
}

/// Lanes have found a phase complete, acquiring at a scope.
pub(crate) fn pass(m: &mut Machine<'_>, lanes: u32, addresses: &[u64; LANES], scope: Scope) {
    let warp = m.warp.index;
    let Some(races) = m.cta.races.as_deref_mut() else { return };
    let mut left = lanes;
    while left != 0 {
        let address = addresses[left.trailing_zeros() as usize];
        let alike = |all, (lane, &other): (usize, &u64)| all | ((other == address) as u32) << lane;
        let same = left & addresses.iter().enumerate().fold(0, alike);
        races.sync.pass(warp, same, address, scope);
        left &= !same;
    }
}

/// Whether the lanes of the store just checked are known to write different bytes.
pub(crate) fn are_apart(m: &Machine<'_>) -> bool {
    m.cta.races.as_ref().is_none_or(|races| races.apart)
}

/// The cluster has ended: compares it with the others. The warp comes with its fault.
pub(crate) fn finish(launch: &Launch<'_>, cta: &mut CtaState) -> Option<(usize, Box<Fault>)> {
    let grid = launch.races.as_ref()?;
    let mut races = cta.races.take()?;
    if let Some((warp, fault)) = cluster::after_exit(launch, cta, &races) {
        return Some((warp, Box::new(fault)));
    }
    let clash = grid.finish(&mut races);
    cta.races = Some(races);
    let (warp, fault) = report::clash(launch, cta, &clash?);
    Some((warp, Box::new(fault)))
}
