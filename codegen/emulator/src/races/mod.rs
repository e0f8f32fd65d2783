//! Accesses that nothing orders.
//!
//! Two accesses race if they touch a byte, at least one writes it, and neither happened before the other. What
//! happened before what is followed by vector clocks ([`clock`]), through whatever the ISA says orders memory
//! ([`sync`]): program order, barriers, `bar.warp.sync`, mbarriers, waits for copies, fences with strong accesses,
//! and acquire and release. Every access leaves a mark ([`shadow`]) that later ones of its CTA are compared with;
//! CTAs are compared with each other as they end ([`grid`]). Nothing depends on how the emulator happened to take
//! turns: accesses that a barrier orders are clean, others are found though they came one after the other.

mod clock;
mod copies;
mod grid;
mod report;
mod shadow;
mod sync;

use std::collections::HashMap;
use std::sync::MutexGuard;

use crate::cta::CtaState;
use crate::exec::lanes::LANES;
use crate::exec::resolve::{Access, FLAG_ACQUIRE, FLAG_CTA, FLAG_ORDERED, FLAG_RELEASE, FLAGS, located};
use crate::exec::{Fault, Inst, Launch, Machine, lanes_of};
use crate::finding::Space;
use clock::{Knowledge, Time};
pub(crate) use copies::{Bulk, complete, issue_bulk, issue_grouped};
pub(crate) use grid::Grid;
use grid::Locations;
pub(crate) use report::collision;
use shadow::{Actor, Conflict, GRANULE, Mark, STRONG, Shadow};
use sync::{Ordering, Sync, flags_of};

/// Global memory gets its marks in pieces of this many bytes.
const PAGE: u64 = 4096;

/// What one CTA's threads have accessed, and what orders them.
pub(crate) struct Races {
    sync: Sync,
    shared: Shadow,
    global: Shadow,
    /// The first cell of each page of global memory, and the first time of the CTA that touched it last.
    pages: HashMap<u64, (usize, Time)>,
    last_page: (u64, usize),
    /// The pages that the CTA has touched.
    touched: Vec<u64>,
    base: Time,
    copies: copies::Copies,
    /// What was released at addresses of shared memory, or of global memory within the CTA.
    locations: HashMap<(Space, u64), Knowledge>,
    /// Strong writes of other CTAs that a thread has seen at an address of global memory.
    seen: Vec<Seen>,
}

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
            pages: HashMap::new(),
            last_page: (u64::MAX, 0),
            touched: Vec::new(),
            base: 0,
            copies: copies::Copies::default(),
            locations: HashMap::new(),
            seen: Vec::new(),
        }
    }

    /// Begins a CTA of so many warps.
    pub(crate) fn start(&mut self, cta: u64, warps: usize, shared_bytes: u64) {
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
        self.seen.clear();
    }

    /// The cell of an address.
    #[inline(always)]
    fn cell(&mut self, space: Space, address: u64) -> usize {
        if space == Space::Shared {
            return (address / GRANULE) as usize;
        }
        let page = address / PAGE;
        if self.last_page.0 != page {
            self.last_page = (page, self.page(page));
        }
        self.last_page.1 + (address % PAGE / GRANULE) as usize
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
    fn touch(&mut self, who: Who, what: Touch<'_>) -> Option<(Conflict, u64, u32)> {
        let Touch { space, access, addresses, bytes } = what;
        if access != Access::Load {
            if space == Space::Global {
                self.sync_archive();
            }
            let found = self.each(who, &what, Pass::CheckWrite);
            if found.is_some() {
                return found;
            }
            return self.each(who, &what, Pass::NoteWrite);
        }
        // Lanes that read one place do so together.
        let first = who.lanes.trailing_zeros();
        let together = lanes_of(who.lanes).all(|lane| addresses[lane] == addresses[first as usize]);
        if !together {
            return self.each(who, &what, Pass::Read);
        }
        let address = addresses[first as usize];
        for (granule, part) in granules(address, bytes) {
            let index = self.cell(space, granule);
            let Races { sync, shared, global, .. } = self;
            let shadow = if space == Space::Shared { shared } else { global };
            for actor in sync.actors(who.warp, who.lanes, who.pc, who.flags) {
                if let Some(conflict) = shadow.check_read(index, part, &actor) {
                    let own = conflict.mark.lane();
                    let others = actor.lanes & !(1 << own);
                    let lane = if others != 0 { others } else { actor.lanes }.trailing_zeros();
                    return Some((conflict, granule, lane));
                }
                shadow.note_read(index, part, &actor);
            }
        }
        None
    }

    /// Records that are replaced from here on may look different from another CTA than those to come.
    fn sync_archive(&mut self) {
        self.global.archive_until(self.sync.last_foreign);
    }

    /// Goes over the lanes one by one.
    fn each(&mut self, who: Who, what: &Touch<'_>, pass: Pass) -> Option<(Conflict, u64, u32)> {
        // One copy of the loop for each pass.
        match pass {
            Pass::CheckRead => self.each_of(who, what, Pass::CheckRead),
            Pass::Read => self.each_of(who, what, Pass::Read),
            Pass::CheckWrite => self.each_of(who, what, Pass::CheckWrite),
            Pass::NoteWrite => self.each_of(who, what, Pass::NoteWrite),
        }
    }

    #[inline(always)]
    fn each_of(&mut self, who: Who, what: &Touch<'_>, pass: Pass) -> Option<(Conflict, u64, u32)> {
        for lane in lanes_of(who.lanes) {
            let address = what.addresses[lane];
            // Aligned, as accesses are, so that all granules are in one page.
            let first = self.cell(what.space, address / GRANULE * GRANULE);
            let Races { sync, shared, global, .. } = &mut *self;
            let shadow = if what.space == Space::Shared { shared } else { global };
            let clock = &sync.knowledge(who.warp, lane as u32).own;
            let (now, lanes) = (sync.now(who.warp), 1 << lane);
            let actor = Actor { warp: who.warp, lanes, now, pc: who.pc, flags: who.flags, clock };
            for (index, (granule, part)) in (first..).zip(granules(address, what.bytes)) {
                let conflict = match pass {
                    Pass::CheckRead | Pass::Read => shadow.check_read(index, part, &actor),
                    Pass::CheckWrite => shadow.check_write(index, part, &actor),
                    Pass::NoteWrite => None,
                };
                if let Some(conflict) = conflict {
                    return Some((conflict, granule, lane as u32));
                }
                match pass {
                    Pass::Read => shadow.note_read(index, part, &actor),
                    Pass::CheckRead | Pass::CheckWrite => {}
                    Pass::NoteWrite => shadow.note_write(index, part, actor.mark(lane as u32)),
                }
            }
        }
        None
    }

    /// Whether a lane had seen the write with an operation of its own, or one that it knows of, on the same address.
    fn has_seen(&self, address: u64, (cta, write): (u64, Mark), (warp, lane): (usize, u32)) -> bool {
        let clock = &self.sync.knowledge(warp, lane).own;
        self.seen.iter().filter(|seen| seen.address / GRANULE == address / GRANULE).any(|seen| {
            let covers =
                seen.writes.get(&(cta, write.number() as u32)).is_some_and(|&time| time >= write.time);
            let own = (seen.by.warp(), seen.by.lane()) == (warp, lane);
            covers && (own || clock.knows(seen.by.warp(), 1 << seen.by.lane(), seen.by.time))
        })
    }
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
    addresses: &'a [u64; LANES],
    bytes: u64,
}

