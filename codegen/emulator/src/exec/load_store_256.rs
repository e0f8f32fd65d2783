//! Loads and stores of 256 bits per lane: `.v8` of 32-bit and `.v4` of 64-bit elements.

use super::lane_loop::lane_loop;
use super::load_store::{address_operand, take_hints, take_space};
use super::resolve::resolve;
use crate::code::access::{Access, FLAG_ORDERED, StateSpace};
use crate::code::cursor::{InstructionCursor, quantity};
use crate::code::operands::NONE;
use crate::context::{Exec, Resolved};
use crate::lanes::{LANES, Pod};
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// Bytes that each lane accesses.
const BYTES: u64 = 32;
/// Slot of the number of the list of element slots.
const LIST: usize = 5;

lane_loop! {
    fn load[T: Pod, const V: usize][T, V](cx, i) {
        let mut values = [[T::default(); LANES]; V];
        match resolve(cx, i, BYTES, Access::Load) {
            Resolved::Run(start) => {
                for lane in 0..LANES {
                    // SAFETY: `resolve` checked all `32 · V` elements from `start`.
                    let elements = unsafe { start.cast::<[T; V]>().add(lane).read_unaligned() };
                    for element in 0..V {
                        values[element][lane] = elements[element];
                    }
                }
            }
            Resolved::Same(start) => {
                // SAFETY: `resolve` checked the `V` elements from `start`.
                let elements = unsafe { start.cast::<[T; V]>().read_unaligned() };
                values = elements.map(|element| [element; LANES]);
            }
            Resolved::Lanes(pointers) => {
                for lane in cx.active_lanes() {
                    // SAFETY: `resolve` checked `V` elements at the pointer of each active lane.
                    let elements = unsafe { pointers[lane].cast::<[T; V]>().read_unaligned() };
                    for element in 0..V {
                        values[element][lane] = elements[element];
                    }
                }
            }
            Resolved::Fault => return Flow::Fault,
        }
        for (element, &slot) in cx.launch.program.list(i.slots[LIST] as u64).iter().enumerate() {
            if slot != NONE {
                cx.warp.regs.write(slot, &values[element], cx.active);
            }
        }
        cx.worker.counters.count_load(&i.slots, cx.active, BYTES as usize);
        Flow::Next
    }
}

lane_loop! {
    /// Stores of equal values by several lanes to one address are allowed; of different values they race.
    fn store[T: Pod + PartialEq, const V: usize][T, V](cx, i) {
        let mut lanes = [[T::default(); V]; LANES];
        for (element, &slot) in cx.launch.program.list(i.slots[LIST] as u64).iter().enumerate() {
            let values = cx.warp.regs.lanes::<T>(slot);
            for lane in 0..LANES {
                lanes[lane][element] = values[lane];
            }
        }
        match resolve(cx, i, BYTES, Access::Store) {
            Resolved::Run(start) | Resolved::Same(start) => {
                for lane in 0..LANES {
                    // SAFETY: `resolve` checked all `32 · V` elements from `start`, and returns `Same` for loads only.
                    unsafe { start.cast::<[T; V]>().add(lane).write_unaligned(lanes[lane]) };
                }
            }
            Resolved::Lanes(pointers) => {
                if cx.cluster.races.is_some() && !super::races::stores_agree(cx, &pointers, &lanes) {
                    return Flow::Fault;
                }
                for lane in cx.active_lanes() {
                    // SAFETY: `resolve` checked `V` elements at the pointer of each active lane.
                    unsafe { pointers[lane].cast::<[T; V]>().write_unaligned(lanes[lane]) };
                }
            }
            Resolved::Fault => return Flow::Fault,
        }
        cx.worker.counters.count_store(&i.slots, cx.active, BYTES as usize);
        Flow::Next
    }
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let loads = op.opcode() == "ld";
    let space = take_space(op);
    let (flags, policy) = take_hints(op);
    let count = op.take_any(&[("v8", 8), ("v4", 4)]).unwrap_or(1);
    let ty = op.take_ty()?;
    if space != StateSpace::Global || flags & FLAG_ORDERED != 0 || count as u64 * ty.bytes() as u64 != BYTES {
        return Err(op.unsupported());
    }
    let (data, address) = if loads { (0, 1) } else { (1, 0) };
    let Operand::Vector(elements) = op.operand(data)? else {
        return Err(op.error(format!("`{}` takes {}", op.text(), quantity(count, "element"))));
    };
    if elements.len() != count {
        return Err(op.error(format!("`{}` takes {}", op.text(), quantity(count, "element"))));
    }
    let mut list = Vec::new();
    for element in elements {
        list.push(match element {
            Operand::Reg(register) if loads => op.write_register(*register, ty.width())?,
            Operand::Sink if loads => NONE,
            _ if loads => return Err(op.unsupported()),
            value => op.value(value, ty)?,
        });
    }
    op.slots[LIST] = op.list(list) as u32;
    address_operand(op, address, space, flags)?;
    if policy {
        op.src(2, Ty::B64)?;
    }
    Ok(match (loads, ty.bytes()) {
        (true, 4) => load::<u32, 8>(),
        (true, _) => load::<u64, 4>(),
        (false, 4) => store::<u32, 8>(),
        (false, _) => store::<u64, 4>(),
    })
}
