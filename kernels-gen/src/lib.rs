//! Decoder kernels in the bespoke DSL, model shapes, the decode plan, and the emission of both at build time.
//!
//! The way through this crate: a [`shape::ModelShape`] says what a model is; [`plan::Plan::new`] turns it, for a
//! target, into buffers and a list of launches; each launch names a [`spec::KernelSpec`], a kernel with its
//! compile-time parameters; [`spec::KernelSpec::record`] runs the kernel's source in [`kernels`] and gives its IR.
//! [`emit`] writes all of it as files from a `build.rs`. How weights lie in device memory is [`weights`]' business,
//! which the kernels and the loader share.

pub mod emit;
pub mod kernels;
pub mod plan;
pub mod shape;
pub mod spec;
pub mod weights;
