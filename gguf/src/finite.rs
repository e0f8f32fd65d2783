//! Search for NaN and infinities in blocks.

use crate::{Error, GgmlType, TensorInfo};

/// The numbers in a block that must be finite.
enum Numbers {
    /// The elements: floats of this many bytes, whose infinities and NaNs have all bits of this mask.
    Elements { bytes: usize, exponent: u32 },
    /// f16 at these bytes of a block: scales, minimums and offsets.
    Halves(&'static [usize]),
    /// An f32 at this byte of a block.
    Single(usize),
    /// E8M0 exponents in these first bytes of a block, of which 255 is NaN.
    Exponents(usize),
    /// None, or none that is known.
    None,
}

/// Exponent bits of an f16.
const HALF: u16 = 0x7C00;

fn numbers(ty: GgmlType) -> Numbers {
    use GgmlType as T;
    match ty {
        T::F32 => Numbers::Elements { bytes: 4, exponent: 0x7F80_0000 },
        T::F16 => Numbers::Elements { bytes: 2, exponent: HALF.into() },
        T::BF16 => Numbers::Elements { bytes: 2, exponent: 0x7F80 },
        T::Q4_0 | T::Q5_0 | T::Q8_0 | T::IQ4_NL | T::IQ4_XS | T::Q1_0 => Numbers::Halves(&[0]),
        T::IQ2_XXS | T::IQ2_XS | T::IQ2_S | T::IQ3_XXS | T::IQ3_S | T::IQ1_S => Numbers::Halves(&[0]),
        T::Q4_1 | T::Q5_1 | T::Q8_1 | T::Q4_K | T::Q5_K => Numbers::Halves(&[0, 2]),
        T::Q2_K => Numbers::Halves(&[80, 82]),
        T::Q3_K => Numbers::Halves(&[108]),
        T::Q6_K => Numbers::Halves(&[208]),
        T::TQ1_0 => Numbers::Halves(&[52]),
        T::TQ2_0 => Numbers::Halves(&[64]),
        T::Q8_K => Numbers::Single(0),
        T::MXFP4 => Numbers::Exponents(1),
        T::F64 | T::I8 | T::I16 | T::I32 | T::I64 | T::IQ1_M | T::NVFP4 => Numbers::None,
    }
}

/// Index of the first block of `bytes`, whole blocks of `ty`, with an element, a scale or an offset that is NaN or
/// infinite. A block of a float type is an element. Types whose blocks are not supported elsewhere may be skipped.
pub fn first_non_finite(ty: GgmlType, bytes: &[u8]) -> Option<usize> {
    let blocks = bytes.chunks_exact(ty.block_bytes());
    let half = |block: &[u8], at: usize| u16::from_le_bytes([block[at], block[at + 1]]) & HALF == HALF;
    match numbers(ty) {
        Numbers::Elements { bytes: 4, exponent } => {
            let (words, _) = bytes.as_chunks::<4>();
            first(words, 4096, |word| u32::from_le_bytes(*word) & exponent == exponent)
        }
        Numbers::Elements { exponent, .. } => {
            let (words, _) = bytes.as_chunks::<2>();
            let exponent = exponent as u16;
            first(words, 4096, |word| u16::from_le_bytes(*word) & exponent == exponent)
        }
        Numbers::Halves(places) => {
            blocks.into_iter().position(|block| places.iter().any(|&at| half(block, at)))
        }
        Numbers::Single(at) => blocks.into_iter().position(|block| {
            !f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]).is_finite()
        }),
        Numbers::Exponents(count) => blocks.into_iter().position(|block| block[..count].contains(&0xFF)),
        Numbers::None => None,
    }
}

/// Index of the first item for which `is_bad`. Looks at `run` items at a time without a branch, so that the loop
/// vectorises.
fn first<T>(items: &[T], run: usize, is_bad: impl Fn(&T) -> bool) -> Option<usize> {
    let any = |items: &[T]| items.iter().fold(false, |any, item| any | is_bad(item));
    let chunk = items.chunks(run).position(any)?;
    let start = chunk * run;
    items[start..].iter().position(is_bad).map(|at| start + at)
}

