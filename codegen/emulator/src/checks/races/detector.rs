//! Race detector of a cluster.

use std::collections::{HashMap, VecDeque};

use super::clock::{Time, VectorClock};
use super::copies::CopiesInFlight;
use super::line_access::LineAccesses;
use super::observed::{ObservedWrites, has_observed};
use super::pages::{BLOCKS, PAGE, PageMap};
use super::peers::PeerAccesses;
use super::race::Race;
use super::shadow::{Conflict, LastOrdered, Shadow};
use super::stamp::{RANK_SHIFT, STRONG_IN_CLUSTER, STRONG_IN_CTA, STRONG_IN_GRID};
use super::sync::{MemoryOrder, MemoryScope, SyncState};
use super::unit::{BLOCK, QUARTERS};
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

/// Race detector of a cluster: recorded accesses, and vector clocks of the threads.
pub(crate) struct RaceDetector {
    /// Whether a missing proxy fence is a finding.
    pub(super) proxy_fences: bool,
    pub(super) sync: SyncState,
    pub(super) shared: Shadow,
    pub(super) global: Shadow,
    /// Pages of global memory accessed by this cluster or earlier clusters, by page number.
    pub(super) pages: PageMap<PageBlocks>,
    /// Number of the page found last, and index of the page's first block in `global`.
    last_page: (u64, usize),
    /// Numbers of the pages of global memory that this cluster has accessed.
    pub(super) accessed_pages: Vec<u64>,
    /// Last time of earlier clusters: accesses of this cluster have later times.
    pub(super) start: Time,
    /// The access being checked, split into lines.
    pub(super) lines: Box<LineAccesses>,
    /// Whether the last checked access was a write in which no two lanes write the same byte.
    stores_are_disjoint: bool,
    /// The last access of each instruction in each quarter of a block. An instruction's next access in the same quarter is
    /// often the last access shifted by whole blocks.
    last_accesses: Vec<Option<Box<LineAccesses>>>,
    pub(super) copies: CopiesInFlight,
    /// Clocks released within the cluster at addresses of shared or global memory. The last part of the key is the rank
    /// of the CTA whose threads may acquire the clock, or [`ALL_RANKS`].
    pub(super) released: HashMap<(Space, u64, usize), VectorClock>,
    pub(super) peer_accesses: PeerAccesses,
    pub(super) observed: Vec<ObservedWrites>,
    /// The latest complete `wgmma` of each warpgroup, by its first warp: how many operations are complete, and the time
    /// since which they are.
    pub(super) completed_wgmma: HashMap<usize, VecDeque<(u64, Time)>>,
}

/// A rank that stands for all CTAs of the cluster.
pub(super) const ALL_RANKS: usize = usize::MAX;

/// Shadow memory of a page of global memory.
pub(super) struct PageBlocks {
    /// Index of the page's first block in [`RaceDetector::global`].
    pub(super) first: usize,
    /// Start time ([`RaceDetector::start`]) of the last cluster that accessed the page.
    cluster_start: Time,
}

/// Lanes of a warp that make an access, with the instruction and the strength of the access.
#[derive(Clone, Copy)]
pub(crate) struct Accessor {
    pub(crate) warp: usize,
    pub(crate) lanes: u32,
    pub(crate) pc: u32,
    /// Strength bits of `Stamp::origin`; 0 for a weak access.
    pub(super) strength: u32,
}

impl Accessor {
    pub(crate) fn new(warp: usize, lanes: u32, pc: usize) -> Accessor {
        Accessor { warp, lanes, pc: pc as u32, strength: 0 }
    }
}

/// Access of memory by the lanes of a warp, `bytes` bytes per lane.
pub(crate) struct MemoryAccess<'a> {
    pub(crate) space: Space,
    pub(crate) access: Access,
    pub(crate) addresses: LaneAddresses<'a>,
    pub(crate) bytes: u64,
}

/// Addresses that the lanes of a warp access.
pub(crate) enum LaneAddresses<'a> {
    Each(&'a [u64; LANES]),
    /// All 32 lanes access consecutive elements, from this address.
    Run(u64),
    /// All lanes access this address.
    Same(u64),
}

impl LaneAddresses<'_> {
    pub(crate) fn to_array(&self, bytes: u64) -> [u64; LANES] {
        match *self {
            LaneAddresses::Each(addresses) => *addresses,
            LaneAddresses::Run(start) => std::array::from_fn(|lane| start + lane as u64 * bytes),
            LaneAddresses::Same(address) => [address; LANES],
        }
    }
}

