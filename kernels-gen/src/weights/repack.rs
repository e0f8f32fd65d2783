//! Conversion between the file's blocks and the device's tiles.

use std::convert::Infallible;
use std::ops::Range;

use rayon::prelude::*;

use super::format::{BlockPart, Part, WeightType};
use super::layout::{Layout, TILE_ROWS};
use super::words::{FRAGMENTS, Row, codes, fragment, put_codes, put_fragment, put_high2};

/// A matrix as the file's rows, read piece by piece from several threads.
pub trait FileRows: Sync {
    /// Error of reading.
    type Error: Send;

    /// The bytes of a range of the matrix, which may be read into `buffer`.
    fn read<'a>(&'a self, range: Range<u64>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Self::Error>;
}

impl FileRows for [u8] {
    type Error = Infallible;

    fn read<'a>(&'a self, range: Range<u64>, _: &'a mut Vec<u8>) -> Result<&'a [u8], Infallible> {
        Ok(&self[range.start as usize..range.end as usize])
    }
}

/// Bytes of the file that a thread reads at once, if a tile has fewer: enough that the cost of a read does not matter, and
/// few enough that they stay in the thread's cache.
const READ_BYTES: usize = 128 << 10;

/// Converts a matrix from the file's rows to tiles. `file` has `layout.file_bytes()` bytes, `out` `layout.bytes`. Runs
/// on all of rayon's threads.
///
/// # Panics
/// If `file` or `out` does not have that size.
pub fn repack(layout: &Layout, file: &[u8], out: &mut [u8]) {
    assert_eq!(file.len() as u64, layout.file_bytes(), "a matrix of the layout's size");
    match repack_tiles(layout, 0..layout.tiles, file, out) {
        Ok(()) => {}
    }
}

/// Converts the rows of a range of tiles as [`repack`] does. `file` has the whole matrix, of `layout.file_bytes()` bytes; each
/// byte of these rows is read once.
///
/// # Errors
/// The error of `file` at the lowest range.
///
/// # Panics
/// If `out` does not have the size of the tiles.
pub fn repack_tiles<F: FileRows + ?Sized>(
    layout: &Layout,
    tiles: Range<u32>,
    file: &F,
    out: &mut [u8],
) -> Result<(), F::Error> {
    let (row_bytes, tile_bytes) = (layout.file_row_bytes(), layout.tile_bytes() as usize);
    assert_eq!(out.len(), tiles.len() * tile_bytes, "the size of the tiles");
    let from_bytes = row_bytes * TILE_ROWS as usize;
    let first = u64::from(tiles.start) * from_bytes as u64;
    let at_once = (READ_BYTES / from_bytes.max(1)).max(1);
    let convert = |buffer: &mut Vec<u8>, (index, to): (usize, &mut [u8])| {
        let start = first + (index * at_once * from_bytes) as u64;
        let end = layout.file_bytes().min(start + (to.len() / tile_bytes * from_bytes) as u64);
        let from = file.read(start..end, buffer)?;
        for (tile, rows) in to.chunks_mut(tile_bytes).zip(from.chunks(from_bytes)) {
            // Padding is zeros, and the upper bits are added by `|=`.
            tile.fill(0);
            for (row, from) in rows.chunks_exact(row_bytes).enumerate() {
                pack_row(layout.ty, Row(row), from, tile);
            }
        }
        Ok(())
    };
    let results = out.par_chunks_mut(at_once * tile_bytes).enumerate().map_init(Vec::new, convert);
    results.find_map_first(Result::err).map_or(Ok(()), Err)
}

