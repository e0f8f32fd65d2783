//! Kernels compiled by nvcc and Triton run under all checks and match results computed in Rust.
//!
//! nvcc 13.0 compiled `cuda/*.ptx` from the sources beside them (`nvcc -ptx -O3 -arch=sm_80`; `halves.cu` and
//! `calls.cu` for `sm_90`, `tensor_maps.cu` for `sm_90a`). Triton 3.9 compiled `triton/*.ptx` from `triton/kernels.py`:
//! `*_sm90.ptx` for `sm_90a`, the others for `sm_80`.

mod calls;
mod control;
mod device;
mod elementwise;
mod gradients;
mod halves;
mod hopper;
mod integers;
mod locks;
mod matrices;
mod mutants;
mod reductions;
mod refusals;
mod tensor_maps;
mod tile_copies;
mod tiles;
mod triton;
