//! Detector of uninitialised register reads.

use crate::code::program::RegisterCheck;
use crate::load::ast::RegId;

/// The first register of a check that a lane reads uninitialised, with the lane. `written` has the lanes in which each
/// tracked register was written; `reading` returns the lanes that read a register.
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
