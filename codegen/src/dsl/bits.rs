//! Operations on bits and bytes, and dot products of packed integers.

use std::panic::Location;

use super::number::Int;
use super::recorder::{emit, emit1};
use super::scalar::Bits;
use super::value::{IntoVal, Val};
use crate::ir::{Op, Type, Unary};

impl<T: Int> Val<T> {
    /// The number of set bits of a 32- or 64-bit integer.
    ///
    /// - PTX: `popc.b32`, `popc.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.count_ones(), "popc.b32", [7u32, 8]), [3, 1]);
    /// ```
    #[track_caller]
    pub fn count_ones(self) -> Val<u32> {
        Val::from_id(emit1(Op::Unary(Unary::Popc), T::TYPE, &[self.id()], Location::caller()))
    }

    /// The number of leading zero bits of a 32- or 64-bit integer.
    ///
    /// - PTX: `clz.b32`, `clz.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.leading_zeros(), "clz.b32", [1u32, 0]), [31, 32]);
    /// ```
    #[track_caller]
    pub fn leading_zeros(self) -> Val<u32> {
        Val::from_id(emit1(Op::Unary(Unary::Clz), T::TYPE, &[self.id()], Location::caller()))
    }

    /// The number of trailing zero bits of a 32- or 64-bit integer.
    ///
    /// - PTX: `brev.b32`, `clz.b32`, also `.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.trailing_zeros(), "clz.b32", [8u32, 0]), [3, 32]);
    /// ```
    #[track_caller]
    pub fn trailing_zeros(self) -> Val<u32> {
        self.reverse_bits().leading_zeros()
    }

    /// The bits rotated to the left by `amount`, which is taken modulo the width.
    ///
    /// - PTX: `shf.l.wrap.b32`; for other widths two shifts
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.rotate_left(8), "shf.l.wrap.b32", [0x1122_3344u32]), [0x2233_4411]);
    /// ```
    #[track_caller]
    pub fn rotate_left(self, amount: impl IntoVal<u32>) -> Val<T> {
        let amount = amount.into_val();
        match T::TYPE.bits() {
            8 => rotated(self.bitcast::<u8>(), amount).bitcast(),
            16 => rotated(self.bitcast::<u16>(), amount).bitcast(),
            32 => {
                let word = self.bitcast::<u32>();
                funnel_left(word, word, amount).bitcast()
            }
            _ => rotated(self.bitcast::<u64>(), amount).bitcast(),
        }
    }

    /// The bits rotated to the right by `amount`, which is taken modulo the width.
    ///
    /// - PTX: `shf.r.wrap.b32`; for other widths two shifts
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.rotate_right(8), "shf.r.wrap.b32", [0x1122_3344u32]), [0x4411_2233]);
    /// ```
    #[track_caller]
    pub fn rotate_right(self, amount: impl IntoVal<u32>) -> Val<T> {
        let amount = amount.into_val();
        if T::TYPE.bits() == 32 {
            let word = self.bitcast::<u32>();
            return funnel_right(word, word, amount).bitcast();
        }
        self.rotate_left(-amount)
    }

    /// The bytes in reverse order.
    ///
    /// - PTX: `prmt.b32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.swap_bytes(), "prmt.b32", [0x1122_3344u32]), [0x4433_2211]);
    /// ```
    #[track_caller]
    pub fn swap_bytes(self) -> Val<T> {
        let swapped = |word: Val<u32>| permute_bytes(word, 0, 0x0123);
        match T::TYPE.bits() {
            8 => self,
            16 => (swapped(self.bitcast::<u16>().cast()) >> 16).cast::<u16>().bitcast(),
            32 => swapped(self.bitcast()).bitcast(),
            _ => {
                let site = Location::caller();
                let word = self.bitcast::<u64>();
                let halves = emit(Op::Unpack, Type::U32, &[word.id()], site);
                let [low, high] = [halves[0], halves[1]].map(|half| swapped(Val::from_id(half)).id());
                Val::<u64>::from_id(emit1(Op::Pack, Type::U64, &[high, low], site)).bitcast()
            }
        }
    }

    /// The bits of a 32- or 64-bit integer in reverse order.
    ///
    /// - PTX: `brev.b32`, `brev.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.reverse_bits(), "brev.b32", [1u32]), [1 << 31]);
    /// ```
    #[track_caller]
    pub fn reverse_bits(self) -> Val<T> {
        Val::from_id(emit1(Op::Unary(Unary::Brev), T::TYPE, &[self.id()], Location::caller()))
    }

    /// `length` bits of a 32- or 64-bit integer from bit `position`, sign-extended for signed types.
    ///
    /// - PTX: `bfe.u32`, `bfe.s32`, `bfe.u64`, `bfe.s64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.bit_field(4, 8), "bfe.u32", [0xabcdu32]), [0xbc]);
    /// ```
    #[track_caller]
    pub fn bit_field(self, position: impl IntoVal<u32>, length: impl IntoVal<u32>) -> Val<T> {
        let args = [self.id(), position.into_val().id(), length.into_val().id()];
        Val::from_id(emit1(Op::BitField, T::TYPE, &args, Location::caller()))
    }

    /// The 32- or 64-bit integer with its `length` bits from bit `position` replaced by the low bits of `field`.
    ///
    /// - PTX: `bfi.b32`, `bfi.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.with_bit_field(0xe, 4, 4), "bfi.b32", [0xabcdu32]), [0xabed]);
    /// ```
    #[track_caller]
    pub fn with_bit_field(
        self,
        field: impl IntoVal<T>,
        position: impl IntoVal<u32>,
        length: impl IntoVal<u32>,
    ) -> Val<T> {
        let args = [field.into_val().id(), self.id(), position.into_val().id(), length.into_val().id()];
        Val::from_id(emit1(Op::BitInsert, T::TYPE, &args, Location::caller()))
    }
}

