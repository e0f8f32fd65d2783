//! From the file's blocks to planes and back.

use rayon::prelude::*;

use super::bits;
use super::layout::{Layout, Plane, PlaneKind, WeightType};

/// Rows that one task repacks.
const ROWS_PER_TASK: usize = 64;

/// Writes the planes of a matrix, given as the file's rows, into `out` (`layout.bytes` long; bytes between planes
/// are zeroed). Runs on all of rayon's threads.
///
/// # Panics
/// If `file` or `out` has not the size that the layout gives.
pub fn repack(layout: &Layout, file: &[u8], out: &mut [u8]) {
    let row_bytes = layout.file_row_bytes();
    assert_eq!(file.len(), row_bytes * layout.rows as usize, "a matrix of the layout's size");
    assert_eq!(out.len() as u64, layout.bytes, "planes of the layout's size");
    let mut planes = split(layout, out);
    let tasks = row_tasks(layout, &mut planes);
    tasks.into_par_iter().for_each(|(first, mut rows)| {
        for index in 0..rows.count {
            let from = &file[(first + index) * row_bytes..][..row_bytes];
            pack_row(layout, from, &mut rows, index);
        }
    });
}

/// Gives the file's bytes back from planes: the inverse of [`repack`].
///
/// # Panics
/// As [`repack`].
pub fn unpack(layout: &Layout, planes: &[u8], file: &mut [u8]) {
    let row_bytes = layout.file_row_bytes();
    assert_eq!(file.len(), row_bytes * layout.rows as usize, "a matrix of the layout's size");
    assert_eq!(planes.len() as u64, layout.bytes, "planes of the layout's size");
    file.par_chunks_mut(row_bytes).enumerate().for_each(|(row, out)| {
        let plane = |kind| {
            let plane = layout.plane(kind);
            let bytes = plane.row_bytes as usize;
            &planes[plane.offset as usize + row * bytes..][..bytes]
        };
        unpack_row(layout, plane, out);
    });
}

/// Some consecutive rows of every plane.
struct Rows<'a> {
    count: usize,
    planes: Vec<(Plane, &'a mut [u8])>,
}

impl Rows<'_> {
    fn row(&mut self, kind: PlaneKind, index: usize) -> &mut [u8] {
        let (plane, bytes) = self
            .planes
            .iter_mut()
            .find(|(plane, _)| plane.kind == kind)
            .expect("the weight type has this plane");
        let size = plane.row_bytes as usize;
        &mut bytes[index * size..][..size]
    }
}

/// The planes' bytes, with the padding after each zeroed and dropped.
fn split<'a>(layout: &Layout, out: &'a mut [u8]) -> Vec<(Plane, &'a mut [u8])> {
    let mut rest = out;
    let mut taken = 0;
    let mut planes = Vec::new();
    for (index, &plane) in layout.planes.iter().enumerate() {
        let end = layout.planes.get(index + 1).map_or(layout.bytes, |next| next.offset);
        let (bytes, tail) = rest.split_at_mut((end - taken) as usize);
        (rest, taken) = (tail, end);
        let (bytes, padding) = bytes.split_at_mut(plane.row_bytes as usize * layout.rows as usize);
        padding.fill(0);
        planes.push((plane, bytes));
    }
    planes
}

