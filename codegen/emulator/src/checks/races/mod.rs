//! Accesses that nothing orders.
//!
//! Two accesses race if they touch a byte, at least one writes it, and neither happened before the other. What
//! happened before what is followed by vector clocks ([`clock`]), through whatever the ISA says orders memory
//! ([`sync`]): program order, barriers, `bar.warp.sync`, mbarriers, waits for copies, fences with strong accesses,
//! and acquire and release. Every access leaves a mark ([`shadow`]) that later ones of its CTA are compared with;
//! CTAs are compared with each other as they end ([`grid`]). Nothing depends on how the emulator happened to take
//! turns: accesses that a barrier orders are clean, others are found though they came one after the other.

mod clock;
mod cluster;
mod copies;
mod copy_checks;
mod detector;
mod grid;
mod mark;
mod pages;
mod peers;
mod pieces;
mod shadow;
mod strong;
mod sync;
mod synchronise;
#[cfg(test)]
mod tests;

pub(crate) use cluster::{ClusterRace, EndConflict, LateUse};
pub(crate) use copies::Bulk;
pub(crate) use copy_checks::{CopyRace, Refusal};
pub(crate) use detector::{Earlier, Places, Race, Races, Touch, Who};
pub(crate) use grid::Grid;
pub(crate) use strong::Turn;
pub(crate) use sync::{Ordering, Scope};
pub(crate) use synchronise::{FenceKind, UnorderedInit};
