//! Mbarriers: barriers in shared memory that count arrivals and the bytes of asynchronous copies.
//!
//! An mbarrier has phases. A phase completes after the number of arrivals given to [`Mbarrier::init`] and, from sm_90
//! on, after all expected bytes have been copied; the next phase begins at once. Phases alternate in parity; the first
//! one has parity 0. A thread waits for the phase of a parity to complete. Waiting for parity 1 during the first phase
//! returns at once, as if a preceding phase had completed.

use std::panic::Location;

use super::pointer::{Cluster, Index, Ptr, Shared, shared_array};
use super::recorder::{Site, emit, emit1, with};
use super::value::{IntoVal, Val, val};
use crate::Carry;
use crate::ir::{self, BlockCall, FenceFor, Op, Type};

/// An mbarrier: 8 bytes of shared memory, aligned to 8.
#[derive(Clone, Copy, Debug, Carry)]
pub struct Mbarrier(Ptr<Shared, u64>);

/// An array of consecutive mbarriers.
#[derive(Clone, Copy, Debug, Carry)]
pub struct MbarrierArray(Ptr<Shared, u64>);

/// An mbarrier in the shared memory of a CTA of the cluster ([`Mbarrier::of_block`]), at which other CTAs arrive.
#[derive(Clone, Copy, Debug, Carry)]
pub struct ClusterMbarrier(Ptr<Cluster, u64>);

/// How a thread waits at an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Polls (`mbarrier.test_wait`, sm_80).
    Test,
    /// Polls, and lets the hardware suspend the thread for a limited time (`mbarrier.try_wait`, sm_90).
    Try,
}

/// An array of `count` mbarriers in static shared memory. One thread must initialise them before other threads use
/// them.
///
/// - PTX: `.shared .align 16`, `mov.u32 …, shared0`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn phases(x: Ptr<Global, u32>) {
///     let done = mbarrier_array(2).at(1);
///     done.init(1);
///     done.arrive();
///     done.wait(0, Wait::Test);
///     x.store(7);
/// }
/// assert_eq!(run(phases(), "mov.u32 …, shared0", [0u32]), [7]);
/// ```
#[track_caller]
pub fn mbarrier_array(count: u32) -> MbarrierArray {
    MbarrierArray(shared_array(count))
}

impl MbarrierArray {
    /// An array of mbarriers that starts at address `first` in shared memory.
    ///
    /// - PTX: none
    pub fn from_pointer(first: Ptr<Shared, u64>) -> MbarrierArray {
        MbarrierArray(first)
    }

    /// The mbarrier with index `index`.
    ///
    /// - PTX: none: its address, as [`Ptr::at`]
    #[track_caller]
    pub fn at(self, index: impl Index) -> Mbarrier {
        Mbarrier(self.0.at(index))
    }
}

impl Mbarrier {
    #[track_caller]
    fn emit(self, operation: ir::Mbarrier, operands: &[ir::Value]) {
        let args = [&[self.0.id()], operands].concat();
        emit(Op::Mbarrier(operation), Type::U32, &args, Location::caller());
    }

