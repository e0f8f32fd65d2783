//! Shard of the grid's race detection: accesses by all clusters so far to a part of the pages of global memory.
//!
//! Most blocks are accessed by one cluster only. For such a block the shadow memory records of that cluster are kept, and
//! are expanded into granule records when a second cluster accesses the block. If most pages of the cluster are new, the
//! shards keep its shadow memory itself, otherwise copies of the records.

use std::collections::HashMap;
use std::sync::Arc;

use super::ending::EndingCluster;
use super::record::GranuleRecord;
use crate::checks::races::pages::{BLOCKS, PAGE, PageMap};
use crate::checks::races::race::{ClusterRace, EarlierAccess};
use crate::checks::races::shadow::{READS, Shadow, WRITES};
use crate::checks::races::stamp::GRANULE;
use crate::checks::races::unit::GRANULES;
use crate::lanes::lanes_of;

/// Accesses of a page by all clusters so far. Bit masks have one bit for each block.
#[derive(Default)]
struct PageRecords {
    /// First read record and first write record of each granule; each list is empty until the first such record.
    first: [Vec<GranuleRecord>; 2],
    /// Blocks without writes whose granules all have saturated reads ([`GranuleRecord::is_saturated`]).
    saturated: u32,
    accessed: u32,
    /// Blocks that only one cluster has accessed, by cluster.
    single: Vec<SingleClusterBlocks>,
}

/// Blocks of a page that only one cluster has accessed.
struct SingleClusterBlocks {
    cluster: u64,
    /// Blocks that no other cluster has accessed yet.
    left: u32,
    records: RecordsAt,
}

/// Where to find the access records of blocks of a page.
#[derive(Clone, Copy)]
enum RecordsAt {
    /// In shadow memory `shadow` of [`Shard::kept`], where the page begins at block `first`.
    Kept { shadow: u32, first: usize },
    /// In [`Shard::copies`] from block `first` on, packed: one block for each bit of `blocks`.
    Copied { blocks: u32, first: usize },
}

impl PageRecords {
    /// If only one cluster has accessed a block so far, removes it from `single`; returns the cluster and the place of the
    /// records.
    fn take_single(&mut self, block: usize) -> Option<(u64, RecordsAt)> {
        let bit = 1 << block;
        let position = self.single.iter().position(|single| single.left & bit != 0)?;
        let single = &mut self.single[position];
        single.left &= !bit;
        let taken = (single.cluster, single.records);
        if single.left == 0 {
            self.single.swap_remove(position);
        }
        Some(taken)
    }

    fn first(&self, kind: usize, granule: usize) -> GranuleRecord {
        self.first[kind].get(granule).copied().unwrap_or_default()
    }

    fn update_saturated(&mut self, block: usize) {
        let mut granules = block * GRANULES..(block + 1) * GRANULES;
        let is_saturated = granules.all(|granule| {
            self.first(READS, granule).is_saturated && self.first(WRITES, granule).cluster_plus_one == 0
        });
        let bit = 1 << block;
        self.saturated = if is_saturated { self.saturated | bit } else { self.saturated & !bit };
    }
}

/// Accesses of some of the pages by all clusters so far.
#[derive(Default)]
pub(super) struct Shard {
    pages: PageMap<PageRecords>,
    /// Shadow memories of ended clusters whose pages were mostly new.
    kept: Vec<Arc<Shadow>>,
    /// Copies of the records of blocks that only one cluster has accessed, if the shadow memory of the cluster is not kept.
    copies: Shadow,
    /// Second and later records of granules, by address and by whether the access writes.
    more: HashMap<(u64, bool), Vec<GranuleRecord>>,
}

impl Shard {
    /// Compares page `number` with the cluster that is ending, and adds the cluster's accesses to the page. `first` is
    /// the index of the page's first block in the cluster's shadow memory. Stops at the first race.
    pub(super) fn merge(
        &mut self,
        number: u64,
        first: usize,
        ending: &EndingCluster<'_>,
    ) -> Option<ClusterRace> {
        let mut page = self.pages.remove(&number).unwrap_or_default();
        let race = self.merge_blocks(&mut page, number, first, ending);
        self.pages.insert(number, page);
        race
    }

    /// Whether a cluster has accessed page `number`.
    pub(super) fn has(&self, number: u64) -> bool {
        self.pages.contains_key(&number)
    }

    fn merge_blocks(
        &mut self,
        page: &mut PageRecords,
        number: u64,
        first: usize,
        ending: &EndingCluster<'_>,
    ) -> Option<ClusterRace> {
        let &EndingCluster { cluster, global, is_isolated, .. } = ending;
        let blocks_that = |holds: &dyn Fn(usize) -> bool| {
            (0..BLOCKS as usize).fold(0, |blocks, block| blocks | (holds(first + block) as u32) << block)
        };
        let accessed = blocks_that(&|index| global.is_accessed(index));
        let mut new = if is_isolated { accessed & !page.accessed } else { 0 };
        if new != 0 && global.has_any_replaced() {
            new &= !blocks_that(&|index| global.has_replaced(index));
        }
        if new != 0 {
            self.add_single(page, new, first, ending);
        }
        page.accessed |= accessed;
        let mut accesses = Vec::new();
        lanes_of(accessed & !new).find_map(|block| {
            let index = first + block;
            global.for_each_replaced(index, |access| accesses.push(access));
            if let Some((cluster, records)) = page.take_single(block) {
                self.expand(page, number, block, (cluster, records));
            }
            let is_saturated = page.saturated >> block & 1 != 0;
            if is_saturated && is_isolated && accesses.is_empty() && global.is_weakly_read(index) {
                return None;
            }
            global.for_each_access(index, |access| accesses.push(access));
            accesses.sort_by_key(|access| access.granule);
            let race = accesses.drain(..).find_map(|access| {
                let address = address_of(number, block, access.granule);
                let own = (GranuleRecord::new(cluster, is_isolated, &access), access.writes);
                match self.find_race(page, address, (&own.0, own.1), ending) {
                    Some(other) => Some(race_between(address, own, other)),
                    None => {
                        self.add(page, address, own);
                        None
                    }
                }
            });
            page.update_saturated(block);
            race
        })
    }