/// Whether the lane of a warp has observed the conflicting strong write, without synchronising with its thread.
fn is_observed(
    space: Space,
    observed: &[ObservedWrites],
    sync: &SyncState,
    conflict: &Conflict,
    warp: usize,
) -> bool {
    let write = (conflict.address, conflict.stamp);
    space == Space::Global
        && !conflict.stamp.is_copy()
        && has_observed(observed, sync, write, (warp, conflict.lane))
}

impl RaceDetector {
    /// Creates a detector for clusters with `shared_bytes` bytes of shared memory.
    pub(crate) fn new(shared_bytes: u64, proxy_fences: bool) -> RaceDetector {
        RaceDetector {
            proxy_fences,
            sync: SyncState::new(),
            shared: Shadow::new(shared_bytes),
            global: Shadow::keeping_replaced(),
            pages: PageMap::default(),
            last_page: (u64::MAX, 0),
            accessed_pages: Vec::new(),
            start: 0,
            lines: Box::default(),
            stores_are_disjoint: false,
            last_accesses: Vec::new(),
            copies: CopiesInFlight::default(),
            released: HashMap::new(),
            peer_accesses: PeerAccesses::default(),
            observed: Vec::new(),
            completed_wgmma: HashMap::new(),
        }
    }

    /// Begins the cluster at position `cluster` of the grid. `size` is `[CTAs, warps per CTA]`; `shared_bytes` is the
    /// size of the shared memory of all CTAs of the cluster.
    pub(crate) fn start(&mut self, cluster: u64, size: [usize; 2], shared_bytes: u64) {
        /// Maximum number of pages kept for the next cluster; if there are more, all are freed.
        const KEPT_PAGES: usize = 256;
        if self.sync.is_near_overflow() || self.pages.len() > KEPT_PAGES {
            *self = RaceDetector::new(shared_bytes, self.proxy_fences);
        }
        let start = self.sync.start(cluster, size);
        self.start = start;
        self.last_page.0 = u64::MAX;
        self.accessed_pages.clear();
        self.shared.reset(start);
        self.global.reset(start);
        self.copies.clear();
        self.released.clear();
        self.peer_accesses.clear();
        self.observed.clear();
        self.completed_wgmma.clear();
    }

    /// Takes the shadow memory of global memory, and its pages; the detector then has neither.
    pub(super) fn take_global(&mut self) -> (Shadow, PageMap<PageBlocks>) {
        let mut global = std::mem::replace(&mut self.global, Shadow::keeping_replaced());
        global.sort_replaced();
        (global, std::mem::take(&mut self.pages))
    }

    /// Returns what [`RaceDetector::take_global`] took, so that the next cluster need not allocate it.
    pub(super) fn return_global(&mut self, global: Shadow, pages: PageMap<PageBlocks>) {
        (self.global, self.pages) = (global, pages);
    }

    /// Sets the shadow memory index of the block of each line in `self.lines`.
    pub(super) fn locate_lines(&mut self, space: Space) {
        // In shared memory the index equals the block's number, and is already set.
        if space == Space::Global {
            let line_bytes = self.lines.unit.line_bytes();
            for position in 0..self.lines.lines.len() {
                let address = self.lines.lines[position].line * line_bytes;
                self.lines.lines[position].block = self.block_index(address / BLOCK);
            }
        }
    }

    /// Index in the shadow memory of a block of global memory.
    #[inline(always)]
    fn block_index(&mut self, block: u64) -> usize {
        let page = block / BLOCKS;
        if self.last_page.0 != page {
            self.last_page = (page, self.first_block(page));
        }
        self.last_page.1 + (block % BLOCKS) as usize
    }

    /// Index in the shadow memory of the first block of a page of global memory. Adds the page if it is new.
    fn first_block(&mut self, page: u64) -> usize {
        let blocks = self
            .pages
            .entry(page)
            .or_insert_with(|| PageBlocks { first: self.global.grow(PAGE), cluster_start: Time::MAX });
        if blocks.cluster_start != self.start {
            blocks.cluster_start = self.start;
            self.accessed_pages.push(page);
        }
        blocks.first
    }

    /// Starts the check of an instruction's access: forgets whether the last access was a store with disjoint lanes.
    pub(crate) fn begin_access(&mut self) {
        self.stores_are_disjoint = false;
    }

