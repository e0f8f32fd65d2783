//! Scalar types in device memory.

use bespoke_codegen::dsl::{Bf16x2, E4m3, E4m3x2, E5m2, E5m2x2, F16x2, Scalar};
use half::{bf16, f16};

/// Scalar type that device memory can hold.
pub trait Element: Scalar + std::fmt::Debug {
    /// Value whose bits are the low bits of `bits`.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! element {
    ($($ty:ty: |$bits:ident| $value:expr;)*) => {
        $(impl Element for $ty {
            fn from_bits($bits: u64) -> $ty {
                $value
            }
        })*
    };
}
element! {
    u8: |bits| bits as u8;
    u16: |bits| bits as u16;
    u32: |bits| bits as u32;
    u64: |bits| bits;
    i8: |bits| bits as i8;
    i16: |bits| bits as i16;
    i32: |bits| bits as i32;
    i64: |bits| bits as i64;
    f16: |bits| f16::from_bits(bits as u16);
    bf16: |bits| bf16::from_bits(bits as u16);
    f32: |bits| f32::from_bits(bits as u32);
    f64: |bits| f64::from_bits(bits);
    E4m3: |bits| E4m3(bits as u8);
    E5m2: |bits| E5m2(bits as u8);
    E4m3x2: |bits| E4m3x2(E4m3(bits as u8), E4m3((bits >> 8) as u8));
    E5m2x2: |bits| E5m2x2(E5m2(bits as u8), E5m2((bits >> 8) as u8));
    F16x2: |bits| F16x2(f16::from_bits(bits as u16), f16::from_bits((bits >> 16) as u16));
    Bf16x2: |bits| Bf16x2(bf16::from_bits(bits as u16), bf16::from_bits((bits >> 16) as u16));
}

fn size<T: Element>() -> usize {
    T::TYPE.bytes() as usize
}

/// Bytes of the values in device memory.
pub fn to_bytes<T: Element>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|value| value.bits().to_le_bytes()[..size::<T>()].to_vec()).collect()
}

/// Values whose bytes in device memory are `bytes`.
pub fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    let value = |chunk: &[u8]| chunk.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    bytes.chunks_exact(size::<T>()).map(|chunk| T::from_bits(value(chunk))).collect()
}
