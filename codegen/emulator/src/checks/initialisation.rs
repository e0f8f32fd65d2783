//! Detector of uninitialised register reads.

use crate::code::program::RegisterCheck;
use crate::load::ast::RegId;

/// Finds the first uninitialised register that a lane reads; returns the register and the lane. `written` has, for each
/// tracked register, the mask of lanes in which the register was written; `reading` returns the lanes that read a
/// register, and `conditionally` has the lanes that read the registers with a condition.
pub(crate) fn first_unwritten(
    check: &RegisterCheck,
    written: &[u32],
    reading: impl Fn(RegId) -> u32,
    conditionally: u32,
) -> Option<(RegId, u32)> {
    let reads = check.reads.iter().map(|&(tracked, register)| (tracked, register, reading(register)));
    let conditional = check.conditional_reads.iter();
    let conditional = conditional.map(|&(tracked, register)| (tracked, register, conditionally));
    reads.chain(conditional).find_map(|(tracked, register, lanes)| {
        let unwritten = lanes & !written[tracked];
        (unwritten != 0).then(|| (register, unwritten.trailing_zeros()))
    })
}
