//! Random numbers and random weight blocks that depend only on a seed.

pub mod blocks;
pub mod rng;
