//! The kernels, in the DSL.
//!
//! Each file holds one kernel with its compile-time shape and says its formula, its layouts and how the work is
//! divided. Shared by several: [`quants`] reads chunks of quantised weights, [`activations`] brings a vector into
//! shared memory in the form that a weight type's dot product wants.

pub mod activations;
pub mod argmax;
pub mod attention;
pub mod embed;
pub mod gemv;
pub mod kv_append;
pub mod probe;
pub mod quants;
pub mod residual_add;
pub mod rms_norm;
pub mod rope;
pub mod state;
pub mod swiglu;
