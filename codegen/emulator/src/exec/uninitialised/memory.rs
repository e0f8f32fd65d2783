//! Loads and stores of a warp that tracks uninitialised bits.

use super::{Usage, first_uninitialised, has_finished, report, run};
use crate::code::access::{Access, FLAGS, StateSpace, WINDOW_BYTES, classify};
use crate::code::operands::{A, ELEMENTS, NONE};
use crate::code::value_flow::{Elements, ValueFlow};
use crate::context::fault::Fault;
use crate::context::uninitialised::UninitialisedBits;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::exec::addresses::addresses;
use crate::exec::matrix_rows::{MATRIX_ROWS, ROW_BYTES, TRANSPOSED};
use crate::exec::refused_access::{RefusedAccess, refuse};
use crate::finding::{FindingKind, Space};
use crate::lanes::{LANES, lanes_of};
use crate::load::types::Width;
use crate::memory::InitMap;

/// Space of each lane's access, and address in that space.
type Places = [(Space, u64); LANES];

fn places(cx: &ExecutionContext<'_>, inst: &Inst) -> Places {
    let space = StateSpace::of(inst.slots[FLAGS]);
    if space == StateSpace::ParamDirect {
        return [(Space::Param, 0); LANES];
    }
    addresses(cx, inst).map(|address| match space {
        StateSpace::Global => (Space::Global, address),
        StateSpace::Shared | StateSpace::SharedCluster => (Space::Shared, address),
        StateSpace::Param if address >= WINDOW_BYTES => (Space::Param, address),
        StateSpace::Param | StateSpace::Local => (Space::Local, address),
        StateSpace::Generic | StateSpace::ParamDirect => classify(address),
    })
}

/// The map of initialised bytes for a lane's access, and the offset of the access in it. `None` for parameters, which are
/// initialised.
fn map_at<'a>(
    cx: &'a ExecutionContext<'_>,
    lane: usize,
    (space, address): (Space, u64),
) -> Option<(&'a InitMap, u64)> {
    match space {
        Space::Global => {
            let table = &cx.launch.table;
            let allocation = &table.live[table.find(address)?];
            Some((&allocation.map, address - allocation.base))
        }
        Space::Shared => Some((&cx.cluster.shared.map, address)),
        Space::Local => Some((&cx.warp.local.map, lane as u64 * cx.warp.local.bytes + address)),
        Space::Param => None,
    }
}

/// Mask of the uninitialised bytes among the `bytes` bytes of a lane's access.
fn uninitialised_bytes(cx: &ExecutionContext<'_>, lane: usize, place: (Space, u64), bytes: u32) -> u32 {
    match map_at(cx, lane, place) {
        Some((map, offset)) if !map.is_initialised(offset, bytes.into()) => (0..bytes)
            .filter(|&byte| !map.is_initialised(offset + u64::from(byte), 1))
            .fold(0, |mask, byte| mask | 1 << byte),
        _ => 0,
    }
}

/// Runs a load that may read uninitialised bytes.
fn run_load(cx: &mut ExecutionContext<'_>, inst: &Inst) -> Flow {
    cx.worker.admits_uninitialised = true;
    let outcome = run(cx, inst);
    cx.worker.admits_uninitialised = false;
    outcome
}

/// Records a read of the uninitialised bytes in each lane's mask in `missing`, if there are any; returns the origin of the bits.
/// The error is a fault: the bytes belong to an asynchronous copy in flight, or to no variable.
fn add_read(
    cx: &mut ExecutionContext<'_>,
    tracked: &mut UninitialisedBits,
    missing: &[u32; LANES],
    places: &Places,
    bytes: u32,
) -> Result<u32, Flow> {
    let bytes = u64::from(bytes);
    let reading = lanes_of(u32::MAX).filter(|&lane| missing[lane] != 0);
    let reading = reading.fold(0u32, |mask, lane| mask | 1 << lane);
    if reading == 0 {
        return Ok(0);
    }
    let refused = |cx: &mut ExecutionContext<'_>, lane: usize| -> Option<Box<Fault>> {
        let (space, address) = places[lane];
        let refused = RefusedAccess { lane, address, bytes, alignment: bytes };
        refuse(cx, FindingKind::OutOfBounds, refused, (space, Access::Load));
        cx.worker.fault.take()
    };
    for lane in lanes_of(reading) {
        let (space, address) = places[lane];
        if space == Space::Shared && cx.cluster.shared.reservations.any(address, bytes) {
            cx.worker.fault = refused(cx, lane);
            return Err(Flow::Fault);
        }
    }
    let first = reading.trailing_zeros() as usize % LANES;
    let (space, address) = places[first];
    let stored = match space {
        Space::Shared => lanes_of(missing[first])
            .find_map(|byte| cx.cluster.stored_uninitialised.get(&(address + byte as u64))),
        _ => None,
    };
    if let Some(origin) = stored {
        return Ok(tracked.add_read(origin.pc.unwrap_or(cx.warp.pc), origin.clone()));
    }
    match refused(cx, first) {
        Some(fault) if fault.kind == FindingKind::Uninitialised => Ok(tracked.add_read(cx.warp.pc, *fault)),
        fault => {
            cx.worker.fault = fault;
            Err(Flow::Fault)
        }
    }
}

