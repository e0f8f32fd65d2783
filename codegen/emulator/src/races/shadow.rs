//! Who last wrote and read each byte.
//!
//! One [`Cell`] stands for four bytes; once part of one is accessed alone, four cells take its place. A cell has the
//! last write and the reads since: those by one warp at one moment, or a list where there are more. Times are the
//! CTA's, so that what an earlier CTA left in the same memory is known by its time and need not be cleared.

use super::clock::{Clock, Time};
use crate::exec::lanes_of;

/// Bytes that a cell stands for.
pub(super) const GRANULE: u64 = 4;

/// In [`Mark::who`], above the thread's number in its CTA (or the mbarrier's, with [`ENGINE`]).
pub(super) const ENGINE: u32 = 1 << 10;
/// The access is strong: `.relaxed`, `.volatile` or more.
pub(super) const STRONG: u32 = 1 << 11;
/// … and its scope is wider than the CTA.
pub(super) const WIDE: u32 = 1 << 12;
/// The cell's readers are a list; `pc` is its number.
const MANY: u32 = 1 << 13;
/// The cell is four cells; `pc` is their number.
const SPLIT: u32 = 1 << 14;
/// The thread's number, or the mbarrier's.
const NUMBER: u32 = ENGINE - 1;

/// An access.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) time: Time,
    pub(super) who: u32,
    pub(super) pc: u32,
}

impl Mark {
    pub(super) fn warp(self) -> usize {
        (self.who & NUMBER) as usize / 32
    }

    pub(super) fn lane(self) -> u32 {
        self.who & 31
    }

    pub(super) fn number(self) -> usize {
        (self.who & NUMBER) as usize
    }

    pub(super) fn is_engine(self) -> bool {
        self.who & ENGINE != 0
    }
}

/// Reads by lanes of one warp at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Readers {
    pub(super) mark: Mark,
    pub(super) lanes: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct Cell {
    write: Mark,
    read: Readers,
}

/// Who accesses: lanes of one warp that know the same.
pub(super) struct Actor<'a> {
    pub(super) warp: usize,
    pub(super) lanes: u32,
    pub(super) now: Time,
    pub(super) pc: u32,
    /// [`STRONG`] and [`WIDE`].
    pub(super) flags: u32,
    pub(super) clock: &'a Clock,
}

impl Actor<'_> {
    pub(super) fn mark(&self, lane: u32) -> Mark {
        Mark { time: self.now, who: (self.warp as u32) << 5 | lane | self.flags, pc: self.pc }
    }

    /// Whether a write happened before this access, or may happen at the same time.
    #[inline(always)]
    fn allows_write(&self, write: Mark) -> bool {
        if write.is_engine() {
            return self.clock.knows_phase(write.number(), write.time);
        }
        write.who & self.flags & STRONG != 0
            || write.warp() == self.warp && self.lanes == 1 << write.lane()
            || self.clock.knows(write.warp(), 1 << write.lane(), write.time)
    }

    /// The lanes whose reads are not known to have happened before this write.
    #[inline(always)]
    fn refused_readers(&self, readers: &Readers) -> u32 {
        let mark = readers.mark;
        if mark.who & self.flags & STRONG != 0 {
            return 0;
        }
        let others = if mark.warp() == self.warp { readers.lanes & !self.lanes } else { readers.lanes };
        if others == 0 || self.clock.knows(mark.warp(), others, mark.time) {
            return 0;
        }
        lanes_of(others)
            .filter(|&lane| !self.clock.knows(mark.warp(), 1 << lane, mark.time))
            .fold(0, |lanes, lane| lanes | 1 << lane)
    }
}

/// An earlier access that nothing orders with this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub(super) mark: Mark,
    pub(super) writes: bool,
}

/// A record that another one has replaced, though the two look different from another CTA.
pub(super) type Archived = (usize, u8, bool, Readers);

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Shadow {
    cells: Vec<Cell>,
    parts: Vec<[Cell; GRANULE as usize]>,
    lists: Vec<Vec<Readers>>,
    /// Marks up to this time are of earlier CTAs.
    base: Time,
    /// Whether replaced records are archived that look different from another CTA: those up to `archive_until`, and
    /// weak ones where strong ones take their place, or the other way round.
    archives: bool,
    archive_until: Time,
    /// By number of the granule.
    pub(super) archive: Vec<Archived>,
}

impl Shadow {
    pub(super) fn new(bytes: u64) -> Shadow {
        Shadow { cells: vec![Cell::default(); bytes.div_ceil(GRANULE) as usize], ..Shadow::default() }
    }

    /// One that keeps what other CTAs must be compared with.
    pub(super) fn archiving() -> Shadow {
        Shadow { archives: true, ..Shadow::default() }
    }

