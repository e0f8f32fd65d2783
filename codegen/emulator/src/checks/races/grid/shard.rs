//! Shard of the grid's race detection: accesses by all clusters so far to a part of the pages of global memory.
//!
//! Most blocks are accessed by one cluster only. For such a block the shadow memory records of that cluster are kept, and
//! are expanded into granule records when a second cluster accesses the block.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::ending::EndingCluster;
use super::record::GranuleRecord;
use crate::checks::races::pages::{BLOCKS, PAGE, PageMap};
use crate::checks::races::race::{ClusterRace, EarlierAccess};
use crate::checks::races::shadow::{READS, Shadow, WRITES};
use crate::checks::races::stamp::GRANULE;
use crate::checks::races::unit::GRANULES;

/// Accesses of a page by all clusters so far. Bit masks have one bit for each block.
#[derive(Default)]
struct PageRecords {
    /// First read record and first write record of each granule; each list is empty until the first such record.
    first: [Vec<GranuleRecord>; 2],
    /// Blocks without writes whose granules all have saturated reads ([`GranuleRecord::is_saturated`]).
    saturated: u32,
    accessed: u32,
    /// For each block that only one cluster has accessed, the cluster and the location of the block's records; empty until
    /// the first such block.
    single: Vec<Option<SingleClusterBlock>>,
}

/// A block that only one cluster has accessed.
#[derive(Clone, Copy)]
struct SingleClusterBlock {
    cluster: u64,
    /// Index of the block in [`Shard::single`], plus one.
    index_plus_one: NonZeroU32,
}

impl PageRecords {
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
    /// Records of the blocks that only one cluster has accessed.
    single: Shadow,
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

    fn merge_blocks(
        &mut self,
        page: &mut PageRecords,
        number: u64,
        first: usize,
        ending: &EndingCluster<'_>,
    ) -> Option<ClusterRace> {
        let &EndingCluster { cluster, global, is_isolated, .. } = ending;
        let mut accesses = Vec::new();
        (0..BLOCKS as usize).filter(|block| global.is_accessed(first + block)).find_map(|block| {
            let index = first + block;
            global.for_each_replaced(index, |access| accesses.push(access));
            let bit = 1 << block;
            if page.accessed & bit == 0 && is_isolated && accesses.is_empty() {
                page.accessed |= bit;
                page.single.resize(BLOCKS as usize, None);
                let index_plus_one = NonZeroU32::MIN.saturating_add(self.single.push_block_of(global, index));
                page.single[block] = Some(SingleClusterBlock { cluster, index_plus_one });
                return None;
            }
            page.accessed |= bit;
            if let Some(single) = page.single.get_mut(block).and_then(Option::take) {
                self.expand(page, number, block, single);
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

    /// Adds granule records for a block that only one cluster had accessed so far.
    fn expand(&mut self, page: &mut PageRecords, number: u64, block: usize, single: SingleClusterBlock) {
        let SingleClusterBlock { cluster, index_plus_one } = single;
        let index = index_plus_one.get() as usize - 1;
        let mut accesses = Vec::new();
        self.single.for_each_access(index, |access| accesses.push(access));
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