#[derive(Clone, Copy)]
enum Pass {
    CheckRead,
    Read,
    CheckWrite,
    NoteWrite,
}

/// The granules of a range, each with the bytes of it that are inside.
#[inline(always)]
fn granules(address: u64, bytes: u64) -> impl Iterator<Item = (u64, (u64, u64))> {
    let end = address + bytes;
    (address / GRANULE..end.div_ceil(GRANULE)).map(move |granule| {
        let start = granule * GRANULE;
        (start, (address.max(start) - start, end.min(start + GRANULE) - start))
    })
}

/// How an access orders others, by its instruction's flags; `None` for a weak one.
fn ordering_of(flags: u32, access: Access) -> Option<Ordering> {
    let strong = access == Access::Atomic || flags & FLAG_ORDERED != 0;
    strong.then_some(Ordering {
        acquires: flags & FLAG_ACQUIRE != 0 && access != Access::Store,
        releases: flags & FLAG_RELEASE != 0 && access != Access::Load,
        wide: flags & FLAG_CTA == 0,
    })
}

/// Checks and remembers an access of the active lanes; false if it races.
#[inline(never)]
pub(crate) fn access(m: &mut Machine<'_>, i: &Inst, access: Access, bytes: u64) -> bool {
    let Some((space, addresses)) = located(m, i) else { return true };
    let Some(mut races) = m.cta.races.take() else { return true };
    let addresses = &addresses;
    let flags = ordering_of(i.slots[FLAGS], access).map_or(0, |how| STRONG | flags_of(how));
    let who = Who { warp: m.warp.index, lanes: m.active, pc: m.warp.pc as u32, flags };
    let mut found = None;
    if access != Access::Prefetch {
        found = races.touch(who, Touch { space, access, addresses, bytes });
        if space == Space::Global && found.is_none() && !races.copies.is_empty() {
            found = races.touch_copied(who, access, addresses, bytes);
        }
        // Within the CTA a lane may have seen a strong write without anything else ordering it.
        if let Some((conflict, address, lane)) = found
            && space == Space::Global
            && !conflict.mark.is_engine()
            && races.has_seen(address, (races.sync.cta, conflict.mark), (who.warp, lane))
        {
            found = None;
            if access != Access::Load {
                races.each(who, &Touch { space, access, addresses, bytes }, Pass::NoteWrite);
            }
        }
    }
    m.cta.races = Some(races);
    match found {
        None => true,
        Some((conflict, address, lane)) => {
            report::race(m, (space, access), (conflict, address, bytes), lane);
            false
        }
    }
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
                && how.wide
            {
                turn.write(address, (cta, (warp * LANES + lane) as u32), races.sync.now(warp));
            }
            let [here, beyond] = races.sync.released_by(warp, lane as u32, how);
            if let (Some(turn), Some(released)) = (&mut turn, beyond) {
                turn.release(address, &released.by_cta(cta));
            }
            // A store ends what was released there before.
            if access == Access::Store {
                races.locations.remove(&(space, address));
            }
            if let Some(released) = here {
                races.locations.entry((space, address)).or_default().join(&released);
            }
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
            if let Some(here) = races.locations.get(&(space, address)).cloned() {
                races.sync.observe((warp, lane as u32), how.acquires, false, &here);
            }
            let Some(turn) = turn.as_ref().filter(|_| how.wide) else { continue };
            let Some(location) = turn.at(address) else { continue };
            if !location.released.is_empty() {
                let released = races.sync.knowledge_of(&location.released);
                races.sync.observe((warp, lane as u32), how.acquires, true, &released);
            }
            let by = Mark { time: races.sync.now(warp), who: (warp * LANES + lane) as u32, pc: 0 };
            races.see(Seen { address, by, writes: location.writes.clone() });
        }
    }
    m.cta.races = Some(races);
}

