//! Quantisation error: bounds for every block, and the mean error of normally distributed weights.

use bespoke_gguf::{Error, GgmlType, dequantize, quantize};
use proptest::prelude::*;

const SUPERBLOCK: usize = 256;

fn round_trip(ty: GgmlType, values: &[f32]) -> Vec<f32> {
    let mut bytes = vec![0; ty.row_bytes(values.len()).unwrap()];
    quantize(ty, values, &mut bytes).unwrap();
    let mut back = vec![0.0; values.len()];
    dequantize(ty, &bytes, &mut back).unwrap();
    back
}

/// Maximum error of an element, as a fraction of the block's range or of its largest magnitude.
#[derive(Clone, Copy, Debug)]
enum Bound {
    OfRange(f32),
    OfMagnitude(f32),
}
use Bound::{OfMagnitude, OfRange};

/// Type, elements per block, and bound: half a step if nothing is clipped; a step if one sign lacks the largest quant;
/// two steps of the widest group if the group's scale is rounded as well. Half of the widest step of a table, and what the
/// search clips; MXFP4 clips magnitudes just below a power of two by a quarter.
const TYPES: [(GgmlType, usize, Bound); 16] = [
    (GgmlType::F32, 1, OfMagnitude(0.0)),
    (GgmlType::F16, 1, OfMagnitude(1.0 / 2048.0)),
    (GgmlType::BF16, 1, OfMagnitude(1.0 / 256.0)),
    (GgmlType::Q4_0, 32, OfMagnitude(1.0 / 8.0)),
    (GgmlType::Q5_0, 32, OfMagnitude(1.0 / 16.0)),
    (GgmlType::Q8_0, 32, OfMagnitude(0.5 / 127.0)),
    (GgmlType::Q4_1, 32, OfRange(0.5 / 15.0)),
    (GgmlType::Q5_1, 32, OfRange(0.5 / 31.0)),
    (GgmlType::Q4_K, SUPERBLOCK, OfRange(2.0 / 15.0)),
    (GgmlType::Q5_K, SUPERBLOCK, OfRange(2.0 / 31.0)),
    (GgmlType::Q6_K, SUPERBLOCK, OfMagnitude(2.0 / 32.0)),
    (GgmlType::Q2_K, SUPERBLOCK, OfRange(2.0 / 3.0)),
    (GgmlType::Q3_K, SUPERBLOCK, OfMagnitude(2.0 / 4.0)),
    (GgmlType::IQ4_NL, 32, OfMagnitude(0.14)),
    (GgmlType::IQ4_XS, SUPERBLOCK, OfMagnitude(0.16)),
    (GgmlType::MXFP4, 32, OfMagnitude(0.25)),
];

/// Largest permitted error in a block, including the rounding of scale and minimum to f16.
fn largest_error(bound: Bound, block: &[f32]) -> f32 {
    let magnitude = block.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let low = block.iter().fold(0.0f32, |low, &x| low.min(x));
    let high = block.iter().fold(f32::MIN, |high, &x| high.max(x));
    let share = match bound {
        OfMagnitude(0.0) => return 0.0,
        OfMagnitude(share) => share * magnitude,
        OfRange(share) => share * (high - low),
    };
    // f16 has 11 significant bits; its smallest step matters for tiny blocks.
    share * 1.001 + magnitude / 1024.0 + 64.0 * 2f32.powi(-24)
}

/// Values of any magnitude: groups of 32 with their own spread and offset; some groups are constant.
fn values() -> impl Strategy<Value = Vec<f32>> {
    let group = (-12i32..12, -1.0f32..1.0, 0.0f32..1.0, proptest::collection::vec(-1.0f32..1.0, 32));
    proptest::collection::vec(group, 8).prop_map(|groups| {
        let wide = groups.into_iter().flat_map(|(exponent, offset, spread, unit)| {
            let spread = if spread < 0.1 { 0.0 } else { spread };
            unit.into_iter().map(move |x| (offset + spread * x) * 2f32.powi(exponent))
        });
        wide.collect()
    })
}

proptest! {
    #[test]
    fn errors_are_within_bounds(values in values()) {
        for (ty, elements, bound) in TYPES {
            let back = round_trip(ty, &values);
            for (block, back) in values.chunks(elements).zip(back.chunks(elements)) {
                let most = largest_error(bound, block);
                for (x, y) in block.iter().zip(back) {
                    prop_assert!((x - y).abs() <= most, "{ty}: {x} became {y}, more than {most} off");
                }
            }
        }
    }

    /// Values that a type represents exactly are unchanged.
    #[test]
    fn representable_values_are_unchanged(quants in proptest::collection::vec(-127i8..=127, 32), exponent in -10i32..8) {
        let scale = 2f32.powi(exponent);
        let mut values: Vec<f32> = quants.iter().map(|&q| scale * f32::from(q)).collect();
        values[7] = 127.0 * scale;
        prop_assert_eq!(round_trip(GgmlType::Q8_0, &values), values.clone());
        let mut values: Vec<f32> = quants.iter().map(|&q| scale * f32::from(q >> 4)).collect();
        values[7] = -8.0 * scale;
        prop_assert_eq!(round_trip(GgmlType::Q4_0, &values), values);
    }
}

