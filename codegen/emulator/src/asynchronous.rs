//! What a cluster's CTAs have under way: their mbarriers, and copies that complete some time after they were issued.
//!
//! A device completes a copy whenever it likes. Here it completes as late as the ISA allows: when
//! something waits for it. Until then its bytes of shared memory are reserved, so that a kernel that
//! does not wait is found out however fast a device would have been.

use crate::lanes::{LANES, lanes_of};
use crate::memory::InitMap;

/// Bounds of an mbarrier's count of arrivals and of its transaction count.
pub(crate) const MAX_COUNT: u32 = (1 << 20) - 1;
/// Bytes of an mbarrier object, and its alignment.
pub(crate) const MBARRIER_BYTES: u64 = 8;

/// An mbarrier object.
#[derive(Clone, Debug)]
pub(crate) struct Mbarrier {
    pub(crate) address: u64,
    /// Phases completed; the parity of the current one is its lowest bit.
    pub(crate) phase: u64,
    /// Arrivals that the next phase needs.
    expected: u32,
    /// Arrivals that the current phase lacks.
    pub(crate) pending: u32,
    /// Bytes expected less bytes copied in the current phase.
    pub(crate) transactions: i64,
    /// Whether a thread that arrived had waited for the launches before this one.
    pub(crate) waited: bool,
}

/// What a thread waits for: the completion of which phase.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The current or last phase of that parity.
    Parity(u32),
    /// The phase in which an arrival returned this state.
    State(u64),
}

impl Mbarrier {
    /// The opaque state that arrivals return: the phase, and the arrivals pending.
    pub(crate) fn state(&self) -> u64 {
        self.phase << 20 | self.pending as u64
    }

    /// The pending count in a [`Mbarrier::state`].
    pub(crate) fn pending_in(state: u64) -> u32 {
        state as u32 & MAX_COUNT
    }

    fn settle(&mut self) {
        if self.pending == 0 && self.transactions == 0 {
            self.phase += 1;
            self.pending = self.expected;
        }
    }

    /// `count` arrivals; `drop` takes them off the phases to come as well.
    pub(crate) fn arrive(&mut self, count: u32, drop: bool) -> Result<(), String> {
        if count == 0 || count > self.pending {
            return Err(format!(
                "{count} arrivals at an mbarrier whose phase {} lacks {} of {}",
                self.phase, self.pending, self.expected
            ));
        }
        self.pending -= count;
        self.expected -= if drop { count } else { 0 };
        self.settle();
        Ok(())
    }

    /// The current phase waits for one arrival more.
    pub(crate) fn expect_one_more(&mut self) -> Result<(), String> {
        if self.pending == MAX_COUNT {
            return Err(format!("more than {MAX_COUNT} arrivals pending"));
        }
        self.pending += 1;
        Ok(())
    }

    /// Whether `count` arrivals would complete the phase.
    pub(crate) fn would_complete(&self, count: u32) -> bool {
        self.pending <= count && self.transactions == 0
    }

    /// Bytes that the current phase waits for besides (negative: that were copied).
    pub(crate) fn transact(&mut self, bytes: i64) -> Result<(), String> {
        let total = self.transactions + bytes;
        if total.unsigned_abs() > MAX_COUNT as u64 {
            return Err(format!("a transaction count of {total} bytes is beyond ±{MAX_COUNT}"));
        }
        self.transactions = total;
        if bytes < 0 {
            self.settle();
        }
        Ok(())
    }

    /// Whether the phase waited for is complete.
    pub(crate) fn is_complete(&self, awaited: Awaited) -> Result<bool, String> {
        match awaited {
            Awaited::Parity(parity @ 0..=1) => Ok(self.phase as u32 & 1 != parity),
            Awaited::Parity(parity) => Err(format!("a phase parity of {parity}, which is neither 0 nor 1")),
            Awaited::State(state) => match self.phase.checked_sub(state >> 20) {
                Some(since @ 0..=1) => Ok(since == 1),
                _ => Err(format!(
                    "a state of phase {} of an mbarrier in phase {}: only the current phase and the one \
                     before can be waited for",
                    state >> 20,
                    self.phase
                )),
            },
        }
    }
}

