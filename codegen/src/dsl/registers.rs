//! Registers of warpgroups (`setmaxnreg`): producer warps give registers to the warps that compute.
//!
//! A kernel needs a limit of its registers. With `#[kernel(threads = …, min_blocks = 1)]` each thread starts with as many as
//! fit, 168 of 65,536 with 384 threads; with `max_registers = …`, with that number. The kernel's PTX has the target `sm_90a`.

use std::panic::Location;

use super::recorder::{Site, emit, fail, with};
use crate::ir::{Op, Type};

/// Gives registers to the CTA until each thread of the warpgroup has `count` left.
///
/// - PTX: `setmaxnreg.dec.sync.aligned.u32`
/// - Target: sm_90a
/// - Requires: all warps of the warpgroup; a kernel with `min_blocks = …` or `max_registers = …`; `count` a multiple of 8 from 24
///   to 256, at most what the threads have; the warpgroup synchronises before the next change of its registers
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::*};
///
/// /// The first warpgroup gives registers to the second one.
/// #[kernel(threads = 256, min_blocks = 1)]
/// fn roles(x: Ptr<Global, u32>) {
///     if warp_index() / 4 == 0 {
///         decrease_registers(40);
///     } else {
///         increase_registers(256);
///         if warp_index() == 4 {
///             x.at(lane()).store(lane());
///         }
///     }
/// }
/// assert_eq!(run(roles(), "setmaxnreg.dec.sync.aligned.u32 40", LANES), LANES);
/// assert_eq!(run(roles(), "setmaxnreg.inc.sync.aligned.u32 256", LANES), LANES);
/// ```
#[track_caller]
pub fn decrease_registers(count: u32) {
    set(false, count, Location::caller());
}

/// Takes registers from the CTA until each thread of the warpgroup has `count`. The warps wait until other warps have given
/// enough by [`decrease_registers`].
///
/// - PTX: `setmaxnreg.inc.sync.aligned.u32`
/// - Target: sm_90a
/// - Requires: as [`decrease_registers`]; `count` at least what the threads have
/// - Example: [`decrease_registers`]
#[track_caller]
pub fn increase_registers(count: u32) {
    set(true, count, Location::caller());
}

fn set(increase: bool, count: u32, site: Site) {
    if with(|r| r.func.min_blocks.or(r.func.max_registers)).is_none() {
        fail(
            site,
            "registers can be redistributed only in a kernel with a limit: write `#[kernel(threads = …, min_blocks = 1)]`, or \
             `max_registers = …`",
        );
    }
    emit(Op::SetRegisters { increase, count }, Type::U32, &[], site);
}
