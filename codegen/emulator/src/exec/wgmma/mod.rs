//! `wgmma`: asynchronous matrix products of a warpgroup, with operands in shared memory.
//!
//! Every warp computes its 16 rows when it issues the operation, and keeps the results aside: its registers change when
//! it executes a `wgmma.wait_group` that covers the operation. Until then the registers of the operation must not be used,
//! and the operands in shared memory must not be written ([`operands`] has the checks).

pub(crate) mod decode;
mod descriptor;
mod execute;
pub(crate) mod operands;
mod product;
