//! Clusters: CTAs that run at the same time and access each other's shared memory (`#[kernel(cluster = n)]`, sm_90).
//!
//! A CTA must not end while other CTAs of its cluster may access its shared memory. Let the CTA wait at a
//! [`cluster_barrier`] before its end.

use std::panic::Location;

use super::pointer::{Cluster, Ptr, Shared};
use super::recorder::{emit, emit1};
use super::value::{IntoVal, Val};
use crate::ir::{ClusterBarrier, Op, Special, Type};

/// The CTA's rank in its cluster, from 0.
///
/// - PTX: `mov.u32 …, %cluster_ctarank`
/// - Target: sm_90
/// - Example: [`cluster_barrier`]
#[track_caller]
pub fn cluster_rank() -> Val<u32> {
    Val::from_id(emit1(Op::Special(Special::ClusterRank), Type::U32, &[], Location::caller()))
}

/// The number of CTAs in the cluster.
///
/// - PTX: `mov.u32 …, %cluster_nctarank`
/// - Target: sm_90
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1, cluster = 2)]
/// fn sizes(x: Ptr<Global, u32>) {
///     x.at(block_index()).store(cluster_size() * 10 + cluster_rank());
/// }
/// let kernel = sizes()?;
/// let done = Launch::of(&kernel).buffer(&[0u32; 4]).grid(4).run()?;
/// assert_eq!(done.buffer::<u32>(0), [20, 21, 20, 21]);
/// assert!(done.has("mov.u32 …, %cluster_nctarank"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn cluster_size() -> Val<u32> {
    Val::from_id(emit1(Op::Special(Special::ClusterSize), Type::U32, &[], Location::caller()))
}

/// Arrives at the barrier of all threads of the cluster, with release semantics.
///
/// - PTX: `barrier.cluster.arrive.release`
/// - Target: sm_90
/// - Requires: every thread of the cluster arrives and then calls [`wait_at_cluster_barrier`]
/// - Example: [`cluster_barrier`]
#[track_caller]
pub fn arrive_at_cluster_barrier() {
    emit(Op::ClusterBarrier(ClusterBarrier::Arrive), Type::U32, &[], Location::caller());
}

/// Waits until all threads of the cluster have arrived, with acquire semantics: their earlier writes are visible.
///
/// - PTX: `barrier.cluster.wait.acquire`
/// - Target: sm_90
/// - Requires: after [`arrive_at_cluster_barrier`]
/// - Example: [`cluster_barrier`]
#[track_caller]
pub fn wait_at_cluster_barrier() {
    emit(Op::ClusterBarrier(ClusterBarrier::Wait), Type::U32, &[], Location::caller());
}

/// Barrier of all threads of the cluster: arrives and waits.
///
/// - PTX: `barrier.cluster.arrive.release`, `barrier.cluster.wait.acquire`
/// - Target: sm_90
/// - Requires: every thread of the cluster calls it
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // Each CTA of a pair adds the other's words. Neither ends before the other has read.
/// #[kernel(threads = 32, cluster = 2)]
/// fn sums(x: Ptr<Global, u32>) {
///     let own = shared_array::<u32>(32);
///     let place = x.at(block_index() * 32 + lane());
///     let value = place.load();
///     own.at(lane()).store(value);
///     cluster_barrier();
///     let theirs = own.at(lane()).of_block(cluster_rank() ^ 1).load();
///     place.store(value + theirs);
///     arrive_at_cluster_barrier();
///     wait_at_cluster_barrier();
/// }
/// let words: Vec<u32> = (0..64).collect();
/// let kernel = sums()?;
/// let done = Launch::of(&kernel).buffer(&words).grid(2).run()?;
/// assert_eq!(done.buffer::<u32>(0), (0..64).map(|i| i + (i ^ 32)).collect::<Vec<u32>>());
/// assert!(done.has("barrier.cluster.arrive.release") && done.has("barrier.cluster.wait.acquire"));
/// assert!(done.has("mapa.shared::cluster.u32") && done.has("ld.shared::cluster.u32"));
///
/// // The first CTA sends 16 bytes to the second one and waits until they have been read.
/// #[kernel(threads = 1, cluster = 2)]
/// fn sent(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     let barriers = mbarrier_array(2);
///     let (arrived, read) = (barriers.at(0), barriers.at(1));
///     arrived.init(1);
///     read.init(1);
///     fence_mbarrier_init();
///     cluster_barrier();
///     if cluster_rank() == 0 {
///         words.store_vector(x.load_vector::<4>());
///         fence_async_shared();
///         let there = arrived.of_block(1);
///         there.arrive_expect(16);
///         copy_bulk_to_block(words.of_block(1).cast(), words.cast(), 16, there);
///         read.wait_for_cluster(0);
///     } else {
///         arrived.wait_for_cluster(0);
///         x.at(4).store_vector(words.load_vector::<4>());
///         read.of_block(0).arrive();
///     }
/// }
/// let kernel = sent()?;
/// let done = Launch::of(&kernel).buffer(&[1u32, 2, 3, 4, 0, 0, 0, 0]).grid(2).run()?;
/// assert_eq!(done.buffer::<u32>(0), [1, 2, 3, 4, 1, 2, 3, 4]);
/// assert!(done.has("mbarrier.arrive.release.cluster.shared::cluster.b64 _"));
/// assert!(done.has("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn cluster_barrier() {
    arrive_at_cluster_barrier();
    wait_at_cluster_barrier();
}

impl<T> Ptr<Shared, T> {
    /// Address of the same offset in the shared memory of the CTA with rank `rank` in the cluster.
    ///
    /// - PTX: `mapa.shared::cluster.u32`
    /// - Target: sm_90
    /// - Requires: a kernel with `cluster = …`; that CTA has not ended
    /// - Example: [`cluster_barrier`]
    #[track_caller]
    pub fn of_block(self, rank: impl IntoVal<u32>) -> Ptr<Cluster, T> {
        let args = [self.id(), rank.into_val().id()];
        Ptr::from_id(emit1(Op::MapShared, Type::Cluster, &args, Location::caller()))
    }
}