impl Races {
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
}

impl FenceKind {
    fn of(code: u64) -> FenceKind {
        match code {
            0 => FenceKind::Cta,
            1 => FenceKind::Wide,
            2 => FenceKind::Engine,
            3 => FenceKind::MbarrierInit,
            _ => FenceKind::Other,
        }
    }
}

/// A fence by the active lanes; `code` is its [`FenceKind`].
pub(crate) fn fence(m: &mut Machine<'_>, code: u64) {
    let (warp, lanes) = (m.warp.index, m.active);
    let Some(races) = m.cta.races.as_deref_mut() else { return };
    match FenceKind::of(code) {
        FenceKind::Cta => races.sync.fence(warp, lanes, false),
        FenceKind::Wide => races.sync.fence(warp, lanes, true),
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

/// A lane is about to use an mbarrier; false if nothing orders that with its initialisation.
pub(crate) fn use_gate(m: &mut Machine<'_>, lane: usize, address: u64, arrives: bool) -> bool {
    let warp = m.warp.index;
    let Some(races) = m.cta.races.as_deref_mut() else { return true };
    let Some(&mut sync::Gate { by, .. }) = races.sync.gate(address) else { return true };
    let own = (by.0, by.1) == (warp, lane as u32);
    if !own && !races.sync.knowledge(warp, lane as u32).own.knows(by.0, 1 << by.1, by.2) {
        report::unordered_init(m, lane, address, by);
        return false;
    }
    if arrives {
        races.sync.arrive_at(warp, lane as u32, address);
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
    lanes_of(lanes).all(|lane| use_gate(m, lane, address, false))
}

/// An mbarrier may have gone on to phase `phase`.
pub(crate) fn settle(m: &mut Machine<'_>, address: u64, phase: u64) {
    if let Some(races) = m.cta.races.as_deref_mut() {
        races.sync.settle(address, phase);
    }
}

/// Lanes have found a phase complete.
pub(crate) fn pass(m: &mut Machine<'_>, lanes: u32, addresses: &[u64; LANES]) {
    let warp = m.warp.index;
    let Some(races) = m.cta.races.as_deref_mut() else { return };
    let mut left = lanes;
    while left != 0 {
        let address = addresses[left.trailing_zeros() as usize];
        let same =
            lanes_of(left).filter(|&lane| addresses[lane] == address).fold(0, |all, lane| all | 1 << lane);
        races.sync.pass(warp, same, address);
        left &= !same;
    }
}

/// The CTA has ended: compares it with the others. The warp comes with its fault.
pub(crate) fn finish(launch: &Launch<'_>, cta: &mut CtaState) -> Option<(usize, Box<Fault>)> {
    let grid = launch.races.as_ref()?;
    let mut races = cta.races.take()?;
    let clash = grid.finish(&mut races);
    cta.races = Some(races);
    let (warp, fault) = report::clash(launch, cta, &clash?);
    Some((warp, Box::new(fault)))
}