/// Converts tiles back to the file's rows: the inverse of [`repack`].
///
/// # Panics
/// If `tiles` or `file` does not have the size of `layout`.
pub fn unpack(layout: &Layout, tiles: &[u8], file: &mut [u8]) {
    assert_eq!(file.len() as u64, layout.file_bytes(), "a matrix of the layout's size");
    assert_eq!(tiles.len() as u64, layout.bytes, "tiles of the layout's size");
    let row_bytes = layout.file_row_bytes();
    let rows = file.par_chunks_mut(row_bytes * TILE_ROWS as usize);
    tiles.par_chunks(layout.tile_bytes() as usize).zip(rows).for_each(|(tile, rows)| {
        for (row, to) in rows.chunks_exact_mut(row_bytes).enumerate() {
            unpack_row(layout.ty, Row(row), tile, to);
        }
    });
}

/// Writes one row of the file into its tile, whose bits are zero.
fn pack_row(ty: WeightType, row: Row, file: &[u8], tile: &mut [u8]) {
    let blocks = tile.chunks_exact_mut(ty.block_bytes() as usize);
    if !ty.is_quantised() {
        for (block, from) in blocks.zip(file.chunks(FLOAT_BYTES)) {
            for (unit, bytes) in from.chunks(16).enumerate() {
                let at = float_unit(row, unit);
                block[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        return;
    }
    let of_file = FileBlock::of(ty);
    let parts: Vec<_> = ty.parts().collect();
    for (block, from) in blocks.zip(file.chunks(of_file.bytes * of_file.count)) {
        for (part, range) in &parts {
            let to = &mut block[range.clone()];
            for (index, from) in from.chunks_exact(of_file.bytes).enumerate() {
                let from = &from[part.file.clone()];
                if part.is_fragments() {
                    let arrays = to[index * from.len() * TILE_ROWS as usize..].chunks_exact_mut(FRAGMENTS);
                    let rows = from
                        .as_chunks::<32>()
                        .0
                        .iter()
                        .enumerate()
                        .map(|(i, row)| if part.exchanges_nibbles() { exchanged(from, i) } else { *row });
                    arrays.zip(rows).for_each(|(to, from)| put_fragment(to, row, &from));
                    continue;
                }
                if part.kind == BlockPart::High2 {
                    let arrays = to[index * from.len() * TILE_ROWS as usize..].chunks_exact_mut(FRAGMENTS);
                    arrays.zip(from.as_chunks::<32>().0).for_each(|(to, from)| put_high2(to, row, from));
                    continue;
                }
                let Some(order) = part.order else {
                    for_scales(part, row, index, |i, at, size| {
                        copy_few(&mut to[at..at + size], &from[i..i + size])
                    });
                    continue;
                };
                for chunk in 0..of_file.chunks {
                    let codes = order.read(from, chunk, part.kind.width());
                    put_codes(part.kind, to, row, index * of_file.chunks + chunk, codes);
                }
            }
        }
    }
}

/// Reads one row of the file back from its tile.
fn unpack_row(ty: WeightType, row: Row, tile: &[u8], file: &mut [u8]) {
    let blocks = tile.chunks_exact(ty.block_bytes() as usize);
    if !ty.is_quantised() {
        for (block, to) in blocks.zip(file.chunks_mut(FLOAT_BYTES)) {
            for (unit, bytes) in to.chunks_mut(16).enumerate() {
                bytes.copy_from_slice(&block[float_unit(row, unit)..][..bytes.len()]);
            }
        }
        return;
    }
    file.fill(0);
    let of_file = FileBlock::of(ty);
    let parts: Vec<_> = ty.parts().collect();
    for (block, to) in blocks.zip(file.chunks_mut(of_file.bytes * of_file.count)) {
        for (part, range) in &parts {
            let from = &block[range.clone()];
            for (index, to) in to.chunks_exact_mut(of_file.bytes).enumerate() {
                let to = &mut to[part.file.clone()];
                if part.is_fragments() {
                    let arrays = from[index * to.len() * TILE_ROWS as usize..].chunks_exact(FRAGMENTS);
                    arrays.zip(to.chunks_exact_mut(32)).for_each(|(from, to)| fragment(from, row, to));
                    if part.exchanges_nibbles() {
                        let rows: Vec<[u8; 32]> = (0..to.len() / 32).map(|i| exchanged(to, i)).collect();
                        to.copy_from_slice(rows.as_flattened());
                    }
                    continue;
                }
                let Some(order) = part.order else {
                    for_scales(part, row, index, |i, at, size| {
                        copy_few(&mut to[i..i + size], &from[at..at + size])
                    });
                    continue;
                };
                for chunk in 0..of_file.chunks {
                    let codes = codes(part.kind, from, row, index * of_file.chunks + chunk);
                    order.write(codes, to, chunk, part.kind.width());
                }
            }
        }
    }
}

/// Size of the file's blocks of a type, and how many of them a block on the device has.
struct FileBlock {
    bytes: usize,
    chunks: usize,
    count: usize,
}

impl FileBlock {
    fn of(ty: WeightType) -> FileBlock {
        let (bytes, elements) = (ty.ggml().block_bytes(), ty.ggml().block_elements());
        FileBlock { bytes, chunks: elements / 32, count: ty.block_cols() as usize / elements }
    }
}

/// Bytes of a row in a block of floats.
const FLOAT_BYTES: usize = 128;

/// Byte offset in a block of floats of the row's 16-byte unit `unit`, 0 to 7.
fn float_unit(row: Row, unit: usize) -> usize {
    (unit / 4 * 2 + row.half()) * FRAGMENTS + row.of_lane(unit % 4, 16)
}

/// Calls `copy` for the row's bytes of the file's block `index` of the device's block, in a part with scales: their offset
/// in the file's part, their offset in the device's part, and how many there are.
#[inline(always)]
fn for_scales(part: &Part, row: Row, index: usize, mut copy: impl FnMut(usize, usize, usize)) {
    let bytes = part.file.len();
    match part.kind {
        BlockPart::Scale if bytes == 1 => copy(0, row.of_lane(index, 2) + row.half(), 1),
        BlockPart::Scale => {
            for i in (0..bytes).step_by(2) {
                copy(i, row.of_lane(index, 2 * bytes) + i * 2 + row.half() * 2, 2);
            }
        }
        BlockPart::Scales6 => {
            for i in 0..bytes {
                copy(i, i / 4 * 64 + row.of_lane(i % 4, 2) + row.half(), 1);
            }
        }
        BlockPart::Scales8 => {
            for i in 0..bytes {
                copy(i, row.of_lane(i % 4, 8) + row.half() * 4 + i / 4, 1);
            }
        }
        BlockPart::Head => copy(0, (row.group() * 2 + row.half()) * bytes, bytes),
        codes => unreachable!("{codes:?} has codes"),
    }
}

/// Row `index` of 32 bytes, of pairs of rows whose inner nibbles are exchanged: the high ones of the first with the low ones
/// of the second. It is its own inverse.
#[inline(always)]
fn exchanged(bytes: &[u8], index: usize) -> [u8; 32] {
    let rows = bytes.as_chunks::<32>().0;
    let (first, second) = (&rows[index / 2 * 2], &rows[index / 2 * 2 + 1]);
    std::array::from_fn(|i| match index % 2 {
        0 => first[i] & 0x0F | second[i] << 4,
        _ => first[i] >> 4 | second[i] & 0xF0,
    })
}

/// Copies a few bytes by an inlined loop, since a call of `memcpy` would take longer.
#[inline(always)]
fn copy_few(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        (0..bytes)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    fn round_trip(layout: Layout) -> bool {
        let file = noise(layout.file_bytes() as usize);
        let mut tiles = vec![0xAA; layout.bytes as usize];
        repack(&layout, &file, &mut tiles);
        let mut back = vec![0x55; file.len()];
        unpack(&layout, &tiles, &mut back);
        back == file
    }

    #[test]
    fn unpacking_gives_the_files_bytes_back() {
        for ty in WeightType::ALL {
            let block = ty.ggml().block_elements() as u32;
            for (rows, cols) in [(1, block), (3, 512), (130, 768), (17, 576), (16, 896), (2, 1536), (5, 4864)]
            {
                match Layout::new(ty, rows, cols) {
                    Some(layout) => assert!(round_trip(layout), "{ty} {rows}x{cols}"),
                    None => assert!(!cols.is_multiple_of(block), "{ty} {rows}x{cols}"),
                }
            }
        }
    }

    #[test]
    fn tiles_are_repacked_in_parts() {
        for (ty, rows) in [(WeightType::Q4_K, 70), (WeightType::F16, 33)] {
            let layout = Layout::new(ty, rows, 512).unwrap();
            let file = noise(layout.file_bytes() as usize);
            let mut whole = vec![0xAA; layout.bytes as usize];
            repack(&layout, &file, &mut whole);
            let mut parts = vec![0xAA; whole.len()];
            for (first, part) in (0..).step_by(2).zip(parts.chunks_mut(2 * layout.tile_bytes() as usize)) {
                let tiles = first..layout.tiles.min(first + 2);
                let Ok(()) = repack_tiles(&layout, tiles, file.as_slice(), part);
            }
            assert!(whole == parts, "{ty}");
        }
    }

    /// No two bits of a row share a place: a single bit of the file is a single bit on the device. The flipped bits of
    /// Q6_K cancel.
    #[test]
    fn every_bit_of_the_file_has_its_own_place() {
        for ty in WeightType::ALL.into_iter().filter(|ty| ty.is_quantised()) {
            let layout = Layout::new(ty, 1, ty.block_cols()).unwrap();
            let (mut file, mut zero) =
                (vec![0; layout.file_bytes() as usize], vec![0; layout.bytes as usize]);
            repack(&layout, &file, &mut zero);
            let mut seen = vec![0; zero.len()];
            for bit in 0..file.len() * 8 {
                file[bit / 8] = 1 << (bit % 8);
                let mut tiles = vec![0; zero.len()];
                repack(&layout, &file, &mut tiles);
                file[bit / 8] = 0;
                tiles.iter_mut().zip(&zero).for_each(|(byte, zero)| *byte ^= zero);
                assert_eq!(tiles.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1, "{ty} bit {bit}");
                assert!(seen.iter().zip(&tiles).all(|(seen, byte)| seen & byte == 0), "{ty} bit {bit}");
                seen.iter_mut().zip(&tiles).for_each(|(seen, byte)| *seen |= byte);
            }
        }
    }

    #[test]
    fn tiles_hold_no_more_than_the_file() {
        for ty in WeightType::ALL {
            let layout = Layout::new(ty, 64, 1024).unwrap();
            assert_eq!(layout.bytes, layout.file_bytes(), "{ty}");
            assert!(ty.block_bytes().is_multiple_of(16), "{ty}: bulk copies need multiples of 16 bytes");
        }
    }

    #[test]
    fn rows_and_columns_that_fill_no_tile_are_padded_with_zeros() {
        let layout = Layout::new(WeightType::F16, 3, 333).unwrap();
        assert_eq!((layout.tiles, layout.blocks), (1, 6));
        assert!(round_trip(layout));
        assert!(round_trip(Layout::new(WeightType::Q8_0, 17, 96).unwrap()));
        assert!(Layout::new(WeightType::Q4_K, 3, 333).is_none());
        let layout = Layout::new(WeightType::Q8_0, 1, 32).unwrap();
        let mut tiles = vec![0xAA; layout.bytes as usize];
        repack(&layout, &[0xFF; 34], &mut tiles);
        assert_eq!(tiles.iter().filter(|&&byte| byte == 0xFF).count(), 34);
        assert_eq!(tiles.iter().filter(|&&byte| byte == 0).count(), tiles.len() - 34);
    }
}
