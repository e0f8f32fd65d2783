//! State of the threads that run: warps, the CTAs of a cluster with their shared memory, and asynchronous operations.

pub(crate) mod asynchronous;
pub(crate) mod cluster;
pub(crate) mod cta;
pub(crate) mod warp;
