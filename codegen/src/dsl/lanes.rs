//! Data exchange between some lanes of a warp: those of a member mask.

use std::panic::Location;

use super::recorder::{Site, emit, emit1, fail};
use super::scalar::{RawWord, Word};
use super::value::{IntoVal, Val};
use crate::ir::{Match, Op, Reduce, Shuffle, Type, Vote};

/// Lanes of a warp that exchange values: the members of a mask. Made by [`lanes`].
///
/// All members must execute an exchange together, with the same mask; a lane gets values of members only. So an exchange
/// may be under a divergent condition, if the mask has the lanes that fulfil the condition:
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// /// Counts the lanes that hold each value, with one atomic per value.
/// #[kernel(threads = 32)]
/// fn counted(x: Ptr<Global, u32>, counts: Ptr<Global, u32>) {
///     let value = x.at(lane()).load();
///     let same = lanes(ALL_LANES).match_any(value);
///     // The lowest lane of each group adds for the group.
///     if same.trailing_zeros() == lane() {
///         counts.at(value).atomic_add(same.count_ones(), Scope::Gpu);
///     }
/// }
/// let kernel = counted().unwrap();
/// let values: Vec<u32> = (0..32).map(|i| i % 3).collect();
/// let done = Launch::of(&kernel).buffer(&values).buffer(&[0u32; 3]).run().unwrap();
/// assert_eq!(done.buffer::<u32>(1), [11, 11, 10]);
/// ```
///
/// The methods in short:
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// /// Results of the lower half of a warp; the upper half does not take part.
/// #[kernel(threads = 32)]
/// fn halves(x: Ptr<Global, u32>, found: Ptr<Global, u32>) {
///     if lane() < 16 {
///         let value = x.at(lane()).load();
///         let half = lanes(0xffff);
///         let fours = half.in_groups_of(4);
///         let all = select(half.vote_all(value < 16), 1, 0);
///         let any = select(half.vote_any(value == 7), 1, 0);
///         let same = select(half.match_all(value / 16), 1, 0);
///         let results = [
///             half.shuffle_xor(value, 1),
///             half.shuffle_lane(value, 5),
///             fours.shuffle_down(value, 1),
///             fours.shuffle_up(value, 1),
///             all,
///             any,
///             half.ballot(value % 2 == 1),
///             half.match_any(value / 4),
///             same,
///             half.redux_add(value),
///             half.redux_min(value),
///             half.redux_max(value),
///             half.redux_and(value | 32),
///             half.redux_or(value),
///             half.redux_xor(value / 15),
///         ];
///         for (i, result) in results.into_iter().enumerate() {
///             found.at(i * 16).at(lane()).store(result);
///         }
///     }
/// }
/// let kernel = halves().unwrap();
/// let done = Launch::of(&kernel).buffer(&LANES).buffer(&[0u32; 15 * 16]).run().unwrap();
/// let of_lane_6: Vec<u32> = done.buffer::<u32>(1).chunks(16).map(|results| results[6]).collect();
/// assert_eq!(of_lane_6, [7, 5, 7, 5, 1, 1, 0xaaaa, 0xf0, 1, 120, 0, 15, 32, 15, 1]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    mask: Val<u32>,
    width: u32,
}

/// The lanes of a member mask, which may be a run-time value such as
/// [`active_lanes`](fn@super::active_lanes) or a ballot.
///
/// - PTX: none: the mask is an operand of the exchanges
#[track_caller]
pub fn lanes(mask: impl IntoVal<u32>) -> Lanes {
    Lanes { mask: mask.into_val(), width: 32 }
}

impl Lanes {
    /// The same lanes for shuffles within groups of `width` consecutive lanes, a power of two: a shuffle gets values of
    /// the lane's own group, and counts lanes from its start.
    ///
    /// - PTX: none: the width is an operand of the shuffles
    #[track_caller]
    pub fn in_groups_of(self, width: u32) -> Lanes {
        if !width.is_power_of_two() || width > 32 {
            fail(Location::caller(), format!("lanes have no groups of {width}: write 1, 2, 4, 8, 16 or 32"));
        }
        Lanes { width, ..self }
    }

    #[track_caller]
    fn shuffle<T: Word>(self, mode: Shuffle, value: Val<T>, lane: Val<u32>) -> Val<T> {
        let site = Location::caller();
        // The upper half of the operand is the mask of the group's number, the lower half the last lane to read.
        let last = if mode == Shuffle::Up { 0 } else { 31 };
        let clamp = Val::<u32>::constant((32 - self.width) << 8 | last, site).id();
        let word = |word, ty| emit1(Op::Shuffle(mode), ty, &[word, lane.id(), clamp, self.mask.id()], site);
        if T::TYPE.bits() == 32 {
            return Val::from_id(word(value.id(), T::TYPE));
        }
        // A shuffle moves 32 bits.
        let halves = emit(Op::Unpack, Type::U32, &[emit1(Op::Bitcast, Type::U64, &[value.id()], site)], site);
        let halves = [word(halves[0], Type::U32), word(halves[1], Type::U32)];
        Val::from_id(emit1(Op::Bitcast, T::TYPE, &[emit1(Op::Pack, Type::U64, &halves, site)], site))
    }

    fn vote<T>(self, vote: Vote, ty: Type, condition: Val<bool>, site: Site) -> Val<T>
    where
        T: super::scalar::Scalar,
    {
        Val::from_id(emit1(Op::Vote(vote), ty, &[condition.id(), self.mask.id()], site))
    }

    fn redux<T: Word>(self, reduce: Reduce, value: Val<T>, site: Site) -> Val<T> {
        Val::from_id(emit1(Op::Reduce(reduce), T::TYPE, &[value.id(), self.mask.id()], site))
    }