    /// Initialises the mbarrier; a phase completes after `arrivals` arrivals.
    ///
    /// - PTX: `mbarrier.init.shared.b64`
    /// - Target: sm_80
    /// - Requires: one thread calls it; a barrier makes it visible to the CTA's other threads, [`fence_mbarrier_init`]
    ///   to bulk copies
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn phases(x: Ptr<Global, u32>) {
    ///     let done = mbarrier_array(1).at(0);
    ///     done.init(1);
    ///     done.arrive();
    ///     done.wait(0, Wait::Test);
    ///     x.store(7);
    /// }
    /// assert_eq!(run(phases(), "mbarrier.init.shared.b64", [0u32]), [7]);
    /// ```
    #[track_caller]
    pub fn init(self, arrivals: u32) {
        self.emit(ir::Mbarrier::Init, &[val(arrivals).id()]);
    }

    /// Invalidates the mbarrier, so that the memory can be reused.
    ///
    /// - PTX: `mbarrier.inval.shared.b64`
    /// - Target: sm_80
    /// - Requires: no thread waits at it
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn phases(x: Ptr<Global, u32>) {
    ///     let done = mbarrier_array(1).at(0);
    ///     done.init(1);
    ///     done.invalidate();
    ///     x.store(7);
    /// }
    /// assert_eq!(run(phases(), "mbarrier.inval.shared.b64", [0u32]), [7]);
    /// ```
    #[track_caller]
    pub fn invalidate(self) {
        self.emit(ir::Mbarrier::Invalidate, &[]);
    }

    /// Arrives at the mbarrier. The thread's earlier writes are visible to threads that wait for the phase.
    ///
    /// - PTX: `mbarrier.arrive.shared.b64 _`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 64)]
    /// fn handed_over(x: Ptr<Global, u32>) {
    ///     let words = shared_array::<u32>(32);
    ///     let done = mbarrier_array(1).at(0);
    ///     if thread_index() == 0 {
    ///         done.init(32);
    ///     }
    ///     barrier();
    ///     if warp_index() == 0 {
    ///         words.at(lane()).store(x.at(lane()).load());
    ///         done.arrive();
    ///     } else {
    ///         done.wait(0, Wait::Test);
    ///         x.at(lane()).store(words.at(31 - lane()).load());
    ///     }
    /// }
    /// assert_eq!(run(handed_over(), "mbarrier.arrive.shared.b64 _", LANES), std::array::from_fn(|i| 31 - i as u32));
    /// ```
    #[track_caller]
    pub fn arrive(self) {
        self.emit(ir::Mbarrier::Arrive, &[]);
    }

    /// Adds `bytes` to the bytes that the current phase expects, and arrives at the mbarrier.
    ///
    /// - PTX: `mbarrier.arrive.expect_tx.shared::cta.b64 _`
    /// - Target: sm_90
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
    /// assert_eq!(run(fetched(), "mbarrier.arrive.expect_tx.shared::cta.b64 _", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
    /// ```
    #[track_caller]
    pub fn arrive_expect(self, bytes: impl IntoVal<u32>) {
        self.emit(ir::Mbarrier::ArriveExpect, &[bytes.into_val().id()]);
    }

    /// Adds `bytes` to the bytes that the current phase expects, without arriving.
    ///
    /// - PTX: `mbarrier.expect_tx.relaxed.cta.shared::cta.b64`
    /// - Target: sm_90
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn fetched(x: Ptr<Global, u32>) {
    ///     let (words, done) = (shared_array::<u32>(4), mbarrier_array(1).at(0));
    ///     done.init(1);
    ///     fence_mbarrier_init();
    ///     done.expect(16);
    ///     copy_bulk(words.cast(), x.cast(), 16, done, None);
    ///     done.arrive();
    ///     done.wait(0, Wait::Try);
    ///     x.store(words.at(3).load());
    /// }
    /// assert_eq!(run(fetched(), "mbarrier.expect_tx.relaxed.cta.shared::cta.b64", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
    /// ```
    #[track_caller]
    pub fn expect(self, bytes: impl IntoVal<u32>) {
        self.emit(ir::Mbarrier::Expect, &[bytes.into_val().id()]);
    }

    /// Whether the phase with parity `parity` has completed. If so, writes before the arrivals are visible.
    ///
    /// - PTX: `mbarrier.test_wait.parity.shared.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn phases(x: Ptr<Global, u32>) {
    ///     let done = mbarrier_array(1).at(0);
    ///     done.init(1);
    ///     done.arrive();
    ///     while !done.test_wait(0) {}
    ///     x.store(7);
    /// }
    /// assert_eq!(run(phases(), "mbarrier.test_wait.parity.shared.b64", [0u32]), [7]);
    /// ```
    #[track_caller]
    pub fn test_wait(self, parity: impl IntoVal<u32>) -> Val<bool> {
        self.completed(Wait::Test, parity.into_val(), Location::caller())
    }

    /// As [`Mbarrier::test_wait`], but the hardware may suspend the thread for a limited time before it returns false.
    ///
    /// - PTX: `mbarrier.try_wait.parity.shared::cta.b64`
    /// - Target: sm_90
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn phases(x: Ptr<Global, u32>) {
    ///     let done = mbarrier_array(1).at(0);
    ///     done.init(1);
    ///     done.arrive();
    ///     while !done.try_wait(0) {}
    ///     x.store(7);
    /// }
    /// assert_eq!(run(phases(), "mbarrier.try_wait.parity.shared::cta.b64", [0u32]), [7]);
    /// ```
    #[track_caller]
    pub fn try_wait(self, parity: impl IntoVal<u32>) -> Val<bool> {
        self.completed(Wait::Try, parity.into_val(), Location::caller())
    }

    fn completed(self, how: Wait, parity: Val<u32>, site: Site) -> Val<bool> {
        let operation = match how {
            Wait::Test => ir::Mbarrier::TestWait,
            Wait::Try => ir::Mbarrier::TryWait,
        };
        Val::from_id(emit1(Op::Mbarrier(operation), Type::U32, &[self.0.id(), parity.id()], site))
    }

    /// Waits until the phase with parity `parity` has completed: a loop of [`Mbarrier::test_wait`] or
    /// [`Mbarrier::try_wait`].
    ///
    /// - PTX: `mbarrier.test_wait.parity.shared.b64` or `mbarrier.try_wait.parity.shared::cta.b64`, and a branch
    /// - Target: sm_80 with `Wait::Test`, sm_90 with `Wait::Try`
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 64)]
    /// fn handed_over(x: Ptr<Global, u32>) {
    ///     let words = shared_array::<u32>(32);
    ///     let done = mbarrier_array(1).at(0);
    ///     if thread_index() == 0 {
    ///         done.init(32);
    ///     }
    ///     barrier();
    ///     if warp_index() == 0 {
    ///         words.at(lane()).store(x.at(lane()).load());
    ///         done.arrive();
    ///     } else {
    ///         done.wait(0, Wait::Test);
    ///         x.at(lane()).store(words.at(31 - lane()).load());
    ///     }
    /// }
    /// assert_eq!(run(handed_over(), "mbarrier.test_wait.parity.shared.b64", LANES), std::array::from_fn(|i| 31 - i as u32));
    /// ```
    #[track_caller]
    pub fn wait(self, parity: impl IntoVal<u32>, how: Wait) {
        let (parity, site) = (parity.into_val(), Location::caller());
        repeat_until(|| self.completed(how, parity, site), site);
    }

    /// Arrives when all earlier [`super::copy_async`] copies of this thread have completed; the thread does not wait.
    /// The arrival counts as one of those given to [`Mbarrier::init`].
    ///
    /// - PTX: `cp.async.mbarrier.arrive.noinc.shared.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn fetched(x: Ptr<Global, u32>) {
    ///     let (words, done) = (shared_array::<u32>(4), mbarrier_array(1).at(0));
    ///     done.init(1);
    ///     copy_async::<16>(words.cast(), x.cast());
    ///     done.arrive_after_copies();
    ///     done.wait(0, Wait::Test);
    ///     x.store(words.at(3).load());
    /// }
    /// assert_eq!(run(fetched(), "cp.async.mbarrier.arrive.noinc.shared.b64", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
    /// ```
    #[track_caller]
    pub fn arrive_after_copies(self) {
        self.emit(ir::Mbarrier::ArriveAfterCopies, &[]);
    }

    /// The mbarrier at the same offset in the shared memory of the CTA with rank `rank` in the cluster.
    ///
    /// - PTX: `mapa.shared::cluster.u32`
    /// - Target: sm_90
    /// - Requires: a kernel with `cluster = …`
    /// - Example: [`cluster_barrier`](crate::dsl::cluster_barrier)
    #[track_caller]
    pub fn of_block(self, rank: impl IntoVal<u32>) -> ClusterMbarrier {
        ClusterMbarrier(self.0.of_block(rank))
    }

    /// As [`Mbarrier::wait`]; in addition, writes that other CTAs of the cluster made before they arrived are visible.
    ///
    /// - PTX: `mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64`, and a branch
    /// - Target: sm_90
    /// - Example: [`cluster_barrier`](crate::dsl::cluster_barrier)
    #[track_caller]
    pub fn wait_for_cluster(self, parity: impl IntoVal<u32>) {
        let (parity, site) = (parity.into_val(), Location::caller());
        let completed = Op::Mbarrier(ir::Mbarrier::TryWaitCluster);
        repeat_until(|| Val::from_id(emit1(completed, Type::U32, &[self.0.id(), parity.id()], site)), site);
    }

    /// Address in the CTA's shared memory.
    pub(super) fn address(self) -> ir::Value {
        self.0.id()
    }
}

impl ClusterMbarrier {
    /// As [`Mbarrier::arrive`], from a thread of any CTA of the cluster. Its earlier writes are visible to threads that
    /// wait by [`Mbarrier::wait_for_cluster`].
    ///
    /// - PTX: `mbarrier.arrive.release.cluster.shared::cluster.b64 _`
    /// - Target: sm_90
    /// - Requires: a kernel with `cluster = …`
    /// - Example: [`cluster_barrier`](crate::dsl::cluster_barrier)
    #[track_caller]
    pub fn arrive(self) {
        emit(Op::Mbarrier(ir::Mbarrier::ArriveCluster), Type::U32, &[self.0.id()], Location::caller());
    }

    /// As [`Mbarrier::arrive_expect`], from a thread of any CTA of the cluster.
    ///
    /// - PTX: `mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _`
    /// - Target: sm_90
    /// - Requires: a kernel with `cluster = …`
    /// - Example: [`cluster_barrier`](crate::dsl::cluster_barrier)
    #[track_caller]
    pub fn arrive_expect(self, bytes: impl IntoVal<u32>) {
        let args = [self.0.id(), bytes.into_val().id()];
        emit(Op::Mbarrier(ir::Mbarrier::ArriveExpectCluster), Type::U32, &args, Location::caller());
    }

    /// Address in the shared memory of the cluster.
    pub(super) fn address(self) -> ir::Value {
        self.0.id()
    }
}

/// Makes mbarriers that this thread initialised visible to bulk copies and to the CTAs of the cluster.
///
/// - PTX: `fence.mbarrier_init.release.cluster`
/// - Target: sm_90
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
/// assert_eq!(run(fetched(), "fence.mbarrier_init.release.cluster", [1u32, 2, 3, 4]), [4, 2, 3, 4]);
/// ```
#[track_caller]
pub fn fence_mbarrier_init() {
    emit(Op::FenceFor(FenceFor::MbarrierInit), Type::U32, &[], Location::caller());
}

/// Proxy fence: orders this thread's accesses of the CTA's shared memory before later bulk copies from and to it, which
/// use the async proxy. Needed before a bulk copy reads or overwrites memory that instructions accessed.
///
/// - PTX: `fence.proxy.async.shared::cta`
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
/// assert_eq!(run(sent(), "fence.proxy.async.shared::cta", [0u32; 4]), [1, 2, 3, 4]);
/// ```
#[track_caller]
pub fn fence_async_shared() {
    emit(Op::FenceFor(FenceFor::AsyncShared), Type::U32, &[], Location::caller());
}

/// As [`fence_async_shared`], for all memory.
///
/// - PTX: `fence.proxy.async`
/// - Target: sm_90
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 4)]
/// fn sent(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(4);
///     words.at(thread_index()).store(thread_index() + 1);
///     fence_async();
///     barrier();
///     if thread_index() == 0 {
///         store_bulk(x.cast(), words.cast(), 16, None);
///         commit_bulk_stores();
///         wait_bulk_stores(0);
///     }
/// }
/// assert_eq!(run(sent(), "fence.proxy.async;", [0u32; 4]), [1, 2, 3, 4]);
/// ```
#[track_caller]
pub fn fence_async() {
    emit(Op::FenceFor(FenceFor::Async), Type::U32, &[], Location::caller());
}

/// Records a loop that repeats until `condition` is true and has no other body.
fn repeat_until(condition: impl FnOnce() -> Val<bool>, site: Site) {
    let header = with(|r| {
        if r.follow_jump(&[], site).is_some() {
            return r.block;
        }
        let header = r.func.create_block();
        r.jump(header, Vec::new(), site);
        r.switch_to(header);
        header
    });
    let condition = condition();
    with(|r| {
        if r.follow_branch(condition.id(), &[], &[], site).is_some() {
            return;
        }
        let after = r.func.create_block();
        let to = |block| BlockCall { block, args: Vec::new() };
        let branch = r.branch(condition.id(), to(after), to(header), site);
        r.intrinsic_branches.push(branch);
        r.switch_to(after);
    });
}
