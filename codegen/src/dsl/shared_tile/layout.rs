//! Layouts of tiles in shared memory, as types.

use crate::ir::Swizzle;

/// A layout of tiles in shared memory, as a type: [`Unswizzled`], [`Padded`], or a swizzle.
///
/// Shared memory has 32 banks of 4 bytes, and delivers one word of each bank at a time. In an unswizzled tile whose rows have
/// 128 bytes, all elements of a column are in one bank: a warp that reads a column takes 32 times as long as for a row. Padding
/// and swizzles put the rows of a column into different banks.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layout of a tile",
    label = "expected `Unswizzled`, `Padded<BYTES>`, `Swizzle32`, `Swizzle64` or `Swizzle128`"
)]
pub trait TileLayout: Copy + 'static {
    /// The swizzle.
    const SWIZZLE: Swizzle;
    /// Unused bytes after each row.
    const PADDING: u32;
}

/// A layout that tensor maps have, too: [`Unswizzled`], [`Swizzle32`], [`Swizzle64`] or [`Swizzle128`].
#[diagnostic::on_unimplemented(
    message = "a tensor map has no tiles with the layout `{Self}`",
    label = "expected `Unswizzled`, `Swizzle32`, `Swizzle64` or `Swizzle128`"
)]
pub trait TileSwizzle: TileLayout {}

macro_rules! swizzles {
    ($($(#[$doc:meta])* $name:ident: $swizzle:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl TileLayout for $name {
            const SWIZZLE: Swizzle = Swizzle::$swizzle;
            const PADDING: u32 = 0;
        }

        impl TileSwizzle for $name {}
    )* };
}
swizzles! {
    /// No swizzle: the rows of a tile follow each other. Tiles are aligned to 128 bytes.
    Unswizzled: None;
    /// Swizzle of 32 bytes: rows of a tile have up to 32 bytes. Tiles are aligned to 256 bytes.
    Swizzle32: Bytes32;
    /// Swizzle of 64 bytes: rows of a tile have up to 64 bytes. Tiles are aligned to 512 bytes.
    Swizzle64: Bytes64;
    /// Swizzle of 128 bytes: rows of a tile have up to 128 bytes, and without a tensor map also multiples of 128. Tiles are
    /// aligned to 1024 bytes.
    Swizzle128: Bytes128;
}

/// Rows that are followed by `BYTES` unused bytes. Tiles are aligned to 128 bytes.
///
/// Rows are in different banks if a row with its padding is an odd multiple of the bytes that a lane accesses: of 4 bytes for
/// words, of 16 bytes for vectors and `ldmatrix`.
#[derive(Clone, Copy, Debug)]
pub struct Padded<const BYTES: u32>;

impl<const BYTES: u32> TileLayout for Padded<BYTES> {
    const SWIZZLE: Swizzle = Swizzle::None;
    const PADDING: u32 = BYTES;
}
