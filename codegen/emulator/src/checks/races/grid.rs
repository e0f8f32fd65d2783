//! CTAs against each other.
//!
//! What a CTA did to global memory is compared with the others' when it ends. Most CTAs never hear of one another:
//! of those any two suffice that touched a byte. CTAs that have released something, or learned of another, are all kept,
//! with what was known of them and when. What asynchronous copies read is left out: they bring whole tiles, of which
//! nobody may use what another CTA is writing.
//!
//! Most lines are one CTA's alone: what it did there is kept as its own records have it, and looked at granule by
//! granule only when a second one comes.
//!
//! Pages are parted among tables, each behind a lock of its own, so that CTAs that end at the same time seldom wait for
//! one another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::clock::{Clocks, Time, join_clocks};
use super::detector::{Races, Seen};
use super::mark::{GRANULE, Mark, Readers, STRONG, WIDE};
use super::pages::{ByNumber, LINES, PAGE};
use super::shadow::{Archived, GRANULES, Shadow};
use super::sync::Sync;
use crate::lanes::lanes_of;

/// Tables of pages.
const TABLES: usize = 64;

/// What all CTAs of a launch share.
pub(crate) struct Grid {
    locations: Mutex<Locations>,
    tables: [Mutex<Marks>; TABLES],
    ended: RwLock<HashMap<u64, Arc<Ended>>>,
}

impl Default for Grid {
    fn default() -> Grid {
        Grid {
            locations: Mutex::default(),
            tables: std::array::from_fn(|_| Mutex::default()),
            ended: RwLock::default(),
        }
    }
}

/// What was released at addresses of global memory.
#[derive(Default)]
pub(crate) struct Locations(HashMap<u64, Location>);

/// What was released at one address, and the last strong write of each thread there.
#[derive(Default)]
pub(super) struct Location {
    pub(super) released: Clocks,
    pub(super) writes: HashMap<(u64, u32), Time>,
}

impl Locations {
    pub(super) fn at(&self, address: u64) -> Option<&Location> {
        self.0.get(&address)
    }

    pub(super) fn write(&mut self, address: u64, by: (u64, u32), time: Time) {
        self.0.entry(address).or_default().writes.insert(by, time);
    }

    pub(super) fn release(&mut self, address: u64, clocks: &Clocks) {
        join_clocks(&mut self.0.entry(address).or_default().released, clocks);
    }
}

/// An access of some CTA: which bytes of a granule, by whom.
#[derive(Clone, Copy, Default)]
struct Record {
    /// The CTA's position in the grid, and one; 0 if there is no record.
    cta: u64,
    readers: Readers,
    bytes: u8,
    /// The CTA is [free](Ending::free).
    free: bool,
    /// There are further records of the granule.
    more: bool,
    /// There are two weak records of the whole granule by free CTAs, so that one more of such a CTA tells nothing new.
    enough: bool,
}

/// The first record of each granule of a page, of reads and of writes; neither is there before it is needed.
#[derive(Default)]
struct Page {
    first: [Vec<Record>; 2],
    /// The lines, a bit each, that were only read, and of which one more weak read of a free CTA tells nothing new.
    settled: u128,
    /// The lines, a bit each, that any CTA has touched.
    touched: u128,
    /// By line: what the only CTA that has touched it did there; not there before it is needed.
    alone: Vec<Option<Alone>>,
    /// The records of such lines, each of one CTA.
    kept: Vec<Shadow>,
}

/// A line that one CTA has touched: its position in the grid, and where its records are: in which of [`Page::kept`], and
/// the line's number there.
#[derive(Clone, Copy)]
struct Alone {
    cta: u64,
    kept: u32,
    line: u32,
}

impl Page {
    fn first(&self, kind: usize, at: usize) -> Record {
        self.first[kind].get(at).copied().unwrap_or_default()
    }

