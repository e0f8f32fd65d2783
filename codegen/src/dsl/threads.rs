//! Indices of the thread, sizes of the launch, and clocks.

use std::panic::Location;

use super::recorder::{emit1, with};
use super::value::Val;
use crate::ir::{Op, Special};

/// Number of lanes in a warp.
pub const WARP: u32 = 32;

macro_rules! special {
    (@) => { u32 };
    (@ $ty:ty) => { $ty };
    ($($(#[$doc:meta])* $name:ident => $register:ident $(: $ty:ty)?;)*) => {
        $($(#[$doc])*
        #[track_caller]
        pub fn $name() -> Val<special!(@ $($ty)?)> {
            let register = Special::$register;
            Val::from_id(emit1(Op::Special(register), register.ty(), &[], Location::caller()))
        })*
    };
}
special! {
    /// The thread's x index in its CTA.
    ///
    /// - PTX: `mov.u32 …, %tid.x`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + thread_index(), "mov.u32 …, %tid.x", [10u32; 3]), [10, 11, 12]);
    /// ```
    thread_index => TidX;
    /// The thread's y index in its CTA.
    ///
    /// - PTX: `mov.u32 …, %tid.y`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + thread_index_y(), "mov.u32 …, %tid.y", [10u32; 3]), [10; 3]);
    /// ```
    thread_index_y => TidY;
    /// The thread's z index in its CTA.
    ///
    /// - PTX: `mov.u32 …, %tid.z`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + thread_index_z(), "mov.u32 …, %tid.z", [10u32; 3]), [10; 3]);
    /// ```
    thread_index_z => TidZ;
    /// Threads per CTA along x, as launched.
    ///
    /// - PTX: `mov.u32 …, %ntid.x`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + block_size(), "mov.u32 …, %ntid.x", [10u32; 3]), [13; 3]);
    /// ```
    block_size => NtidX;
    /// Threads per CTA along y, as launched.
    ///
    /// - PTX: `mov.u32 …, %ntid.y`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + block_size_y(), "mov.u32 …, %ntid.y", [10u32; 3]), [11; 3]);
    /// ```
    block_size_y => NtidY;
    /// Threads per CTA along z, as launched.
    ///
    /// - PTX: `mov.u32 …, %ntid.z`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + block_size_z(), "mov.u32 …, %ntid.z", [10u32; 3]), [11; 3]);
    /// ```
    block_size_z => NtidZ;
    /// The CTA's x index in the grid.
    ///
    /// - PTX: `mov.u32 …, %ctaid.x`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + block_index(), "mov.u32 …, %ctaid.x", [10u32; 3]), [10; 3]);
    /// ```
    block_index => CtaidX;
    /// The CTA's y index in the grid.
    ///
    /// - PTX: `mov.u32 …, %ctaid.y`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + block_index_y(), "mov.u32 …, %ctaid.y", [10u32; 3]), [10; 3]);
    /// ```
    block_index_y => CtaidY;
    /// The CTA's z index in the grid.
    ///
    /// - PTX: `mov.u32 …, %ctaid.z`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + block_index_z(), "mov.u32 …, %ctaid.z", [10u32; 3]), [10; 3]);
    /// ```
    block_index_z => CtaidZ;
    /// CTAs in the grid along x, as launched.
    ///
    /// - PTX: `mov.u32 …, %nctaid.x`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + grid_size(), "mov.u32 …, %nctaid.x", [10u32; 3]), [11; 3]);
    /// ```
    grid_size => NctaidX;
    /// CTAs in the grid along y, as launched.
    ///
    /// - PTX: `mov.u32 …, %nctaid.y`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + grid_size_y(), "mov.u32 …, %nctaid.y", [10u32; 3]), [11; 3]);
    /// ```
    grid_size_y => NctaidY;
    /// CTAs in the grid along z, as launched.
    ///
    /// - PTX: `mov.u32 …, %nctaid.z`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + grid_size_z(), "mov.u32 …, %nctaid.z", [10u32; 3]), [11; 3]);
    /// ```
    grid_size_z => NctaidZ;
    /// The thread's lane in its warp, 0 to 31.
    ///
    /// - PTX: `mov.u32 …, %laneid`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x + lane(), "mov.u32 …, %laneid", [10u32; 3]), [10, 11, 12]);
    /// ```
    lane => LaneId;
    /// Mask of the lanes that execute this call together: some of those that fulfil the conditions around it. An exchange
    /// with this mask, [`lanes`](fn@super::lanes), must follow without a branch between.
    ///
    /// - PTX: `activemask.b32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// /// Adds the number of lanes that are here, with one atomic.
    /// #[kernel(threads = 32)]
    /// fn counted(x: Ptr<Global, u32>) {
    ///     if lane() % 3 == 0 {
    ///         let here = active_lanes();
    ///         if here.trailing_zeros() == lane() {
    ///             x.atomic_add(here.count_ones(), Scope::Gpu);
    ///         }
    ///     }
    /// }
    /// assert_eq!(run(counted(), "activemask.b32", [0u32]), [11]);
    /// ```
    active_lanes => ActiveMask;
    /// The index of the multiprocessor that runs this CTA. The index may change while a kernel runs.
    ///
    /// - PTX: `mov.u32 …, %smid`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.max(multiprocessor()), "mov.u32 …, %smid", [1000u32; 3]), [1000; 3]);
    /// ```
    multiprocessor => SmId;
    /// The multiprocessor's cycle counter, 32 bits. The read is not moved, merged or removed.
    ///
    /// - PTX: `mov.u32 …, %clock`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // The cycles that a store takes.
    /// #[kernel(threads = 1)]
    /// fn timed(x: Ptr<Global, u32>) {
    ///     let start = clock();
    ///     x.store(7);
    ///     x.at(1).store(clock() - start);
    /// }
    /// let [stored, cycles] = run(timed(), "mov.u32 …, %clock;", [0u32, 0]);
    /// assert!(stored == 7 && cycles < 1_000_000);
    /// ```
    clock => Clock;
    /// The multiprocessor's cycle counter, 64 bits. The read is not moved, merged or removed.
    ///
    /// - PTX: `mov.u64 …, %clock64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let [cycles] = map(|x| clock64() - clock64() + x, "mov.u64 …, %clock64", [0u64]);
    /// assert!(cycles.wrapping_neg() < 1_000_000);
    /// ```
    clock64 => Clock64: u64;
    /// A clock in nanoseconds, shared by all multiprocessors, which advances about every microsecond.
    ///
    /// - PTX: `mov.u64 …, %globaltimer`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let [start, later] = map(|x| global_timer() + x, "mov.u64 …, %globaltimer", [0u64; 2]);
    /// assert!(later.abs_diff(start) < 1_000_000_000);
    /// ```
    global_timer => GlobalTimer: u64;
}

/// The index of the thread's warp in its CTA: [`thread_index`] / 32, in CTAs of `threads = (x, y, z)` the index of the
/// thread in the whole CTA / 32. Without `threads = …`, the CTA must be one-dimensional.
///
/// - PTX: `mov.u32 …, %tid.x`, `shr.u32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// let warps = map(|x| x + warp_index(), "shr.u32", [0u32; 64]);
/// assert_eq!((warps[31], warps[32]), (0, 1));
/// ```
#[track_caller]
pub fn warp_index() -> Val<u32> {
    match with(|r| r.func.threads_by_axis()) {
        Some([x, y, z]) if (y, z) != (1, 1) => {
            let row = if z == 1 { thread_index_y() } else { thread_index_z() * y + thread_index_y() };
            (row * x + thread_index()) >> 5
        }
        _ => thread_index() >> 5,
    }
}
