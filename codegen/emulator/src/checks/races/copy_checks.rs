//! Asynchronous copies: what they touch is touched from when they are issued until somebody knows them complete.
//!
//! A copy that signals an mbarrier is the deed of that mbarrier's phase: who has found the phase complete, or was told
//! by one who has, comes after it. A copy in a group is the deed of the thread that waited for the group.

use super::copies::{Bulk, Source, Target, overlap};
use super::detector::{Earlier, Race, Races, Who};
use super::mark::{ENGINE, GRANULE, Mark, STRONG};
use super::pages::{LINES, PAGE};
use super::pieces::{By, LINE, Piece, Spread};
use super::shadow::Known;
use crate::asynchronous::Copy;
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

/// Why a bulk copy must not be issued.
pub(crate) enum Refusal {
    Race {
        space: Space,
        race: Race,
    },
    /// No proxy fence after the earlier write.
    Unfenced {
        space: Space,
        earlier: Earlier,
        address: u64,
    },
    /// No fence after the initialisation of the mbarrier at the address.
    UnfencedGate {
        address: u64,
    },
}

/// A race of a `cp.async`.
pub(crate) struct CopyRace {
    pub(crate) space: Space,
    pub(crate) access: Access,
    pub(crate) race: Race,
}

impl Races {
    /// Checks a bulk copy that a lane is about to issue.
    pub(crate) fn issue_bulk(&mut self, who: Who, bulk: Bulk) -> Result<(), Refusal> {
        let (warp, lane, pc) = (who.warp, who.lanes.trailing_zeros(), who.pc);
        let outcome = self.check_bulk(warp, lane, pc, bulk);
        let bytes = bulk.bytes;
        let by = Mark { time: self.sync.now(warp), who: warp as u32 * LANES as u32 + lane, pc };
        match (bulk.source, bulk.target) {
            (Some((Space::Global, from)), (_, shared)) => {
                self.copies.sources.push(Source { from, bytes, by, lanes: 1 << lane, shared, done: None });
            }
            (Some((_, shared)), (Space::Global, to)) => {
                self.copies.targets.push(Target { to, bytes, by, shared });
            }
            _ => {}
        }
        outcome
    }

    /// Checks a `cp.async` of `bytes` bytes by each of some lanes, one after the other, of which `copied` are read.
    pub(crate) fn issue_grouped(
        &mut self,
        who: Who,
        at: (u64, u64),
        bytes: u64,
        copied: u64,
    ) -> Result<(), CopyRace> {
        let lanes = who.lanes;
        self.pieces.set(lanes, &run(lanes, at.0, bytes), bytes);
        self.locate(Space::Shared);
        if let Some(found) = self.check(who, Space::Shared, true) {
            return Err(CopyRace { space: Space::Shared, access: Access::Store, race: Race::new(found) });
        }
        if copied == 0 {
            return Ok(());
        }
        let sources = run(lanes, at.1, bytes);
        self.pieces.set(lanes, &sources, copied);
        self.locate(Space::Global);
        let early = self.check(who, Space::Global, false);
        let early = early.or_else(|| self.touch_copied(who, Access::Load, &sources, copied));
        let first = lanes.trailing_zeros();
        let by = Mark { time: self.sync.now(who.warp), who: (who.warp * LANES) as u32 + first, pc: who.pc };
        let bytes = copied * lanes.count_ones() as u64;
        self.copies.sources.push(Source { from: at.1, bytes, by, lanes, shared: at.0, done: None });
        match early {
            None => Ok(()),
            Some(found) => {
                Err(CopyRace { space: Space::Global, access: Access::Load, race: Race::new(found) })
            }
        }
    }

    /// Marks the deeds of copies that have been completed: for an mbarrier, or by a thread that waited for its groups.
    pub(crate) fn complete(&mut self, finished: &[Copy], gate: Option<u64>) {
        for copy in finished {
            let done = match gate.and_then(|gate| self.sync.gate(gate)).map(|gate| gate.slot as u32) {
                Some(slot) => Mark { time: self.sync.engine_time(), who: ENGINE | slot, pc: copy.pc as u32 },
                None => {
                    let thread = copy.warp * LANES + copy.lanes.trailing_zeros() as usize;
                    Mark { time: self.sync.now(copy.warp), who: thread as u32, pc: copy.pc as u32 }
                }
            };
            let ours = |source: &&mut Source| {
                source.done.is_none() && overlap((copy.shared, 1), (source.shared, source.bytes.max(1)))
            };
            if let Some(source) =
                self.copies.sources.iter_mut().rev().find(ours).filter(|_| copy.reads_global())
            {
                source.done = Some(done);
            }
            if let Some(from) = copy.from_shared {
                self.note_copied(from, copy.bytes as u64, done);
            }
            match done.is_engine() {
                true => {
                    let strong = if copy.is_atomic() { STRONG } else { 0 };
                    self.note_written(
                        copy.shared,
                        copy.bytes as u64,
                        Mark { who: done.who | strong, ..done },
                    );
                }
                false => self.note_grouped(copy),
            }
        }
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
            return Err(Refusal::UnfencedGate { address });
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
                        return Err(Refusal::Race { space, race: Race::new((conflict, at, lane)) });
                    }
                    if source.is_some()
                        && let Some((mark, granule)) = shadow.unfenced(index, bytes, fenced)
                    {
                        return Err(Refusal::Unfenced {
                            space,
                            earlier: Earlier::new(mark, true),
                            address: line * LINE + granule * GRANULE,
                        });
                    }
                }
            }
        }
        let globals = [(target, Access::Store)].into_iter().chain(source.map(|from| (from, Access::Load)));
        for ((_, start), access) in globals.filter(|((space, _), _)| *space == Space::Global) {
            if let Some(conflict) = self.copies.conflicting(&self.sync, (warp, lane), access, (start, bytes))
            {
                let race = Race::new((conflict, start, lane));
                return Err(Refusal::Race { space: Space::Global, race });
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

    /// Remembers that a copy has read a range of shared memory.
    fn note_copied(&mut self, start: u64, bytes: u64, mark: Mark) {
        for (line, bytes) in lines(start, bytes) {
            let piece = Piece { line, index: line as usize, bytes, lanes: 0, by: By::All };
            self.shared.note_copied((&piece, Spread::All(0)), mark);
        }
    }
}

/// The lines of a range, each with the bytes of it that are inside.
fn lines(start: u64, bytes: u64) -> impl Iterator<Item = (u64, u32)> {
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