    /// Checks and records an access. `order` is the memory order of a strong access, `None` for a weak one.
    pub(crate) fn access(
        &mut self,
        accessor: Accessor,
        order: Option<MemoryOrder>,
        what: &MemoryAccess<'_>,
    ) -> Option<Race> {
        if what.access == Access::Prefetch {
            return None;
        }
        let strength = order.map_or(0, |order| self.strength_of(order, accessor.warp));
        let mut conflict = self.access_memory(Accessor { strength, ..accessor }, what);
        if what.space == Space::Global && conflict.is_none() && self.copies.may_conflict(what.access) {
            let addresses = what.addresses.to_array(what.bytes);
            conflict = self.find_copy_conflict(accessor, what.access, &addresses, what.bytes);
        }
        conflict.map(Race::new)
    }

    /// Checks and records a write that [`RaceDetector::access`] has refused because of an earlier write, and that leaves memory
    /// as it is. It does not race with weak accesses by threads: a recorded read has read the same bytes, since no write came
    /// after it. It is recorded as a read, so that the earlier write stays in force. Returns false if it races.
    #[cold]
    pub(crate) fn check_and_record_redundant(
        &mut self,
        accessor: Accessor,
        order: Option<MemoryOrder>,
        what: &MemoryAccess<'_>,
    ) -> bool {
        let strength = order.map_or(0, |order| self.strength_of(order, accessor.warp));
        self.set_lines(accessor, what);
        let RaceDetector { sync, shared, global, lines, observed, .. } = self;
        let shadow = if what.space == Space::Shared { shared } else { global };
        let clocks = sync.accessor(accessor.warp, accessor.lanes, accessor.pc, strength);
        for (position, line) in lines.lines.iter().enumerate() {
            let part = (lines.unit, (line, lines.lane_map(position)));
            let is_excused = |conflict: &Conflict| {
                conflict.stamp.is_weak() || is_observed(what.space, observed, sync, conflict, accessor.warp)
            };
            if shadow.check(part, true, &clocks, &mut LastOrdered::default(), is_excused).is_some() {
                return false;
            }
            shadow.record_read(part, &clocks);
        }
        let addresses = what.addresses.to_array(what.bytes);
        what.space != Space::Global
            || !self.copies.may_conflict(what.access)
            || self.find_copy_conflict(accessor, what.access, &addresses, what.bytes).is_none()
    }

    /// Checks an access against recorded accesses, and records the access.
    pub(super) fn access_memory(&mut self, accessor: Accessor, what: &MemoryAccess<'_>) -> Option<Conflict> {
        let first = match what.addresses {
            LaneAddresses::Each(addresses) => addresses[accessor.lanes.trailing_zeros() as usize % LANES],
            LaneAddresses::Run(address) | LaneAddresses::Same(address) => address,
        };
        let quarter = (first / (BLOCK / QUARTERS as u64)) as usize % QUARTERS;
        let index = accessor.pc as usize * QUARTERS + quarter;
        if self.last_accesses.len() <= index {
            self.last_accesses.resize_with(index + 1, || None);
        }
        let last = self.last_accesses[index].take().unwrap_or_default();
        let lines = std::mem::replace(&mut self.lines, last);
        let conflict = self.access_lines(accessor, what);
        self.last_accesses[index] = Some(std::mem::replace(&mut self.lines, lines));
        conflict
    }

    /// Splits an access into `self.lines`.
    fn set_lines(&mut self, accessor: Accessor, what: &MemoryAccess<'_>) {
        match what.addresses {
            LaneAddresses::Each(addresses) => self.lines.set(accessor.lanes, addresses, what.bytes),
            LaneAddresses::Run(start) => self.lines.set_run(start, what.bytes),
            LaneAddresses::Same(address) => self.lines.set_range(accessor.lanes, address, what.bytes),
        }
        self.locate_lines(what.space);
    }

    fn access_lines(&mut self, accessor: Accessor, what: &MemoryAccess<'_>) -> Option<Conflict> {
        self.set_lines(accessor, what);
        let writes = what.access != Access::Load;
        let lane_bytes = what.bytes * accessor.lanes.count_ones() as u64;
        self.stores_are_disjoint = writes && self.lines.byte_count() == lane_bytes;
        self.check_and_record::<true>(accessor, what.space, writes)
    }