/// Executes a load by each lane.
pub(super) fn load(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    elements: Elements,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    if let Some(register) = first_uninitialised(&flow.reads, active, tracked) {
        return report(cx, tracked, (register, active), Usage::Address);
    }
    let places = places(cx, inst);
    let outcome = run_load(cx, inst);
    if !has_finished(outcome) {
        return outcome;
    }
    let mut missing = [0u32; LANES];
    for lane in lanes_of(active) {
        missing[lane] = uninitialised_bytes(cx, lane, places[lane], elements.total());
    }
    let origin = match add_read(cx, tracked, &missing, &places, elements.total()) {
        Ok(origin) => origin,
        Err(flow) => return flow,
    };
    for element in 0..elements.count {
        let slot = inst.slots[ELEMENTS[element as usize]];
        let Some(&register) = flow.writes.iter().find(|write| slot != NONE && write.slot == slot) else {
            continue;
        };
        let bits = missing
            .map(|bytes| bits_of_element(bytes >> (element * elements.bytes), elements, register.width));
        tracked.set(register, active, &bits, (0, origin));
    }
    outcome
}

/// The uninitialised bits of a register that holds a loaded element; `bytes` is the mask of the element's uninitialised bytes.
fn bits_of_element(bytes: u32, elements: Elements, width: Width) -> u64 {
    let mut bits = 0;
    for byte in lanes_of(bytes & ((1 << elements.bytes) - 1)) {
        bits |= 0xff << (8 * byte);
    }
    let has_sign = elements.signed && bytes >> (elements.bytes - 1) & 1 != 0;
    let extension = if has_sign { u64::MAX.checked_shl(8 * elements.bytes).unwrap_or(0) } else { 0 };
    (bits | extension) & u64::MAX >> (64 - width.bits())
}

/// Executes a store by each lane.
pub(super) fn store(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    elements: Elements,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    let data: Vec<u32> = (0..elements.count).map(|element| inst.slots[ELEMENTS[element as usize]]).collect();
    let others = flow.reads.iter().copied().filter(|read| !data.contains(&read.slot));
    if let Some(register) = first_uninitialised(&others.collect::<Vec<_>>(), active, tracked) {
        return report(cx, tracked, (register, active), Usage::Address);
    }
    // Mask of the uninitialised bytes that each lane stores.
    let mut missing = [0u32; LANES];
    // Lanes whose uninitialised bytes are results of arithmetic or come from shared memory, so that they are not padding.
    let mut not_padding = 0;
    let mut first = None;
    let mut origins = [None; LANES];
    for (element, slot) in data.iter().enumerate() {
        let Some(&register) = flow.reads.iter().find(|read| read.slot == *slot) else { continue };
        let (bits, lanes) = (tracked.lanes(register), tracked.mask(register) & active);
        for lane in lanes_of(lanes) {
            for byte in 0..elements.bytes {
                let is_missing = bits[lane] >> (8 * byte) & 0xff != 0;
                missing[lane] |= u32::from(is_missing) << (element as u32 * elements.bytes + byte);
            }
            let origin = tracked.origin(register, 1 << lane);
            origins[lane].get_or_insert(origin);
            let of_shared = tracked.read(origin).is_some_and(|read| read.space == Some(Space::Shared));
            not_padding |= u32::from(of_shared) << lane;
        }
        not_padding |= lanes & tracked.computed(*slot);
        if lanes != 0 {
            first.get_or_insert((register, lanes));
        }
    }
    let Some(first) = first else { return run(cx, inst) };
    let places = places(cx, inst);
    let all = (1 << elements.total()) - 1;
    let is_finding = |lane: usize| missing[lane] == all || missing[lane] != 0 && not_padding >> lane & 1 != 0;
    if lanes_of(active).any(|lane| places[lane].0 == Space::Global && is_finding(lane)) {
        return report(cx, tracked, first, Usage::Stored);
    }
    let outcome = run(cx, inst);
    if has_finished(outcome) {
        // In lane order, as the store itself: the highest lane wins.
        for lane in lanes_of(active) {
            mark_stored(cx, lane, places[lane], elements.total(), missing[lane]);
            let (space, address) = places[lane];
            if let (Space::Shared, Some(read)) =
                (space, origins[lane].and_then(|origin| tracked.read(origin)))
            {
                for byte in lanes_of(missing[lane]) {
                    cx.cluster.stored_uninitialised.insert(address + byte as u64, read.clone());
                }
            }
        }
    }
    outcome
}

