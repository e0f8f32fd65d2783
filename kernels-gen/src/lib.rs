//! Decoder kernels in the bespoke DSL, model shapes, the decode plan, and the emission of both at build time.
//!
//! A [`shape::ModelShape`] describes a model. [`plan::Plan::new`] turns it, for a target, into buffers and launches. A
//! launch refers to a [`spec::KernelSpec`]: a kernel with its compile-time parameters. [`spec::KernelSpec::record`]
//! runs the kernel's source in [`kernels`] and returns its IR. [`emit`] writes plans and kernels as files from a
//! `build.rs`. [`weights`] defines the layout of weights in device memory, which the kernels and the loader share.

pub mod emit;
pub mod kernels;
pub mod plan;
pub mod shape;
pub mod spec;
pub mod weights;
