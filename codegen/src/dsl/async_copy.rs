//! Asynchronous copies between global and shared memory, and prefetches. The data does not pass through registers.
//!
//! | function | copies | completion |
//! | --- | --- | --- |
//! | [`copy_async`] (sm_80) | up to 16 bytes per thread to shared memory | [`wait_copies`] or [`Mbarrier::arrive_after_copies`] |
//! | [`copy_bulk`] (sm_90) | any multiple of 16 bytes, started by one thread | an mbarrier counts the bytes |
//! | [`copy_bulk_multicast`] (sm_90) | the same to several CTAs of the cluster | an mbarrier in each CTA |
//! | [`copy_bulk_to_block`] (sm_90) | shared memory to another CTA of the cluster | an mbarrier of that CTA |
//! | [`store_bulk`] (sm_90) | shared memory to global memory | [`wait_bulk_stores`] |

use std::panic::Location;

use super::cache_policy::CachePolicy;
use super::mbarrier::{ClusterMbarrier, Mbarrier};
use super::pointer::{Cluster, Global, Ptr, Shared};
use super::recorder::emit;
use super::value::IntoVal;
use crate::ir::{self, AsyncCopy, Op, Type};

#[track_caller]
fn issue(copy: AsyncCopy, operands: &[ir::Value]) {
    emit(Op::AsyncCopy(copy), Type::U32, operands, Location::caller());
}

/// The size `BYTES` of an asynchronous copy, as in the IR.
const fn size<const BYTES: usize>() -> u8 {
    const { assert!(matches!(BYTES, 4 | 8 | 16), "an asynchronous copy has 4, 8 or 16 bytes") };
    BYTES as u8
}

