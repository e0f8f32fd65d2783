//! Reductions over a warp and over a CTA, written in the kernel language.

use super::math::select;
use super::number::Number;
use super::pointer::{Ptr, Shared};
use super::scalar::Word;
use super::sync::barrier;
use super::threads::{lane, warp_index};
use super::value::Val;
use super::warp::{redux_min, shuffle_xor};
use crate::device;

/// The sum of `value` over the 32 lanes, in every lane: a butterfly reduction of five steps.
///
/// - PTX: `shfl.sync.bfly.b32` five times
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| warp_sum(x), "shfl.sync.bfly.b32", [0.5f32; 32]), [16.0; 32]);
/// ```
#[device]
pub fn warp_sum<T: Word + Number>(value: Val<T>) -> Val<T> {
    let mut sum = value;
    for step in [16, 8, 4, 2, 1] {
        sum += shuffle_xor(sum, step);
    }
    sum
}

/// The largest `value` of the 32 lanes, in every lane.
///
/// - PTX: `shfl.sync.bfly.b32` five times
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| warp_max(x), "shfl.sync.bfly.b32", LANES), [31; 32]);
/// ```
#[device]
pub fn warp_max<T: Word + Number>(value: Val<T>) -> Val<T> {
    let mut largest = value;
    for step in [16, 8, 4, 2, 1] {
        largest = largest.max(shuffle_xor(largest, step));
    }
    largest
}

/// The smallest `value` of the 32 lanes, in every lane.
///
/// - PTX: `shfl.sync.bfly.b32` five times
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| warp_min(x), "shfl.sync.bfly.b32", LANES), [0; 32]);
/// ```
#[device]
pub fn warp_min<T: Word + Number>(value: Val<T>) -> Val<T> {
    let mut smallest = value;
    for step in [16, 8, 4, 2, 1] {
        smallest = smallest.min(shuffle_xor(smallest, step));
    }
    smallest
}

/// The largest `value` of the 32 lanes and its `index`, in every lane; of equal values the smallest index. No value is NaN.
///
/// - PTX: `shfl.sync.bfly.b32` five times, `redux.sync.min.u32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// let place = map(|x| warp_arg_max(x / 4, lane() + 100).1, "redux.sync.min.u32", LANES);
/// assert_eq!(place, [128; 32]);
/// ```
#[device]
pub fn warp_arg_max<T: Word + Number>(value: Val<T>, index: Val<u32>) -> (Val<T>, Val<u32>) {
    let largest = warp_max(value);
    (largest, redux_min(select(value == largest, index, u32::MAX)))
}

/// The smallest `value` of the 32 lanes and its `index`, in every lane; of equal values the smallest index. No value is NaN.
///
/// - PTX: `shfl.sync.bfly.b32` five times, `redux.sync.min.u32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// let place = map(|x| warp_arg_min(x ^ 5, lane()).1, "redux.sync.min.u32", LANES);
/// assert_eq!(place, [5; 32]);
/// ```
#[device]
pub fn warp_arg_min<T: Word + Number>(value: Val<T>, index: Val<u32>) -> (Val<T>, Val<u32>) {
    let smallest = warp_min(value);
    (smallest, redux_min(select(value == smallest, index, u32::MAX)))
}

/// The sum over a CTA of `warps` warps, in every thread. All threads add in the same order. `scratch` is a shared array
/// of at least `warps` elements; it may be reused after the next barrier.
///
/// - PTX: `shfl.sync.bfly.b32`, `bar.sync 0`
/// - Target: sm_80
/// - Requires: every thread of the CTA
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 64)]
/// fn reduced(x: Ptr<Global, f32>) {
///     let scratch = shared_array::<f32>(2);
///     let i = thread_index();
///     let all = block_sum(x.at(i).load(), scratch, 2);
///     x.at(i).store(all);
/// }
/// assert_eq!(run(reduced(), "bar.sync 0", std::array::from_fn::<f32, 64, _>(|i| i as f32)), [2016.0; 64]);
/// ```
#[device]
pub fn block_sum<T: Word + Number>(value: Val<T>, scratch: Ptr<Shared, T>, warps: u32) -> Val<T> {
    let partial = warp_sum(value);
    if warps == 1 {
        return partial;
    }
    if lane() == 0 {
        scratch.at(warp_index()).store(partial);
    }
    barrier();
    let mut total = scratch.load();
    for warp in 1..warps {
        total += scratch.at(warp).load();
    }
    total
}

/// The largest `value` of a CTA of `warps` warps, in every thread. `scratch` is as for [`block_sum`].
///
/// - PTX: `shfl.sync.bfly.b32`, `bar.sync 0`
/// - Target: sm_80
/// - Requires: every thread of the CTA
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 64)]
/// fn reduced(x: Ptr<Global, f32>) {
///     let scratch = shared_array::<f32>(2);
///     let i = thread_index();
///     let all = block_max(x.at(i).load(), scratch, 2);
///     x.at(i).store(all);
/// }
/// assert_eq!(run(reduced(), "bar.sync 0", std::array::from_fn::<f32, 64, _>(|i| i as f32)), [63.0; 64]);
/// ```
#[device]
pub fn block_max<T: Word + Number>(value: Val<T>, scratch: Ptr<Shared, T>, warps: u32) -> Val<T> {
    let partial = warp_max(value);
    if warps == 1 {
        return partial;
    }
    if lane() == 0 {
        scratch.at(warp_index()).store(partial);
    }
    barrier();
    let mut largest = scratch.load();
    for warp in 1..warps {
        largest = largest.max(scratch.at(warp).load());
    }
    largest
}

/// The smallest `value` of a CTA of `warps` warps, in every thread. `scratch` is as for [`block_sum`].
///
/// - PTX: `shfl.sync.bfly.b32`, `bar.sync 0`
/// - Target: sm_80
/// - Requires: every thread of the CTA
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 64)]
/// fn reduced(x: Ptr<Global, f32>) {
///     let scratch = shared_array::<f32>(2);
///     let i = thread_index();
///     let all = block_min(x.at(i).load(), scratch, 2);
///     x.at(i).store(all);
/// }
/// assert_eq!(run(reduced(), "bar.sync 0", std::array::from_fn::<f32, 64, _>(|i| i as f32)), [0.0; 64]);
/// ```
#[device]
pub fn block_min<T: Word + Number>(value: Val<T>, scratch: Ptr<Shared, T>, warps: u32) -> Val<T> {
    let partial = warp_min(value);
    if warps == 1 {
        return partial;
    }
    if lane() == 0 {
        scratch.at(warp_index()).store(partial);
    }
    barrier();
    let mut smallest = scratch.load();
    for warp in 1..warps {
        smallest = smallest.min(scratch.at(warp).load());
    }
    smallest
}