    /// Adds blocks that only the ending cluster has accessed; `first` is the index of the page's first block in its shadow
    /// memory.
    fn add_single(&mut self, page: &mut PageRecords, blocks: u32, first: usize, ending: &EndingCluster<'_>) {
        let records = if ending.keeps_shadow {
            if self.kept.last().is_none_or(|last| !Arc::ptr_eq(last, ending.global)) {
                self.kept.push(Arc::clone(ending.global));
            }
            RecordsAt::Kept { shadow: self.kept.len() as u32 - 1, first }
        } else {
            let copied = self.copies.block_count();
            lanes_of(blocks).for_each(|block| self.copies.push_block_of(ending.global, first + block));
            RecordsAt::Copied { blocks, first: copied }
        };
        page.single.push(SingleClusterBlocks { cluster: ending.cluster, left: blocks, records });
    }

    /// Adds granule records for a block that only one cluster had accessed so far.
    fn expand(
        &mut self,
        page: &mut PageRecords,
        number: u64,
        block: usize,
        (cluster, records): (u64, RecordsAt),
    ) {
        let (shadow, index) = match records {
            RecordsAt::Kept { shadow, first } => (&*self.kept[shadow as usize], first + block),
            RecordsAt::Copied { blocks, first } => {
                (&self.copies, first + (blocks & ((1 << block) - 1)).count_ones() as usize)
            }
        };
        let mut accesses = Vec::new();
        shadow.for_each_access(index, |access| accesses.push(access));
        accesses.sort_by_key(|access| access.granule);
        for access in accesses {
            // Accesses of a single cluster do not race with each other here.
            let record = GranuleRecord::new(cluster, true, &access);
            self.add(page, address_of(number, block, access.granule), (record, access.writes));
        }
        page.update_saturated(block);
    }

    /// Finds another cluster's record of a granule that races with `record`; `writes` is whether `record` is a write.
    #[inline(always)]
    fn find_race(
        &self,
        page: &PageRecords,
        address: u64,
        (record, writes): (&GranuleRecord, bool),
        ending: &EndingCluster<'_>,
    ) -> Option<(GranuleRecord, bool)> {
        let granule = (address % PAGE / GRANULE) as usize;
        [WRITES, READS].into_iter().find_map(|kind| {
            let first = page.first(kind, granule);
            let is_own = first.cluster_plus_one == record.cluster_plus_one;
            if first.cluster_plus_one == 0 || kind == READS && !writes || is_own && !first.has_more {
                return None;
            }
            let more = if first.has_more { self.more.get(&(address, kind == WRITES)) } else { None };
            let races = |other: &&GranuleRecord| {
                other.cluster_plus_one != record.cluster_plus_one
                    && other.bytes & record.bytes != 0
                    && !ending.is_ordered(address, (record, writes), (other, kind == WRITES))
            };
            let other = std::iter::once(&first).chain(more.into_iter().flatten()).find(races)?;
            Some((*other, kind == WRITES))
        })
    }

    /// Adds a record of a granule, unless the granule's earlier records make it redundant.
    #[inline(always)]
    fn add(&mut self, page: &mut PageRecords, address: u64, (record, writes): (GranuleRecord, bool)) {
        let first = &mut page.first[writes as usize];
        if first.is_empty() {
            first.resize((PAGE / GRANULE) as usize, GranuleRecord::default());
        }
        let first = &mut first[(address % PAGE / GRANULE) as usize];
        if first.cluster_plus_one == 0 {
            *first = record;
        } else if !record.is_isolated || !first.is_saturated || !record.is_weak() {
            self.add_further(first, address, (record, writes));
        }
    }

    /// Adds a second or later record of a granule, unless two earlier records have the same effect.
    fn add_further(
        &mut self,
        first: &mut GranuleRecord,
        address: u64,
        (record, writes): (GranuleRecord, bool),
    ) {
        let has_same_effect = |other: &GranuleRecord| {
            other.is_isolated
                && other.bytes & record.bytes == record.bytes
                && other.is_weak() == record.is_weak()
        };
        let more = self.more.entry((address, writes)).or_default();
        let same =
            has_same_effect(first) as usize + more.iter().filter(|other| has_same_effect(other)).count();
        if !record.is_isolated || same < 2 {
            first.has_more = true;
            more.push(record);
        }
        first.is_saturated |= record.is_isolated && record.is_weak() && same >= 1 && record.bytes == 0xf;
    }
}

fn race_between(address: u64, own: (GranuleRecord, bool), other: (GranuleRecord, bool)) -> ClusterRace {
    let stamp = own.0.stamp();
    ClusterRace {
        address,
        warp: stamp.warp(),
        lane: stamp.lane(),
        pc: stamp.pc,
        writes: own.1,
        earlier: EarlierAccess::new(other.0.stamp(), other.1),
        earlier_cluster: other.0.cluster(),
    }
}

/// Address of a granule, by page number, block in the page and granule in the block.
fn address_of(page: u64, block: usize, granule: usize) -> u64 {
    page * PAGE + ((block * GRANULES + granule) as u64) * GRANULE
}
