//! The kernels, in the DSL.
//!
//! Each file holds one kernel with its compile-time shape and says its formula, its layouts and how the work is
//! divided. Shared by several: [`quants`] reads chunks of quantised weights, [`activations`] brings a vector into
//! shared memory in the form that a weight type's dot product wants.

pub mod argmax;
pub mod attention;
pub mod embed;
pub mod gemv;
pub mod probe;
pub mod rope;
pub(crate) mod rows;
pub mod sample;
pub mod state;
