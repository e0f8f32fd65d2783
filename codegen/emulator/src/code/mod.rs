//! A kernel as the emulator holds it: everything about its instructions but the functions that execute them.

pub(crate) mod access;
pub(crate) mod cursor;
pub(crate) mod operands;
pub(crate) mod program;
