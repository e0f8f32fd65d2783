//! Whole programs in the kernel language: `#[kernel]`, `#[device]` and `#[derive(Carry)]`.

mod assumptions;
mod calls;
mod errors;
mod escapes;
mod interpret;
mod modules;
mod parameters;
mod printing;
mod programs;
mod staging;