    /// Forgets all marks up to `base`.
    pub(super) fn reset(&mut self, base: Time) {
        self.base = base;
        self.archive_until = base;
        self.parts.clear();
        self.lists.clear();
        self.archive.clear();
    }

    /// Adds cells for so many bytes; returns the number of the first.
    pub(super) fn grow(&mut self, bytes: u64) -> usize {
        let first = self.cells.len();
        self.cells.resize(first + (bytes / GRANULE) as usize, Cell::default());
        first
    }

    /// Replaced records with marks up to now are to be archived.
    pub(super) fn archive_until(&mut self, now: Time) {
        self.archive_until = now;
    }

    /// Whether a granule was touched at all.
    #[inline(always)]
    pub(super) fn is_marked(&self, index: usize) -> bool {
        let cell = &self.cells[index];
        cell.write.time > self.base || cell.read.mark.time > self.base
    }

    fn is_split(&self, cell: &Cell) -> bool {
        cell.write.time > self.base && cell.write.who & SPLIT != 0
    }

    /// The cells of some bytes of a granule, if they have any of their own.
    fn split(&mut self, index: usize) -> usize {
        let cell = self.cells[index];
        if self.is_split(&cell) {
            return cell.write.pc as usize;
        }
        self.parts.push([cell; GRANULE as usize]);
        let number = self.parts.len() - 1;
        self.cells[index].write = Mark { time: self.base + 1, who: SPLIT, pc: number as u32 };
        number
    }

    /// Looks for a conflict of reading bytes `first..end` of the granule at `index`.
    #[inline(always)]
    pub(super) fn check_read(&self, index: usize, bytes: (u64, u64), actor: &Actor<'_>) -> Option<Conflict> {
        let cell = &self.cells[index];
        if cell.write.time <= self.base {
            return None;
        }
        if self.is_split(cell) {
            let parts = &self.parts[cell.write.pc as usize][bytes.0 as usize..bytes.1 as usize];
            return parts.iter().find_map(|part| self.check_read_of(part, actor));
        }
        self.check_read_of(cell, actor)
    }

    #[inline(always)]
    fn check_read_of(&self, cell: &Cell, actor: &Actor<'_>) -> Option<Conflict> {
        let write = cell.write;
        let allowed = write.time <= self.base || actor.allows_write(write);
        (!allowed).then_some(Conflict { mark: write, writes: true })
    }

    /// As [`Shadow::check_read`], of a write.
    #[inline(always)]
    pub(super) fn check_write(&self, index: usize, bytes: (u64, u64), actor: &Actor<'_>) -> Option<Conflict> {
        let cell = &self.cells[index];
        if self.is_split(cell) {
            let parts = &self.parts[cell.write.pc as usize][bytes.0 as usize..bytes.1 as usize];
            return parts.iter().find_map(|part| self.check_write_of(part, actor));
        }
        self.check_write_of(cell, actor)
    }

    #[inline(always)]
    fn check_write_of(&self, cell: &Cell, actor: &Actor<'_>) -> Option<Conflict> {
        if let Some(conflict) = self.check_read_of(cell, actor) {
            return Some(conflict);
        }
        let readers = self.readers(cell);
        readers.iter().find_map(|readers| {
            let refused = actor.refused_readers(readers);
            let who = readers.mark.who | refused.trailing_zeros() & 31;
            (refused != 0).then_some(Conflict { mark: Mark { who, ..readers.mark }, writes: false })
        })
    }

    fn readers<'a>(&'a self, cell: &'a Cell) -> &'a [Readers] {
        if cell.read.mark.time <= self.base {
            &[]
        } else if cell.read.mark.who & MANY != 0 {
            &self.lists[cell.read.mark.pc as usize]
        } else {
            std::slice::from_ref(&cell.read)
        }
    }

    /// Whether the last write of any of the bytes is by a thread, and `fenced` does not have it.
    pub(super) fn unfenced(&self, index: usize, fenced: &Clock) -> Option<Mark> {
        let cell = &self.cells[index];
        let parts = match self.is_split(cell) {
            true => &self.parts[cell.write.pc as usize][..],
            false => std::slice::from_ref(cell),
        };
        let writes =
            parts.iter().map(|part| part.write).filter(|write| write.time > self.base && !write.is_engine());
        writes.into_iter().find(|write| !fenced.knows(write.warp(), 1 << write.lane(), write.time))
    }

