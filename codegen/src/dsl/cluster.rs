//! CTAs that run together and see each other's shared memory: `#[kernel(cluster = n)]`, sm_90.
//!
//! A CTA must not end while others of its cluster may access its shared memory: it waits at a [`cluster_barrier`].

use std::panic::Location;

use super::pointer::{Cluster, Ptr, Shared};
use super::record::{emit, emit1};
use super::value::{IntoVal, Val};
use crate::ir::{ClusterBarrier, Op, Special, Type};

/// The CTA's rank in its cluster, from 0 (`%cluster_ctarank`).
#[track_caller]
pub fn cluster_rank() -> Val<u32> {
    Val::from_id(emit1(Op::Special(Special::ClusterRank), Type::U32, &[], Location::caller()))
}

/// CTAs in the cluster (`%cluster_nctarank`).
#[track_caller]
pub fn cluster_size() -> Val<u32> {
    Val::from_id(emit1(Op::Special(Special::ClusterSize), Type::U32, &[], Location::caller()))
}

/// Arrives at the barrier among all threads of the cluster, after what precedes it (`barrier.cluster.arrive.release`).
#[track_caller]
pub fn arrive_at_cluster_barrier() {
    emit(Op::ClusterBarrier(ClusterBarrier::Arrive), Type::U32, &[], Location::caller());
}

/// Waits until all threads of the cluster have arrived; what they wrote before is visible then
/// (`barrier.cluster.wait.acquire`).
#[track_caller]
pub fn wait_at_cluster_barrier() {
    emit(Op::ClusterBarrier(ClusterBarrier::Wait), Type::U32, &[], Location::caller());
}

/// Arrives and waits.
#[track_caller]
pub fn cluster_barrier() {
    arrive_at_cluster_barrier();
    wait_at_cluster_barrier();
}

impl<T> Ptr<Shared, T> {
    /// The same place in the shared memory of the cluster's CTA of this rank (`mapa.shared::cluster`).
    #[track_caller]
    pub fn of_block(self, rank: impl IntoVal<u32>) -> Ptr<Cluster, T> {
        let args = [self.id, rank.into_val().id];
        Ptr::from_id(emit1(Op::MapShared, Type::Cluster, &args, Location::caller()))
    }
}
