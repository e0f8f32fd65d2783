//! Releases at addresses of global memory.

use std::collections::HashMap;

use crate::checks::races::clock::{ClusterClocks, Time, join_clocks};
use crate::checks::races::stamp::GridThread;

/// Clocks released, and last strong writes, at each address of global memory.
#[derive(Default)]
pub(crate) struct Locations(HashMap<u64, Location>);

/// Clocks released, and last strong writes, at one address of global memory.
#[derive(Default)]
pub(in crate::checks::races) struct Location {
    pub(in crate::checks::races) released: ClusterClocks,
    /// Clocks at the fences with `.sc` that happened before the strong writes.
    pub(in crate::checks::races) fenced: ClusterClocks,
    /// Time of each thread's last strong write.
    pub(in crate::checks::races) writes: HashMap<GridThread, Time>,
}

impl Locations {
    pub(in crate::checks::races) fn at(&self, address: u64) -> Option<&Location> {
        self.0.get(&address)
    }

    /// Records a strong write by a thread at an address.
    pub(in crate::checks::races) fn write(&mut self, address: u64, by: GridThread, time: Time) {
        self.0.entry(address).or_default().writes.insert(by, time);
    }

    /// Joins `clocks` into the clocks at fences that happened before the strong writes to an address.
    pub(in crate::checks::races) fn fence(&mut self, address: u64, clocks: &ClusterClocks) {
        join_clocks(&mut self.0.entry(address).or_default().fenced, clocks);
    }

    /// Ends the release sequences at an address: a store overwrites it.
    pub(in crate::checks::races) fn end_sequences(&mut self, address: u64) {
        if let Some(location) = self.0.get_mut(&address) {
            location.released.clear();
        }
    }

    /// Joins `clocks` into the clocks released at an address.
    pub(in crate::checks::races) fn release(&mut self, address: u64, clocks: &ClusterClocks) {
        join_clocks(&mut self.0.entry(address).or_default().released, clocks);
    }
}
