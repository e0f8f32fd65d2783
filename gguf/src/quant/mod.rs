//! Quantisation: the inverse of [`dequantize`](crate::dequantize).
//!
//! Scales are searched as in ggml's `quantize_row_*_ref` functions (`ggml-quants.c`), with the same candidates and
//! error weights; blocks are bit-identical. `llama-quantize` uses these functions without an importance matrix. Importance
//! matrices are not supported. For layouts see [`crate::dequant`].
//!
//! ```
//! use bespoke_gguf::{GgmlType, dequantize, quantize};
//!
//! let values: Vec<f32> = (0..256).map(|i| (i as f32 * 0.1).sin()).collect();
//! let mut block = [0; 144];
//! quantize(GgmlType::Q4_K, &values, &mut block)?;
//! let mut back = [0.0; 256];
//! dequantize(GgmlType::Q4_K, &block, &mut back)?;
//! assert!(values.iter().zip(&back).all(|(a, b)| (a - b).abs() < 0.1));
//! # Ok::<(), bespoke_gguf::Error>(())
//! ```

mod search;
mod small;
mod superblock;

use crate::{Error, GgmlType};
use half::{bf16, f16};

/// Writes `values` to `out` as consecutive blocks of `ty`, in element order.
///
/// Supports F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS and MXFP4.
///
/// # Errors
/// If the type is none of these, if `out` has the wrong length, or if a value is not finite or too large for the f16
/// scale of a block.
///
/// Blocks are independent: parts of a tensor that consist of whole blocks can be quantised in parallel.
pub fn quantize(ty: GgmlType, values: &[f32], out: &mut [u8]) -> Result<(), Error> {
    if ty.row_bytes(values.len()) != Some(out.len()) {
        return Err(Error::QuantizeLength { ty, bytes: out.len(), elements: values.len() });
    }
    let limit = largest(ty);
    if let Some(&value) = values.iter().find(|value| !value.is_finite() || value.abs() > limit) {
        return Err(Error::NotRepresentable { ty, value });
    }
    match ty {
        GgmlType::F32 => each(values, out, |[w]: &[f32; 1]| w.to_le_bytes()),
        GgmlType::F16 => each(values, out, |[w]: &[f32; 1]| f16::from_f32(*w).to_le_bytes()),
        GgmlType::BF16 => each(values, out, |[w]: &[f32; 1]| bf16::from_f32(*w).to_le_bytes()),
        GgmlType::Q4_0 => each(values, out, small::q4_0),
        GgmlType::Q4_1 => each(values, out, small::q4_1),
        GgmlType::Q5_0 => each(values, out, small::q5_0),
        GgmlType::Q5_1 => each(values, out, small::q5_1),
        GgmlType::Q8_0 => each(values, out, small::q8_0),
        GgmlType::Q4_K => each(values, out, superblock::q4_k),
        GgmlType::Q5_K => each(values, out, superblock::q5_k),
        GgmlType::Q6_K => each(values, out, superblock::q6_k),
        GgmlType::Q2_K => each(values, out, superblock::q2_k),
        GgmlType::Q3_K => each(values, out, superblock::q3_k),
        GgmlType::IQ4_NL => each(values, out, small::iq4_nl),
        GgmlType::IQ4_XS => each(values, out, superblock::iq4_xs),
        GgmlType::MXFP4 => each(values, out, small::mxfp4),
        _ => return Err(Error::NotQuantizable { ty }),
    }
    Ok(())
}

/// Largest accepted magnitude: for types with an f16 scale or minimum, half of f16's maximum, because the search may
/// choose values beyond the block's extremes.
fn largest(ty: GgmlType) -> f32 {
    let half = f16::MAX.to_f32();
    match ty {
        GgmlType::F32 | GgmlType::MXFP4 => f32::MAX,
        GgmlType::BF16 => bf16::MAX.to_f32(),
        GgmlType::F16 => half,
        _ => half / 2.0,
    }
}

/// Converts every `N` values to a block of `B` bytes.
fn each<const N: usize, const B: usize>(
    values: &[f32],
    out: &mut [u8],
    block: impl Fn(&[f32; N]) -> [u8; B],
) {
    let (values, _) = values.as_chunks::<N>();
    let (blocks, _) = out.as_chunks_mut::<B>();
    for (from, to) in values.iter().zip(blocks) {
        *to = block(from);
    }
}

/// `1 / x`, and 0 for 0, because a block of zeros has scale 0.
fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Writes `value` as f16 at byte `at`.
fn put_half(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}
