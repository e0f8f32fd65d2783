//! Ten kernels as an author would write them. `tests/kernels.rs` runs them on the emulator; the command `compare` compares
//! their machine code and times with those of CUDA kernels with the same algorithms, in `cuda/`.

pub mod bytes;
pub mod convolution;
pub mod dot;
pub mod hgemm;
pub mod histogram;
pub mod lu;
pub mod scan;
pub mod sgemm;
pub mod softmax;
pub mod top_k;
