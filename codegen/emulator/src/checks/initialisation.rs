//! Detector of uninitialised register reads.

use crate::code::program::RegisterCheck;
use crate::load::ast::RegId;

/// Finds the first uninitialised register that a lane reads; returns the register and the lane. `written` has, for each
/// tracked register, the mask of lanes in which the register was written; `reading` returns the lanes that read a
/// register.
pub(crate) fn first_unwritten(
    check: &RegisterCheck,
    written: &[u32],
    reading: impl Fn(RegId) -> u32,
) -> Option<(RegId, u32)> {
    check.reads.iter().find_map(|&(tracked, register)| {
        let unwritten = reading(register) & !written[tracked];
        (unwritten != 0).then(|| (register, unwritten.trailing_zeros()))
    })
}