/// Checks that `bytes`, whole blocks of a tensor from byte `offset` of its data on, have only finite numbers.
///
/// # Errors
/// The first block that has others.
pub fn check_finite(info: &TensorInfo, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let Some(block) = first_non_finite(info.ty, bytes) else { return Ok(()) };
    let block = offset / info.ty.block_bytes() as u64 + block as u64;
    Err(Error::NonFinite { name: info.name.clone(), ty: info.ty, block, cols: info.cols() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dequantize, quantize};

    /// Types that are read and written, with NaN, ∞ and −∞ in each of their floats.
    #[test]
    fn a_block_is_found_whose_values_are_not_finite() {
        for &ty in GgmlType::ALL {
            let values: Vec<f32> = (0..768).map(|i| (i as f32 * 0.1).sin()).collect();
            let mut blocks = vec![0; ty.row_bytes(values.len()).unwrap_or(0)];
            if quantize(ty, &values, &mut blocks).is_err() {
                continue;
            }
            assert_eq!(first_non_finite(ty, &blocks), None, "{ty}");
            let size = ty.block_bytes();
            let last = blocks.len() / size - 1;
            let mut found = 0;
            for at in 0..size {
                for bad in [&[0x00, 0x7C][..], &[0x00, 0xFC], &[0x01, 0x7E], &[0xFF]] {
                    let mut changed = blocks.clone();
                    let Some(to) = changed[last * size..][..size].get_mut(at..at + bad.len()) else {
                        continue;
                    };
                    to.copy_from_slice(bad);
                    let mut back = vec![0.0; values.len()];
                    dequantize(ty, &changed, &mut back).unwrap();
                    let finite = back.iter().all(|value| value.is_finite());
                    if !finite {
                        assert_eq!(first_non_finite(ty, &changed), Some(last), "{ty} byte {at}");
                        found += 1;
                    }
                }
            }
            let by_exponent = matches!(ty, GgmlType::F32 | GgmlType::BF16 | GgmlType::MXFP4);
            assert!(found > 0 || by_exponent, "{ty}: no byte makes it non-finite");
        }
        for (ty, bytes) in [
            (GgmlType::F32, f32::NAN.to_le_bytes().to_vec()),
            (GgmlType::F32, f32::NEG_INFINITY.to_le_bytes().to_vec()),
            (GgmlType::BF16, vec![0x80, 0x7F]),
            (GgmlType::BF16, vec![0x81, 0xFF]),
            (GgmlType::MXFP4, [&[0xFF][..], &[0; 16]].concat()),
            (GgmlType::Q8_K, [&f32::NAN.to_le_bytes()[..], &[0; 288]].concat()),
        ] {
            assert_eq!(first_non_finite(ty, &bytes), Some(0), "{ty}");
        }
    }

    #[test]
    fn the_largest_finite_numbers_are_accepted() {
        for (ty, bytes) in [
            (GgmlType::F32, f32::MIN.to_le_bytes().to_vec()),
            (GgmlType::F16, vec![0xFF, 0x7B]),
            (GgmlType::BF16, vec![0x7F, 0xFF]),
            (GgmlType::Q8_0, [&[0xFF, 0xFB][..], &[0xFF; 32]].concat()),
            (GgmlType::MXFP4, [&[0xFE][..], &[0xFF; 16]].concat()),
        ] {
            assert_eq!(first_non_finite(ty, &bytes), None, "{ty}");
        }
    }

    #[test]
    fn the_error_says_where_the_block_is() {
        let info = TensorInfo::new("blk.0.ffn_up.weight", vec![64, 4], GgmlType::Q8_0).unwrap();
        let mut bytes = vec![0; 4 * 34];
        bytes[3 * 34 + 1] = 0x7C;
        let error = check_finite(&info, 2 * 34, &bytes).unwrap_err().to_string();
        assert_eq!(
            error,
            "tensor blk.0.ffn_up.weight: the scale of block 5 (row 2, columns 32 to 63) is NaN or infinite: the file is \
             damaged, or its conversion overflowed; download or convert it again"
        );
        let info = TensorInfo::new("output_norm.weight", vec![3], GgmlType::F32).unwrap();
        let values: Vec<u8> = [1.0, f32::NAN, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let error = check_finite(&info, 0, &values).unwrap_err().to_string();
        assert!(
            error.starts_with("tensor output_norm.weight: element 1 (row 0, column 1) is NaN or"),
            "{error}"
        );
    }
}
