//! Executes every type and every intrinsic of the DSL: records a kernel, compiles it with and without optimisation,
//! runs it on the emulator and compares the results with the host's. `ptxas` assembles the PTX of every kernel if it is
//! available (on `PATH`, or as `BESPOKE_PTXAS`).

mod arrays;
mod asynchronous;
mod atomics;
mod bits;
mod casts;
mod clusters;
mod device;
mod float8;
mod floats;
mod functions;
mod host;
mod integers;
mod matrices;
mod memory;
mod ordered;
mod pairs;
mod pipelines;
mod running_sums;
mod shared_tiles;
mod table;
mod targets;
mod tensor_maps;
mod threads;
mod timed;
mod warp_specialised;
mod warpgroup_types;
mod warpgroups;
