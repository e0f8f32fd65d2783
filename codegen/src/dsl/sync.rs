//! Barriers and fences of threads, and programmatic launch order.

use std::panic::Location;

use super::recorder::emit;
use super::value::IntoVal;
use crate::ir::{Op, Scope, Type};

/// Barrier of all threads of the CTA; orders their memory accesses.
///
/// - PTX: `bar.sync 0`
/// - Target: sm_80
/// - Requires: every thread of the CTA reaches it: not under a divergent condition
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 4)]
/// fn reversed(x: Ptr<Global, u32>) {
///     let i = thread_index();
///     let value = x.at(i).load();
///     barrier();
///     x.at(3 - i).store(value);
/// }
/// assert_eq!(run(reversed(), "bar.sync 0", [1u32, 2, 3, 4]), [4, 3, 2, 1]);
/// ```
#[track_caller]
pub fn barrier() {
    emit(Op::Barrier { id: 0, threads: 0 }, Type::U32, &[], Location::caller());
}

/// Barrier number `id` of `threads` threads of the CTA, which are whole warps.
///
/// - PTX: `bar.sync 1, 64`
/// - Target: sm_80
/// - Requires: `id` from 0 to 15; [`barrier`] is barrier 0; `threads` a multiple of 32
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // The third warp does not participate.
/// #[kernel(threads = 96)]
/// fn reversed(x: Ptr<Global, u32>) {
///     let i = thread_index();
///     if i < 64 {
///         let value = x.at(i).load();
///         named_barrier(1, 64);
///         x.at(63 - i).store(value);
///     }
/// }
/// let numbers: [u32; 64] = std::array::from_fn(|i| i as u32);
/// assert_eq!(run(reversed(), "bar.sync 1, 64", numbers)[..2], [63, 62]);
/// ```
#[track_caller]
pub fn named_barrier(id: u8, threads: u32) {
    emit(Op::Barrier { id, threads }, Type::U32, &[], Location::caller());
}

/// Arrives at barrier number `id` without waiting. `threads` is the number of threads that arrive here or wait in
/// [`named_barrier`].
///
/// - PTX: `bar.arrive 1, 64`
/// - Target: sm_80
/// - Requires: `id` from 0 to 15; `threads` a multiple of 32
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // The first warp passes words to the second one without waiting.
/// #[kernel(threads = 64)]
/// fn handed_over(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(32);
///     if warp_index() == 0 {
///         words.at(lane()).store(x.at(lane()).load());
///         arrive_at_barrier(1, 64);
///     } else {
///         named_barrier(1, 64);
///         x.at(lane()).store(words.at(31 - lane()).load());
///     }
/// }
/// assert_eq!(run(handed_over(), "bar.arrive 1, 64", LANES)[..2], [31, 30]);
/// ```
#[track_caller]
pub fn arrive_at_barrier(id: u8, threads: u32) {
    emit(Op::BarrierArrive { id, threads }, Type::U32, &[], Location::caller());
}

/// Barrier of the lanes of `mask`; orders their memory accesses.
///
/// - PTX: `bar.warp.sync`
/// - Target: sm_80
/// - Requires: all lanes of `mask` reach it with the same mask
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 32)]
/// fn neighbours(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(32);
///     words.at(lane()).store(x.at(lane()).load());
///     warp_barrier(ALL_LANES);
///     x.at(lane()).store(words.at(lane() ^ 1).load());
/// }
/// assert_eq!(run(neighbours(), "bar.warp.sync", LANES)[..4], [1, 0, 3, 2]);
/// ```
#[track_caller]
pub fn warp_barrier(mask: impl IntoVal<u32>) {
    emit(Op::WarpBarrier, Type::U32, &[mask.into_val().id()], Location::caller());
}

/// Acquire-release fence: orders this thread's earlier memory accesses before its later ones, as observed in `scope`.
///
/// - PTX: `fence.acq_rel.gpu`, also `.cta` and `.sys`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn published(x: Ptr<Global, u32>) {
///     x.at(1).store(7);
///     fence(Scope::Gpu);
///     x.store_relaxed(1, Scope::Gpu);
/// }
/// assert_eq!(run(published(), "fence.acq_rel.gpu", [0u32, 0]), [1, 7]);
/// ```
#[track_caller]
pub fn fence(scope: Scope) {
    emit(Op::Fence(scope), Type::U32, &[], Location::caller());
}

/// Sequentially consistent fence: as [`fence`], with a single order of all sequentially consistent fences.
///
/// - PTX: `fence.sc.gpu`, also `.cta` and `.sys`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // Two threads each set a flag and then read the other's: at least one sees it.
/// #[kernel(threads = 64)]
/// fn flags(x: Ptr<Global, u32>) {
///     if lane() == 0 {
///         let own = warp_index();
///         x.at(own).store_relaxed(1, Scope::Gpu);
///         sequential_fence(Scope::Gpu);
///         x.at(own + 2).store(x.at(own ^ 1).load_relaxed(Scope::Gpu));
///     }
/// }
/// let [_, _, first, second] = run(flags(), "fence.sc.gpu", [0u32; 4]);
/// assert!(first + second >= 1);
/// ```
#[track_caller]
pub fn sequential_fence(scope: Scope) {
    emit(Op::SequentialFence(scope), Type::U32, &[], Location::caller());
}

/// Suspends the thread for about `nanoseconds`, at most a million; for polling loops.
///
/// - PTX: `nanosleep.u32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 64)]
/// fn waits(x: Ptr<Global, u32>) {
///     if thread_index() == 32 {
///         x.store_relaxed(1, Scope::Cta);
///     }
///     if thread_index() == 0 {
///         while x.load_relaxed(Scope::Cta) == 0 {
///             sleep(20);
///         }
///     }
/// }
/// assert_eq!(run(waits(), "nanosleep.u32 20;", [0u32]), [1]);
/// ```
#[track_caller]
pub fn sleep(nanoseconds: impl IntoVal<u32>) {
    emit(Op::Sleep, Type::U32, &[nanoseconds.into_val().id()], Location::caller());
}

/// Waits until the preceding kernels in programmatic order have completed and their writes are visible. Returns at once
/// if the launch has no programmatic edge.
///
/// - PTX: `griddepcontrol.wait`
/// - Target: sm_90
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn next(x: Ptr<Global, u32>) {
///     wait_for_dependencies();
///     x.store(x.load() + 1);
/// }
/// assert_eq!(run(next(), "griddepcontrol.wait", [6u32]), [7]);
/// ```
#[track_caller]
pub fn wait_for_dependencies() {
    emit(Op::WaitForDependencies, Type::U32, &[], Location::caller());
}

/// Lets the next kernel in programmatic order start, once all CTAs of this grid have called this function or ended.
///
/// - PTX: `griddepcontrol.launch_dependents`
/// - Target: sm_90
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn early(x: Ptr<Global, u32>) {
///     launch_dependents();
///     wait_for_dependencies();
///     x.store(x.load() + 1);
/// }
/// assert_eq!(run(early(), "griddepcontrol.launch_dependents", [6u32]), [7]);
/// ```
#[track_caller]
pub fn launch_dependents() {
    emit(Op::LaunchDependents, Type::U32, &[], Location::caller());
}
