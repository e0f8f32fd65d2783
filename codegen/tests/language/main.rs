//! The language of kernels: `#[kernel]`, `#[device]` and `#[derive(Carry)]` on whole programs.

mod interpret;
mod parameters;
mod programs;
mod staging;
