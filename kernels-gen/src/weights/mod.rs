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
//! The table in `format.rs` has a row for each type: its parts, where they are in the file's block, and what codes and
//! scales mean. The parts are
//!
//! | part | contents |
//! | --- | --- |
//! | `Bytes` | the fragment arrays of the block's chunks |
//! | `Low` | one fragment array per pair of chunks: the low four bits of the even chunk's weights in the low nibbles, those of the odd chunk in the high nibbles |
//! | `Low2` | one fragment array per four chunks: bits 2c and 2c + 1 of a byte are the low two bits of chunk c's weight |
//! | `Index` | one fragment array per pair of chunks: nibble b of a word's low half is byte b of the even chunk's word, nibble b of the high half that of the odd chunk, so that a half is a selector of `prmt` |
//! | `High1` | per lane, one word for each pair of chunks; bit 8b + r (+ 4 for the odd chunk) is the bit of byte b of word r |
//! | `High2` | per four chunks and lane, one word for each chunk; bits 8b + 2r and 8b + 2r + 1 are the upper bits of byte b of word r, with the top one flipped: the weight minus 32 in two's complement |
//! | `Scale` | per lane 4g + t: the f16 d of chunk t, of rows g and g + 8; then the two m if the type has offsets. MXFP4: the exponents of chunk t, a byte each |
//! | `Scales6` | the 12 bytes of scales in three arrays: array p has, for lane 4g + t, byte 4p + t of rows g and g + 8 |
//! | `Scales8` | per lane 4g + t: bytes t, t + 4, t + 8, t + 12 of row g, then of row g + 8 |
//! | `Head` | per g: the superblock's f16 d, and what else it has once, of row g, then of row g + 8 |
//! | `Floats` | 16 bytes per (p, half, lane 4g + t): the columns from p·4w + t·w on, of row g + 8·half, where w columns are 16 bytes |

mod format;
mod layout;
mod repack;
mod words;

pub use format::{BlockPart, WeightType};
pub(crate) use format::{Codes, Scales};
pub use layout::{Layout, TILE_ROWS, UnsupportedType};
pub use repack::{FileRows, repack, repack_tiles, unpack};
