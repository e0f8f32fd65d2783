//! Decoded kernels without the functions that execute their instructions: operands, accesses, and where they come from.

pub(crate) mod access;
pub(crate) mod cursor;
pub(crate) mod operands;
pub(crate) mod program;
