//! GGUF, llama.cpp's model file format: reading with every number checked, exact block values, quantising, streaming
//! writing.
//!
//! The format is specified in ggml's `docs/gguf.md`. A file is
//!
//! ```text
//! "GGUF" | version u32 | tensor count u64 | key count u64      header
//! (key string | kind u32 | value) × key count                  metadata
//! (name string | rank u32 | dims u64 × rank | type u32
//!      | offset u64) × tensor count                            tensor directory
//! padding to general.alignment (32 unless the file says)
//! data, each tensor at an aligned offset                       tensor data
//! ```
//!
//! all little endian, a string being a `u64` length and that many bytes of UTF-8.
//!
//! ```no_run
//! use bespoke_gguf::{Gguf, dequantize};
//!
//! let file = Gguf::open("model.gguf")?;
//! println!("{} with {} layers", file.architecture()?, file.u32("llama.block_count")?);
//! let info = file.require("output_norm.weight")?;
//! let mut values = vec![0.0; info.elements() as usize];
//! dequantize(info.ty, file.data(info), &mut values)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Contracts:
//!
//! - Nothing in a file is believed: after [`Gguf::open`] returned, every tensor's data lies inside the file, is
//!   aligned, overlaps no other, and is as long as its type and dimensions say. Hostile bytes give an
//!   [`Error`], never a panic, and no allocation larger than the file's own header.
//! - Opening reads the header only; tensor data is mapped and read when touched.

mod cursor;
pub mod dequant;
mod error;
mod file;
mod getters;
mod metadata;
pub mod quant;
mod ty;
pub mod writer;

pub use dequant::dequantize;
pub use error::Error;
pub use file::{Gguf, TensorInfo};
pub use metadata::{Array, Kind, Value};
pub use quant::quantize;
pub use ty::{GgmlType, UnknownType};
pub use writer::Writer;

/// The alignment of tensor data in a file that has no `general.alignment`, in bytes.
pub const DEFAULT_ALIGNMENT: u64 = 32;
