//! Who last wrote and read each byte.
//!
//! Memory is looked at by lines of 32 bytes. A line has records, of writes and of reads; a record stands for what lanes
//! of one warp did to some of its bytes at one moment, or for a copy. Of two records of writes no byte is in both; a
//! write ends the reads of its bytes. Most often one look at a record says that all of it happened before; lane by
//! lane and byte by byte it is looked at only where that does not settle it. Times are the CTA's, so that what an
//! earlier CTA left in the same memory is known by its time and need not be cleared.

use super::clock::{Clock, Time};
use super::mark::{ENGINE, GRANULE, Mark, Readers, STRENGTH, STRONG, are_strong_together};
use super::pieces::{By, LINE, Piece, Spread, Table};
use super::sync::Actors;
use crate::lanes::lanes_of;

/// Granules of a line.
pub(super) const GRANULES: usize = (LINE / GRANULE) as usize;

/// The last record that what actors do was found to be ordered with: its time, whose it is, and its lanes.
#[derive(Default)]
pub(super) struct Known((Time, u32, u32));

/// An earlier access that nothing orders with this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub(super) mark: Mark,
    pub(super) writes: bool,
}

/// A conflict with its place: the lane that accesses, and the address of the granule.
pub(super) type Found = (Conflict, u64, u32);

/// What lanes of a warp did to bytes of a line at one moment.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct Record {
    /// Without a lane.
    mark: Mark,
    lanes: u32,
    bytes: u32,
    by: By,
    /// Whether instructions differ from byte to byte.
    mixed: bool,
    /// The number of the record's own tables, of lanes and of instructions; 0 where there are none yet.
    tables: u32,
    /// The line's next record of its kind.
    next: u32,
}

impl Record {
    /// Whether the same lanes access the same bytes, as far as can be told without tables.
    fn is_like(&self, by: By, lanes: u32) -> bool {
        match by {
            By::All => self.by == By::All && self.lanes == lanes,
            By::Run(_) => self.by == by,
            By::Table => false,
        }
    }
}

const LANES_OF: usize = 0;
const PLACES: usize = 1;

/// The records of a line: the first of reads and the first of writes, if it was touched since `since`.
#[derive(Clone, Copy, Default)]
struct Head {
    since: Time,
    first: [u32; 2],
}

pub(super) const READS: usize = 0;
pub(super) const WRITES: usize = 1;

/// A part of a record that another one has replaced, though the two look different from another CTA: the granule's
/// number, which of its bytes, whether it is a write, and who.
pub(super) type Archived = (usize, u8, bool, Readers);

/// See the module's documentation.
pub(super) struct Shadow {
    heads: Vec<Head>,
    /// The first stands for none.
    records: Vec<Record>,
    tables: Vec<[Table; 2]>,
    /// Marks up to this time are of earlier CTAs.
    base: Time,
    /// Whether replaced records are archived that look different from another CTA: those up to `archive_until`, and
    /// weak ones where strong ones take their place, or the other way round.
    archives: bool,
    archive_until: Time,
    pub(super) archive: Vec<Archived>,
}

impl Shadow {
    pub(super) fn new(bytes: u64) -> Shadow {
        Shadow {
            heads: vec![Head::default(); bytes.div_ceil(LINE) as usize],
            records: vec![Record::default()],
            tables: vec![[[0; LINE as usize]; 2]],
            base: 0,
            archives: false,
            archive_until: 0,
            archive: Vec::new(),
        }
    }

    /// One that has room for so many lines of another.
    pub(super) fn with_room(lines: usize) -> Shadow {
        let mut shadow = Shadow::new(0);
        shadow.heads.reserve_exact(lines);
        shadow.records.reserve_exact(lines);
        shadow
    }

    /// One that keeps what other CTAs must be compared with.
    pub(super) fn archiving() -> Shadow {
        Shadow { archives: true, ..Shadow::new(0) }
    }

    /// Forgets all marks up to `base`.
    pub(super) fn reset(&mut self, base: Time) {
        self.base = base;
        self.archive_until = base;
        self.records.truncate(1);
        self.tables.truncate(1);
        self.archive.clear();
    }

    /// Adds lines for so many bytes; returns the number of the first.
    pub(super) fn grow(&mut self, bytes: u64) -> usize {
        let first = self.heads.len();
        self.heads.resize(first + (bytes / LINE) as usize, Head::default());
        first
    }

