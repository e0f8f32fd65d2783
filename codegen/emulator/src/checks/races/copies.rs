//! Asynchronous copies: what they touch is touched from when they are issued until somebody knows them complete.
//!
//! A copy that signals an mbarrier is the deed of that mbarrier's phase: who has found the phase complete, or was told
//! by one who has, comes after it. A copy in a group is the deed of the thread that waited for the group.

use super::mark::{ENGINE, GRANULE, Mark, STRONG};
use super::pieces::{By, LINE, Piece, Spread};
use super::shadow::{Conflict, Found, Known};
use super::{LINES, PAGE, Races, Who, report};
use crate::context::asynchronous::Copy;
use crate::exec::lanes::LANES;
use crate::exec::resolve::Access;
use crate::exec::{Machine, lanes_of};
use crate::finding::Space;

/// A copy's source in global memory.
struct Source {
    from: u64,
    bytes: u64,
    by: Mark,
    /// The lanes that copy, equally much each, one after the other.
    lanes: u32,
    shared: u64,
    /// Whose deed the copy is, and when it was complete; none while it is in flight.
    done: Option<Mark>,
}

/// The target in global memory of a bulk copy in flight.
struct Target {
    to: u64,
    bytes: u64,
    by: Mark,
    shared: u64,
}

/// Bulk copies of a CTA.
#[derive(Default)]
pub(super) struct Copies {
    sources: Vec<Source>,
    targets: Vec<Target>,
}

impl Copies {
    /// Whether an access of global memory may come too early for one of them.
    pub(super) fn concern(&self, access: Access) -> bool {
        !self.targets.is_empty() || access != Access::Load && !self.sources.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.sources.clear();
        self.targets.clear();
    }
}

fn overlap((a, size): (u64, u64), (b, other): (u64, u64)) -> bool {
    a < b + other && b < a + size
}

/// A bulk copy, or an asynchronous store, about to be issued by a lane.
#[derive(Clone, Copy)]
pub(crate) struct Bulk {
    /// Where from; none for a store.
    pub(crate) source: Option<(Space, u64)>,
    pub(crate) target: (Space, u64),
    pub(crate) bytes: u64,
    /// Its mbarrier, if it goes into shared memory.
    pub(crate) gate: Option<u64>,
    /// Whether it is atomic, for all threads of the cluster.
    pub(crate) atomic: bool,
}

/// Why a copy must not be issued.
pub(super) enum Refusal {
    Race(Space, Conflict, u64),
    Unfenced(Space, Mark, u64),
    UnfencedGate(u64),
}

impl Races {
    /// Looks for bulk copies that an access of global memory comes too early for.
    pub(super) fn touch_copied(
        &self,
        who: Who,
        access: Access,
        addresses: &[u64; LANES],
        bytes: u64,
    ) -> Option<Found> {
        lanes_of(who.lanes).find_map(|lane| {
            let conflict = self.conflicting_copy(who.warp, lane as u32, access, (addresses[lane], bytes))?;
            Some((conflict, addresses[lane] / GRANULE * GRANULE, lane as u32))
        })
    }

    fn conflicting_copy(
        &self,
        warp: usize,
        lane: u32,
        access: Access,
        range: (u64, u64),
    ) -> Option<Conflict> {
        let target = self.copies.targets.iter().find(|target| overlap(range, (target.to, target.bytes)));
        if let Some(target) = target {
            return Some(Conflict { mark: engine(target.by), writes: true });
        }
        if access == Access::Load {
            return None;
        }
        let clock = &self.sync.knowledge(warp, lane).own;
        let over = |source: &Source, done: Mark| {
            if done.is_engine() {
                return clock.knows_phase(done.number(), done.time);
            }
            let mut parts = (0..).zip(lanes_of(source.lanes)).filter(|(part, _)| {
                let each = source.bytes / source.lanes.count_ones() as u64;
                overlap(range, (source.from + part * each, each))
            });
            parts.all(|(_, part)| {
                (done.warp(), part as u32) == (warp, lane) || clock.knows(done.warp(), 1 << part, done.time)
            })
        };
        let early = |source: &&Source| {
            overlap(range, (source.from, source.bytes)) && !source.done.is_some_and(|done| over(source, done))
        };
        let source = self.copies.sources.iter().find(early)?;
        Some(Conflict { mark: engine(source.by), writes: false })
    }

