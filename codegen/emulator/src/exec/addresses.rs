//! Addresses of the lanes of a memory instruction.

use crate::code::access::{FLAG_NARROW, FLAGS, SHARED_WINDOW, StateSpace, classify};
use crate::code::operands::A;
use crate::context::{ExecutionContext, Inst};
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

/// Address of each lane in a memory instruction: base register plus offset.
#[inline(always)]
pub(crate) fn addresses(cx: &ExecutionContext<'_>, i: &Inst) -> [u64; LANES] {
    let mut addresses = [0u64; LANES];
    if i.slots[FLAGS] & FLAG_NARROW != 0 {
        let base = cx.warp.regs.lanes::<u32>(i.slots[A]);
        for lane in 0..LANES {
            addresses[lane] = base[lane].wrapping_add(i.imm as u32) as u64;
        }
    } else {
        let base = cx.warp.regs.lanes::<u64>(i.slots[A]);
        for lane in 0..LANES {
            addresses[lane] = base[lane].wrapping_add(i.imm);
        }
    }
    addresses
}

/// Address of each lane as an offset in shared memory, for an instruction that accesses only shared memory.
pub(crate) fn shared_addresses(cx: &ExecutionContext<'_>, i: &Inst) -> [u64; LANES] {
    let addresses = addresses(cx, i);
    match StateSpace::of(i.slots[FLAGS]) == StateSpace::Generic {
        true => addresses.map(|address| address.wrapping_sub(SHARED_WINDOW)),
        false => addresses,
    }
}

/// Space and address of lane 0, if the address is in shared or global memory.
pub(crate) fn located_first(cx: &ExecutionContext<'_>, i: &Inst) -> Option<(Space, u64)> {
    let address = match i.slots[FLAGS] & FLAG_NARROW {
        0 => cx.warp.regs.lanes::<u64>(i.slots[A])[0].wrapping_add(i.imm),
        _ => cx.warp.regs.lanes::<u32>(i.slots[A])[0].wrapping_add(i.imm as u32) as u64,
    };
    let (space, address) = match StateSpace::of(i.slots[FLAGS]) {
        StateSpace::Global => (Space::Global, address),
        StateSpace::Shared | StateSpace::SharedCluster => (Space::Shared, address),
        StateSpace::Generic => classify(address),
        _ => return None,
    };
    matches!(space, Space::Global | Space::Shared).then_some((space, address))
}

/// Space and address of each lane, if all addresses are in shared memory or all are in global memory.
pub(crate) fn located(cx: &ExecutionContext<'_>, i: &Inst) -> Option<(Space, [u64; LANES])> {
    let mut addresses = addresses(cx, i);
    let space = match StateSpace::of(i.slots[FLAGS]) {
        StateSpace::Global => Some(Space::Global),
        StateSpace::Shared | StateSpace::SharedCluster => Some(Space::Shared),
        StateSpace::Generic => generic(cx, &mut addresses),
        _ => None,
    };
    space.filter(|space| matches!(space, Space::Global | Space::Shared)).map(|space| (space, addresses))
}

/// Converts generic addresses to addresses in the space that all active lanes have in common; `None` if their spaces
/// differ.
#[cold]
pub(super) fn generic(cx: &ExecutionContext<'_>, addresses: &mut [u64; LANES]) -> Option<Space> {
    let first = addresses[cx.active.trailing_zeros() as usize % LANES];
    let (space, offset) = classify(first);
    if lanes_of(cx.active).any(|lane| classify(addresses[lane]).0 != space) {
        return None;
    }
    let window = first - offset;
    addresses.iter_mut().for_each(|address| *address = address.wrapping_sub(window));
    Some(space)
}