/// What tells that a copy is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Bytes at the mbarrier at that address.
    Mbarrier(u64),
    /// The issuing thread's wait for the group of that number.
    Group(u32),
}

/// A copy that has been issued and is not complete: of one lane, or of lanes that copy equally many bytes
/// each, one after the other.
#[derive(Clone)]
pub(crate) struct Copy {
    /// Who issued it, and where.
    pub(crate) warp: usize,
    pub(crate) lanes: u32,
    pub(crate) pc: usize,
    /// Position among the warp's copies of its kind.
    pub(crate) serial: u64,
    pub(crate) signal: Signal,
    pub(crate) source: *const u8,
    pub(crate) target: *mut u8,
    /// Its first byte of shared memory.
    pub(crate) shared: u64,
    /// Its length, of which `copied` bytes come from the source; zeros follow.
    pub(crate) bytes: u32,
    pub(crate) copied: u32,
    /// Whether shared memory is the target.
    pub(crate) into_shared: bool,
    /// Where it comes from, if that is shared memory too.
    pub(crate) from_shared: Option<u64>,
    /// What is stored, or combined with what is there, if it comes from registers.
    pub(crate) stored: Option<Box<Stored>>,
    /// Whether a wait for it has failed: the next one completes it.
    pub(crate) ripe: bool,
}

/// A value on its way from registers to shared memory.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) value: [u8; 16],
    /// What becomes of the old value and this one, where it is not simply replaced: it is of 4 or 8 bytes then.
    pub(crate) update: Option<fn(u64, u64, u64) -> u64>,
}

impl Copy {
    /// Whether it reads global memory.
    pub(crate) fn reads_global(&self) -> bool {
        self.into_shared && self.from_shared.is_none() && self.stored.is_none()
    }

    /// Whether it changes what is there rather than replacing it.
    pub(crate) fn is_atomic(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.update.is_some())
    }

    /// Moves the bytes.
    fn carry_out(&self) {
        let bytes = self.bytes as usize;
        // SAFETY: source and target were checked over these lengths when the copy was issued, and live as long as
        // the launch; a stored value has at most as many bytes as its array.
        unsafe {
            match &self.stored {
                None => {
                    self.target.copy_from_nonoverlapping(self.source, self.copied as usize);
                    let rest = self.target.add(self.copied as usize);
                    rest.write_bytes(0, (self.bytes - self.copied) as usize);
                }
                Some(stored) => {
                    let mut value = stored.value;
                    if let Some(update) = stored.update {
                        let mut old = [0; 8];
                        old.as_mut_ptr().copy_from_nonoverlapping(self.target, bytes.min(8));
                        let mut new = [0; 8];
                        new.copy_from_slice(&value[..8]);
                        let updated = update(u64::from_le_bytes(old), u64::from_le_bytes(new), 0);
                        value[..8].copy_from_slice(&updated.to_le_bytes());
                    }
                    self.target.copy_from_nonoverlapping(value.as_ptr(), bytes.min(value.len()));
                }
            }
        }
    }

    fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let meets = |start: u64| start < address + bytes && address < start + self.bytes as u64;
        meets(self.shared) || self.from_shared.is_some_and(meets)
    }

    /// Whether it writes a byte of the range rather than only reading some.
    fn writes(&self, address: u64, bytes: u64) -> bool {
        self.into_shared && self.shared < address + bytes && address < self.shared + self.bytes as u64
    }

    /// The copies of its lanes.
    fn split(self) -> impl Iterator<Item = Copy> {
        let count = self.lanes.count_ones();
        let (bytes, copied) = (self.bytes / count, self.copied / count);
        (0..).zip(lanes_of(self.lanes)).map(move |(index, lane): (u32, usize)| {
            let offset = (index * bytes) as usize;
            Copy {
                lanes: 1 << lane,
                source: self.source.wrapping_add(offset),
                target: self.target.wrapping_add(offset),
                shared: self.shared + offset as u64,
                bytes,
                copied,
                ..self.clone()
            }
        })
    }
}

