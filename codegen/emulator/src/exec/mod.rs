//! Semantics of instructions: functions over whole warps.
//!
//! Each family of instructions is one module: the functions that execute its instructions for 32 lanes, and a decoder
//! that chooses the function by modifiers and types. A function accesses the warp's register file by slot and returns a
//! [`Flow`](crate::context::Flow), which says how the warp continues.
//!
//! Four things make execution fast:
//! - Every operand, even a constant, is an array of 32 lanes, so a function is one loop without branches, which the
//!   compiler vectorises ([`lane_loop`]).
//! - Types and modifiers are resolved when the kernel is loaded.
//! - An access is checked as one range if the addresses of its lanes are contiguous or equal ([`resolve`]).
//! - Inside a basic block, the interpreter tests only the `Flow` between instructions
//!   ([`Inst::unconditional`](crate::context::Inst::unconditional)).
//!
//! A check or a counter that is off costs one branch per warp instruction.

#![allow(clippy::needless_range_loop, reason = "a lane indexes several arrays and a mask at once")]

mod addresses;
pub(crate) mod atomic;
pub(crate) mod atomic_128;
pub(crate) mod atomic_vector;
pub(crate) mod bits;
pub(crate) mod bulk;
pub(crate) mod cluster;
pub(crate) mod collective;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod convert_packed;
pub(crate) mod copy;
pub(crate) mod divergent_collective;
pub(crate) mod double;
mod element;
pub(crate) mod float;
pub(crate) mod float_special;
mod fragment;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod lane_loop;
pub(crate) mod load_store;
pub(crate) mod load_store_256;
pub(crate) mod matrix_move;
mod matrix_rows;
pub(crate) mod mbarrier;
pub(crate) mod mma;
#[cfg(target_arch = "x86_64")]
mod mma_avx2;
mod mma_double;
pub(crate) mod moves;
pub(crate) mod numeric;
pub(crate) mod observe;
mod operand_list;
pub(crate) mod print;
mod print_format;
pub(crate) mod programmatic;
pub(crate) mod race_report;
pub(crate) mod races;
pub(crate) mod read_only;
mod reduction;
mod refused_access;
pub(crate) mod remote;
pub(crate) mod resolve;
pub(crate) mod rounding;
mod shared_access;
pub(crate) mod stack;
mod tensor;
pub(crate) mod tensor_maps;
mod tensor_sum;
pub(crate) mod uninitialised;
pub(crate) mod wgmma;
pub(crate) mod wmma;