#[track_caller]
fn rotated<T: Int + Bits>(x: Val<T>, amount: Val<u32>) -> Val<T> {
    let width = T::TYPE.bits();
    let amount = amount & (width - 1);
    x << amount | x >> (width - amount)
}

/// The position of the `n`-th set bit of `word`, counted from 1, searching upwards from bit `first`, or downwards if
/// `n` is negative. All ones if there is no such bit.
///
/// - PTX: `fns.b32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| nth_set_bit(x, 0, 2), "fns.b32", [0b1010_0100u32, 1]), [5, u32::MAX]);
/// ```
#[track_caller]
pub fn nth_set_bit(word: impl IntoVal<u32>, first: impl IntoVal<u32>, n: impl IntoVal<i32>) -> Val<u32> {
    let args = [word.into_val().id(), first.into_val().id(), n.into_val().id()];
    Val::from_id(emit1(Op::NthSetBit, Type::U32, &args, Location::caller()))
}

/// Any bitwise function of three words: bit i of the result is bit (4a + 2b + c) of `table` for the bits i of a, b
/// and c. `table` is the function applied to 0xF0, 0xCC and 0xAA.
///
/// - PTX: `lop3.b32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // The majority of three bits.
/// let majority = |a: u32, b: u32, c: u32| a & b | a & c | b & c;
/// let table = majority(0xf0, 0xcc, 0xaa) as u8;
/// assert_eq!(map(|x| lop3(x, 0b0110, 0b1010, table), "lop3.b32", [0b1100u32]), [0b1110]);
/// ```
#[track_caller]
pub fn lop3(a: impl IntoVal<u32>, b: impl IntoVal<u32>, c: impl IntoVal<u32>, table: u8) -> Val<u32> {
    let args = [a.into_val().id(), b.into_val().id(), c.into_val().id()];
    Val::from_id(emit1(Op::Lop3(table), Type::U32, &args, Location::caller()))
}

/// Four of the eight bytes of (b:a), chosen by the nibbles of `selector`. A nibble's top bit replicates the sign of the
/// byte.
///
/// - PTX: `prmt.b32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| permute_bytes(x, 0, 0x0123), "prmt.b32", [0x1122_3344u32]), [0x4433_2211]);
/// ```
#[track_caller]
pub fn permute_bytes(a: impl IntoVal<u32>, b: impl IntoVal<u32>, selector: impl IntoVal<u32>) -> Val<u32> {
    let args = [a.into_val().id(), b.into_val().id(), selector.into_val().id()];
    Val::from_id(emit1(Op::Prmt, Type::U32, &args, Location::caller()))
}

