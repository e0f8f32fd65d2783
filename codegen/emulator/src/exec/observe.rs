//! Collection of a profile's counts during execution.

use super::addresses::addresses;
use super::bulk::bulk_copies;
use super::copy::{LaneCopies, lane_copies};
use crate::code::access::{WINDOW_BYTES, classify};
use crate::context::{ExecutionContext, Inst};
use crate::finding::Space;
use crate::lanes::lanes_of;
use crate::profile::Counts;
use crate::profile::requests::{Wavefronts, sectors, sectors_of_range, wavefronts};
use crate::profile::traffic::{Traffic, TrafficSpace};

/// Adds an instruction to the profile before the warp executes it, while its operands are unchanged.
#[cold]
#[inline(never)]
pub(crate) fn observe(cx: &mut ExecutionContext<'_>, inst: &Inst) {
    let Some(traits) = cx.launch.profile else { return };
    let pc = cx.warp.pc;
    let lanes = cx.active.count_ones();
    let mut counts = Counts {
        warp_instructions: 1,
        active_lanes: u64::from(cx.warp.mask.count_ones()),
        lane_instructions: u64::from(lanes),
        ..Counts::default()
    };
    match traits[pc].traffic {
        Traffic::None => {}
        Traffic::Branch => {
            counts.branches = 1;
            counts.divergent_branches = u64::from(cx.active != 0 && cx.active != cx.warp.mask);
        }
        _ if cx.active == 0 => {}
        Traffic::Lanes { space, bytes, writes } => {
            let mut at = addresses(cx, inst);
            let [global, shared] = by_space(space, &mut at, cx.active);
            if global != 0 {
                counts.global.add_request(sectors(&at, global, bytes.into()));
                let moved = u64::from(global.count_ones()) * u64::from(bytes);
                match writes {
                    true => counts.global.bytes_stored += moved,
                    false => counts.global.bytes_loaded += moved,
                }
            }
            if shared != 0 {
                let moved = u64::from(shared.count_ones()) * u64::from(bytes);
                count_shared(&mut counts, wavefronts(&at, shared, bytes.into()), moved);
            }
        }
        Traffic::Rows { lanes } => {
            const ROW: u64 = 16;
            let mut at = addresses(cx, inst);
            // The upper bits of `imm` may hold options; addresses in shared memory do not reach these bits.
            at.iter_mut().for_each(|address| *address &= WINDOW_BYTES - 1);
            let addressing = u32::MAX >> (32 - lanes);
            count_shared(&mut counts, wavefronts(&at, addressing, ROW), u64::from(lanes) * ROW);
        }
        Traffic::Copy => {
            let LaneCopies { sources, targets, counts: copied, bytes } = lane_copies(cx, inst);
            let reading = lanes_of(cx.active).filter(|&lane| copied[lane] > 0);
            let reading = reading.fold(0u32, |mask, lane| mask | 1 << lane);
            if reading != 0 {
                counts.global.add_request(sectors(&sources, reading, bytes.into()));
                counts.global.bytes_loaded +=
                    lanes_of(reading).map(|lane| u64::from(copied[lane])).sum::<u64>();
            }
            let moved = u64::from(lanes) * u64::from(bytes);
            count_shared(&mut counts, wavefronts(&targets, cx.active, bytes.into()), moved);
        }
        Traffic::BulkCopy => {
            let copies = bulk_copies(cx, inst);
            for lane in lanes_of(cx.active) {
                let bytes = u64::from(copies.sizes[lane]);
                if copies.into_shared && copies.from_shared {
                    continue;
                }
                let global = if copies.into_shared { copies.sources[lane] } else { copies.targets[lane] };
                counts.global.add_request(sectors_of_range(global, bytes));
                match copies.into_shared {
                    true => counts.global.bytes_loaded += bytes,
                    false => counts.global.bytes_stored += bytes,
                }
            }
        }
    }
    if let Some(tally) = &mut cx.worker.profile {
        cx.worker.counts_before = tally[pc];
        tally[pc].add(&counts);
    }
}

/// Takes back the counts of the instruction observed last, at `pc`: its lanes have not executed it, since they wait for others.
#[cold]
pub(crate) fn forget(cx: &mut ExecutionContext<'_>, pc: usize) {
    if let Some(tally) = &mut cx.worker.profile {
        tally[pc] = cx.worker.counts_before;
    }
}

/// Masks of the lanes that access global memory and of the lanes that access shared memory. Converts generic addresses
/// to addresses in those spaces.
fn by_space(space: TrafficSpace, addresses: &mut [u64; 32], active: u32) -> [u32; 2] {
    match space {
        TrafficSpace::Global => [active, 0],
        TrafficSpace::Shared => [0, active],
        TrafficSpace::Generic => {
            let mut lanes = [0; 2];
            for lane in lanes_of(active) {
                let (space, offset) = classify(addresses[lane]);
                addresses[lane] = offset;
                match space {
                    Space::Global => lanes[0] |= 1 << lane,
                    Space::Shared => lanes[1] |= 1 << lane,
                    _ => {}
                }
            }
            lanes
        }
    }
}

fn count_shared(counts: &mut Counts, wavefronts: Wavefronts, bytes: u64) {
    counts.shared.requests += 1;
    counts.shared.wavefronts += wavefronts.taken;
    counts.shared.ideal_wavefronts += wavefronts.ideal;
    counts.shared.worst_ways = counts.shared.worst_ways.max(wavefronts.ways);
    counts.shared.bytes += bytes;
}