    fn settle(&mut self, line: usize) {
        let granules = line * GRANULES..(line + 1) * GRANULES;
        let settled =
            granules.into_iter().all(|at| self.first(READS, at).enough && self.first(WRITES, at).cta == 0);
        let bit = 1 << line;
        self.settled = if settled { self.settled | bit } else { self.settled & !bit };
    }
}

/// What a CTA that has ended knew.
#[derive(Default)]
struct Ended {
    history: Vec<(usize, u32, Time, Arc<Clocks>)>,
    seen: Vec<Seen>,
}

/// What CTAs did to some of the pages.
#[derive(Default)]
struct Marks {
    pages: ByNumber<Page>,
    more: HashMap<(u64, bool), Vec<Record>>,
}

/// A CTA that has ended, to be compared with others.
struct Ending<'a> {
    cta: u64,
    global: &'a Shadow,
    /// What another access replaced in `global`: by line, and within a line in that order.
    archive: &'a [Archived],
    /// Whether nobody can have heard of it, and it of nobody: whoever races with such a CTA races with every other one
    /// that did the same.
    free: bool,
    mine: &'a Ended,
    others: &'a RwLock<HashMap<u64, Arc<Ended>>>,
}

/// Accesses of two CTAs that nothing orders.
pub(super) struct Clash {
    pub(super) address: u64,
    /// Who, and whether it writes: of the CTA that has ended, and of another.
    pub(super) mine: (Mark, bool),
    pub(super) theirs: (Mark, bool),
    pub(super) cta: u64,
}

const READS: usize = 0;
const WRITES: usize = 1;

impl Grid {
    pub(super) fn locations(&self) -> MutexGuard<'_, Locations> {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares a CTA that has ended with those that ended before.
    pub(super) fn finish(&self, races: &mut Races) -> Option<Clash> {
        let cta = races.sync.cta;
        let history = std::mem::take(&mut races.sync.history);
        let mine = Arc::new(Ended { history, seen: std::mem::take(&mut races.seen) });
        // Before its marks are there for others to be compared with.
        if !mine.history.is_empty() || !mine.seen.is_empty() {
            let mut ended = self.ended.write().unwrap_or_else(PoisonError::into_inner);
            ended.insert(cta, Arc::clone(&mine));
        }
        let mut touched = std::mem::take(&mut races.touched);
        touched.sort_unstable();
        let mut archive = std::mem::take(&mut races.global.archive);
        archive.sort_by_key(|&(index, ..)| index);
        let ending = Ending {
            cta,
            global: &races.global,
            archive: &archive,
            free: !races.sync.released && mine.history.is_empty() && mine.seen.is_empty(),
            mine: &mine,
            others: &self.ended,
        };
        touched.into_iter().find_map(|page| {
            let &(first, _) = races.pages.get(&page)?;
            let marks = &self.tables[page as usize % TABLES];
            marks.lock().unwrap_or_else(PoisonError::into_inner).merge(page, first, &ending)
        })
    }
}

impl Ending<'_> {
    /// How many lines it has touched from one on to the end of the page.
    fn lines_from(&self, index: usize) -> usize {
        // Pages begin at multiples of their lines.
        let end = (index / LINES as usize + 1) * LINES as usize;
        (index..end).filter(|&index| self.global.is_marked(index)).count()
    }

    /// What was replaced in a line.
    fn replaced(&self, index: usize) -> impl Iterator<Item = (usize, u8, bool, Readers)> {
        let from = self.archive.partition_point(|&(at, ..)| at < index * GRANULES);
        let archived = self.archive[from..].iter().take_while(move |&&(at, ..)| at < (index + 1) * GRANULES);
        archived.map(|&(at, part, writes, who)| (at % GRANULES, part, writes, who))
    }

    /// Whether a record of this CTA and one of another are ordered, or may come together.
    fn ordered(&self, address: u64, mine: (&Record, bool), theirs: (&Record, bool)) -> bool {
        let ((record, writes), (other, other_writes)) = (mine, theirs);
        let both = record.readers.mark.who & other.readers.mark.who;
        if both & (STRONG | WIDE) == STRONG | WIDE || !writes && !other_writes {
            return true;
        }
        if self.mine.knew(address, record, other) {
            return true;
        }
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        others.get(&(other.cta - 1)).is_some_and(|theirs| theirs.knew(address, other, record))
    }
}

