//! Prefix sums over a warp and over a CTA, written in the kernel language.

use super::math::select;
use super::number::Number;
use super::pointer::{Ptr, Shared};
use super::scalar::Word;
use super::sync::barrier;
use super::threads::{lane, warp_index};
use super::value::Val;
use super::warp::shuffle_up;
use crate::device;

/// The sum of the values of the lane and of all lower lanes. Without the lane's own value: `warp_inclusive_sum(x) - x`, exact for
/// integers.
///
/// - PTX: `shfl.sync.up.b32` five times
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| warp_inclusive_sum(x), "shfl.sync.up.b32", LANES)[..5], [0, 1, 3, 6, 10]);
/// ```
#[device]
pub fn warp_inclusive_sum<T: Word + Number>(value: Val<T>) -> Val<T> {
    let mut sum = value;
    for step in [1, 2, 4, 8, 16] {
        let below = shuffle_up(sum, step);
        sum = select(lane() >= step, sum + below, sum);
    }
    sum
}

/// The sum of the values of the thread and of all threads before it, in a CTA of `warps` warps. `scratch` is a shared array of at
/// least `warps` elements; it may be reused after the next barrier. Floats are added to the sum of the thread's warp, from warp 0
/// on.
///
/// - PTX: `shfl.sync.up.b32`, `bar.sync 0`
/// - Target: sm_80
/// - Requires: every thread of the CTA
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 64)]
/// fn summed(x: Ptr<Global, u32>) {
///     let scratch = shared_array::<u32>(2);
///     let i = thread_index();
///     let sum = block_inclusive_sum(x.at(i).load(), scratch, 2);
///     x.at(i).store(sum);
/// }
/// let sums = run(summed(), "shfl.sync.up.b32", [2u32; 64]);
/// assert_eq!((sums[0], sums[40], sums[63]), (2, 82, 128));
/// ```
#[device]
pub fn block_inclusive_sum<T: Word + Number>(value: Val<T>, scratch: Ptr<Shared, T>, warps: u32) -> Val<T> {
    let mut sum = warp_inclusive_sum(value);
    if warps == 1 {
        return sum;
    }
    if lane() == 31 {
        scratch.at(warp_index()).store(sum);
    }
    barrier();
    for before in 0..warps - 1 {
        let of_warp = scratch.at(before).load();
        sum = select(warp_index() > before, sum + of_warp, sum);
    }
    sum
}
