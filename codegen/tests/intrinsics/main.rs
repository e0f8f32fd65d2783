//! Every type and every intrinsic of the DSL, executed: each is recorded in a kernel, compiled with and without
//! the optimiser, run on the emulator and compared with what the host computes; and each kernel's PTX is given to
//! `ptxas` if one is here (on the PATH, or as `BESPOKE_PTXAS`).

mod asynchronous;
mod atomics;
mod bits;
mod casts;
mod clusters;
mod device;
mod floats;
mod host;
mod integers;
mod matrices;
mod memory;
mod ordered;
mod pairs;
mod pipelines;
mod table;
mod targets;
mod threads;
