//! Loads and stores of a warp that tracks uninitialised bits.

use super::{Usage, bits_of, find, first_uninitialised, has_finished, report, run};
use crate::code::access::{Access, FLAGS, StateSpace, WINDOW_BYTES, classify};
use crate::code::operands::{ELEMENTS, NONE};
use crate::code::value_flow::{Elements, RegisterSlot, ValueFlow};
use crate::context::fault::Fault;
use crate::context::uninitialised::UninitialisedBits;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::exec::addresses::addresses;
use crate::exec::matrix_move::{MATRIX_ROWS, ROW_BYTES, TRANSPOSED};
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

/// Records that the lanes of `reading` read uninitialised bytes; returns the index of the read. The error is a fault, if the
/// bytes are not simply uninitialised: an asynchronous copy may write them.
fn add_read(
    cx: &mut ExecutionContext<'_>,
    tracked: &mut UninitialisedBits,
    reading: u32,
    places: &Places,
    bytes: u32,
) -> Result<u32, Flow> {
    let bytes = u64::from(bytes);
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
    match refused(cx, first) {
        Some(fault) if fault.kind == FindingKind::Uninitialised => {
            Ok(tracked.add_read(cx.warp.pc, || *fault))
        }
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
    if let Some(slot) = first_uninitialised(&flow.reads, active, tracked) {
        return report(cx, tracked, slot, Usage::Address);
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
    let reading = lanes_of(active).filter(|&lane| missing[lane] != 0).fold(0, |mask, lane| mask | 1 << lane);
    let mut origin = 0;
    if reading != 0 {
        origin = match add_read(cx, tracked, reading, &places, elements.total()) {
            Ok(origin) => origin,
            Err(flow) => return flow,
        };
    }
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

/// The uninitialised bits of a loaded element, of whose bytes those of the mask are uninitialised.
fn bits_of_element(bytes: u32, elements: Elements, width: Width) -> u64 {
    let mut bits = 0;
    for (byte, _) in bits_of(bytes & ((1 << elements.bytes) - 1)) {
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
    elements: Elements,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let (active, pc) = (cx.active, cx.warp.pc);
    let data = |slot: u32| (0..elements.count).any(|element| inst.slots[ELEMENTS[element as usize]] == slot);
    let reads = &cx.launch.program.value_flow[pc].reads;
    let others: Vec<RegisterSlot> = reads.iter().copied().filter(|read| !data(read.slot)).collect();
    if let Some(slot) = first_uninitialised(&others, active, tracked) {
        return report(cx, tracked, slot, Usage::Address);
    }
    // Mask of the uninitialised bytes that each lane stores.
    let mut missing = [0u32; LANES];
    let mut computed = 0;
    let mut of_data = None;
    for element in 0..elements.count {
        let slot = inst.slots[ELEMENTS[element as usize]];
        let Some(&register) = reads.iter().find(|read| read.slot == slot && tracked.is_register(slot)) else {
            continue;
        };
        let bits = tracked.lanes(register);
        for lane in lanes_of(active) {
            for byte in 0..elements.bytes {
                let is_missing = bits[lane] >> (8 * byte) & 0xff != 0;
                missing[lane] |= u32::from(is_missing) << (element * elements.bytes + byte);
            }
        }
        let (found, _) = find(&[register], active, tracked);
        computed |= found & tracked.computed(slot);
        if found != 0 {
            of_data.get_or_insert(slot);
        }
    }
    let Some(slot) = of_data else { return run(cx, inst) };
    let places = places(cx, inst);
    let all = (1 << elements.total()) - 1;
    let is_result = |lane: usize| missing[lane] == all || missing[lane] != 0 && computed >> lane & 1 != 0;
    if lanes_of(active).any(|lane| places[lane].0 == Space::Global && is_result(lane)) {
        return report(cx, tracked, slot, Usage::Stored);
    }
    let outcome = run(cx, inst);
    if has_finished(outcome) {
        // In lane order, as the store itself: the highest lane wins.
        for lane in lanes_of(active) {
            let Some((map, offset)) = map_at(cx, lane, places[lane]) else { continue };
            map.mark(offset, elements.total().into());
            bits_of(missing[lane]).for_each(|(byte, _)| map.unmark(offset + byte as u64, 1));
        }
    }
    outcome
}

/// Executes a load of matrices.
pub(super) fn load_matrices(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    if let Some(slot) = first_uninitialised(&flow.reads, cx.active, tracked) {
        return report(cx, tracked, slot, Usage::Address);
    }
    let plain = Inst { imm: inst.imm & !TRANSPOSED, ..*inst };
    let places = places(cx, &plain);
    let outcome = run_load(cx, inst);
    if !has_finished(outcome) {
        return outcome;
    }
    let rows = flow.writes.len() * MATRIX_ROWS;
    let mut missing = [0u32; LANES];
    for (lane, place) in places.iter().enumerate().take(rows) {
        missing[lane] = uninitialised_bytes(cx, lane, *place, ROW_BYTES as u32);
    }
    let reading = (0..rows).filter(|&lane| missing[lane] != 0).fold(0u32, |mask, lane| mask | 1 << lane);
    let mut origin = 0;
    if reading != 0 {
        origin = match add_read(cx, tracked, reading, &places, ROW_BYTES as u32) {
            Ok(origin) => origin,
            Err(flow) => return flow,
        };
    }
    for (matrix, &write) in flow.writes.iter().enumerate() {
        let rows = &missing[matrix * MATRIX_ROWS..][..MATRIX_ROWS];
        // Half `column` of a row: its two bytes, as bits of a 16-bit number.
        let half = |row: usize, column: usize| match rows[row] >> (2 * column) & 3 {
            0 => 0,
            1 => 0x00ff,
            2 => 0xff00,
            _ => 0xffff,
        };
        let bits = std::array::from_fn(|lane| {
            let (outer, inner) = (lane / 4, 2 * (lane % 4));
            match inst.imm & TRANSPOSED {
                0 => half(outer, inner) | half(outer, inner + 1) << 16,
                _ => half(inner, outer) | half(inner + 1, outer) << 16,
            }
        });
        tracked.set(write, u32::MAX, &bits, (0, origin));
    }
    outcome
}