    /// Remembers a read of bytes `first..end` of the granule at `index` by the actor's lanes.
    #[inline(always)]
    pub(super) fn note_read(&mut self, index: usize, bytes: (u64, u64), actor: &Actor<'_>) {
        let cell = &self.cells[index];
        if self.is_split(cell) || bytes.1 - bytes.0 < GRANULE {
            let number = self.split(index);
            for byte in bytes.0..bytes.1 {
                let mut part = self.parts[number][byte as usize];
                self.note_read_in(&mut part, (index, 1 << byte), actor);
                self.parts[number][byte as usize] = part;
            }
            return;
        }
        let mut cell = *cell;
        self.note_read_in(&mut cell, (index, 0xf), actor);
        self.cells[index] = cell;
    }

    #[inline(always)]
    fn note_read_in(&mut self, cell: &mut Cell, at: (usize, u8), actor: &Actor<'_>) {
        let mine = Readers { mark: actor.mark(0), lanes: actor.lanes };
        let old = cell.read;
        if old.mark.time <= self.base {
            cell.read = mine;
        } else if (old.mark.time, old.mark.who) == (mine.mark.time, mine.mark.who) {
            cell.read.lanes |= mine.lanes;
        } else {
            self.note_another(cell, at, mine, actor);
        }
    }

    #[inline(never)]
    fn note_another(
        &mut self,
        cell: &mut Cell,
        (index, part): (usize, u8),
        mine: Readers,
        actor: &Actor<'_>,
    ) {
        let old = cell.read;
        let covered = |old: &Readers| {
            let same = old.mark.who == mine.mark.who;
            let left = if same { old.lanes & !mine.lanes } else { old.lanes };
            // Strong reads may stand where weak ones may not.
            (old.mark.who ^ mine.mark.who) & STRONG == 0
                && (left == 0 && old.mark.warp() == actor.warp
                    || actor.clock.knows(old.mark.warp(), left, old.mark.time))
        };
        let archived = |shadow: &mut Shadow, old: Readers| {
            if shadow.archives && old.mark.time <= shadow.archive_until {
                shadow.archive.push((index, part, false, old));
            }
        };
        if old.mark.who & MANY == 0 {
            if covered(&old) {
                archived(self, old);
                cell.read = mine;
            } else {
                self.lists.push(vec![old, mine]);
                let number = self.lists.len() as u32 - 1;
                cell.read.mark = Mark { time: mine.mark.time, who: MANY, pc: number };
            }
            return;
        }
        let number = old.mark.pc as usize;
        cell.read.mark.time = mine.mark.time;
        let list = &mut self.lists[number];
        let same =
            |known: &&mut Readers| (known.mark.time, known.mark.who) == (mine.mark.time, mine.mark.who);
        if let Some(known) = list.iter_mut().find(same) {
            known.lanes |= mine.lanes;
            return;
        }
        if self.archives {
            let gone: Vec<Readers> = self.lists[number].extract_if(.., |old| covered(old)).collect();
            gone.into_iter().for_each(|old| archived(self, old));
        } else {
            list.retain(|old| !covered(old));
        }
        self.lists[number].push(mine);
    }

    /// Remembers a write of bytes `first..end` of the granule at `index`.
    #[inline(always)]
    pub(super) fn note_write(&mut self, index: usize, bytes: (u64, u64), mark: Mark) {
        if self.archives {
            self.archive_cell(index, mark);
        }
        if bytes.1 - bytes.0 == GRANULE {
            self.cells[index] = Cell { write: mark, read: Readers::default() };
            return;
        }
        let number = self.split(index);
        for byte in bytes.0..bytes.1 {
            self.parts[number][byte as usize] = Cell { write: mark, read: Readers::default() };
        }
    }

    /// Archives what a write at `index` replaces, if other CTAs may see a difference.
    fn archive_cell(&mut self, index: usize, mark: Mark) {
        let (until, mut old) = (self.archive_until, Vec::new());
        self.visit(index, |part, writes, record| {
            if record.mark.time <= until || (record.mark.who ^ mark.who) & STRONG != 0 {
                old.push((index, part, writes, record));
            }
        });
        self.archive.extend(old);
    }

    /// All records of a granule: a mask of its bytes, whether it is a write, and who.
    #[inline(always)]
    pub(super) fn visit(&self, index: usize, mut see: impl FnMut(u8, bool, Readers)) {
        let cell = &self.cells[index];
        if cell.write.time <= self.base && cell.read.mark.time <= self.base {
            return;
        }
        let (parts, whole) = match self.is_split(cell) {
            true => (&self.parts[cell.write.pc as usize][..], 1),
            false => (std::slice::from_ref(cell), 0xf),
        };
        for (byte, part) in parts.iter().enumerate() {
            if part.write.time > self.base {
                see(whole << byte, true, Readers { mark: part.write, lanes: 1 << part.write.lane() });
            }
            self.readers(part).iter().for_each(|&readers| see(whole << byte, false, readers));
        }
    }
}