/// Arrivals at an mbarrier, one a lane, that take place when the lanes' copies so far are complete.
pub(crate) struct Arrival {
    pub(crate) warp: usize,
    pub(crate) lanes: u32,
    pub(crate) pc: usize,
    pub(crate) mbarrier: u64,
    /// They wait for the lanes' copies before this one of the warp.
    pub(crate) serial: u64,
    pub(crate) ripe: bool,
}

/// The copies of one warp's threads that are waited for by group.
#[derive(Default)]
pub(crate) struct WarpCopies {
    pub(crate) list: Vec<Copy>,
    /// How many there have been.
    pub(crate) issued: u64,
    /// Groups that each lane has committed; the one that is open has the next number.
    pub(crate) committed: [u32; LANES],
}

impl WarpCopies {
    /// Adds a copy to the open group of its lanes, which is the same for all.
    pub(crate) fn issue(&mut self, copy: Copy) {
        let signal = Signal::Group(self.committed[copy.lanes.trailing_zeros() as usize]);
        self.list.push(Copy { serial: self.issued, signal, ..copy });
        self.issued += 1;
    }

    /// Completes the copies of the lanes that `done` gives for each; returns whether there were any.
    fn complete(&mut self, shared: &mut Reserved<'_>, done: impl Fn(&Copy) -> u32) -> bool {
        let before = self.list.len();
        let mut parts = Vec::new();
        self.list.retain(|copy| {
            let done = done(copy) & copy.lanes;
            if done == copy.lanes {
                shared.complete(copy);
            } else if done != 0 {
                parts.push((copy.clone(), done));
            }
            done == 0
        });
        for (copy, done) in parts {
            for part in copy.split() {
                match part.lanes & done {
                    0 => self.list.push(part),
                    _ => shared.complete(&part),
                }
            }
        }
        self.list.len() < before
    }
}

/// What holds a reserved byte of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Mbarrier,
    /// The copy issued at that instruction writes it.
    Target(usize),
    /// The copy issued at that instruction reads it.
    Source(usize),
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Asynchronous {
    pub(crate) mbarriers: Vec<Mbarrier>,
    /// The one that was asked for last.
    last: usize,
    /// Bulk copies that signal an mbarrier.
    pub(crate) signalling: Vec<Copy>,
    /// By warp: `cp.async`, and `cp.async.bulk` in bulk groups.
    pub(crate) plain: Vec<WarpCopies>,
    pub(crate) bulk: Vec<WarpCopies>,
    pub(crate) arrivals: Vec<Arrival>,
}

impl Asynchronous {
    pub(crate) fn reset(&mut self) {
        self.mbarriers.clear();
        self.signalling.clear();
        self.plain.clear();
        self.bulk.clear();
        self.arrivals.clear();
    }

    pub(crate) fn mbarrier(&mut self, address: u64) -> Option<&mut Mbarrier> {
        let is_it = |mbarrier: &Mbarrier| mbarrier.address == address;
        // Mostly the same one several times in a row.
        if !self.mbarriers.get(self.last).is_some_and(is_it) {
            self.last = self.mbarriers.iter().position(is_it)?;
        }
        self.mbarriers.get_mut(self.last)
    }

    pub(crate) fn init(&mut self, address: u64, count: u32) {
        self.mbarriers.push(Mbarrier {
            address,
            phase: 0,
            expected: count,
            pending: count,
            transactions: 0,
            waited: false,
        });
    }

    /// What holds bytes of a range that is reserved.
    pub(crate) fn holder(&self, address: u64, bytes: u64) -> Option<Holder> {
        let overlaps = |m: &&Mbarrier| m.address < address + bytes && address < m.address + MBARRIER_BYTES;
        if self.mbarriers.iter().any(|mbarrier| overlaps(&mbarrier)) {
            return Some(Holder::Mbarrier);
        }
        let copy = self.copies().find(|copy| copy.overlaps(address, bytes))?;
        Some(if copy.writes(address, bytes) { Holder::Target(copy.pc) } else { Holder::Source(copy.pc) })
    }

