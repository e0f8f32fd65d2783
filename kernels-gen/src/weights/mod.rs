//! How weights lie in device memory.
//!
//! GGUF's blocks are records of odd sizes (a Q6_K block has 210 bytes), which no wide load can address. For the
//! device each matrix is split into *planes*, each an array with one kind of data of every block: quants, high
//! bits, scales. Within the quant planes the bits of 32 consecutive weights (a *chunk*) are regrouped such that one
//! load and a few masks give words of four weights in order. Nothing is computed: the same bits, permuted, so that
//! [`unpack`] gives back the file's bytes.
//!
//! # Planes of a chunk of 32 weights w0..w31
//!
//! | plane | bytes | contents |
//! | --- | --- | --- |
//! | `Low` (4-, 5- and 6-bit types) | 16 | byte i: low nibble the low four bits of w(i), high nibble those of w(i+16) |
//! | `High1` (Q5) | 4 | u32; bit 8b + t is the fifth bit of w(4t + b) |
//! | `High2` (Q6_K) | 8 | two u32; bits 8b + 2t, 8b + 2t + 1 of word h are the upper two bits of w(16h + 4t + b) |
//! | `Bytes` (Q8_0) | 32 | the signed bytes in order |
//! | `Scale` | 2 or 4 | f16 d, and f16 m for Q4_1 and Q5_1, as in the file |
//!
//! and of a superblock of 256 weights:
//!
//! | plane | bytes | contents |
//! | --- | --- | --- |
//! | `Super` (Q4_K, Q5_K) | 16 | f16 d, f16 dmin, 12 bytes of 6-bit scales and mins, as in the file |
//! | `Scales16` (Q6_K) | 16 | the signed scales of the 16 groups of 16, in order |
//! | `Scale` (Q6_K) | 2 | f16 d |
//!
//! F32, F16 and BF16 have one plane with rows padded with zeros to 16 bytes.

mod bits;
mod layout;
mod repack;

pub use layout::{Layout, Plane, PlaneKind, UnsupportedType, WeightType};
pub use repack::{repack, unpack};
