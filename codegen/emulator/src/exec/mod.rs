//! The execution core: decoded instructions are function pointers over whole warps.
//!
//! Each family of instructions is one module that holds both what its instructions do to 32 lanes and
//! the table from opcode and modifiers to that function. A function reads and writes the warp's
//! register file by slot and says through [`Flow`](crate::context::Flow) what the warp does next.
//!
//! What makes it fast: operands are always arrays of 32 lanes, constants included, so a function is one loop
//! without cases, which the compiler vectorises ([`lane_loop`]); type and modifiers are chosen when the kernel is
//! loaded; memory is looked at by ranges ([`resolve`]); and between branches nothing is looked at but [`Flow`](crate::context::Flow)
//! ([`Inst::unconditional`](crate::context::Inst::unconditional)). A check or an observer costs one branch a warp instruction where it is off.

#![allow(clippy::needless_range_loop, reason = "a lane indexes several arrays and a mask at once")]

mod addresses;
pub(crate) mod atomic;
pub(crate) mod bits;
pub(crate) mod bulk;
pub(crate) mod cluster;
pub(crate) mod collective;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod convert_small;
pub(crate) mod copy;
pub(crate) mod double;
pub(crate) mod float;
pub(crate) mod float_special;
mod fragment;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod lane_loop;
pub(crate) mod load_store;
pub(crate) mod matrix_move;
pub(crate) mod mbarrier;
pub(crate) mod mma;
#[cfg(target_arch = "x86_64")]
mod mma_avx2;
pub(crate) mod moves;
pub(crate) mod numeric;
pub(crate) mod observe;
mod operand_list;
pub(crate) mod programmatic;
mod race_report;
pub(crate) mod races;
mod reach;
mod refused_access;
pub(crate) mod remote;
pub(crate) mod resolve;
pub(crate) mod rounding;
pub(crate) mod wmma;