    /// Checks what a bulk copy will read and write.
    fn check_bulk(&self, warp: usize, lane: u32, pc: u32, bulk: Bulk) -> Result<(), Refusal> {
        let Bulk { source, target, bytes, gate, atomic } = bulk;
        // What reads memory is the engine of bulk copies; a store's value comes from a register.
        if source.is_some()
            && let Some(address) = gate
            && let Some(gate) = self.sync.gates.iter().find(|gate| gate.live && gate.address == address)
            && !gate.fenced
        {
            return Err(Refusal::UnfencedGate(address));
        }
        let fenced = self.sync.knowledge(warp, lane).fenced.as_deref();
        let actors = self.sync.actors(warp, 1 << lane, pc, if atomic { STRONG } else { 0 });
        // Shared memory first.
        let parts = match (target.0, source) {
            (Space::Shared, _) => [Some((target, true)), source.map(|from| (from, false))],
            _ => [source.map(|from| (from, false)), Some((target, true))],
        };
        for ((space, start), writes) in parts.into_iter().flatten() {
            let shadow = if space == Space::Shared { &self.shared } else { &self.global };
            let end = start + bytes;
            let mut known = Known::default();
            // A page at a time, of which those that no thread has touched need no look: weights, most often.
            for page in start / PAGE..end.div_ceil(PAGE) {
                let first = match space {
                    Space::Shared => Some((page * LINES) as usize),
                    _ => self.pages.get(&page).map(|&(first, _)| first),
                };
                let Some(first) = first else { continue };
                let from = start.max(page * PAGE);
                for (line, bytes) in lines(from, end.min((page + 1) * PAGE) - from) {
                    let index = first + (line % LINES) as usize;
                    if !shadow.is_marked(index) {
                        continue;
                    }
                    let piece = Piece { line, index, bytes, lanes: 1 << lane, by: By::All };
                    let part = (&piece, Spread::All(1 << lane));
                    if !shadow.allows(part, writes, &actors, &mut known)
                        && let Some((conflict, at, _)) = shadow.conflict(part, writes, &actors, |_| false)
                    {
                        return Err(Refusal::Race(space, conflict, at));
                    }
                    if source.is_some()
                        && let Some((mark, granule)) = shadow.unfenced(index, bytes, fenced)
                    {
                        return Err(Refusal::Unfenced(space, mark, line * LINE + granule * GRANULE));
                    }
                }
            }
        }
        let globals = [(target, Access::Store)].into_iter().chain(source.map(|from| (from, Access::Load)));
        for ((_, start), access) in globals.filter(|((space, _), _)| *space == Space::Global) {
            if let Some(conflict) = self.conflicting_copy(warp, lane, access, (start, bytes)) {
                return Err(Refusal::Race(Space::Global, conflict, start));
            }
        }
        Ok(())
    }

    /// Marks a range of shared memory as written by the engine.
    fn note_written(&mut self, start: u64, bytes: u64, mark: Mark) {
        for (line, bytes) in lines(start, bytes) {
            let piece = Piece { line, index: line as usize, bytes, lanes: 0, by: By::All };
            self.shared.note_write((&piece, Spread::All(0)), mark);
        }
    }

    /// Marks what a copy in a group read and wrote as the deeds of its threads, which have waited for it.
    fn note_grouped(&mut self, copy: &Copy) {
        let bytes = (copy.bytes / copy.lanes.count_ones()) as u64;
        let who = Who { warp: copy.warp, lanes: copy.lanes, pc: copy.pc as u32, flags: 0 };
        self.pieces.set(copy.lanes, &run(copy.lanes, copy.shared, bytes), bytes);
        self.locate(Space::Shared);
        self.note(who, Space::Shared, copy.into_shared);
        if copy.into_shared {
            return;
        }
        for (at, lane) in (0..).zip(lanes_of(copy.lanes)) {
            let start = copy.shared + at * bytes;
            let ours = |target: &mut Target| target.shared == start && target.by.pc == who.pc;
            for target in self.copies.targets.extract_if(.., ours).collect::<Vec<_>>() {
                self.pieces.clear();
                self.pieces.add(1 << lane, target.to, target.bytes);
                self.locate(Space::Global);
                self.note(Who { lanes: 1 << lane, ..who }, Space::Global, true);
            }
        }
    }
}

/// The lines of a range, each with the bytes of it that are inside.
pub(super) fn lines(start: u64, bytes: u64) -> impl Iterator<Item = (u64, u32)> {
    let end = start + bytes;
    (start / LINE..end.div_ceil(LINE)).map(move |line| {
        let (from, to) = (start.max(line * LINE), end.min((line + 1) * LINE));
        (line, (u32::MAX >> (LINE - (to - from))) << (from % LINE))
    })
}