    /// The `value` of the lane whose index in the group is `lane ^ mask`.
    ///
    /// - PTX: `shfl.sync.bfly.b32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn shuffle_xor<T: Word>(self, value: Val<T>, mask: impl IntoVal<u32>) -> Val<T> {
        self.shuffle(Shuffle::Bfly, value, mask.into_val())
    }

    /// The `value` of the lane whose index in the group is `lane`.
    ///
    /// - PTX: `shfl.sync.idx.b32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn shuffle_lane<T: Word>(self, value: Val<T>, lane: impl IntoVal<u32>) -> Val<T> {
        self.shuffle(Shuffle::Idx, value, lane.into_val())
    }

    /// The `value` of the lane that is higher by `delta`; past the end of the group, the lane's own value.
    ///
    /// - PTX: `shfl.sync.down.b32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn shuffle_down<T: Word>(self, value: Val<T>, delta: impl IntoVal<u32>) -> Val<T> {
        self.shuffle(Shuffle::Down, value, delta.into_val())
    }

    /// The `value` of the lane that is lower by `delta`; before the start of the group, the lane's own value.
    ///
    /// - PTX: `shfl.sync.up.b32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn shuffle_up<T: Word>(self, value: Val<T>, delta: impl IntoVal<u32>) -> Val<T> {
        self.shuffle(Shuffle::Up, value, delta.into_val())
    }

    /// Whether the condition holds in all members.
    ///
    /// - PTX: `vote.sync.all.pred`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn vote_all(self, condition: Val<bool>) -> Val<bool> {
        self.vote(Vote::All, Type::Pred, condition, Location::caller())
    }

    /// Whether the condition holds in any member.
    ///
    /// - PTX: `vote.sync.any.pred`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn vote_any(self, condition: Val<bool>) -> Val<bool> {
        self.vote(Vote::Any, Type::Pred, condition, Location::caller())
    }

    /// Mask of the members in which the condition holds.
    ///
    /// - PTX: `vote.sync.ballot.b32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn ballot(self, condition: Val<bool>) -> Val<u32> {
        self.vote(Vote::Ballot, Type::U32, condition, Location::caller())
    }

    /// Mask of the members that hold the same value as this lane, compared as bits.
    ///
    /// - PTX: `match.any.sync.b32`, `match.any.sync.b64`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn match_any<T: RawWord>(self, value: Val<T>) -> Val<u32> {
        let args = [value.id(), self.mask.id()];
        Val::from_id(emit1(Op::Match(Match::Any), T::TYPE, &args, Location::caller()))
    }

    /// Whether all members hold the same value, compared as bits.
    ///
    /// - PTX: `match.all.sync.b32`, `match.all.sync.b64`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn match_all<T: RawWord>(self, value: Val<T>) -> Val<bool> {
        let args = [value.id(), self.mask.id()];
        Val::from_id(emit(Op::Match(Match::All), T::TYPE, &args, Location::caller())[1])
    }

    /// The wrapping sum of `value` over the members, in every member.
    ///
    /// - PTX: `redux.sync.add.u32`, `redux.sync.add.s32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn redux_add<T: ReducedWord>(self, value: Val<T>) -> Val<T> {
        self.redux(Reduce::Add, value, Location::caller())
    }

    /// The minimum of `value` over the members, in every member.
    ///
    /// - PTX: `redux.sync.min.u32`, `redux.sync.min.s32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn redux_min<T: ReducedWord>(self, value: Val<T>) -> Val<T> {
        self.redux(Reduce::Min, value, Location::caller())
    }

    /// The maximum of `value` over the members, in every member.
    ///
    /// - PTX: `redux.sync.max.u32`, `redux.sync.max.s32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn redux_max<T: ReducedWord>(self, value: Val<T>) -> Val<T> {
        self.redux(Reduce::Max, value, Location::caller())
    }

    /// The bitwise AND of `value` over the members, in every member.
    ///
    /// - PTX: `redux.sync.and.b32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn redux_and(self, value: Val<u32>) -> Val<u32> {
        self.redux(Reduce::And, value, Location::caller())
    }

    /// The bitwise OR of `value` over the members, in every member.
    ///
    /// - PTX: `redux.sync.or.b32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn redux_or(self, value: Val<u32>) -> Val<u32> {
        self.redux(Reduce::Or, value, Location::caller())
    }

    /// The bitwise XOR of `value` over the members, in every member.
    ///
    /// - PTX: `redux.sync.xor.b32`
    /// - Target: sm_80
    /// - Example: [`Lanes`]
    #[track_caller]
    pub fn redux_xor(self, value: Val<u32>) -> Val<u32> {
        self.redux(Reduce::Xor, value, Location::caller())
    }

    /// Whether this lane is the elected member: the same lane each time.
    ///
    /// - PTX: `elect.sync`
    /// - Target: sm_90
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 32)]
    /// fn counted(x: Ptr<Global, u32>) {
    ///     if lane() < 8 {
    ///         if lanes(0xff).elect() {
    ///             x.store(x.load() + 1);
    ///         }
    ///     }
    /// }
    /// assert_eq!(run(counted(), "elect.sync", [4u32]), [5]);
    /// ```
    #[track_caller]
    pub fn elect(self) -> Val<bool> {
        Val::from_id(emit1(Op::Elect, Type::U32, &[self.mask.id()], Location::caller()))
    }
}

/// 32-bit integers: the operands of `redux`.
#[diagnostic::on_unimplemented(
    message = "`redux` takes `u32` or `i32`, not `{Self}`",
    label = "expected u32 or i32",
    note = "`warp_sum` and `warp_max` take any 32-bit number"
)]
pub trait ReducedWord: Word {}
impl ReducedWord for u32 {}
impl ReducedWord for i32 {}