impl Ended {
    /// Whether the threads of `later`, this CTA's, knew of `earlier` when they accessed.
    fn knew(&self, address: u64, later: &Record, earlier: &Record) -> bool {
        known(&self.history, later, earlier) || has_seen(&self.seen, address, later, earlier)
    }
}

impl Marks {
    /// Compares a page, whose first line in the CTA's shadow is `first`.
    fn merge(&mut self, page: u64, first: usize, ending: &Ending<'_>) -> Option<Clash> {
        let mut all = self.pages.remove(&page).unwrap_or_default();
        let clash = self.merge_lines(&mut all, (page, first), ending);
        self.pages.insert(page, all);
        clash
    }

    fn merge_lines(
        &mut self,
        all: &mut Page,
        (page, first): (u64, usize),
        ending: &Ending<'_>,
    ) -> Option<Clash> {
        let &Ending { cta, global, free, .. } = ending;
        let mut records = Vec::new();
        let mut own = None;
        for line in 0..LINES as usize {
            let index = first + line;
            if !global.is_marked(index) {
                continue;
            }
            records.extend(ending.replaced(index));
            let bit = 1 << line;
            if all.touched & bit == 0 && free && records.is_empty() {
                all.touched |= bit;
                all.alone.resize(LINES as usize, None);
                let kept = own.get_or_insert_with(|| Shadow::with_room(ending.lines_from(index)));
                let kept_at = all.kept.len() as u32;
                all.alone[line] = Some(Alone { cta, kept: kept_at, line: kept.adopt(global, index) });
                continue;
            }
            all.touched |= bit;
            if let Some(alone) = all.alone.get_mut(line).and_then(Option::take) {
                self.spell_out(all, page, line, alone);
            }
            let settled = all.settled >> line & 1 != 0;
            if settled && free && records.is_empty() && global.is_weakly_read(index) {
                continue;
            }
            global.visit(index, |at, part, writes, who| records.push((at, part, writes, who)));
            records.sort_by_key(|&(at, ..)| at);
            for (at, bytes, writes, readers) in records.drain(..) {
                let address = address_of(page, line, at);
                let record = Record { cta: cta + 1, readers, bytes, free, more: false, enough: false };
                if let Some(other) = self.other(all, address, (&record, writes), ending) {
                    return Some(clash(address, (record, writes), other));
                }
                self.add(all, address, (record, writes));
            }
            all.settle(line);
        }
        all.kept.extend(own);
        None
    }

    /// Makes of a line that one CTA had alone what it is where there are several.
    fn spell_out(&mut self, all: &mut Page, page: u64, line: usize, alone: Alone) {
        let Alone { cta, kept, line: at } = alone;
        let mut records = Vec::new();
        all.kept[kept as usize]
            .visit(at as usize, |at, part, writes, who| records.push((at, part, writes, who)));
        records.sort_by_key(|&(at, ..)| at);
        for (at, bytes, writes, readers) in records {
            let record = Record { cta: cta + 1, readers, bytes, free: true, more: false, enough: false };
            // It has nobody to race with.
            self.add(all, address_of(page, line, at), (record, writes));
        }
        all.settle(line);
    }

