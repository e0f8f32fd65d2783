//! How weights lie in device memory.
//!
//! GGUF's blocks are records of odd sizes (a Q6_K block has 210 bytes), which no wide load can address. For the
//! device each matrix is cut into *tiles* of 16 rows, and a tile into *blocks* of 32 to 256 columns. A block is a
//! few kilobytes in one piece, so that any run of blocks is one bulk copy, and within it the bits are regrouped such
//! that a lane of a warp finds in consecutive 16 bytes what the tensor cores want it to hold. Nothing is computed:
//! the same bits, permuted (and the top bit of Q6_K's weights flipped), so that [`unpack`] gives back the file's
//! bytes.
//!
//! # Fragments
//!
//! `mma.m16n8k32` multiplies 16 rows by 32 columns of bytes (a *chunk*). Lane 4g + t holds four words of them: word
//! r has columns 16·(r / 2) + 4t to + 3 of row g + 8·(r mod 2) (PTX ISA, "Matrix Fragments for mma.m16n8k32"). A
//! *fragment array* has for each chunk 512 bytes: lane by lane its four words.
//!
//! # Parts of a block
//!
//! | part | contents |
//! | --- | --- |
//! | `Bytes` (Q8_0) | the fragment arrays of the block's chunks |
//! | `Low` (4-, 5- and 6-bit types) | fragment arrays for pairs of chunks: low nibbles are the low four bits of the even chunk's weights, high nibbles those of the odd one |
//! | `High1` (Q5) | lane by lane a word for each pair of chunks; bit 8b + r (+ 4 for the odd chunk) is the fifth bit of byte b of word r |
//! | `High2` (Q6_K) | for each four chunks lane by lane a word for each chunk; bits 8b + 2r and 8b + 2r + 1 are the upper bits of byte b of word r, the top one flipped: the weight minus 32 in two's complement |
//! | `Scale` (Q4_0, Q5_0, Q8_0) | for lane 4g + t the f16 d of chunk t of rows g and g + 8 |
//! | `Scale` (Q4_1, Q5_1) | the same, followed by the two m |
//! | `Scales6` (Q4_K, Q5_K) | of the 12 bytes of scales and mins three arrays: array p has for lane 4g + t byte 4p + t of rows g and g + 8 |
//! | `Scale` (Q4_K, Q5_K) | for each g the f16 d and dmin of row g, then of row g + 8 |
//! | `Scales8` (Q6_K) | for lane 4g + t the signed scales t, t + 4, t + 8, t + 12 of row g, then of row g + 8 |
//! | `Scale` (Q6_K) | for each g the f16 d of rows g and g + 8 |
//! | `Floats` | 16 bytes for each (p, half, lane 4g + t): the columns from p · 4w + t · w, w = 16 bytes' worth, of row g + 8·half |

mod layout;
mod repack;
mod words;

pub use layout::{Layout, PartKind, TILE_ROWS, UnsupportedType, WeightType};
pub use repack::{repack, unpack};
