//! Analyses of a function. An analysis is computed once and is valid until the function changes.

pub mod divisibility;
pub mod loops;
pub mod postdominators;
pub mod ranges;
pub mod threads;
pub mod uniformity;
pub mod uses;

pub use crate::ir::dominators::{Dominators, InstBlocks, defining_block, inst_blocks};