    /// Adds a line with the records of one of another shadow; returns its number.
    pub(super) fn adopt(&mut self, other: &Shadow, index: usize) -> u32 {
        let mut head = Head { since: self.base + 1, first: [0; 2] };
        for kind in [READS, WRITES] {
            let mut last = None;
            for record in other.records(index, kind).filter(|record| record.bytes != 0) {
                let number = self.records.len() as u32;
                let tables = if record.tables == 0 { 0 } else { self.tables.len() as u32 };
                if tables != 0 {
                    self.tables.push(other.tables[record.tables as usize]);
                }
                self.records.push(Record { tables, next: 0, ..*record });
                match last.replace(number) {
                    None => head.first[kind] = number,
                    Some(before) => self.records[before as usize].next = number,
                }
            }
        }
        self.heads.push(head);
        self.heads.len() as u32 - 1
    }

    /// Replaced records with marks up to now are to be archived.
    pub(super) fn archive_until(&mut self, now: Time) {
        self.archive_until = now;
    }

    /// Whether a line was touched at all.
    #[inline(always)]
    pub(super) fn is_marked(&self, index: usize) -> bool {
        self.heads[index].since > self.base
    }

    /// The number of a line's first record of a kind, 0 if there is none.
    #[inline(always)]
    fn first(&self, index: usize, kind: usize) -> u32 {
        let head = &self.heads[index];
        if head.since > self.base { head.first[kind] } else { 0 }
    }

    /// The records of a line, one kind.
    fn records(&self, index: usize, kind: usize) -> impl Iterator<Item = &Record> {
        let mut next = self.first(index, kind);
        std::iter::from_fn(move || {
            let record = &self.records[next as usize];
            let found = next != 0;
            next = record.next;
            found.then_some(record)
        })
    }