/// The upper 32 bits of (high:low) << (amount & 31). If `low` and `high` are the same word, this is a rotation.
///
/// - PTX: `shf.l.wrap.b32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| funnel_left(x, x, 8), "shf.l.wrap.b32", [0x1122_3344u32]), [0x2233_4411]);
/// ```
#[track_caller]
pub fn funnel_left(low: impl IntoVal<u32>, high: impl IntoVal<u32>, amount: impl IntoVal<u32>) -> Val<u32> {
    let args = [low.into_val().id(), high.into_val().id(), amount.into_val().id()];
    Val::from_id(emit1(Op::Funnel { left: true }, Type::U32, &args, Location::caller()))
}

/// The lower 32 bits of (high:low) >> (amount & 31).
///
/// - PTX: `shf.r.wrap.b32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| funnel_right(x, x, 8), "shf.r.wrap.b32", [0x1122_3344u32]), [0x4411_2233]);
/// ```
#[track_caller]
pub fn funnel_right(low: impl IntoVal<u32>, high: impl IntoVal<u32>, amount: impl IntoVal<u32>) -> Val<u32> {
    let args = [low.into_val().id(), high.into_val().id(), amount.into_val().id()];
    Val::from_id(emit1(Op::Funnel { left: false }, Type::U32, &args, Location::caller()))
}

/// Signedness of the bytes or halves of a packed word.
pub trait Packed: Copy {
    /// Whether the bytes or halves are signed.
    const SIGNED: bool;
}

/// Packed signed integers.
#[derive(Clone, Copy, Debug)]
pub struct Signed;

/// Packed unsigned integers.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned;

impl Packed for Signed {
    const SIGNED: bool = true;
}

impl Packed for Unsigned {
    const SIGNED: bool = false;
}

/// c + Σᵢ aᵢ·bᵢ over four bytes each, with the signedness `A` and `B`.
///
/// - PTX: `dp4a.s32.s32`, by the signs `dp4a.u32.s32`, …
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // 1 − 1 + 2 + 3, and 100.
/// let sum = |x| dp4a(Signed, x, Signed, val(0x0101_0101), 100);
/// assert_eq!(map(sum, "dp4a.s32.s32", [0x01ff_0203u32]), [105]);
/// ```
#[track_caller]
pub fn dp4a<A: Packed, B: Packed>(_: A, a: Val<u32>, _: B, b: Val<u32>, c: impl IntoVal<i32>) -> Val<i32> {
    let op = Op::Dp4a { a_signed: A::SIGNED, b_signed: B::SIGNED };
    Val::from_id(emit1(op, Type::I32, &[a.id(), b.id(), c.into_val().id()], Location::caller()))
}

/// c + a₀·b₀ + a₁·b₁ of the 16-bit halves of `a` and the two lower bytes of `b`.
///
/// - PTX: `dp2a.lo.s32.s32`, by the signs `dp2a.lo.u32.s32`, …
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // 7·2 + 5·3.
/// let sum = |x| dp2a_low(Signed, x, Signed, val(0x0302), 0);
/// assert_eq!(map(sum, "dp2a.lo.s32.s32", [0x0005_0007u32]), [29]);
/// ```
#[track_caller]
pub fn dp2a_low<A: Packed, B: Packed>(
    _: A,
    a: Val<u32>,
    _: B,
    b: Val<u32>,
    c: impl IntoVal<i32>,
) -> Val<i32> {
    dp2a::<A, B>(a, b, c.into_val(), false)
}

/// c + a₀·b₂ + a₁·b₃ of the 16-bit halves of `a` and the two upper bytes of `b`.
///
/// - PTX: `dp2a.hi.s32.s32`, by the signs `dp2a.hi.u32.s32`, …
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // 7·2 + 5·3.
/// let sum = |x| dp2a_high(Signed, x, Signed, val(0x0302_0000), 0);
/// assert_eq!(map(sum, "dp2a.hi.s32.s32", [0x0005_0007u32]), [29]);
/// ```
#[track_caller]
pub fn dp2a_high<A: Packed, B: Packed>(
    _: A,
    a: Val<u32>,
    _: B,
    b: Val<u32>,
    c: impl IntoVal<i32>,
) -> Val<i32> {
    dp2a::<A, B>(a, b, c.into_val(), true)
}

#[track_caller]
fn dp2a<A: Packed, B: Packed>(a: Val<u32>, b: Val<u32>, c: Val<i32>, high: bool) -> Val<i32> {
    let op = Op::Dp2a { a_signed: A::SIGNED, b_signed: B::SIGNED, high };
    Val::from_id(emit1(op, Type::I32, &[a.id(), b.id(), c.id()], Location::caller()))
}
