//! Kernels that other compilers produced run under every check and give what Rust computes.
//!
//! `cuda/*.ptx` is what nvcc 13.0 (`nvcc -ptx -O3 -arch=sm_80`; `halves.cu` for `sm_90`) makes of the
//! sources beside it, `triton/*.ptx` what Triton 3.9 makes of `triton/kernels.py`, for `sm_80`.

mod control;
mod device;
mod elementwise;
mod halves;
mod integers;
mod matrices;
mod reductions;
mod refusals;
mod triton;
