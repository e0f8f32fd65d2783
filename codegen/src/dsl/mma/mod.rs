//! Matrix products by a warp on tensor cores.
//!
//! A product D = A·B + C has 16 rows and 8 columns. All 32 lanes execute it together; each holds a fragment of every
//! matrix. Lane l has group g = l / 4 and index t = l mod 4 in the group (PTX ISA, "Matrix Fragments for mma"):
//!
//! | fragment        | register i holds                                                                     |
//! |-----------------|--------------------------------------------------------------------------------------|
//! | [`FragmentA`]   | row g + 8·(i mod 2), bytes 4t + 16·(i / 2) and the next three of the row             |
//! | [`FragmentB`]   | column g, bytes 4t + 16·i and the next three of the column                           |
//! | [`FragmentC`]   | the sum in row g + 8·(i / 2) and column 2t + i mod 2                                 |
//!
//! A row of A and a column of B have 16 or 32 bytes, according to the number of registers. Elements are u8 and i8 (with
//! wrapping i32 sums), [`half::f16`], [`half::bf16`], f32 as tf32, [`E4m3`] and [`E5m2`] (with f32 sums).
//!
//! Products of f64 ([`mma_f64`], [`mma_m8n8k4_f64`]) take arrays of elements instead of fragments:
//!
//! | matrix          | element i of the array                                                               |
//! |-----------------|--------------------------------------------------------------------------------------|
//! | A               | row g + 8·(i mod 2), column t + 4·(i / 2)                                            |
//! | B               | row t + 4·i, column g                                                                |
//! | C               | as [`FragmentC`]; of [`mma_m8n8k4_f64`] row g, column 2t + i                         |

mod double;
mod element;
mod fragment;
mod lane_rows;
mod load;
mod product;
mod sums;
mod tile;

#[cfg(doc)]
use super::scalar::{E4m3, E5m2};

pub use self::double::*;
pub use self::element::*;
pub use self::fragment::*;
pub use self::load::*;
pub use self::product::*;
pub use self::sums::*;