/// Normally distributed numbers: Box–Muller transform of SplitMix64's finalizer of a counter.
fn normal(count: usize) -> Vec<f32> {
    let uniform = |i: u64| {
        let mut x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ x >> 31) >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count as u64)
        .map(|i| {
            let radius = (-2.0 * (1.0 - uniform(2 * i + 1)).ln()).sqrt();
            (0.02 * radius * (std::f64::consts::TAU * uniform(2 * i + 2)).cos()) as f32
        })
        .collect()
}

#[test]
fn the_error_on_normal_weights_is_small() {
    let values = normal(256 * SUPERBLOCK);
    let energy: f64 = values.iter().map(|&x| f64::from(x).powi(2)).sum();
    // Per type, the maximum fraction of the energy that is lost.
    for (ty, most) in [
        (GgmlType::BF16, 2.8e-6),
        (GgmlType::F16, 4.4e-8),
        (GgmlType::Q4_0, 7.5e-3),
        (GgmlType::Q4_1, 6.2e-3),
        (GgmlType::Q5_0, 1.85e-3),
        (GgmlType::Q5_1, 1.45e-3),
        (GgmlType::Q8_0, 2.9e-5),
        (GgmlType::Q4_K, 5.15e-3),
        (GgmlType::Q5_K, 1.32e-3),
        (GgmlType::Q6_K, 3.2e-4),
        (GgmlType::Q2_K, 8.8e-2),
        (GgmlType::Q3_K, 2.3e-2),
        (GgmlType::IQ4_NL, 5.9e-3),
        (GgmlType::IQ4_XS, 6e-3),
        (GgmlType::MXFP4, 1.35e-2),
    ] {
        let back = round_trip(ty, &values);
        let lost: f64 = values.iter().zip(&back).map(|(&x, &y)| f64::from(x - y).powi(2)).sum();
        println!("{ty} {:.3e}", lost / energy);
        assert!(lost / energy <= most, "{ty}: {:.3e}, more than {most:.3e}", lost / energy);
    }
}

#[test]
fn zeros_stay_zeros() {
    for (ty, ..) in TYPES {
        assert_eq!(round_trip(ty, &[0.0; SUPERBLOCK]), [0.0; SUPERBLOCK], "{ty}");
    }
}

#[test]
fn unsupported_values_types_and_lengths_are_errors() {
    let mut out = [0; 144];
    let message = |values: &[f32], ty, out: &mut [u8]| quantize(ty, values, out).unwrap_err().to_string();
    assert_eq!(message(&[0.0; 255], GgmlType::Q4_K, &mut out), "255 values do not fill 144 bytes of Q4_K");
    assert_eq!(message(&[0.0; 512], GgmlType::Q4_K, &mut out), "512 values do not fill 144 bytes of Q4_K");
    let mut values = [1.0; SUPERBLOCK];
    for (value, text) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf"), (1e5, "100000")] {
        values[200] = value;
        assert_eq!(message(&values, GgmlType::Q4_K, &mut out), format!("{text} cannot be written as Q4_K"));
    }
    let error = quantize(GgmlType::IQ2_S, &[0.0; SUPERBLOCK], &mut [0; 82]).unwrap_err();
    assert!(matches!(error, Error::NotQuantizable { ty: GgmlType::IQ2_S }), "{error}");
}

/// Reproducible bell-shaped values without a maths library: sums of four bytes of a hash, with a spread per block.
fn bell_shaped(count: u32) -> Vec<f32> {
    let hash = |mut x: u32| {
        x = (x ^ x >> 16).wrapping_mul(0x85EB_CA6B);
        x = (x ^ x >> 13).wrapping_mul(0xC2B2_AE35);
        x ^ x >> 16
    };
    let sum = |x: u32| x.to_le_bytes().map(i32::from).iter().sum::<i32>() - 510;
    (0..count).map(|i| sum(hash(i)) as f32 / 4096.0 / (1 + hash(i / 32) % 7) as f32).collect()
}

/// FNV-1a hash of `bytes`.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// The expected digests are of blocks that ggml made from the same values, without an importance matrix.
#[test]
fn blocks_equal_those_of_ggml() {
    let values = bell_shaped(64 * SUPERBLOCK as u32);
    for (ty, expected) in [
        (GgmlType::Q4_0, 0x9315_86E6_E2C8_47F7),
        (GgmlType::Q4_1, 0xC106_730C_5FB1_71C3),
        (GgmlType::Q5_0, 0x95A9_DAA0_D93D_D7DA),
        (GgmlType::Q5_1, 0x0BA3_E958_A862_6702),
        (GgmlType::Q8_0, 0x5862_DA71_743C_8F0E),
        (GgmlType::Q4_K, 0x681A_8D7C_8488_C4C1),
        (GgmlType::Q5_K, 0xA2CE_6ABC_CD66_0540),
        (GgmlType::Q6_K, 0x90CE_A904_3843_6E0E),
        (GgmlType::Q2_K, 0xE014_E16D_DA18_6A11),
        (GgmlType::Q3_K, 0xBED6_DE45_183B_2FE7),
        (GgmlType::IQ4_NL, 0x1607_8E24_315B_3FB2),
        (GgmlType::IQ4_XS, 0x2EF9_BCF7_BF91_5444),
        (GgmlType::MXFP4, 0xDBBB_9161_A68F_6818),
    ] {
        let mut bytes = vec![0; ty.row_bytes(values.len()).unwrap()];
        quantize(ty, &values, &mut bytes).unwrap();
        assert_eq!(digest(&bytes), expected, "{ty}");
    }
}
