//! Addresses in the operand lists of instructions, and the cache hints of asynchronous copies.

use crate::code::cursor::{AddressWidth, InstructionCursor};
use crate::context::ExecutionContext;
use crate::lanes::LANES;
use crate::load::error::ParseError;

/// Words that an address takes in an operand list: register slot, width, and offset (two words).
pub(super) const ADDRESS: usize = 4;

/// Appends the instruction's address operand `index` to an operand list.
pub(super) fn push_address(
    op: &mut InstructionCursor<'_, '_>,
    index: usize,
    list: &mut Vec<u32>,
    shared: bool,
) -> Result<(), ParseError> {
    let (slot, width) = op.address(index)?;
    if !shared && width == AddressWidth::W32 {
        return Err(op.error(format!("`{}` needs a 64-bit address", op.text())));
    }
    list.extend([slot, (width == AddressWidth::W32) as u32, op.imm as u32, (op.imm >> 32) as u32]);
    Ok(())
}

/// Address of each lane, from the address at the start of the operand list `list`.
pub(super) fn listed(cx: &ExecutionContext<'_>, list: &[u32]) -> [u64; LANES] {
    let offset = list[2] as u64 | (list[3] as u64) << 32;
    match list[1] {
        0 => cx.warp.regs.lanes::<u64>(list[0]).map(|base| base.wrapping_add(offset)),
        _ => cx.warp.regs.lanes::<u32>(list[0]).map(|base| base.wrapping_add(offset as u32) as u64),
    }
}

/// Takes the cache hints of an asynchronous copy; returns whether a cache policy operand follows.
pub(super) fn take_cache(op: &mut InstructionCursor<'_, '_>) -> bool {
    op.take_any(&[("L2::64B", ()), ("L2::128B", ()), ("L2::256B", ())]);
    op.take("L2::cache_hint")
}