fn row_tasks<'a>(layout: &Layout, planes: &'a mut [(Plane, &mut [u8])]) -> Vec<(usize, Rows<'a>)> {
    let rows = layout.rows as usize;
    let mut tasks: Vec<(usize, Rows<'a>)> = (0..rows)
        .step_by(ROWS_PER_TASK)
        .map(|first| (first, Rows { count: ROWS_PER_TASK.min(rows - first), planes: Vec::new() }))
        .collect();
    for (plane, bytes) in planes {
        let size = plane.row_bytes as usize * ROWS_PER_TASK;
        for (task, part) in tasks.iter_mut().zip(bytes.chunks_mut(size)) {
            task.1.planes.push((*plane, part));
        }
    }
    tasks
}

fn pack_row(layout: &Layout, file: &[u8], rows: &mut Rows<'_>, row: usize) {
    use PlaneKind::*;
    match layout.ty {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
            let out = rows.row(Floats, row);
            out[..file.len()].copy_from_slice(file);
            out[file.len()..].fill(0);
        }
        WeightType::Q8_0 => {
            for (chunk, block) in file.chunks_exact(34).enumerate() {
                rows.row(Scale, row)[chunk * 2..][..2].copy_from_slice(&block[..2]);
                rows.row(Bytes, row)[chunk * 32..][..32].copy_from_slice(&block[2..]);
            }
        }
        WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q5_1 => {
            let simple = Simple::of(layout.ty);
            for (chunk, block) in file.chunks_exact(simple.bytes()).enumerate() {
                let (scale, high, low) = simple.parts(block);
                rows.row(Scale, row)[chunk * simple.scale..][..simple.scale].copy_from_slice(scale);
                // The file's nibbles already are in the plane's order.
                rows.row(Low, row)[chunk * 16..][..16].copy_from_slice(low);
                if let Ok(high) = <[u8; 4]>::try_from(high) {
                    let word = u32::from_le_bytes(high);
                    let weights: [u8; 32] = std::array::from_fn(|i| ((word >> i & 1) as u8) << 4);
                    rows.row(High1, row)[chunk * 4..][..4]
                        .copy_from_slice(&bits::high1(&weights).to_le_bytes());
                }
            }
        }
        WeightType::Q4_K | WeightType::Q5_K => {
            let five = layout.ty == WeightType::Q5_K;
            for (index, block) in file.chunks_exact(if five { 176 } else { 144 }).enumerate() {
                rows.row(Super, row)[index * 16..][..16].copy_from_slice(&block[..16]);
                let (high, nibbles) = block[16..].split_at(if five { 32 } else { 0 });
                for sub in 0..8 {
                    let chunk = index * 8 + sub;
                    let mut weights = bits::k_nibbles(nibbles, sub);
                    rows.row(Low, row)[chunk * 16..][..16].copy_from_slice(&bits::low(&weights));
                    if five {
                        weights = std::array::from_fn(|i| (high[i] >> sub & 1) << 4);
                        let word = bits::high1(&weights).to_le_bytes();
                        rows.row(High1, row)[chunk * 4..][..4].copy_from_slice(&word);
                    }
                }
            }
        }
        WeightType::Q6_K => {
            for (index, block) in file.chunks_exact(210).enumerate() {
                let (low, rest) = block.split_at(128);
                let (high, rest) = rest.split_at(64);
                rows.row(Scales16, row)[index * 16..][..16].copy_from_slice(&rest[..16]);
                rows.row(Scale, row)[index * 2..][..2].copy_from_slice(&rest[16..]);
                for sub in 0..8 {
                    let chunk = index * 8 + sub;
                    let ((lo, lo_shift), (hi, hi_shift)) = (bits::q6_low(sub), bits::q6_high(sub));
                    let weights: [u8; 32] = std::array::from_fn(|i| {
                        low[lo + i] >> lo_shift & 15 | (high[hi + i] >> hi_shift & 3) << 4
                    });
                    rows.row(Low, row)[chunk * 16..][..16].copy_from_slice(&bits::low(&weights));
                    for (half, word) in bits::high2(&weights).into_iter().enumerate() {
                        let at = chunk * 8 + half * 4;
                        rows.row(High2, row)[at..][..4].copy_from_slice(&word.to_le_bytes());
                    }
                }
            }
        }
    }
}

