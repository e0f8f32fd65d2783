//! Inclusive prefix sums in one pass over memory, with decoupled look-back (Merrill and Garland, 2016).

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 256;
const VECTORS: u32 = 4;
/// Elements per CTA.
pub const TILE: u32 = THREADS * VECTORS * 4;

/// y[i] = x[0] + … + x[i]. The number of elements is a multiple of `TILE`, one CTA each. `states` has a word per CTA and
/// `ticket` one; all are zero before the first launch, and any number of launches with the same grid may follow.
///
/// A CTA publishes the sum of its tile, then the sum of all tiles up to its own: the low half of its state. The high half
/// is 2 × the launch's number, and one more for the sum of all.
#[kernel(threads = THREADS)]
pub fn scan(
    #[aligned(16)] x: Ptr<Global, u32>,
    #[aligned(16)] y: Ptr<Global, u32>,
    states: Ptr<Global, u64>,
    ticket: Ptr<Global, u32>,
) {
    let (warp_sums, shared) = (shared_array::<u32>(THREADS / WARP), shared_array::<u32>(2));
    let (thread, lane, warp) = (thread_index(), lane(), warp_index());
    if thread == 0 {
        shared.store(ticket.atomic_add(1, Scope::Gpu));
    }
    barrier();
    let (tile, launch) = (shared.load() % grid_size(), shared.load() / grid_size() * 2 + 2);
    let first = tile * TILE + warp * (VECTORS * 128) + lane * 4;
    let mut sums: [[Val<u32>; 4]; VECTORS as usize] =
        std::array::from_fn(|i| x.at(first).at(i * 128).load_vector());
    let mut total = val(0u32);
    for four in &mut sums {
        for i in 1..4 {
            four[i] += four[i - 1];
        }
        let up_to_here = warp_inclusive_sum(four[3]);
        let before = total + up_to_here - four[3];
        total += shuffle_lane(up_to_here, 31);
        *four = four.map(|sum| sum + before);
    }
    if lane == 0 {
        warp_sums.at(warp).store(total);
    }
    barrier();
    let mut before = val(0u32);
    let mut total = val(0u32);
    for other in 0..THREADS / WARP {
        let sum = warp_sums.at(other).load();
        before += select(warp > other, sum, 0);
        total += sum;
    }
    if warp == 0 {
        let state = |kind: Val<u32>, sum: Val<u32>| (kind.cast::<u64>() << 32) | sum.cast::<u64>();
        if lane == 0 && tile > 0 {
            states.at(tile).store_relaxed(state(launch, total), Scope::Gpu);
        }
        let (mut prefix, mut end, mut found) = (val(0u32), tile, tile == 0);
        while !found {
            // The 32 tiles before `end`, the nearest in lane 0; tiles before the first have the sum zero.
            let mut word = state(launch + 1, val(0));
            if lane < end {
                word = states.at(end - 1 - lane).load_relaxed(Scope::Gpu);
                while (word >> 32).cast::<u32>() < launch {
                    word = states.at(end - 1 - lane).load_relaxed(Scope::Gpu);
                }
            }
            let complete = ballot((word >> 32).cast::<u32>() > launch);
            // Tiles up to the nearest with the sum of all before it.
            let wanted = complete ^ (complete - 1);
            prefix += redux_add(select((wanted >> lane & 1) == 1, word.cast::<u32>(), 0));
            found = complete != 0;
            end -= 32;
        }
        if lane == 0 {
            states.at(tile).store_relaxed(state(launch + 1, prefix + total), Scope::Gpu);
            shared.at(1).store(prefix);
        }
    }
    barrier();
    let before = before + shared.at(1).load();
    for (i, four) in sums.into_iter().enumerate() {
        y.at(first).at(i * 128).store_vector(four.map(|sum| sum + before));
    }
}