    fn spread(&self, record: &Record) -> Spread<'_> {
        Spread::new(record.by, record.lanes, &self.tables[record.tables as usize][LANES_OF])
    }

    /// The mark of what a record did to a byte, with its lowest lane there if it is a write.
    fn mark_at(&self, record: &Record, kind: usize, byte: u32) -> Readers {
        let lanes = self.spread(record).lanes(byte);
        let pc = match record.mixed {
            true => self.tables[record.tables as usize][PLACES][byte as usize],
            false => record.mark.pc,
        };
        if record.mark.is_engine() {
            return Readers { mark: record.mark, lanes: 1 << record.mark.lane() };
        }
        let lane = if kind == WRITES { lanes.trailing_zeros() & 31 } else { 0 };
        Readers { mark: Mark { who: record.mark.who | lane, pc, ..record.mark }, lanes }
    }

    /// Whether it is clear at a glance that an access of a line, which writes or only reads, comes after all before it
    /// or may come at the same time.
    #[inline(always)]
    pub(super) fn allows(
        &self,
        (piece, spread): (&Piece, Spread<'_>),
        writes: bool,
        actors: &Actors<'_>,
        known: &mut Known,
    ) -> bool {
        for kind in if writes { &[WRITES, READS][..] } else { &[WRITES] } {
            let mut number = self.first(piece.index, *kind);
            while number != 0 {
                let record = &self.records[number as usize];
                let bytes = record.bytes & piece.bytes;
                let key = (record.mark.time, record.mark.who, record.lanes);
                if bytes != 0 && known.0 != key {
                    if self.is_ordered(record, actors) {
                        known.0 = key;
                    } else if !self.is_private(record, bytes, (piece, spread), actors) {
                        return false;
                    }
                }
                number = record.next;
            }
        }
        true
    }

    /// Whether actors know of a record, or it may be of the same time as what they do.
    fn is_ordered(&self, record: &Record, actors: &Actors<'_>) -> bool {
        let mark = record.mark;
        are_strong_together(mark.who, actors.mark.who)
            || match mark.is_engine() {
                true => actors.all(|clock| clock.knows_phase(mark.number(), mark.time)),
                false => actors.all(|clock| clock.knows(mark.warp(), record.lanes, mark.time)),
            }
    }

    /// Whether each of these bytes of a record is of the one thread that comes back to it.
    fn is_private(
        &self,
        record: &Record,
        bytes: u32,
        (piece, spread): (&Piece, Spread<'_>),
        actors: &Actors<'_>,
    ) -> bool {
        // In the lines of a run each byte is one lane's.
        let same_run = matches!(piece.by, By::Run(_)) && record.by == piece.by;
        !record.mark.is_engine()
            && record.mark.warp() == actors.warp
            && (same_run || self.spread(record).is_private(spread, bytes))
    }

    /// Looks for the first lane's first conflict in a line, byte by byte, leaving out what `excused` says.
    #[cold]
    pub(super) fn conflict(
        &self,
        (piece, spread): (&Piece, Spread<'_>),
        writes: bool,
        actors: &Actors<'_>,
        excused: impl Fn(&Found) -> bool,
    ) -> Option<Found> {
        let mut first: Option<Found> = None;
        for kind in if writes { &[WRITES, READS][..] } else { &[WRITES] } {
            for record in self.records(piece.index, *kind) {
                if are_strong_together(record.mark.who, actors.mark.who) {
                    continue;
                }
                for byte in lanes_of(record.bytes & piece.bytes) {
                    let Readers { mark, lanes } = self.mark_at(record, *kind, byte as u32);
                    let address = (piece.line * LINE + byte as u64) / GRANULE * GRANULE;
                    for lane in lanes_of(spread.lanes(byte as u32)) {
                        let Some(clock) = actors.clock(lane as u32) else { continue };
                        let refused = if mark.is_engine() {
                            (!clock.knows_phase(mark.number(), mark.time)).then_some(mark)
                        } else {
                            let own = if mark.warp() == actors.warp { 1 << lane } else { 0 };
                            let unknown = |other: &usize| !clock.knows(mark.warp(), 1 << other, mark.time);
                            let other = lanes_of(lanes & !own).find(unknown);
                            other.map(|lane| Mark { who: record.mark.who | lane as u32, ..mark })
                        };
                        let Some(mark) = refused else { continue };
                        let found = (Conflict { mark, writes: *kind == WRITES }, address, lane as u32);
                        let place = |(conflict, at, lane): Found| {
                            (lane, at, !conflict.writes, conflict.mark.number())
                        };
                        if first.is_none_or(|first| place(found) < place(first)) && !excused(&found) {
                            first = Some(found);
                        }
                    }
                }
            }
        }
        first
    }

    /// The first write, of these bytes of a line, by a thread that `fenced` does not have, and its granule's number
    /// in the line.
    pub(super) fn unfenced(&self, index: usize, bytes: u32, fenced: Option<&Clock>) -> Option<(Mark, u64)> {
        let knows =
            |mark: Mark, lanes: u32| fenced.is_some_and(|fenced| fenced.knows(mark.warp(), lanes, mark.time));
        for record in self.records(index, WRITES) {
            let mark = record.mark;
            let bytes = record.bytes & bytes;
            if bytes == 0 || mark.is_engine() || knows(mark, record.lanes) {
                continue;
            }
            for byte in lanes_of(bytes) {
                let mark = self.mark_at(record, WRITES, byte as u32).mark;
                if !knows(mark, 1 << mark.lane()) {
                    return Some((mark, byte as u64 / GRANULE));
                }
            }
        }
        None
    }

    /// Remembers a read.
    #[inline(always)]
    pub(super) fn note_read(&mut self, (piece, spread): (&Piece, Spread<'_>), actors: &Actors<'_>) {
        let mut number = self.open(piece.index).first[READS];
        let mut free = 0;
        while number != 0 {
            let record = &self.records[number as usize];
            let next = record.next;
            if record.bytes == 0 {
                free = number;
            } else if record.mark.is_one_with(actors.mark) {
                return self.join_read(number, piece, spread, actors.mark.pc);
            } else if record.bytes & piece.bytes != 0 && self.is_covered(record, (piece, spread), actors) {
                if self.archives && record.mark.time <= self.archive_until {
                    self.retire(piece.index, READS, number, piece.bytes);
                }
                let record = &mut self.records[number as usize];
                record.bytes &= !piece.bytes;
                free = if record.bytes == 0 { number } else { free };
            }
            number = next;
        }
        self.fill((piece, spread), READS, free, actors.mark);
    }

    /// Remembers a read by a copy.
    pub(super) fn note_copied(&mut self, (piece, spread): (&Piece, Spread<'_>), mark: Mark) {
        self.open(piece.index);
        self.fill((piece, spread), READS, 0, mark);
    }

    /// Whether who knows that this read is over knows that a record of earlier reads is, as far as it is of the same
    /// bytes.
    #[inline(always)]
    fn is_covered(
        &self,
        record: &Record,
        (piece, spread): (&Piece, Spread<'_>),
        actors: &Actors<'_>,
    ) -> bool {
        let mark = record.mark;
        // Strong reads may stand where weak ones may not; and a copy's read is nobody's own.
        if (mark.who ^ actors.mark.who) & (STRENGTH | ENGINE) != 0 {
            return false;
        }
        let bytes = record.bytes & piece.bytes;
        let own = || record.is_like(piece.by, piece.lanes) || spread.includes(self.spread(record), bytes);
        mark.warp() == actors.warp && own()
            || actors.all(|clock| clock.knows(mark.warp(), record.lanes, mark.time))
    }

    /// Remembers a write; of lanes that write one byte, the highest is the one that counts.
    #[inline(always)]
    pub(super) fn note_write(&mut self, (piece, spread): (&Piece, Spread<'_>), mark: Mark) {
        self.end_reads(piece, mark);
        let mut number = self.open(piece.index).first[WRITES];
        let (mut free, mut same) = (0, 0);
        while number != 0 {
            let record = &self.records[number as usize];
            if record.bytes & piece.bytes != 0 && self.is_archived(record, mark) {
                self.retire(piece.index, WRITES, number, piece.bytes);
            }
            let record = &mut self.records[number as usize];
            record.bytes &= !piece.bytes;
            if record.bytes == 0 {
                free = number;
            } else if record.mark.is_one_with(mark) {
                same = number;
            }
            number = record.next;
        }
        match same {
            0 => self.fill((piece, spread), WRITES, free, mark),
            same => self.join_write(same, piece, spread, mark.pc),
        }
    }

    #[inline(always)]
    fn end_reads(&mut self, piece: &Piece, mark: Mark) {
        let mut number = self.open(piece.index).first[READS];
        while number != 0 {
            let record = &self.records[number as usize];
            if record.bytes & piece.bytes != 0 && self.is_archived(record, mark) {
                self.retire(piece.index, READS, number, piece.bytes);
            }
            let record = &mut self.records[number as usize];
            record.bytes &= !piece.bytes;
            number = record.next;
        }
    }

    /// Whether other CTAs may see a difference between a record and a write that takes its place.
    #[inline(always)]
    fn is_archived(&self, record: &Record, by: Mark) -> bool {
        let Mark { time, who, .. } = record.mark;
        self.archives && (time <= self.archive_until || (who ^ by.who) & STRENGTH != 0)
    }

    #[cold]
    fn retire(&mut self, index: usize, kind: usize, number: u32, bytes: u32) {
        let mut gone = Vec::new();
        let record = &self.records[number as usize];
        self.parts(record, kind, record.bytes & bytes, |granule, part, readers| {
            gone.push((index * GRANULES + granule, part, kind == WRITES, readers));
        });
        self.archive.extend(gone);
    }

    #[inline(always)]
    fn open(&mut self, index: usize) -> &mut Head {
        let head = &mut self.heads[index];
        if head.since <= self.base {
            *head = Head { since: self.base + 1, first: [0; 2] };
        }
        head
    }

    /// Makes record `number` of the access, or a new one if that is 0.
    #[inline(always)]
    fn fill(&mut self, (piece, spread): (&Piece, Spread<'_>), kind: usize, number: u32, mark: Mark) {
        let number = match number {
            0 => {
                let head = &mut self.heads[piece.index];
                let next = std::mem::replace(&mut head.first[kind], self.records.len() as u32);
                self.records.push(Record { next, ..Record::default() });
                self.records.len() - 1
            }
            number => number as usize,
        };
        let record = &mut self.records[number];
        (record.mark, record.bytes, record.lanes) = (mark, piece.bytes, piece.lanes);
        (record.by, record.mixed) = (piece.by, false);
        if kind == WRITES && piece.by == By::All && !mark.is_engine() {
            record.lanes = highest(piece.lanes);
        }
        if piece.by == By::Table {
            let table = match kind {
                WRITES => spread.table().map(highest),
                _ => spread.table(),
            };
            *self.own_table(number, LANES_OF) = table;
        }
    }

    fn own_table(&mut self, record: usize, which: usize) -> &mut Table {
        let number = &mut self.records[record].tables;
        if *number == 0 {
            *number = self.tables.len() as u32;
            self.tables.push([[0; LINE as usize]; 2]);
        }
        &mut self.tables[*number as usize][which]
    }

    /// Adds a read at the same moment to a record.
    fn join_read(&mut self, number: u32, piece: &Piece, spread: Spread<'_>, pc: u32) {
        let record = self.records[number as usize];
        let fresh = piece.bytes & !record.bytes;
        let alike = record.is_like(piece.by, piece.lanes);
        if fresh == 0 && (alike || self.spread(&record).includes(spread, piece.bytes)) {
            return;
        }
        if !alike {
            let before = self.spread(&record).table();
            let theirs = spread.table();
            let table = self.own_table(number as usize, LANES_OF);
            for byte in 0..LINE as usize {
                let mine = if record.bytes >> byte & 1 != 0 { before[byte] } else { 0 };
                table[byte] = mine | if piece.bytes >> byte & 1 != 0 { theirs[byte] } else { 0 };
            }
            self.records[number as usize].by = By::Table;
        }
        self.place(number as usize, fresh, pc);
        let record = &mut self.records[number as usize];
        record.bytes |= piece.bytes;
        record.lanes |= piece.lanes;
    }

    /// Adds a write at the same moment, of bytes that it does not have, to a record.
    fn join_write(&mut self, number: u32, piece: &Piece, spread: Spread<'_>, pc: u32) {
        let record = self.records[number as usize];
        let lanes = if piece.by == By::All { highest(piece.lanes) } else { piece.lanes };
        if !record.is_like(piece.by, lanes) {
            let before = self.spread(&record).table();
            let theirs = spread.table();
            let table = self.own_table(number as usize, LANES_OF);
            for byte in 0..LINE as usize {
                let written = piece.bytes >> byte & 1 != 0;
                table[byte] = if written { highest(theirs[byte]) } else { before[byte] };
            }
            self.records[number as usize].by = By::Table;
        }
        self.place(number as usize, piece.bytes, pc);
        let record = &mut self.records[number as usize];
        record.bytes |= piece.bytes;
        record.lanes |= lanes;
    }

    /// Remembers which instruction it is that has added these bytes to a record.
    fn place(&mut self, number: usize, bytes: u32, pc: u32) {
        let record = self.records[number];
        if bytes == 0 || !record.mixed && record.mark.pc == pc {
            return;
        }
        self.records[number].mixed = true;
        let table = self.own_table(number, PLACES);
        if !record.mixed {
            table.fill(record.mark.pc);
        }
        lanes_of(bytes).for_each(|byte| table[byte] = pc);
    }

    /// A record of some bytes granule by granule: its number in the line, a mask of its bytes, and who.
    fn parts(&self, record: &Record, kind: usize, bytes: u32, mut see: impl FnMut(usize, u8, Readers)) {
        let uniform = record.by == By::All && !record.mixed;
        for granule in 0..GRANULES {
            let first = granule as u32 * GRANULE as u32;
            let mut left = bytes >> first & 0xf;
            while left != 0 {
                let lowest = left.trailing_zeros();
                let who = self.mark_at(record, kind, first + lowest);
                let alike = |&byte: &usize| {
                    let other = self.mark_at(record, kind, first + byte as u32);
                    (other.mark, other.lanes) == (who.mark, who.lanes)
                };
                let part = match uniform {
                    true => left,
                    false => lanes_of(left).filter(alike).fold(0, |part, byte| part | 1 << byte),
                };
                see(granule, part as u8, who);
                left &= !part;
            }
        }
    }

    /// Whether a line was only read, and by no strong access.
    pub(super) fn is_weakly_read(&self, index: usize) -> bool {
        self.records(index, WRITES).all(|record| record.bytes == 0)
            && self.records(index, READS).all(|record| record.bytes == 0 || record.mark.who & STRONG == 0)
    }

    /// All records of a line, granule by granule: its number in the line, a mask of its bytes, whether it is a write,
    /// and who.
    pub(super) fn visit(&self, index: usize, mut see: impl FnMut(usize, u8, bool, Readers)) {
        for kind in [WRITES, READS] {
            for record in self.records(index, kind) {
                self.parts(record, kind, record.bytes, |granule, part, who| {
                    see(granule, part, kind == WRITES, who);
                });
            }
        }
    }
}

/// The highest of some lanes.
fn highest(lanes: u32) -> u32 {
    lanes & 1u32.wrapping_shl(31 - (lanes | 1).leading_zeros())
}
