//! Decoded kernels without the functions that execute instructions: operands, memory accesses and source positions.

pub(crate) mod access;
pub(crate) mod collective;
pub(crate) mod cursor;
pub(crate) mod operands;
pub(crate) mod program;
pub(crate) mod value_flow;
