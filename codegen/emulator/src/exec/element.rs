//! Element types of the matrices of `mma` and `wgmma`.

use std::sync::LazyLock;

use super::convert_packed::{E4m3, E5m2, Float8};
use super::rounding::{Bf16, F16, Format};

/// Type of the elements of `A` or `B`. Products of two of them are exact in single precision, within its range.
pub(crate) trait Element: 'static {
    /// Bytes of an element.
    const BYTES: usize;
    /// Elements per 32-bit register.
    const COUNT: usize = 4 / Self::BYTES;
    /// Exponent of the smallest normal number; `None` for integers.
    const LOWEST_EXPONENT: Option<i32>;
    /// Value of the element in the low bits of `bits`.
    fn value(bits: u32) -> f32;
    /// Value of element number `index` of a register.
    #[inline(always)]
    fn get(register: u32, index: usize) -> f32 {
        Self::value(register >> (8 * Self::BYTES * index))
    }
}

macro_rules! elements {
    ($($name:ident $bytes:literal $lowest:expr; ($bits:ident) $value:expr;)*) => { $(
        pub(crate) struct $name;
        impl Element for $name {
            const BYTES: usize = $bytes;
            const LOWEST_EXPONENT: Option<i32> = $lowest;
            #[inline(always)]
            fn value($bits: u32) -> f32 { $value }
        }
    )* };
}
elements! {
    Half 2 Some(-14); (bits) F16::to_f32(bits as u16);
    Bfloat 2 Some(-126); (bits) Bf16::to_f32(bits as u16);
    // The lower 13 bits are ignored.
    Tf32 4 Some(-126); (bits) f32::from_bits(bits & !0x1fff);
    Float8E4m3 1 Some(-6); (bits) E4M3_VALUES[bits as u8 as usize];
    Float8E5m2 1 Some(-14); (bits) E5M2_VALUES[bits as u8 as usize];
    Signed8 1 None; (bits) bits as u8 as i8 as f32;
    Unsigned8 1 None; (bits) bits as u8 as f32;
}

/// Values of all 8-bit floats of a format.
fn values<F: Float8>() -> [f32; 256] {
    std::array::from_fn(|bits| F16::to_f32(F::to_f16(bits as u8)))
}
static E4M3_VALUES: LazyLock<[f32; 256]> = LazyLock::new(values::<E4m3>);
static E5M2_VALUES: LazyLock<[f32; 256]> = LazyLock::new(values::<E5m2>);