/// Starts an asynchronous copy of `BYTES` (4, 8 or 16) bytes. A copy of 16 bytes bypasses L1.
///
/// - PTX: `cp.async.cg.shared.global`; for 4 or 8 bytes `cp.async.ca.shared.global`
/// - Target: sm_80
/// - Requires: both addresses are aligned to `BYTES`
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn through_shared(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     copy_async::<16>(words.cast(), x.cast());
///     commit_copies();
///     wait_copies(0);
///     x.store(words.at(3).load());
/// }
/// assert_eq!(run(through_shared(), "cp.async.cg.shared.global", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
/// ```
#[track_caller]
pub fn copy_async<const BYTES: usize>(to: Ptr<Shared, u8>, from: Ptr<Global, u8>) {
    issue(AsyncCopy::Async { bytes: size::<BYTES>(), sized: false, hinted: false }, &[to.id(), from.id()]);
}

/// As [`copy_async`], but copies only the first `count` of the `BYTES` bytes; the others become zero. A copy of zero
/// bytes reads nothing, so its source may be out of bounds: for the edges of a tile.
///
/// - PTX: `cp.async.cg.shared.global` with a source size
/// - Target: sm_80
/// - Requires: both addresses are aligned to `BYTES`; `count` is at most `BYTES`
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn first_two(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     copy_async_filled::<16>(words.cast(), x.cast(), 8);
///     commit_copies();
///     wait_copies(0);
///     x.store_vector(words.load_vector::<4>());
/// }
/// assert_eq!(run(first_two(), "cp.async.cg.shared.global […], […], 16, 8;", [1u32, 2, 3, 4]), [1, 2, 0, 0]);
/// ```
#[track_caller]
pub fn copy_async_filled<const BYTES: usize>(
    to: Ptr<Shared, u8>,
    from: Ptr<Global, u8>,
    count: impl IntoVal<u32>,
) {
    let copy = AsyncCopy::Async { bytes: size::<BYTES>(), sized: true, hinted: false };
    issue(copy, &[to.id(), from.id(), count.into_val().id()]);
}

/// As [`copy_async`], with an L2 cache policy.
///
/// - PTX: `cp.async.cg.shared.global.L2::cache_hint`
/// - Target: sm_80
/// - Requires: both addresses are aligned to `BYTES`
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn through_shared(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     copy_async_with::<16>(words.cast(), x.cast(), CachePolicy::evict_first());
///     commit_copies();
///     wait_copies(0);
///     x.store(words.at(3).load());
/// }
/// assert_eq!(run(through_shared(), "cp.async.cg.shared.global.L2::cache_hint", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
/// ```
#[track_caller]
pub fn copy_async_with<const BYTES: usize>(to: Ptr<Shared, u8>, from: Ptr<Global, u8>, policy: CachePolicy) {
    issue(
        AsyncCopy::Async { bytes: size::<BYTES>(), sized: false, hinted: true },
        &[to.id(), from.id(), policy.id()],
    );
}

/// Commits, as a new group, the asynchronous copies that this thread started since its last group.
///
/// - PTX: `cp.async.commit_group`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn through_shared(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     copy_async::<16>(words.cast(), x.cast());
///     commit_copies();
///     wait_copies(0);
///     x.store(words.at(3).load());
/// }
/// assert_eq!(run(through_shared(), "cp.async.commit_group", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
/// ```
#[track_caller]
pub fn commit_copies() {
    issue(AsyncCopy::Commit, &[]);
}

/// Waits until at most the newest `pending` groups of this thread are pending. Copies of other threads are visible only
/// after a barrier.
///
/// - PTX: `cp.async.wait_group`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn through_shared(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     copy_async::<16>(words.cast(), x.cast());
///     commit_copies();
///     wait_copies(0);
///     x.store(words.at(3).load());
/// }
/// assert_eq!(run(through_shared(), "cp.async.wait_group 0", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
/// ```
#[track_caller]
pub fn wait_copies(pending: u32) {
    issue(AsyncCopy::Wait { pending }, &[]);
}

/// Starts a bulk copy of `bytes` bytes from global to shared memory; the mbarrier `done` counts the copied bytes.
///
/// - PTX: `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes`, with a policy `.L2::cache_hint`
/// - Target: sm_90
/// - Requires: `bytes` a multiple of 16, both addresses aligned to 16; `done` expects the bytes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn fetched(x: Ptr<Global, u32>) {
///     let (words, done) = (shared_array::<u32>(4), mbarrier_array(1).at(0));
///     done.init(1);
///     fence_mbarrier_init();
///     done.arrive_expect(16);
///     copy_bulk(words.cast(), x.cast(), 16, done, None);
///     done.wait(0, Wait::Try);
///     x.store(words.at(3).load());
/// }
/// assert_eq!(run(fetched(), "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
/// ```
#[track_caller]
pub fn copy_bulk(
    to: Ptr<Shared, u8>,
    from: Ptr<Global, u8>,
    bytes: impl IntoVal<u32>,
    done: Mbarrier,
    policy: Option<CachePolicy>,
) {
    let mut operands = vec![to.id(), from.id(), bytes.into_val().id(), done.address()];
    operands.extend(policy.map(|policy| policy.id()));
    issue(AsyncCopy::Bulk { hinted: policy.is_some() }, &operands);
}

/// Starts a bulk copy of `bytes` bytes to the CTAs of the cluster whose ranks are set in the mask `blocks`. Each CTA
/// receives the bytes at the offset of `to` in its own shared memory, and its own mbarrier `done` counts them.
///
/// - PTX: `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster`, with a policy
///   `.L2::cache_hint`
/// - Target: sm_90
/// - Requires: `bytes` a multiple of 16, both addresses aligned to 16; `done` of each CTA is initialised and
///   expects the bytes; a kernel with `cluster = …`
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // The first CTA loads four words for both CTAs.
/// #[kernel(threads = 1, cluster = 2)]
/// fn fetched(x: Ptr<Global, u32>) {
///     let (words, done) = (shared_array::<u32>(4), mbarrier_array(1).at(0));
///     done.init(1);
///     fence_mbarrier_init();
///     done.arrive_expect(16);
///     cluster_barrier();
///     if cluster_rank() == 0 {
///         copy_bulk_multicast(words.cast(), x.cast(), 16, done, 0b11u16, None);
///     }
///     done.wait(0, Wait::Try);
///     x.at(4 + block_index()).store(words.at(3 - cluster_rank()).load());
/// }
/// let kernel = fetched()?;
/// let done = Launch::of(&kernel).buffer(&[1u32, 2, 3, 4, 0, 0]).grid(2).run()?;
/// assert_eq!(done.buffer::<u32>(0), [1, 2, 3, 4, 4, 3]);
/// assert!(done.has("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn copy_bulk_multicast(
    to: Ptr<Shared, u8>,
    from: Ptr<Global, u8>,
    bytes: impl IntoVal<u32>,
    done: Mbarrier,
    blocks: impl IntoVal<u16>,
    policy: Option<CachePolicy>,
) {
    let mut operands =
        vec![to.id(), from.id(), bytes.into_val().id(), done.address(), blocks.into_val().id()];
    operands.extend(policy.map(|policy| policy.id()));
    issue(AsyncCopy::BulkMulticast { hinted: policy.is_some() }, &operands);
}

/// Starts a bulk copy of `bytes` bytes from shared to global memory. The thread waits for its bulk stores by groups.
///
/// - PTX: `cp.async.bulk.global.shared::cta.bulk_group`, with a policy `.L2::cache_hint`
/// - Target: sm_90
/// - Requires: `bytes` a multiple of 16, both addresses aligned to 16;
///   [`fence_async_shared`](super::fence_async_shared) after the bytes were written
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 4)]
/// fn sent(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     words.at(thread_index()).store(thread_index() + 1);
///     fence_async_shared();
///     barrier();
///     if thread_index() == 0 {
///         store_bulk(x.cast(), words.cast(), 16, None);
///         commit_bulk_stores();
///         wait_bulk_stores(0);
///     }
/// }
/// assert_eq!(run(sent(), "cp.async.bulk.global.shared::cta.bulk_group", [0u32; 4]), [1, 2, 3, 4]);
/// ```
#[track_caller]
pub fn store_bulk(
    to: Ptr<Global, u8>,
    from: Ptr<Shared, u8>,
    bytes: impl IntoVal<u32>,
    policy: Option<CachePolicy>,
) {
    let mut operands = vec![to.id(), from.id(), bytes.into_val().id()];
    operands.extend(policy.map(|policy| policy.id()));
    issue(AsyncCopy::BulkStore { hinted: policy.is_some() }, &operands);
}

