//! The kernels, in the DSL.
//!
//! Each file holds one kernel with its compile-time shape and says its formula, its layouts and how the work is
//! divided. `rows` reads single rows of matrices in their device layout; `activation` has functions of epilogues.

pub mod activation;
pub mod argmax;
pub mod attention;
pub mod embed;
pub mod gemm;
pub mod gemv;
pub mod launching;
pub mod norm_add;
pub mod probe;
pub mod rope;
pub(crate) mod rows;
pub mod sample;
pub mod select_rows;
pub mod state;
