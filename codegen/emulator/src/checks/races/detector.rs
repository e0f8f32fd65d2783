//! The race detector of a cluster: its records of accesses, and what orders them.

use std::collections::HashMap;

use super::clock::{Knowledge, Time};
use super::copies::Copies;
use super::mark::{GRANULE, LOCAL, Mark, RANK, STRONG, WIDE};
use super::pages::{ByNumber, LINES, PAGE};
use super::peers::Uses;
use super::pieces::Pieces;
use super::shadow::{Found, Known, Shadow};
use super::sync::{Ordering, Scope, Sync};
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

/// What the threads of one cluster's CTAs (of one CTA, most often) have accessed, and what orders them.
pub(crate) struct Races {
    pub(super) sync: Sync,
    pub(super) shared: Shadow,
    pub(super) global: Shadow,
    /// The first line of each page of global memory, and the first time of the CTA that touched it last.
    pub(super) pages: ByNumber<(usize, Time)>,
    pub(super) last_page: (u64, usize),
    /// The pages that the CTA has touched.
    pub(super) touched: Vec<u64>,
    pub(super) base: Time,
    /// What was accessed last, and whether each byte of that by one lane.
    pub(super) pieces: Box<Pieces>,
    pub(super) apart: bool,
    /// By instruction, what it accessed last: the next time it is often the same elsewhere.
    pub(super) patterns: Vec<Option<Box<Pieces>>>,
    pub(super) copies: Copies,
    /// What was released at addresses of shared memory, or of global memory within the cluster, and for whom: the
    /// CTA of a rank, or [`ALL_RANKS`].
    pub(super) locations: HashMap<(Space, u64, usize), Knowledge>,
    pub(super) uses: Uses,
    /// Strong writes of other CTAs that a thread has seen at an address of global memory.
    pub(super) seen: Vec<Seen>,
}

/// In [`Races::locations`]: all CTAs of the cluster.
pub(super) const ALL_RANKS: usize = usize::MAX;

/// What a thread has seen written to a location, by whom and when.
pub(super) struct Seen {
    pub(super) address: u64,
    pub(super) by: Mark,
    pub(super) writes: HashMap<(u64, u32), Time>,
}

/// Who accesses.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    pub(crate) warp: usize,
    pub(crate) lanes: u32,
    pub(crate) pc: u32,
    /// The flags of its marks.
    pub(super) flags: u32,
}

/// What active lanes access: `bytes` each.
pub(crate) struct Touch<'a> {
    pub(crate) space: Space,
    pub(crate) access: Access,
    pub(crate) places: Places<'a>,
    pub(crate) bytes: u64,
}

/// Where lanes access.
pub(crate) enum Places<'a> {
    Each(&'a [u64; LANES]),
    /// All lanes, one after the other.
    Run(u64),
    /// All at one place.
    Same(u64),
}

impl Who {
    /// Lanes of a warp at an instruction.
    pub(crate) fn new(warp: usize, lanes: u32, pc: usize) -> Who {
        Who { warp, lanes, pc: pc as u32, flags: 0 }
    }
}

impl Places<'_> {
    /// The lanes' addresses.
    fn addresses(&self, bytes: u64) -> [u64; LANES] {
        match *self {
            Places::Each(addresses) => *addresses,
            Places::Run(start) => std::array::from_fn(|lane| start + lane as u64 * bytes),
            Places::Same(address) => [address; LANES],
        }
    }
}

/// The earlier of two accesses that race.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Earlier {
    /// The thread's number in the cluster; none for an asynchronous copy.
    pub(crate) thread: Option<usize>,
    pub(crate) pc: u32,
    pub(crate) writes: bool,
}

/// A race with an earlier access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race {
    pub(crate) earlier: Earlier,
    pub(crate) address: u64,
    /// The lane whose access is the later one.
    pub(crate) lane: u32,
}

impl Race {
    pub(super) fn new((conflict, address, lane): Found) -> Race {
        Race { earlier: Earlier::new(conflict.mark, conflict.writes), address, lane }
    }
}

impl Earlier {
    pub(super) fn new(mark: Mark, writes: bool) -> Earlier {
        // The number in the mark of a copy is its mbarrier's.
        let thread = (!mark.is_engine()).then_some(mark.number());
        Earlier { thread, pc: mark.pc, writes }
    }
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
            copies: Copies::default(),
            locations: HashMap::new(),
            uses: Uses::default(),
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
    pub(super) fn locate(&mut self, space: Space) {
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
    pub(super) fn touch(&mut self, who: Who, what: &Touch<'_>) -> Option<Found> {
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
        self.check_and_record::<true>(who, what.space, writes)
    }

    /// Looks for conflicts of what `pieces` says.
    pub(super) fn check(&mut self, who: Who, space: Space, writes: bool) -> Option<Found> {
        self.check_and_record::<false>(who, space, writes)
    }

    /// Checks the accesses in `pieces`, and returns the first conflict of the lowest lane. Records, if it is to, the
    /// accesses before that conflict.
    fn check_and_record<const NOTES: bool>(&mut self, who: Who, space: Space, writes: bool) -> Option<Found> {
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
    pub(super) fn note(&mut self, who: Who, space: Space, writes: bool) {
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

impl Races {
    /// Forgets whether lanes of the last store were known to write different bytes.
    pub(crate) fn begin_access(&mut self) {
        self.apart = false;
    }

    /// Checks and records an access; `how` orders a strong one.
    pub(crate) fn access(&mut self, who: Who, how: Option<Ordering>, what: &Touch<'_>) -> Option<Race> {
        if what.access == Access::Prefetch {
            return None;
        }
        let flags = how.map_or(0, |how| self.flags_of(how, who.warp));
        let mut found = self.touch(Who { flags, ..who }, what);
        if what.space == Space::Global && found.is_none() && self.copies.concern(what.access) {
            found = self.touch_copied(who, what.access, &what.places.addresses(what.bytes), what.bytes);
        }
        found.map(Race::new)
    }

    /// Whether the lanes of the last store are known to write different bytes.
    pub(crate) fn stores_are_apart(&self) -> bool {
        self.apart
    }

    /// Whether an access of global memory comes too early for a bulk copy in flight.
    pub(super) fn touch_copied(
        &self,
        who: Who,
        access: Access,
        addresses: &[u64; LANES],
        bytes: u64,
    ) -> Option<Found> {
        lanes_of(who.lanes).find_map(|lane| {
            let range = (addresses[lane], bytes);
            let conflict = self.copies.conflicting(&self.sync, (who.warp, lane as u32), access, range)?;
            Some((conflict, addresses[lane] / GRANULE * GRANULE, lane as u32))
        })
    }

    /// The flags in the marks of a strong access by a warp.
    pub(super) fn flags_of(&self, how: Ordering, warp: usize) -> u32 {
        let wide = if how.scope == Scope::Wide { WIDE } else { 0 };
        if !self.sync.has_peers() {
            return STRONG | wide;
        }
        let all = if how.scope >= Scope::Cluster { STRONG } else { 0 };
        all | wide | LOCAL | (self.sync.rank(warp) as u32) << RANK
    }
}
