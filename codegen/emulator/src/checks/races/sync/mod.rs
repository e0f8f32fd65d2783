//! Synchronisation of a cluster's threads, as vector clocks.

mod cluster;
mod fence;
mod fence_sc;
mod lanes;
mod mbarrier;
mod objects;
mod scope;
mod state;

pub(super) use lanes::AccessorClocks;
pub(super) use objects::{Initialisation, LastUse};
pub(crate) use scope::{FenceSides, MemoryOrder, MemoryScope};
pub(super) use state::{ClockChange, SyncState, clocks_at};