/// Where some lanes are that have `bytes` bytes each, one after the other.
fn run(lanes: u32, start: u64, bytes: u64) -> [u64; LANES] {
    let mut addresses = [0; LANES];
    (0..).zip(lanes_of(lanes)).for_each(|(index, lane)| addresses[lane] = start + index * bytes);
    addresses
}

fn engine(mark: Mark) -> Mark {
    Mark { who: mark.who | ENGINE, ..mark }
}

/// Checks a bulk copy that a lane is about to issue; false if there is a finding.
pub(crate) fn issue_bulk(m: &mut Machine<'_>, lane: usize, bulk: Bulk) -> bool {
    let Some(mut races) = m.cta.races.take() else { return true };
    let (warp, pc) = (m.warp.index, m.warp.pc as u32);
    let outcome = races.check_bulk(warp, lane as u32, pc, bulk);
    let bytes = bulk.bytes;
    let by = Mark { time: races.sync.now(warp), who: (warp * LANES + lane) as u32, pc };
    match (bulk.source, bulk.target) {
        (Some((Space::Global, from)), (_, shared)) => {
            races.copies.sources.push(Source { from, bytes, by, lanes: 1 << lane, shared, done: None });
        }
        (Some((_, shared)), (Space::Global, to)) => {
            races.copies.targets.push(Target { to, bytes, by, shared });
        }
        _ => {}
    }
    m.cta.races = Some(races);
    match outcome {
        Ok(()) => true,
        Err(refusal) => {
            report::refused(m, lane as u32, refusal, bulk);
            false
        }
    }
}

/// Checks a `cp.async` of `bytes` bytes by each of some lanes, one after the other, of which `copied` are read.
pub(crate) fn issue_grouped(
    m: &mut Machine<'_>,
    lanes: u32,
    at: (u64, u64),
    bytes: u64,
    copied: u64,
) -> bool {
    let Some(mut races) = m.cta.races.take() else { return true };
    let who = Who { warp: m.warp.index, lanes, pc: m.warp.pc as u32, flags: 0 };
    races.pieces.set(lanes, &run(lanes, at.0, bytes), bytes);
    races.locate(Space::Shared);
    let mut found =
        races.check(who, Space::Shared, true).map(|found| ((Space::Shared, Access::Store), found));
    if copied > 0 && found.is_none() {
        let sources = run(lanes, at.1, bytes);
        races.pieces.set(lanes, &sources, copied);
        races.locate(Space::Global);
        let early = races.check(who, Space::Global, false);
        let early = early.or_else(|| races.touch_copied(who, Access::Load, &sources, copied));
        let first = lanes.trailing_zeros();
        let by = Mark { time: races.sync.now(who.warp), who: (who.warp * LANES) as u32 + first, pc: who.pc };
        let bytes = copied * lanes.count_ones() as u64;
        races.copies.sources.push(Source { from: at.1, bytes, by, lanes, shared: at.0, done: None });
        found = early.map(|found| ((Space::Global, Access::Load), found));
    }
    m.cta.races = Some(races);
    match found {
        None => true,
        Some((what, (conflict, address, lane))) => {
            report::race(m, what, (conflict, address, bytes), lane);
            false
        }
    }
}

/// Marks the deeds of the copies that have been completed: for an mbarrier, or by a thread that waited for its groups.
pub(crate) fn complete(m: &mut Machine<'_>, gate: Option<u64>) {
    if m.cta.finished.is_empty() {
        return;
    }
    let finished = std::mem::take(&mut m.cta.finished);
    let Some(races) = m.cta.races.as_deref_mut() else { return };
    for copy in &finished {
        let done = match gate.and_then(|gate| races.sync.gate(gate)).map(|gate| gate.slot as u32) {
            Some(slot) => Mark { time: races.sync.engine_time(), who: ENGINE | slot, pc: copy.pc as u32 },
            None => {
                let thread = copy.warp * LANES + copy.lanes.trailing_zeros() as usize;
                Mark { time: races.sync.now(copy.warp), who: thread as u32, pc: copy.pc as u32 }
            }
        };
        let ours = |source: &&mut Source| {
            source.done.is_none() && overlap((copy.shared, 1), (source.shared, source.bytes.max(1)))
        };
        if let Some(source) = races.copies.sources.iter_mut().rev().find(ours).filter(|_| copy.reads_global())
        {
            source.done = Some(done);
        }
        if let Some(from) = copy.from_shared {
            races.note_copied(from, copy.bytes as u64, done);
        }
        match done.is_engine() {
            true => {
                let strong = if copy.is_atomic() { STRONG } else { 0 };
                races.note_written(copy.shared, copy.bytes as u64, Mark { who: done.who | strong, ..done });
            }
            false => races.note_grouped(copy),
        }
    }
}
