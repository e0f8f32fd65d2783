//! GGUF, llama.cpp's model file format: checked reading, exact dequantisation, quantisation, and streaming writing.
//!
//! The format is specified in ggml's `docs/gguf.md`. A file is
//!
//! ```text
//! "GGUF" | version u32 | tensor count u64 | key count u64      header
//! (key string | kind u32 | value) × key count                  metadata
//! (name string | rank u32 | dims u64 × rank | type u32
//!      | offset u64) × tensor count                            tensor directory
//! padding to general.alignment (32 by default)
//! data, each tensor at an aligned offset                       tensor data
//! ```
//!
//! Numbers are little endian. A string is a `u64` length and that many bytes of UTF-8.
//!
//! ```no_run
//! use bespoke_gguf::{Gguf, dequantize};
//!
//! let file = Gguf::open("model.gguf")?;
//! println!("{} with {} layers", file.architecture()?, file.u32("llama.block_count")?);
//! let info = file.require("output_norm.weight")?;
//! let mut values = vec![0.0; info.elements() as usize];
//! dequantize(info.ty, &file.data(info)?, &mut values)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Contracts:
//!
//! - [`Gguf::open`] validates the file: the data of every tensor is inside the file, aligned, disjoint from all others,
//!   and has the length that follows from its type and dimensions. Hostile files cause an [`Error`], never a panic, and
//!   allocations are limited by the size of the file's header.
//! - A model may be split in several files ([`Gguf::open`] opens all), or have its data elsewhere ([`TensorSource`]).
//! - Opening reads only the header. Tensor data is read on access, as a whole ([`Gguf::data`]) or in pieces
//!   ([`TensorData`]). A file that is truncated while it is open causes an [`Error`].

mod cursor;
mod data;
pub mod dequant;
mod error;
mod file;
mod finite;
mod getters;
mod metadata;
mod part;
pub mod quant;
mod random_access;
mod split;
mod tensor;
mod ty;
pub mod writer;

pub use data::TensorData;
pub use dequant::dequantize;
pub use error::Error;
pub use file::{Gguf, TensorSource};
pub use finite::{check_finite, first_non_finite};
pub use metadata::{Array, Kind, Value};
pub use quant::quantize;
pub use random_access::RandomAccessFile;
pub use tensor::TensorInfo;
pub use ty::{GgmlType, UnknownType};
pub use writer::Writer;

/// Alignment of tensor data in files without `general.alignment`, in bytes.
pub const DEFAULT_ALIGNMENT: u64 = 32;
