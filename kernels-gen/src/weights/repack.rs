//! Conversion between the file's blocks and the device's tiles.

use rayon::prelude::*;

use super::layout::{BlockPart, Layout, TILE_ROWS, WeightType};
use super::words::{Field, Row, fragment, pair, put_fragment, put_upper, q6_high, q6_low, upper};

/// Converts a matrix from the file's rows to tiles. `file` has `layout.file_bytes()` bytes, `out` `layout.bytes`. Runs
/// on all of rayon's threads.
///
/// # Panics
/// If `file` or `out` does not have that size.
pub fn repack(layout: &Layout, file: &[u8], out: &mut [u8]) {
    assert_eq!(file.len() as u64, layout.file_bytes(), "a matrix of the layout's size");
    assert_eq!(out.len() as u64, layout.bytes, "tiles of the layout's size");
    let row_bytes = layout.file_row_bytes();
    let rows = file.par_chunks(row_bytes * TILE_ROWS as usize);
    out.par_chunks_mut(layout.tile_bytes() as usize).zip(rows).for_each(|(tile, rows)| {
        // Padding is zeros, and the upper bits are added by `|=`.
        tile.fill(0);
        for (row, from) in rows.chunks_exact(row_bytes).enumerate() {
            pack_row(layout.ty, Row(row), from, tile);
        }
    });
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

/// Bytes of a fragment array: 16 rows × 32 columns of one byte each.
const FRAGMENTS: usize = 512;

/// Byte offsets of the parts (`BlockPart`) of a block of weights of this type.
#[derive(Clone, Copy)]
struct Parts(WeightType);

impl Parts {
    fn at(self, kind: BlockPart) -> usize {
        self.0.part(kind) as usize
    }

    /// Byte offset in a block of chunk `chunk`'s `High1` bits, and the layout of these bits.
    fn high1(self, chunk: usize) -> (usize, Field) {
        let stride = self.0.block_cols() as usize / 16;
        (self.at(BlockPart::High1) + chunk / 2 * 4, Field { width: 1, stride, shift: chunk % 2 * 4 })
    }

    /// Byte offset in a block of chunk `chunk`'s `High2` bits, and the layout of these bits.
    fn high2(self, chunk: usize) -> (usize, Field) {
        let at = self.at(BlockPart::High2) + chunk / 4 * FRAGMENTS + chunk % 4 * 4;
        (at, Field { width: 2, stride: 16, shift: 0 })
    }
}

/// Writes one row of the file into its tile.
fn pack_row(ty: WeightType, row: Row, file: &[u8], tile: &mut [u8]) {
    let blocks = tile.chunks_exact_mut(ty.block_bytes() as usize);
    let parts = Parts(ty);
    match ty {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
            // A block has 128 bytes of each row, for every float type.
            for (block, from) in blocks.zip(file.chunks(128)) {
                for (unit, bytes) in from.chunks(16).enumerate() {
                    let at = float_unit(row, unit);
                    block[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        WeightType::Q8_0 => {
            for (block, from) in blocks.zip(file.chunks(4 * 34)) {
                for (chunk, from) in from.chunks_exact(34).enumerate() {
                    put_fragment(&mut block[chunk * FRAGMENTS..], row, &from[2..]);
                    put_scales(block, parts, row, chunk, &from[..2]);
                }
            }
        }
        WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q5_1 => {
            let simple = Simple::of(ty);
            for (block, from) in blocks.zip(file.chunks(4 * simple.bytes())) {
                let mut codes = [[0u8; 32]; 4];
                for (chunk, from) in from.chunks_exact(simple.bytes()).enumerate() {
                    let (scale, high, low) = simple.parts(from);
                    codes[chunk] = std::array::from_fn(|k| low[k % 16] >> (k / 16 * 4) & 15);
                    put_scales(block, parts, row, chunk, scale);
                    if !high.is_empty() {
                        let bits: [u8; 32] = std::array::from_fn(|k| high[k / 8] >> (k % 8) & 1);
                        let (at, field) = parts.high1(chunk);
                        put_upper(&mut block[at..], row, &bits, field);
                    }
                }
                for (index, two) in codes.chunks_exact(2).enumerate() {
                    put_fragment(&mut block[index * FRAGMENTS..], row, &pair(&two[0], &two[1]));
                }
            }
        }
        WeightType::Q4_K | WeightType::Q5_K => {
            let five = ty == WeightType::Q5_K;
            for (block, from) in blocks.zip(file.chunks_exact(if five { 176 } else { 144 })) {
                let scale = parts.at(BlockPart::Scale) + row.group() * 8 + row.half() * 4;
                block[scale..scale + 4].copy_from_slice(&from[..4]);
                for (index, &byte) in from[4..16].iter().enumerate() {
                    block[scales6(parts, row, index)] = byte;
                }
                let (high, nibbles) = from[16..].split_at(if five { 32 } else { 0 });
                // The file pairs the nibbles of two chunks in the same way as the fragments.
                for (index, bytes) in nibbles.chunks_exact(32).enumerate() {
                    put_fragment(&mut block[index * FRAGMENTS..], row, bytes);
                }
                for chunk in 0..if five { 8 } else { 0 } {
                    let bits: [u8; 32] = std::array::from_fn(|k| high[k] >> chunk & 1);
                    let (at, field) = parts.high1(chunk);
                    put_upper(&mut block[at..], row, &bits, field);
                }
            }
        }
        WeightType::Q6_K => {
            for (block, from) in blocks.zip(file.chunks_exact(210)) {
                for (index, &byte) in from[192..208].iter().enumerate() {
                    block[scales8(parts, row, index)] = byte;
                }
                let scale = parts.at(BlockPart::Scale) + row.group() * 4 + row.half() * 2;
                block[scale..scale + 2].copy_from_slice(&from[208..]);
                let mut codes = [[0u8; 32]; 8];
                for (chunk, codes) in codes.iter_mut().enumerate() {
                    let ((low, low_shift), (high, high_shift)) = (q6_low(chunk), q6_high(chunk));
                    *codes = std::array::from_fn(|k| from[low + k] >> low_shift & 15);
                    let upper: [u8; 32] = std::array::from_fn(|k| from[128 + high + k] >> high_shift & 3 ^ 2);
                    let (at, field) = parts.high2(chunk);
                    put_upper(&mut block[at..], row, &upper, field);
                }
                for (index, two) in codes.chunks_exact(2).enumerate() {
                    put_fragment(&mut block[index * FRAGMENTS..], row, &pair(&two[0], &two[1]));
                }
            }
        }
    }
}

/// Reads one row of the file back from its tile.
fn unpack_row(ty: WeightType, row: Row, tile: &[u8], file: &mut [u8]) {
    let blocks = tile.chunks_exact(ty.block_bytes() as usize);
    let parts = Parts(ty);
    let nibbles = |block: &[u8], chunk: usize| {
        fragment(&block[chunk / 2 * FRAGMENTS..], row).map(|byte| byte >> (chunk % 2 * 4) & 15)
    };
    let fifth = |block: &[u8], chunk: usize| {
        let (at, field) = parts.high1(chunk);
        upper(&block[at..], row, field)
    };
    match ty {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
            for (block, to) in blocks.zip(file.chunks_mut(128)) {
                for (unit, bytes) in to.chunks_mut(16).enumerate() {
                    bytes.copy_from_slice(&block[float_unit(row, unit)..][..bytes.len()]);
                }
            }
        }
        WeightType::Q8_0 => {
            for (block, to) in blocks.zip(file.chunks_mut(4 * 34)) {
                for (chunk, to) in to.chunks_exact_mut(34).enumerate() {
                    scales(block, parts, row, chunk, &mut to[..2]);
                    to[2..].copy_from_slice(&fragment(&block[chunk * FRAGMENTS..], row));
                }
            }
        }
        WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q5_1 => {
            let simple = Simple::of(ty);
            for (block, to) in blocks.zip(file.chunks_mut(4 * simple.bytes())) {
                for (chunk, to) in to.chunks_exact_mut(simple.bytes()).enumerate() {
                    let (scale, rest) = to.split_at_mut(simple.scale);
                    let (high, low) = rest.split_at_mut(simple.high);
                    scales(block, parts, row, chunk, scale);
                    let codes = nibbles(block, chunk);
                    low.iter_mut().enumerate().for_each(|(k, byte)| *byte = codes[k] | codes[k + 16] << 4);
                    if !high.is_empty() {
                        high.fill(0);
                        for (k, bit) in fifth(block, chunk).into_iter().enumerate() {
                            high[k / 8] |= bit << (k % 8);
                        }
                    }
                }
            }
        }
        WeightType::Q4_K | WeightType::Q5_K => {
            let five = ty == WeightType::Q5_K;
            for (block, to) in blocks.zip(file.chunks_exact_mut(if five { 176 } else { 144 })) {
                let scale = parts.at(BlockPart::Scale) + row.group() * 8 + row.half() * 4;
                to[..4].copy_from_slice(&block[scale..scale + 4]);
                for (index, byte) in to[4..16].iter_mut().enumerate() {
                    *byte = block[scales6(parts, row, index)];
                }
                let (high, low) = to[16..].split_at_mut(if five { 32 } else { 0 });
                for (index, bytes) in low.chunks_exact_mut(32).enumerate() {
                    bytes.copy_from_slice(&fragment(&block[index * FRAGMENTS..], row));
                }
                high.fill(0);
                for chunk in 0..if five { 8 } else { 0 } {
                    let bits = fifth(block, chunk);
                    high.iter_mut().zip(bits).for_each(|(byte, bit)| *byte |= bit << chunk);
                }
            }
        }
        WeightType::Q6_K => {
            for (block, to) in blocks.zip(file.chunks_exact_mut(210)) {
                to.fill(0);
                for (index, byte) in to[192..208].iter_mut().enumerate() {
                    *byte = block[scales8(parts, row, index)];
                }
                let scale = parts.at(BlockPart::Scale) + row.group() * 4 + row.half() * 2;
                to[208..].copy_from_slice(&block[scale..scale + 2]);
                for chunk in 0..8 {
                    let ((low, low_shift), (high, high_shift)) = (q6_low(chunk), q6_high(chunk));
                    let (at, field) = parts.high2(chunk);
                    let (codes, upper) = (nibbles(block, chunk), upper(&block[at..], row, field));
                    for k in 0..32 {
                        to[low + k] |= codes[k] << low_shift;
                        to[128 + high + k] |= (upper[k] ^ 2) << high_shift;
                    }
                }
            }
        }
    }
}

/// Byte offset in a block of floats of the row's 16-byte unit `unit`, 0 to 7.
fn float_unit(row: Row, unit: usize) -> usize {
    (unit / 4 * 2 + row.half()) * FRAGMENTS + row.of_lane(unit % 4, 16)
}

/// Byte offset in a block of byte `index` of the row's 12 bytes of scales and mins.
fn scales6(parts: Parts, row: Row, index: usize) -> usize {
    parts.at(BlockPart::Scales6) + index / 4 * 64 + row.of_lane(index % 4, 2) + row.half()
}

/// Byte offset in a block of the row's signed scale `index`, for Q6_K.
fn scales8(parts: Parts, row: Row, index: usize) -> usize {
    parts.at(BlockPart::Scales8) + row.of_lane(index % 4, 8) + row.half() * 4 + index / 4
}

/// Byte offset in a block of f16 `index` of the `count` f16 that the row's chunk `chunk` has as scales.
fn scale_at(parts: Parts, row: Row, chunk: usize, (index, count): (usize, usize)) -> usize {
    parts.at(BlockPart::Scale) + row.of_lane(chunk, 4 * count) + index * 4 + row.half() * 2
}

/// Writes the f16 scales of a row's chunk.
fn put_scales(block: &mut [u8], parts: Parts, row: Row, chunk: usize, from: &[u8]) {
    let count = from.len() / 2;
    for (index, half) in from.chunks_exact(2).enumerate() {
        block[scale_at(parts, row, chunk, (index, count))..][..2].copy_from_slice(half);
    }
}

/// Reads the f16 scales of a row's chunk.
fn scales(block: &[u8], parts: Parts, row: Row, chunk: usize, to: &mut [u8]) {
    let count = to.len() / 2;
    for (index, half) in to.chunks_exact_mut(2).enumerate() {
        half.copy_from_slice(&block[scale_at(parts, row, chunk, (index, count))..][..2]);
    }
}

/// Sizes in the file's blocks of Q4_0, Q4_1, Q5_0 and Q5_1: scales, then fifth bits, then 16 bytes of nibbles.
struct Simple {
    scale: usize,
    high: usize,
}

impl Simple {
    fn of(ty: WeightType) -> Simple {
        let with_min = matches!(ty, WeightType::Q4_1 | WeightType::Q5_1);
        let five = matches!(ty, WeightType::Q5_0 | WeightType::Q5_1);
        Simple { scale: if with_min { 4 } else { 2 }, high: if five { 4 } else { 0 } }
    }

    fn bytes(&self) -> usize {
        self.scale + self.high + 16
    }

    fn parts<'a>(&self, block: &'a [u8]) -> (&'a [u8], &'a [u8], &'a [u8]) {
        let (scale, rest) = block.split_at(self.scale);
        let (high, low) = rest.split_at(self.high);
        (scale, high, low)
    }
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
            for (rows, cols) in [(1, 256), (3, 512), (130, 768)] {
                assert!(round_trip(Layout::new(ty, rows, cols).unwrap()), "{ty} {rows}x{cols}");
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
