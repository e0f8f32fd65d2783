//! Data exchange between the 32 lanes of a warp. All lanes must execute each function together: not under a divergent
//! condition. [`lanes`] has the same functions for some of the lanes.

use super::lanes::{Lanes, ReducedWord, lanes};
use super::scalar::{RawWord, Word};
use super::value::{IntoVal, Val};

/// The member mask of all 32 lanes.
pub const ALL_LANES: u32 = u32::MAX;

#[track_caller]
fn whole_warp() -> Lanes {
    lanes(ALL_LANES)
}

/// The `value` of lane `lane() ^ mask`.
///
/// - PTX: `shfl.sync.bfly.b32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| shuffle_xor(x, 1), "shfl.sync.bfly.b32", LANES)[..4], [1, 0, 3, 2]);
/// ```
#[track_caller]
pub fn shuffle_xor<T: Word>(value: Val<T>, mask: impl IntoVal<u32>) -> Val<T> {
    whole_warp().shuffle_xor(value, mask)
}

/// The `value` of lane `lane`.
///
/// - PTX: `shfl.sync.idx.b32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| shuffle_lane(x, 5), "shfl.sync.idx.b32", LANES), [5; 32]);
/// ```
#[track_caller]
pub fn shuffle_lane<T: Word>(value: Val<T>, lane: impl IntoVal<u32>) -> Val<T> {
    whole_warp().shuffle_lane(value, lane)
}

/// The `value` of lane `lane() + delta`; past the last lane, the lane's own value.
///
/// - PTX: `shfl.sync.down.b32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// let shifted = map(|x| shuffle_down(x, 2), "shfl.sync.down.b32", LANES);
/// assert_eq!((shifted[0], shifted[31]), (2, 31));
/// ```
#[track_caller]
pub fn shuffle_down<T: Word>(value: Val<T>, delta: impl IntoVal<u32>) -> Val<T> {
    whole_warp().shuffle_down(value, delta)
}

/// The `value` of lane `lane() - delta`; before the first lane, the lane's own value.
///
/// - PTX: `shfl.sync.up.b32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// let shifted = map(|x| shuffle_up(x, 2), "shfl.sync.up.b32", LANES);
/// assert_eq!((shifted[0], shifted[31]), (0, 29));
/// ```
#[track_caller]
pub fn shuffle_up<T: Word>(value: Val<T>, delta: impl IntoVal<u32>) -> Val<T> {
    whole_warp().shuffle_up(value, delta)
}

/// Whether the condition holds in all lanes.
///
/// - PTX: `vote.sync.all.pred`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[device]
/// fn all_below(x: Val<u32>) -> Val<u32> {
///     select(vote_all(x < 32), 1, 0)
/// }
/// assert_eq!(map(all_below, "vote.sync.all.pred", LANES), [1; 32]);
/// ```
#[track_caller]
pub fn vote_all(condition: Val<bool>) -> Val<bool> {
    whole_warp().vote_all(condition)
}

/// Whether the condition holds in any lane.
///
/// - PTX: `vote.sync.any.pred`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[device]
/// fn some_is_seven(x: Val<u32>) -> Val<u32> {
///     select(vote_any(x == 7), 1, 0)
/// }
/// assert_eq!(map(some_is_seven, "vote.sync.any.pred", LANES), [1; 32]);
/// ```
#[track_caller]
pub fn vote_any(condition: Val<bool>) -> Val<bool> {
    whole_warp().vote_any(condition)
}

/// Mask of the lanes in which the condition holds.
///
/// - PTX: `vote.sync.ballot.b32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[device]
/// fn odd(x: Val<u32>) -> Val<u32> {
///     ballot(x % 2 == 1)
/// }
/// assert_eq!(map(odd, "vote.sync.ballot.b32", LANES), [0xaaaa_aaaa; 32]);
/// ```
#[track_caller]
pub fn ballot(condition: Val<bool>) -> Val<u32> {
    whole_warp().ballot(condition)
}

/// Mask of the lanes that hold the same value as this lane, compared as bits.
///
/// - PTX: `match.any.sync.b32`, `match.any.sync.b64`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| match_any(x % 4), "match.any.sync.b32", LANES)[1], 0x2222_2222);
/// ```
#[track_caller]
pub fn match_any<T: RawWord>(value: Val<T>) -> Val<u32> {
    whole_warp().match_any(value)
}

/// Whether all lanes hold the same value, compared as bits.
///
/// - PTX: `match.all.sync.b32`, `match.all.sync.b64`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[device]
/// fn same(x: Val<u32>) -> Val<u32> {
///     select(match_all(x / 32), 1, 0)
/// }
/// assert_eq!(map(same, "match.all.sync.b32", LANES), [1; 32]);
/// ```
#[track_caller]
pub fn match_all<T: RawWord>(value: Val<T>) -> Val<bool> {
    whole_warp().match_all(value)
}

/// The wrapping sum of `value` over all lanes, in every lane.
///
/// - PTX: `redux.sync.add.u32`, `redux.sync.add.s32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| redux_add(x), "redux.sync.add.u32", LANES), [496; 32]);
/// ```
#[track_caller]
pub fn redux_add<T: ReducedWord>(value: Val<T>) -> Val<T> {
    whole_warp().redux_add(value)
}

/// The minimum of `value` over all lanes, in every lane.
///
/// - PTX: `redux.sync.min.u32`, `redux.sync.min.s32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| redux_min(x + 3), "redux.sync.min.u32", LANES), [3; 32]);
/// ```
#[track_caller]
pub fn redux_min<T: ReducedWord>(value: Val<T>) -> Val<T> {
    whole_warp().redux_min(value)
}

/// The maximum of `value` over all lanes, in every lane.
///
/// - PTX: `redux.sync.max.u32`, `redux.sync.max.s32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| redux_max(x), "redux.sync.max.u32", LANES), [31; 32]);
/// ```
#[track_caller]
pub fn redux_max<T: ReducedWord>(value: Val<T>) -> Val<T> {
    whole_warp().redux_max(value)
}

/// The bitwise AND of `value` over all lanes, in every lane.
///
/// - PTX: `redux.sync.and.b32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| redux_and(x | 64), "redux.sync.and.b32", LANES), [64; 32]);
/// ```
#[track_caller]
pub fn redux_and(value: Val<u32>) -> Val<u32> {
    whole_warp().redux_and(value)
}

/// The bitwise OR of `value` over all lanes, in every lane.
///
/// - PTX: `redux.sync.or.b32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| redux_or(x), "redux.sync.or.b32", LANES), [31; 32]);
/// ```
#[track_caller]
pub fn redux_or(value: Val<u32>) -> Val<u32> {
    whole_warp().redux_or(value)
}

/// The bitwise XOR of `value` over all lanes, in every lane.
///
/// - PTX: `redux.sync.xor.b32`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| redux_xor(x / 31), "redux.sync.xor.b32", LANES), [1; 32]);
/// ```
#[track_caller]
pub fn redux_xor(value: Val<u32>) -> Val<u32> {
    whole_warp().redux_xor(value)
}

/// Whether this lane is the elected one: the same lane each time, for example to start a bulk copy.
///
/// - PTX: `elect.sync`
/// - Target: sm_90
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[device]
/// fn leaders(x: Val<u32>) -> Val<u32> {
///     redux_add(x + select(elect(), val(1u32), val(0u32)))
/// }
/// assert_eq!(map(leaders, "elect.sync", [0u32; 32]), [1; 32]);
/// ```
#[track_caller]
pub fn elect() -> Val<bool> {
    whole_warp().elect()
}
