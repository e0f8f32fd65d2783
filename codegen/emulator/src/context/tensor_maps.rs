//! Tensor maps in global memory that the launch changes, and the proxy fences that order their uses after the changes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A CTA: index of its cluster, and rank in it.
pub(crate) type CtaId = (u64, usize);

/// The last change of a tensor map.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// Number of the change among all of the launch.
    number: u64,
    by: CtaId,
    /// Whether the CTA has executed a release fence of the tensormap proxy after the change.
    is_released: bool,
}

/// The changes of a launch, which all CTAs see.
#[derive(Debug, Default)]
pub(crate) struct ChangedMaps(Mutex<Changes>);

#[derive(Debug, Default)]
struct Changes {
    /// The last change of the map at each address.
    last: HashMap<u64, Change>,
    /// Number of changes so far.
    count: u64,
}

/// Why a use of a tensor map is not ordered after the last change of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingFence {
    Release,
    Acquire,
}

impl ChangedMaps {
    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change of the map at `address`; `is_released` if the instruction is a release fence, too.
    pub(crate) fn change(&self, address: u64, by: CtaId, is_released: bool) {
        let mut changes = self.lock();
        changes.count += 1;
        let change = Change { number: changes.count, by, is_released };
        changes.last.insert(address, change);
    }

    /// Records a release fence of a CTA.
    pub(crate) fn release(&self, by: CtaId) {
        for change in self.lock().last.values_mut().filter(|change| change.by == by) {
            change.is_released = true;
        }
    }
}

/// Changes after which each CTA of a cluster has executed an acquire fence, by rank and address.
#[derive(Debug, Default)]
pub(crate) struct AcquiredMaps(HashMap<(usize, u64), u64>);

impl AcquiredMaps {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records an acquire fence for the map at `address` by the CTA of a rank.
    pub(crate) fn acquire(&mut self, changed: &ChangedMaps, rank: usize, address: u64) {
        if let Some(change) = changed.lock().last.get(&address) {
            self.0.insert((rank, address), change.number);
        }
    }

    /// The fence that a use of the map at `address` by the CTA of a rank lacks.
    pub(crate) fn missing_fence(
        &self,
        changed: &ChangedMaps,
        rank: usize,
        address: u64,
    ) -> Option<MissingFence> {
        let change = *changed.lock().last.get(&address)?;
        if !change.is_released {
            return Some(MissingFence::Release);
        }
        (self.0.get(&(rank, address)) != Some(&change.number)).then_some(MissingFence::Acquire)
    }
}