    fn copies(&self) -> impl Iterator<Item = &Copy> {
        let grouped = self.plain.iter().chain(&self.bulk).flat_map(|warp| &warp.list);
        self.signalling.iter().chain(grouped)
    }

    /// Warp, lane and instruction of something that nobody has waited for.
    pub(crate) fn in_flight(&self) -> Option<(usize, u32, usize)> {
        let copy = self.copies().map(|copy| (copy.warp, copy.lanes.trailing_zeros(), copy.pc)).next();
        copy.or_else(|| self.arrivals.first().map(|a| (a.warp, a.lanes.trailing_zeros(), a.pc)))
    }

    /// [`Asynchronous::in_flight`], of what goes into shared memory there.
    pub(crate) fn in_flight_into(&self, there: impl Fn(u64) -> bool) -> Option<(usize, u32, usize)> {
        let copy = self
            .copies()
            .find(|copy| copy.into_shared && there(copy.shared) || copy.from_shared.is_some_and(&there));
        copy.map(|copy| (copy.warp, copy.lanes.trailing_zeros(), copy.pc))
    }

    /// A number that changes with the state of any mbarrier.
    pub(crate) fn digest(&self) -> u64 {
        self.mbarriers.iter().fold(0, |digest, mbarrier| {
            let state = mbarrier.state() ^ (mbarrier.transactions as u64).rotate_left(40);
            (digest ^ state).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
        })
    }

    /// Whether something in flight will signal the mbarrier.
    pub(crate) fn signals(&self, mbarrier: u64) -> bool {
        self.signalling.iter().any(|copy| copy.signal == Signal::Mbarrier(mbarrier))
            || self.arrivals.iter().any(|arrival| arrival.mbarrier == mbarrier)
    }

    /// A wait for the mbarrier has failed: the next finds complete what is in flight now.
    pub(crate) fn ripen(&mut self, mbarrier: u64) {
        for copy in self.signalling.iter_mut().filter(|copy| copy.signal == Signal::Mbarrier(mbarrier)) {
            copy.ripe = true;
        }
        for arrival in self.arrivals.iter_mut().filter(|arrival| arrival.mbarrier == mbarrier) {
            arrival.ripe = true;
        }
    }

    /// Completes what is ripe and signals the mbarrier.
    pub(crate) fn complete_ripe(&mut self, shared: &mut Reserved<'_>, address: u64) -> Result<(), String> {
        if !self.signalling.iter().any(|copy| copy.ripe) && !self.arrivals.iter().any(|arrival| arrival.ripe)
        {
            return Ok(());
        }
        let ripe = |copy: &mut Copy| copy.ripe && copy.signal == Signal::Mbarrier(address);
        let done: Vec<Copy> = self.signalling.extract_if(.., ripe).collect();
        // Several may read the same bytes.
        let sources = done.iter().any(|copy| copy.from_shared.is_some());
        for copy in done {
            shared.complete(&copy);
            if let Some(mbarrier) = self.mbarrier(address) {
                mbarrier.transact(-(copy.bytes as i64))?;
            }
        }
        if sources {
            for (from, bytes) in
                self.signalling.iter().filter_map(|copy| Some((copy.from_shared?, copy.bytes)))
            {
                shared.reserve(from, bytes as u64, false);
            }
        }
        let ripe = |arrival: &mut Arrival| arrival.ripe && arrival.mbarrier == address;
        let done: Vec<Arrival> = self.arrivals.extract_if(.., ripe).collect();
        for arrival in done {
            let earlier = |copy: &Copy| if copy.serial < arrival.serial { arrival.lanes } else { 0 };
            self.groups(arrival.warp, false).complete(shared, earlier);
            for _ in lanes_of(arrival.lanes) {
                if let Some(mbarrier) = self.mbarrier(address) {
                    mbarrier.arrive(1, false)?;
                }
            }
        }
        Ok(())
    }

