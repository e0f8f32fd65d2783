//! Thread indices, barriers, warp-wide exchange and votes.

use std::panic::Location;

use super::record::{emit, emit1};
use super::scalar::Word;
use super::value::{IntoVal, Val};
use crate::ir::{Op, Scope, Shuffle, Special, Type, Vote};

/// Lanes in a warp.
pub const WARP: u32 = 32;

/// The member mask of all 32 lanes.
pub const ALL_LANES: u32 = u32::MAX;

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
    /// The thread's index in its CTA (`%tid.x`).
    thread_index => TidX;
    /// The thread's second index in its CTA (`%tid.y`).
    thread_index_y => TidY;
    /// The thread's third index in its CTA (`%tid.z`).
    thread_index_z => TidZ;
    /// Threads a CTA along x, as launched (`%ntid.x`).
    block_size => NtidX;
    /// The CTA's index in the grid (`%ctaid.x`).
    block_index => CtaidX;
    /// The CTA's second index in the grid (`%ctaid.y`).
    block_index_y => CtaidY;
    /// The CTA's third index in the grid (`%ctaid.z`).
    block_index_z => CtaidZ;
    /// CTAs in the grid along x, as launched (`%nctaid.x`).
    grid_size => NctaidX;
    /// CTAs in the grid along y, as launched (`%nctaid.y`).
    grid_size_y => NctaidY;
    /// The thread's lane in its warp, 0 to 31 (`%laneid`).
    lane => LaneId;
    /// The multiprocessor that runs this CTA (`%smid`).
    multiprocessor => SmId;
    /// The multiprocessor's cycle counter, 32 bits (`%clock`).
    clock => Clock;
    /// The multiprocessor's cycle counter (`%clock64`).
    clock64 => Clock64: u64;
    /// Nanoseconds of a clock that all multiprocessors share, which moves about every microsecond (`%globaltimer`).
    global_timer => GlobalTimer: u64;
}

/// The thread's warp in its CTA: its index over 32.
#[track_caller]
pub fn warp_index() -> Val<u32> {
    thread_index() >> 5
}

/// Waits until every thread of the CTA is here; orders their shared and global accesses (`bar.sync 0`).
#[track_caller]
pub fn barrier() {
    emit(Op::Barrier { id: 0, threads: 0 }, Type::U32, &[], Location::caller());
}

/// Waits at barrier `id` (0 to 15) for `threads` threads, a multiple of 32 (`bar.sync id, threads`).
#[track_caller]
pub fn named_barrier(id: u8, threads: u32) {
    emit(Op::Barrier { id, threads }, Type::U32, &[], Location::caller());
}

/// Arrives at barrier `id` (0 to 15) without waiting at it; `threads`, a multiple of 32, counts those that arrive and
/// those that wait in [`named_barrier`] (`bar.arrive id, threads`).
#[track_caller]
pub fn arrive_at_barrier(id: u8, threads: u32) {
    emit(Op::BarrierArrive { id, threads }, Type::U32, &[], Location::caller());
}

/// Waits for the lanes of `mask` and orders their accesses (`bar.warp.sync`).
#[track_caller]
pub fn warp_barrier(mask: impl IntoVal<u32>) {
    emit(Op::WarpBarrier, Type::U32, &[mask.into_val().id], Location::caller());
}

/// Makes this thread's earlier writes visible in `scope` before its later ones (`fence.acq_rel`).
#[track_caller]
pub fn fence(scope: Scope) {
    emit(Op::Fence(scope), Type::U32, &[], Location::caller());
}

/// Waits until the kernels before this one in programmatic order are complete and their writes visible
/// (`griddepcontrol.wait`, sm_90). Does nothing in a launch without a programmatic edge.
#[track_caller]
pub fn wait_for_dependencies() {
    emit(Op::WaitForDependencies, Type::U32, &[], Location::caller());
}

/// Lets the next kernel in programmatic order start (`griddepcontrol.launch_dependents`, sm_90).
#[track_caller]
pub fn launch_dependents() {
    emit(Op::LaunchDependents, Type::U32, &[], Location::caller());
}

#[track_caller]
fn shuffle<T: Word>(mode: Shuffle, value: Val<T>, lane: Val<u32>, clamp: u32) -> Val<T> {
    let args = [value.id, lane.id, super::val(clamp).id, super::val(ALL_LANES).id];
    Val::from_id(emit1(Op::Shuffle(mode), T::TYPE, &args, Location::caller()))
}

/// The value of the lane whose index differs in the bits of `mask`; all lanes take part (`shfl.sync.bfly`).
#[track_caller]
pub fn shuffle_xor<T: Word>(value: Val<T>, mask: impl IntoVal<u32>) -> Val<T> {
    shuffle(Shuffle::Bfly, value, mask.into_val(), 31)
}

/// The value of lane `lane`; all lanes take part (`shfl.sync.idx`).
#[track_caller]
pub fn shuffle_lane<T: Word>(value: Val<T>, lane: impl IntoVal<u32>) -> Val<T> {
    shuffle(Shuffle::Idx, value, lane.into_val(), 31)
}

/// The value of the lane `delta` above, the own one past the end; all lanes take part (`shfl.sync.down`).
#[track_caller]
pub fn shuffle_down<T: Word>(value: Val<T>, delta: impl IntoVal<u32>) -> Val<T> {
    shuffle(Shuffle::Down, value, delta.into_val(), 31)
}

/// The value of the lane `delta` below, the own one before the start; all lanes take part (`shfl.sync.up`).
#[track_caller]
pub fn shuffle_up<T: Word>(value: Val<T>, delta: impl IntoVal<u32>) -> Val<T> {
    shuffle(Shuffle::Up, value, delta.into_val(), 0)
}

/// True if true in all 32 lanes (`vote.sync.all`).
#[track_caller]
pub fn vote_all(condition: Val<bool>) -> Val<bool> {
    let args = [condition.id, super::val(ALL_LANES).id];
    Val::from_id(emit1(Op::Vote(Vote::All), Type::Pred, &args, Location::caller()))
}

/// True if true in some lane of 32 (`vote.sync.any`).
#[track_caller]
pub fn vote_any(condition: Val<bool>) -> Val<bool> {
    let args = [condition.id, super::val(ALL_LANES).id];
    Val::from_id(emit1(Op::Vote(Vote::Any), Type::Pred, &args, Location::caller()))
}

/// A bit for each of the 32 lanes (`vote.sync.ballot`).
#[track_caller]
pub fn ballot(condition: Val<bool>) -> Val<u32> {
    let args = [condition.id, super::val(ALL_LANES).id];
    Val::from_id(emit1(Op::Vote(Vote::Ballot), Type::U32, &args, Location::caller()))
}