fn unpack_row<'a>(layout: &Layout, plane: impl Fn(PlaneKind) -> &'a [u8], file: &mut [u8]) {
    use PlaneKind::*;
    let word = |kind, at: usize| {
        let bytes = &plane(kind)[at..][..4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    };
    match layout.ty {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
            let size = file.len();
            file.copy_from_slice(&plane(Floats)[..size]);
        }
        WeightType::Q8_0 => {
            for (chunk, block) in file.chunks_exact_mut(34).enumerate() {
                block[..2].copy_from_slice(&plane(Scale)[chunk * 2..][..2]);
                block[2..].copy_from_slice(&plane(Bytes)[chunk * 32..][..32]);
            }
        }
        WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q5_1 => {
            let simple = Simple::of(layout.ty);
            for (chunk, block) in file.chunks_exact_mut(simple.bytes()).enumerate() {
                block[..simple.scale].copy_from_slice(&plane(Scale)[chunk * simple.scale..][..simple.scale]);
                let low = simple.scale + simple.high;
                block[low..].copy_from_slice(&plane(Low)[chunk * 16..][..16]);
                if simple.high > 0 {
                    let weights = bits::from_high1(word(High1, chunk * 4));
                    let bits = (0..32).fold(0u32, |bits, i| bits | u32::from(weights[i] >> 4) << i);
                    block[simple.scale..low].copy_from_slice(&bits.to_le_bytes());
                }
            }
        }
        WeightType::Q4_K | WeightType::Q5_K => {
            let five = layout.ty == WeightType::Q5_K;
            for (index, block) in file.chunks_exact_mut(if five { 176 } else { 144 }).enumerate() {
                block.fill(0);
                block[..16].copy_from_slice(&plane(Super)[index * 16..][..16]);
                let (high, nibbles) = block[16..].split_at_mut(if five { 32 } else { 0 });
                for sub in 0..8 {
                    let chunk = index * 8 + sub;
                    bits::put_k_nibbles(nibbles, sub, &bits::from_low(&plane(Low)[chunk * 16..]));
                    if five {
                        for (byte, weight) in high.iter_mut().zip(bits::from_high1(word(High1, chunk * 4))) {
                            *byte |= (weight >> 4) << sub;
                        }
                    }
                }
            }
        }
        WeightType::Q6_K => {
            for (index, block) in file.chunks_exact_mut(210).enumerate() {
                block.fill(0);
                block[192..208].copy_from_slice(&plane(Scales16)[index * 16..][..16]);
                block[208..].copy_from_slice(&plane(Scale)[index * 2..][..2]);
                for sub in 0..8 {
                    let chunk = index * 8 + sub;
                    let low = bits::from_low(&plane(Low)[chunk * 16..]);
                    let high = bits::from_high2([word(High2, chunk * 8), word(High2, chunk * 8 + 4)]);
                    let ((lo, lo_shift), (hi, hi_shift)) = (bits::q6_low(sub), bits::q6_high(sub));
                    for i in 0..32 {
                        block[lo + i] |= low[i] << lo_shift;
                        block[128 + hi + i] |= (high[i] >> 4) << hi_shift;
                    }
                }
            }
        }
    }
}

/// The blocks of Q4_0, Q4_1, Q5_0 and Q5_1: scales, then fifth bits, then 16 bytes of nibbles.
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

    #[test]
    fn unpacking_gives_the_files_bytes_back() {
        for ty in WeightType::ALL {
            for (rows, cols) in [(1, 256), (3, 512), (130, 768)] {
                let layout = Layout::new(ty, rows, cols).unwrap();
                let file = noise(layout.file_row_bytes() * rows as usize);
                let mut planes = vec![0xAA; layout.bytes as usize];
                repack(&layout, &file, &mut planes);
                let mut back = vec![0x55; file.len()];
                unpack(&layout, &planes, &mut back);
                assert!(back == file, "{ty} {rows}x{cols}");
            }
        }
    }

    #[test]
    fn planes_hold_no_more_than_the_file_but_padding() {
        for ty in WeightType::ALL {
            let layout = Layout::new(ty, 64, 1024).unwrap();
            let file = layout.file_row_bytes() as u64 * 64;
            let planes: u64 = layout.planes.iter().map(|plane| u64::from(plane.row_bytes) * 64).sum();
            assert_eq!(planes, file, "{ty}");
        }
    }

    #[test]
    fn rows_of_odd_width_are_padded() {
        let layout = Layout::new(WeightType::F16, 3, 333).unwrap();
        let file = noise(layout.file_row_bytes() * 3);
        let mut planes = vec![0xAA; layout.bytes as usize];
        repack(&layout, &file, &mut planes);
        assert_eq!(layout.planes[0].row_bytes, 672);
        assert_eq!(planes[666..672], [0; 6]);
        let mut back = vec![0; file.len()];
        unpack(&layout, &planes, &mut back);
        assert!(back == file);
        assert!(Layout::new(WeightType::Q4_K, 3, 333).is_none());
    }
}