/// Marks the bytes that a lane has stored as initialised, but for those of the mask.
fn mark_stored(cx: &ExecutionContext<'_>, lane: usize, place: (Space, u64), bytes: u32, missing: u32) {
    if let Some((map, offset)) = map_at(cx, lane, place) {
        map.mark(offset, bytes.into());
        lanes_of(missing).for_each(|byte| map.unmark(offset + byte as u64, 1));
    }
}

/// The lanes that give the addresses of the rows of `matrices` matrices.
fn addressing_lanes(matrices: usize) -> u32 {
    u32::MAX >> (LANES - matrices * MATRIX_ROWS)
}

/// The instruction with an address offset only in `imm`.
fn without_transposition(inst: &Inst) -> Inst {
    Inst { imm: inst.imm & !TRANSPOSED, ..*inst }
}

/// Row and column of the halves that a lane holds of a matrix.
fn halves_of(lane: usize, inst: &Inst) -> [(usize, usize); 2] {
    let (outer, inner) = (lane / 4, 2 * (lane % 4));
    match inst.imm & TRANSPOSED {
        0 => [(outer, inner), (outer, inner + 1)],
        _ => [(inner, outer), (inner + 1, outer)],
    }
}

/// Executes a load of matrices.
pub(super) fn load_matrices(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let addressing = addressing_lanes(flow.writes.len());
    if let Some(register) = first_uninitialised(&flow.reads, addressing, tracked) {
        return report(cx, tracked, (register, addressing), Usage::Address);
    }
    let places = places(cx, &without_transposition(inst));
    let outcome = run_load(cx, inst);
    if !has_finished(outcome) {
        return outcome;
    }
    let mut missing = [0u32; LANES];
    for lane in lanes_of(addressing) {
        missing[lane] = uninitialised_bytes(cx, lane, places[lane], ROW_BYTES as u32);
    }
    let origin = match add_read(cx, tracked, &missing, &places, ROW_BYTES as u32) {
        Ok(origin) => origin,
        Err(flow) => return flow,
    };
    for (matrix, &write) in flow.writes.iter().enumerate() {
        let rows = &missing[matrix * MATRIX_ROWS..][..MATRIX_ROWS];
        // The bits of a half of which one or both bytes are uninitialised.
        let bits = |(row, column): (usize, usize)| match rows[row] >> (2 * column) & 3 {
            0 => 0,
            1 => 0x00ff,
            2 => 0xff00,
            _ => 0xffff,
        };
        let bits = std::array::from_fn(|lane| {
            let [low, high] = halves_of(lane, inst).map(bits);
            low | high << 16
        });
        tracked.set(write, u32::MAX, &bits, (0, origin));
    }
    outcome
}

/// Executes a store of matrices.
pub(super) fn store_matrices(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    matrices: usize,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let addressing = addressing_lanes(matrices);
    let register = |slot: u32| flow.reads.iter().copied().find(|read| read.slot == slot);
    let address = register(inst.slots[A]).filter(|address| tracked.mask(*address) & addressing != 0);
    if let Some(address) = address {
        return report(cx, tracked, (address, addressing), Usage::Address);
    }
    let places = places(cx, &without_transposition(inst));
    let mut missing = [0u32; LANES];
    for matrix in 0..matrices {
        let Some(data) = register(inst.slots[ELEMENTS[matrix]]) else { continue };
        let bits = tracked.lanes(data);
        for lane in 0..LANES {
            for (half, (row, column)) in halves_of(lane, inst).into_iter().enumerate() {
                for byte in 0..2 {
                    let is_missing = bits[lane] >> (16 * half + 8 * byte) & 0xff != 0;
                    missing[matrix * MATRIX_ROWS + row] |= u32::from(is_missing) << (2 * column + byte);
                }
            }
        }
    }
    let outcome = run(cx, inst);
    if has_finished(outcome) && missing != [0; LANES] {
        for lane in lanes_of(addressing) {
            mark_stored(cx, lane, places[lane], ROW_BYTES as u32, missing[lane]);
        }
    }
    outcome
}
