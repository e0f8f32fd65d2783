//! Layout of weights in device memory.
//!
//! GGUF stores blocks of odd sizes (210 bytes for Q6_K), which vector loads cannot address. On the device, a matrix is
//! divided into *tiles* of 16 rows, and a tile into *blocks* of 32 to 256 columns. A block is a few contiguous
//! kilobytes, so that one bulk copy moves any run of blocks. Its bits are grouped such that each lane of a warp loads
//! its fragment of a tensor-core product from 16 consecutive bytes. The layout is a permutation of the file's bits
//! (with the top bit of Q6_K weights flipped): [`unpack`] restores the file's bytes.
//!
//! # Fragments
//!
//! `mma.m16n8k32` multiplies 16 rows by 32 columns of bytes (a *chunk*). Lane 4g + t holds four words: word r has
//! columns 16·(r / 2) + 4t to + 3 of row g + 8·(r mod 2) (PTX ISA, "Matrix Fragments for mma.m16n8k32"). The *fragment
//! array* of a chunk is 512 bytes: the four words of each lane, lane by lane.
//!
//! # Parts of a block
//!
//! | part | contents |
//! | --- | --- |
//! | `Bytes` (Q8_0) | the fragment arrays of the block's chunks |
//! | `Low` (4-, 5- and 6-bit types) | one fragment array per pair of chunks: the low four bits of the even chunk's weights in the low nibbles, those of the odd chunk in the high nibbles |
//! | `High1` (Q5) | per lane, one word for each pair of chunks; bit 8b + r (+ 4 for the odd chunk) is the fifth bit of byte b of word r |
//! | `High2` (Q6_K) | per four chunks and lane, one word for each chunk; bits 8b + 2r and 8b + 2r + 1 are the upper bits of byte b of word r, with the top one flipped: the weight minus 32 in two's complement |
//! | `Scale` (Q4_0, Q5_0, Q8_0) | per lane 4g + t: the f16 d of chunk t, of rows g and g + 8 |
//! | `Scale` (Q4_1, Q5_1) | the same, followed by the two m |
//! | `Scales6` (Q4_K, Q5_K) | the 12 bytes of scales and mins in three arrays: array p has, for lane 4g + t, byte 4p + t of rows g and g + 8 |
//! | `Scale` (Q4_K, Q5_K) | per g: the f16 d and dmin of row g, then of row g + 8 |
//! | `Scales8` (Q6_K) | per lane 4g + t: the signed scales t, t + 4, t + 8, t + 12 of row g, then of row g + 8 |
//! | `Scale` (Q6_K) | per g: the f16 d of rows g and g + 8 |
//! | `Floats` | 16 bytes per (p, half, lane 4g + t): the columns from p·4w + t·w on, of row g + 8·half, where w columns are 16 bytes |

mod layout;
mod repack;
mod words;

pub use layout::{BlockPart, Layout, TILE_ROWS, UnsupportedType, WeightType};
pub use repack::{repack, unpack};