/// Commits, as a new group, the bulk stores that this thread started since its last group.
///
/// - PTX: `cp.async.bulk.commit_group`
/// - Target: sm_90
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 4)]
/// fn sent(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     words.at(thread_index()).store(thread_index() + 1);
///     fence_async_shared();
///     barrier();
///     if thread_index() == 0 {
///         store_bulk(x.cast(), words.cast(), 16, None);
///         commit_bulk_stores();
///         wait_bulk_stores(0);
///     }
/// }
/// assert_eq!(run(sent(), "cp.async.bulk.commit_group", [0u32; 4]), [1, 2, 3, 4]);
/// ```
#[track_caller]
pub fn commit_bulk_stores() {
    issue(AsyncCopy::BulkCommit, &[]);
}

/// Waits until at most the newest `pending` groups of bulk stores of this thread are pending. The writes of older
/// groups are visible to this thread.
///
/// - PTX: `cp.async.bulk.wait_group`
/// - Target: sm_90
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 4)]
/// fn sent(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     words.at(thread_index()).store(thread_index() + 1);
///     fence_async_shared();
///     barrier();
///     if thread_index() == 0 {
///         store_bulk(x.cast(), words.cast(), 16, None);
///         commit_bulk_stores();
///         wait_bulk_stores(0);
///     }
/// }
/// assert_eq!(run(sent(), "cp.async.bulk.wait_group 0", [0u32; 4]), [1, 2, 3, 4]);
/// ```
#[track_caller]
pub fn wait_bulk_stores(pending: u32) {
    issue(AsyncCopy::BulkWait { pending, read: false }, &[]);
}

/// As [`wait_bulk_stores`], but waits only until the stores have read shared memory, which may then be overwritten.
///
/// - PTX: `cp.async.bulk.wait_group.read`
/// - Target: sm_90
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 4)]
/// fn sent(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     words.at(thread_index()).store(thread_index() + 1);
///     fence_async_shared();
///     barrier();
///     if thread_index() == 0 {
///         store_bulk(x.cast(), words.cast(), 16, None);
///         commit_bulk_stores();
///         wait_bulk_stores_read(0);
///         words.store(0);
///     }
/// }
/// assert_eq!(run(sent(), "cp.async.bulk.wait_group.read 0", [0u32; 4]), [1, 2, 3, 4]);
/// ```
#[track_caller]
pub fn wait_bulk_stores_read(pending: u32) {
    issue(AsyncCopy::BulkWait { pending, read: true }, &[]);
}

/// Starts a bulk copy of `bytes` bytes from this CTA's shared memory to that of another CTA of the cluster, whose
/// mbarrier `done` counts the copied bytes.
///
/// - PTX: `cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes`
/// - Target: sm_90
/// - Requires: `bytes` a multiple of 16, both addresses aligned to 16; `to` and `done` of the same CTA; a kernel with
///   `cluster = …`
/// - Example: [`cluster_barrier`](crate::dsl::cluster_barrier)
#[track_caller]
pub fn copy_bulk_to_block(
    to: Ptr<Cluster, u8>,
    from: Ptr<Shared, u8>,
    bytes: impl IntoVal<u32>,
    done: ClusterMbarrier,
) {
    issue(AsyncCopy::BulkToCluster, &[to.id(), from.id(), bytes.into_val().id(), done.address()]);
}

/// Prefetches `bytes` bytes into L2.
///
/// - PTX: `cp.async.bulk.prefetch.L2.global`
/// - Target: sm_90
/// - Requires: `bytes` a multiple of 16, the address aligned to 16
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn early(x: Ptr<Global, u32>) {
///     prefetch_bulk_l2(x.cast(), 16);
///     x.store(x.load() + 1);
/// }
/// assert_eq!(run(early(), "cp.async.bulk.prefetch.L2.global", [1u32, 2, 3, 4]), [2, 2, 3, 4]);
/// ```
#[track_caller]
pub fn prefetch_bulk_l2(from: Ptr<Global, u8>, bytes: impl IntoVal<u32>) {
    issue(AsyncCopy::PrefetchBulk, &[from.id(), bytes.into_val().id()]);
}

/// Prefetches the cache line of an address into L2.
///
/// - PTX: `prefetch.global.L2`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn early(x: Ptr<Global, u32>) {
///     prefetch_l2(x.cast());
///     x.store(x.load() + 1);
/// }
/// assert_eq!(run(early(), "prefetch.global.L2", [1u32]), [2]);
/// ```
#[track_caller]
pub fn prefetch_l2(from: Ptr<Global, u8>) {
    issue(AsyncCopy::Prefetch, &[from.id()]);
}
