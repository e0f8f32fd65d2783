//! Prefix sums over a CTA.

use bespoke_codegen::prelude::*;

/// Prefix sum over the threads of a CTA, as seen by one thread.
#[derive(Clone, Copy, Carry)]
pub(super) struct PrefixSum {
    /// Sum of the values of the preceding threads.
    pub before: Val<u64>,
    /// The thread's own value.
    pub own: Val<u64>,
    /// Sum of the values of all threads.
    pub total: Val<u64>,
}

impl PrefixSum {
    /// Whether before ≤ `point` < before + own. For a point below `total` this is true in exactly one thread.
    #[device]
    pub fn contains(&self, point: Val<u64>) -> Val<bool> {
        (self.before <= point) & (point < self.before + self.own)
    }
}

/// The 64-bit `value` of lane `from`.
#[device]
pub(super) fn lane64(value: Val<u64>, from: impl IntoVal<u32>) -> Val<u64> {
    let from = from.into_val();
    let low = shuffle_lane(value.cast::<u32>(), from);
    let high = shuffle_lane((value >> 32).cast::<u32>(), from);
    low.cast::<u64>() | (high.cast::<u64>() << 32)
}

/// Inclusive prefix sum over the lanes of a warp.
#[device]
fn warp_scan(value: Val<u64>) -> Val<u64> {
    let mut sum = value;
    for step in [1u32, 2, 4, 8, 16] {
        let low = shuffle_up(sum.cast::<u32>(), step).cast::<u64>();
        let high = shuffle_up((sum >> 32).cast::<u32>(), step).cast::<u64>();
        sum += select(lane() >= step, low | (high << 32), 0u64);
    }
    sum
}

/// Prefix sum over the threads of a CTA of `warps` warps, by thread index. `scratch`, u64 `[warps]`, may be used again
/// after the next CTA barrier.
#[device]
pub(super) fn block_scan(own: Val<u64>, scratch: Ptr<Shared, u64>, warps: u32) -> PrefixSum {
    let within = warp_scan(own);
    if lane() == WARP - 1 {
        scratch.at(warp_index()).store(within);
    }
    barrier();
    let inside = lane() < warps;
    let by_warp = warp_scan(select(inside, scratch.at(select(inside, lane(), 0u32)).load(), 0u64));
    let total = lane64(by_warp, WARP - 1);
    let previous = lane64(by_warp, (warp_index() + (WARP - 1)) & (WARP - 1));
    let before_warp = select(warp_index() == 0, 0u64, previous);
    PrefixSum { before: before_warp + within - own, own, total }
}

/// Exclusive prefix sum of 32-bit words over the threads of a CTA; `scratch`, u32 `[warps]`, as for [`block_scan`].
#[device]
pub(super) fn words_before(own: Val<u32>, scratch: Ptr<Shared, u32>, warps: u32) -> Val<u32> {
    let within = warp_scan_words(own);
    if lane() == WARP - 1 {
        scratch.at(warp_index()).store(within);
    }
    barrier();
    let inside = lane() < warps;
    let by_warp = warp_scan_words(select(inside, scratch.at(select(inside, lane(), 0u32)).load(), 0u32));
    let previous = shuffle_lane(by_warp, (warp_index() + (WARP - 1)) & (WARP - 1));
    select(warp_index() == 0, 0u32, previous) + within - own
}

/// Inclusive prefix sum of 32-bit words over the lanes of a warp.
#[device]
pub(crate) fn warp_scan_words(value: Val<u32>) -> Val<u32> {
    let mut sum = value;
    for step in [1u32, 2, 4, 8, 16] {
        let other = shuffle_up(sum, step);
        sum += select(lane() >= step, other, 0u32);
    }
    sum
}

/// Sum of 32-bit words over each group of eight consecutive lanes, in each of the eight.
#[device]
pub(super) fn eight_lanes_words(value: Val<u32>) -> Val<u32> {
    let mut sum = value;
    for step in [4u32, 2, 1] {
        sum += shuffle_xor(sum, step);
    }
    sum
}

/// Sum of 64-bit words over each group of eight consecutive lanes, in each of the eight.
#[device]
pub(super) fn eight_lanes(value: Val<u64>) -> Val<u64> {
    let mut sum = value;
    for step in [4u32, 2, 1] {
        let low = shuffle_xor(sum.cast::<u32>(), step).cast::<u64>();
        let high = shuffle_xor((sum >> 32).cast::<u32>(), step).cast::<u64>();
        sum += low | (high << 32);
    }
    sum
}
