//! The kernel language: handles, their operators and the intrinsics.
//!
//! A handle ([`Val`], [`Ptr`]) is a `Copy` id of an SSA value in the kernel being recorded on this thread, with its
//! type as a phantom. Operators and methods append instructions to that kernel, at the source line of the caller. The
//! [front page](crate) is the guide; this page is the reference. In the PTX columns, `…` stands for registers.
#![doc = include_str!("INTRINSICS.md")]

mod access;
mod arrays;
mod assume;
mod async_copy;
mod atomics;
mod bits;
mod cache_policy;
mod carry;
mod cluster;
mod convert;
mod dominance;
mod float8;
mod functions;
mod functions_f64;
pub mod hooks;
mod inline;
mod kernel_param;
mod lanes;
mod math;
mod mbarrier;
mod mma;
mod number;
mod ops;
mod ordered;
mod packed;
mod parameters;
mod paths;
mod pipeline;
mod pointer;
mod print;
pub(crate) mod record;
pub(crate) mod recorder;
mod reduce;
mod registers;
mod rejected;
mod replay;
mod scalar;
mod scan;
mod shared_tile;
mod sync;
mod tensor;
mod threads;
mod value;
mod vector;
mod warp;
mod wgmma;

pub use arrays::*;
pub use assume::assume;
pub use async_copy::*;
pub use bits::*;
pub use cache_policy::CachePolicy;
pub use carry::Carry;
pub use cluster::*;
pub use convert::*;
pub use float8::*;
pub use hooks::range;
pub use inline::*;
pub use lanes::*;
pub use math::*;
pub use mbarrier::*;
pub use mma::*;
pub use number::{AtomicNumber, Float, Fractional, Int, Number, WideFloat};
pub use ops::{Divide, Remainder};
pub use packed::*;
pub use parameters::Parameters;
pub use pipeline::{
    Consumer, Consumers, Pipeline, PipelineCopy, PipelineShape, Producer, RowsShape, StageTiles,
    TilePositions, WarpgroupRoles,
};
pub use pointer::{Cluster, Constant, Global, Local, Ptr, Shared, Space, dynamic_shared, shared_array};
pub use print::*;
pub use record::Recorded;
pub use recorder::RecordError;
pub use reduce::*;
pub use registers::*;
pub use scalar::{Bf16x2, Bits, E4m3, E4m3x2, E5m2, E5m2x2, F16x2, RawWord, Scalar, Word};
pub use scan::*;
pub use shared_tile::*;
pub use sync::*;
pub use tensor::*;
pub use threads::*;
pub use value::{IntoVal, Val, val};
pub use warp::*;
pub use wgmma::*;