    /// Checks the access in `self.lines` against recorded accesses, without recording it.
    pub(super) fn check(&mut self, accessor: Accessor, space: Space, writes: bool) -> Option<Conflict> {
        self.check_and_record::<false>(accessor, space, writes)
    }

    /// Checks the access in `self.lines`; returns the lowest lane's conflict at the lowest address. If `RECORD`, also
    /// records the lines before the first conflict.
    fn check_and_record<const RECORD: bool>(
        &mut self,
        accessor: Accessor,
        space: Space,
        writes: bool,
    ) -> Option<Conflict> {
        if RECORD && writes {
            self.keep_replaced(space);
        }
        let RaceDetector { sync, shared, global, lines, observed, .. } = self;
        let shadow = if space == Space::Shared { shared } else { global };
        let clocks = sync.accessor(accessor.warp, accessor.lanes, accessor.pc, accessor.strength);
        let mut last_ordered = LastOrdered::default();
        let mut first: Option<Conflict> = None;
        let simple = if RECORD { shadow.record_simple(lines, writes, clocks.stamp) } else { 0 };
        for (position, line) in lines.lines.iter().enumerate().skip(simple) {
            let part = (lines.unit, (line, lines.lane_map(position)));
            if RECORD && !writes && shadow.repeats_read(part, clocks.stamp) {
                continue;
            }
            let is_excused =
                |conflict: &Conflict| is_observed(space, observed, sync, conflict, accessor.warp);
            let conflict = shadow.check(part, writes, &clocks, &mut last_ordered, is_excused);
            let conflicts = first.into_iter().chain(conflict);
            first = conflicts.min_by_key(|conflict| (conflict.lane, conflict.address));
            match writes {
                _ if !RECORD || first.is_some() => {}
                true => shadow.record_write(part, clocks.stamp),
                false => shadow.record_read(part, &clocks),
            }
        }
        first
    }

    /// Keeps the accesses that a write replaces, if they are older than the cluster's last synchronisation with another
    /// cluster: they may race with an access of another cluster that the write does not race with.
    fn keep_replaced(&mut self, space: Space) {
        if space == Space::Global {
            self.global.keep_replaced_until(self.sync.last_grid_sync);
        }
    }

    /// Records the access in `self.lines`.
    pub(super) fn record(&mut self, accessor: Accessor, space: Space, writes: bool) {
        if writes {
            self.keep_replaced(space);
        }
        let RaceDetector { sync, shared, global, lines, .. } = self;
        let shadow = if space == Space::Shared { shared } else { global };
        let clocks = sync.accessor(accessor.warp, accessor.lanes, accessor.pc, accessor.strength);
        for (position, line) in lines.lines.iter().enumerate() {
            let part = (lines.unit, (line, lines.lane_map(position)));
            match writes {
                true => shadow.record_write(part, clocks.stamp),
                false => shadow.record_read(part, &clocks),
            }
        }
    }

    /// Whether the last checked access was a write whose lanes are known to write different bytes.
    pub(crate) fn stores_are_disjoint(&self) -> bool {
        self.stores_are_disjoint
    }

    /// Finds a copy in flight that an access of global memory conflicts with.
    pub(super) fn find_copy_conflict(
        &self,
        accessor: Accessor,
        access: Access,
        addresses: &[u64; LANES],
        bytes: u64,
    ) -> Option<Conflict> {
        let lanes = || lanes_of(accessor.lanes);
        let first = lanes().map(|lane| addresses[lane]).min()?;
        let last = lanes().map(|lane| addresses[lane]).max()?;
        if !self.copies.may_conflict_in(access, (first, last - first + bytes)) {
            return None;
        }
        lanes().find_map(|lane| {
            let thread = (accessor.warp, lane as u32);
            self.copies.find_conflict(&self.sync, thread, access, (addresses[lane], bytes))
        })
    }

    /// Strength bits, as in `Stamp::origin`, of a strong access by `warp` with memory order `order`.
    fn strength_of(&self, order: MemoryOrder, warp: usize) -> u32 {
        let in_grid = if order.scope == MemoryScope::Grid { STRONG_IN_GRID } else { 0 };
        if !self.sync.has_peers() {
            return STRONG_IN_CLUSTER | in_grid;
        }
        let in_cluster = if order.scope >= MemoryScope::Cluster { STRONG_IN_CLUSTER } else { 0 };
        in_cluster | in_grid | STRONG_IN_CTA | (self.sync.rank(warp) as u32) << RANK_SHIFT
    }
}