    /// The warp's groups of one of the two kinds.
    pub(crate) fn groups(&mut self, warp: usize, bulk: bool) -> &mut WarpCopies {
        let warps = if bulk { &mut self.bulk } else { &mut self.plain };
        if warps.len() <= warp {
            warps.resize_with(warp + 1, WarpCopies::default);
        }
        &mut warps[warp]
    }

    /// Completes the copies of a warp's groups below the limit of each lane.
    pub(crate) fn wait_groups(
        &mut self,
        shared: &mut Reserved<'_>,
        (warp, bulk): (usize, bool),
        limits: &[u32; LANES],
    ) {
        let below =
            |group: u32| (0..LANES).fold(0, |lanes, lane| lanes | ((group < limits[lane]) as u32) << lane);
        let done = |copy: &Copy| match copy.signal {
            Signal::Group(group) => below(group),
            Signal::Mbarrier(_) => 0,
        };
        let completed = self.groups(warp, bulk).complete(shared, done);
        if bulk && completed {
            // Copies that are still in flight may read the same bytes.
            for copy in self.bulk.iter().flat_map(|warp| &warp.list) {
                shared.reserve(copy.shared, copy.bytes as u64, false);
            }
        }
    }
}

/// Which bytes of shared memory are reserved, in units of [`UNIT`]; allocated by the first reservation.
#[derive(Default)]
pub(crate) struct Reservations(Vec<u64>);

/// Bytes that a bit stands for: the smallest copy.
const UNIT: u64 = 4;

impl Reservations {
    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Whether nothing has been reserved in this CTA or the ones before it.
    #[inline(always)]
    pub(crate) fn unused(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any byte of a range (which may reach past the end) is reserved.
    #[inline(always)]
    pub(crate) fn any(&self, address: u64, bytes: u64) -> bool {
        !self.0.is_empty() && units(address, bytes).any(|(word, mask)| self.0[word] & mask != 0)
    }

    fn set(&mut self, address: u64, bytes: u64, value: bool) {
        for (word, mask) in units(address, bytes) {
            self.0[word] = if value { self.0[word] | mask } else { self.0[word] & !mask };
        }
    }
}

/// The words that hold the units of a range, each with the mask of those units.
#[inline(always)]
fn units(address: u64, bytes: u64) -> impl Iterator<Item = (usize, u64)> {
    let (first, end) = (address / UNIT, (address + bytes).div_ceil(UNIT));
    (first / 64..end.div_ceil(64)).map(move |word| {
        let low = first.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word as usize, (u64::MAX << low) & (u64::MAX >> (64 - high)))
    })
}

/// A CTA's shared memory as far as copies change who may access it.
pub(crate) struct Reserved<'a> {
    pub(crate) bytes: u64,
    pub(crate) map: &'a InitMap,
    pub(crate) reservations: &'a mut Reservations,
    /// Without checks nothing is reserved.
    pub(crate) checks: bool,
    /// Where completed copies are put, if somebody looks at them.
    pub(crate) finished: Option<&'a mut Vec<Copy>>,
}

impl Reserved<'_> {
    /// Nobody may write the range, nor read it if `hidden`.
    pub(crate) fn reserve(&mut self, address: u64, bytes: u64, hidden: bool) {
        if !self.checks {
            return;
        }
        if self.reservations.unused() {
            self.reservations.0 = vec![0; self.bytes.div_ceil(UNIT * 64) as usize];
        }
        self.reservations.set(address, bytes, true);
        if hidden {
            self.map.unmark(address, bytes);
        }
    }

    /// The range is ordinary memory again, whose contents are known if `written`.
    pub(crate) fn release(&mut self, address: u64, bytes: u64, written: bool) {
        if !self.checks {
            return;
        }
        self.reservations.set(address, bytes, false);
        if written {
            self.map.mark(address, bytes);
        }
    }

    fn complete(&mut self, copy: &Copy) {
        copy.carry_out();
        self.release(copy.shared, copy.bytes as u64, copy.into_shared);
        if let Some(from) = copy.from_shared {
            self.release(from, copy.bytes as u64, false);
        }
        if let Some(finished) = &mut self.finished {
            finished.push(copy.clone());
        }
    }
}
