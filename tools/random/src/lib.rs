//! Random numbers and random weight blocks that depend on a seed alone.

pub mod blocks;
pub mod rng;