    /// Another CTA's record of a granule that races with this one.
    #[inline(always)]
    fn other(
        &self,
        page: &Page,
        address: u64,
        (record, writes): (&Record, bool),
        ending: &Ending<'_>,
    ) -> Option<(Record, bool)> {
        let at = (address % PAGE / GRANULE) as usize;
        [WRITES, READS].into_iter().find_map(|kind| {
            let first = page.first(kind, at);
            if first.cta == 0 || kind == READS && !writes || first.cta == record.cta && !first.more {
                return None;
            }
            let more = if first.more { self.more.get(&(address, kind == WRITES)) } else { None };
            let clashes = |other: &&Record| {
                other.cta != record.cta
                    && other.bytes & record.bytes != 0
                    && !ending.ordered(address, (record, writes), (other, kind == WRITES))
            };
            let other = std::iter::once(&first).chain(more.into_iter().flatten()).find(clashes)?;
            Some((*other, kind == WRITES))
        })
    }

    /// Keeps a record of a granule, if it says more than those there are.
    #[inline(always)]
    fn add(&mut self, page: &mut Page, address: u64, (record, writes): (Record, bool)) {
        let first = &mut page.first[writes as usize];
        if first.is_empty() {
            first.resize((PAGE / GRANULE) as usize, Record::default());
        }
        let first = &mut first[(address % PAGE / GRANULE) as usize];
        if first.cta == 0 {
            *first = record;
        } else if !record.free || !first.enough || record.readers.mark.who & STRONG != 0 {
            self.keep(first, address, (record, writes));
        }
    }

    /// Keeps one record more of a granule, unless two of those there are say as much.
    fn keep(&mut self, first: &mut Record, address: u64, (record, writes): (Record, bool)) {
        let as_good = |other: &Record| {
            other.free
                && other.bytes & record.bytes == record.bytes
                && (other.readers.mark.who ^ record.readers.mark.who) & STRONG == 0
        };
        let list = self.more.entry((address, writes)).or_default();
        let alike = as_good(first) as usize + list.iter().filter(|other| as_good(other)).count();
        if !record.free || alike < 2 {
            first.more = true;
            list.push(record);
        }
        let weak = record.readers.mark.who & STRONG == 0;
        first.enough |= record.free && weak && alike >= 1 && record.bytes == 0xf;
    }
}

/// Where a granule of a line of a page is.
fn address_of(page: u64, line: usize, granule: usize) -> u64 {
    page * PAGE + ((line * GRANULES + granule) as u64) * GRANULE
}

fn clash(address: u64, mine: (Record, bool), theirs: (Record, bool)) -> Clash {
    let mark = |record: Record| {
        let mark = record.readers.mark;
        Mark { who: mark.who | record.readers.lanes.trailing_zeros() & 31, ..mark }
    };
    Clash { address, mine: (mark(mine.0), mine.1), theirs: (mark(theirs.0), theirs.1), cta: theirs.0.cta - 1 }
}

/// Whether all lanes of `later` knew, when they accessed, of `earlier`.
fn known(history: &[(usize, u32, Time, Arc<Clocks>)], later: &Record, earlier: &Record) -> bool {
    let Readers { mark, lanes } = earlier.readers;
    let at = |lane: usize| {
        Sync::known_at(history, later.readers.mark.warp(), lane as u32, later.readers.mark.time)
    };
    lanes_of(later.readers.lanes).all(|lane| {
        at(lane)
            .and_then(|clocks| clocks.get(&(earlier.cta - 1)))
            .is_some_and(|clock| clock.knows(mark.warp(), lanes, mark.time))
    })
}

/// Whether the thread of `later` had seen the strong write `earlier` at the address.
fn has_seen(seen: &[Seen], address: u64, later: &Record, earlier: &Record) -> bool {
    let mark = later.readers.mark;
    seen.iter().any(|seen| {
        let who = (earlier.cta - 1, earlier.readers.mark.number() as u32);
        seen.address / GRANULE == address / GRANULE
            && seen.by.warp() == mark.warp()
            && later.readers.lanes == 1 << seen.by.lane()
            && seen.by.time <= mark.time
            && seen.writes.get(&who).is_some_and(|&time| time >= earlier.readers.mark.time)
    })
}
