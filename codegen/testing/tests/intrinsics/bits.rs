//! Operations on bits and bytes.

use bespoke_codegen::prelude::*;

use crate::host::Host;
use crate::table::{Table, edges};

macro_rules! words {
    ($($name:ident $ty:ident $signed:literal;)*) => { $(
        #[test]
        fn $name() {
            type T = $ty;
            let rows = || T::edges().into_iter().map(|x| (x, 0, 0)).collect();
            Table::<T, u32, u32, u32>::new(rows())
                .unary("count_ones", |x| x.count_ones(), |x| x.count_ones())
                .unary("leading_zeros", |x| x.leading_zeros(), |x| x.leading_zeros())
                .unary("trailing_zeros", |x| x.trailing_zeros(), |x| x.trailing_zeros())
                .check();
            Table::<T, u32, u32, T>::new(rows())
                .unary("reverse_bits", |x| x.reverse_bits(), |x| x.reverse_bits())
                .check();

            let places = [(0, 0), (0, 1), (3, 5), (8, 24), (28, 8), (31, 1), (0, 32), (32, 32), (60, 9), (200, 3)];
            let rows = T::edges().into_iter().flat_map(|x| places.map(|(at, length)| (x, at, length)));
            Table::<T, u32, u32, T>::new(rows.collect())
                .ternary("bit_field", |x, at, length| x.bit_field(at, length), |x, at, length| {
                    // The result is `length` bits of the value, sign-extended infinitely: bits beyond the type are the
                    // sign.
                    let endless = i128::from(x) >> at.min(T::BITS);
                    let shift = 128 - length.min(T::BITS - at.min(T::BITS)).max(u32::from($signed && length > 0));
                    let cut = if length == 0 { 0 } else if $signed {
                        endless << shift >> shift
                    } else if shift == 128 { 0 } else {
                        ((endless as u128) << shift >> shift) as i128
                    };
                    cut as T
                })
                .check();
        }
    )* };
}
words! {
    words_u32 u32 false;
    words_u64 u64 false;
    words_i32 i32 true;
    words_i64 i64 true;
}

#[test]
fn three_words() {
    let shifts = || {
        let pairs = edges::<u32, u32, u32>().into_iter();
        pairs.flat_map(|(a, b, _)| [0, 1, 13, 31, 32, 45].map(|by| (a, b, by))).collect::<Vec<_>>()
    };
    let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    Table::<u32, u32, u32, u32>::new(edges())
        .ternary("and-or", |a, b, c| lop3(a, b, c, (0xf0 & 0xcc) | 0xaa), |a, b, c| (a & b) | c)
        .ternary("parity", |a, b, c| lop3(a, b, c, 0xf0 ^ 0xcc ^ 0xaa), |a, b, c| a ^ b ^ c)
        .ternary("not a, and not c", |a, b, c| lop3(a, b, c, !0xf0 & !0xaa), |a, _, c| !a & !c)
        .ternary("choose", |a, b, c| lop3(a, b, c, 0xca), |a, b, c| (a & b) | (!a & c))
        .check();
    Table::<u32, u32, u32, u32>::new(shifts())
        .ternary(
            "funnel_left",
            |a, b, c| funnel_left(a, b, c),
            move |a, b, c| (pair(a, b) << (c & 31) >> 32) as u32,
        )
        .ternary(
            "funnel_right",
            |a, b, c| funnel_right(a, b, c),
            move |a, b, c| (pair(a, b) >> (c & 31)) as u32,
        )
        .check();
}

#[test]
fn permuted_bytes() {
    let selectors = [0x3210, 0x7654, 0x0123, 0x5410, 0xfba9, 0x8c3d, 0x0000];
    let words = edges::<u32, u32, u32>().into_iter();
    let rows = words.flat_map(|(a, b, _)| selectors.map(|selector| (a, b, selector)));
    Table::<u32, u32, u32, u32>::new(rows.collect())
        .ternary(
            "permute_bytes",
            |a, b, c| permute_bytes(a, b, c),
            |a, b, c| {
                let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
                u32::from_le_bytes(std::array::from_fn(|i| {
                    let nibble = c >> (4 * i) & 15;
                    let byte = bytes[nibble as usize & 7];
                    if nibble & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 }
                }))
            },
        )
        .check();
}

#[test]
fn bits_put_in() {
    macro_rules! widths {
        ($($ty:ident)*) => { $(
            let places = [(0, 0), (0, 1), (3, 5), (8, 24), (31, 1), (0, 32), (40, 9), (200, 3)];
            let rows = $ty::edges().into_iter().flat_map(|x| places.map(|(at, length)| (x, at, length)));
            Table::<$ty, u32, u32, $ty>::new(rows.collect())
                .ternary("with_bit_field", |x, at, length| x.with_bit_field(!x, at, length), |x, at, length| {
                    let end = (at.min($ty::BITS) + length.min($ty::BITS)).min($ty::BITS);
                    (0..$ty::BITS).fold(x, |word, bit| {
                        // Inside the field, bits are those of the complement, from its lowest bit on.
                        let inside = (at..end).contains(&bit);
                        let own = if inside { !x >> (bit - at) & 1 } else { word >> bit & 1 };
                        word & !(1 << bit) | own << bit
                    })
                })
                .check();
        )* };
    }
    widths!(u32 u64 i32 i64);
}

#[test]
fn set_bits_by_number() {
    let rows =
        u32::edges().into_iter().flat_map(|x| [(x, 0, 1), (x, 3, 2), (x, 31, -1), (x, 20, -3), (x, 7, 0)]);
    Table::<u32, u32, i32, u32>::new(rows.collect())
        .ternary(
            "nth_set_bit",
            |x, first, n| nth_set_bit(x, first, n),
            |x, first, n| {
                let set = |bit: &u32| x >> bit & 1 == 1;
                let found = match n {
                    0 => Some(first).filter(set),
                    1.. => (first..32).filter(set).nth(n as usize - 1),
                    _ => (0..=first).rev().filter(set).nth(n.unsigned_abs() as usize - 1),
                };
                found.unwrap_or(u32::MAX)
            },
        )
        .check();
}

fn byte(word: u32, i: usize, signed: bool) -> i32 {
    let byte = word.to_le_bytes()[i];
    if signed { (byte as i8).into() } else { byte.into() }
}

fn half(word: u32, i: usize, signed: bool) -> i32 {
    let half = (word >> (16 * i)) as u16;
    if signed { (half as i16).into() } else { half.into() }
}

fn dot4(a: u32, b: u32, c: i32, signed: (bool, bool)) -> i32 {
    (0..4).fold(c, |sum, i| sum.wrapping_add(byte(a, i, signed.0) * byte(b, i, signed.1)))
}

fn dot2(a: u32, b: u32, c: i32, signed: (bool, bool), first: usize) -> i32 {
    (0..2).fold(c, |sum, i| sum.wrapping_add(half(a, i, signed.0) * byte(b, first + i, signed.1)))
}

#[test]
fn dot_products() {
    let mut table = Table::<u32, u32, i32, i32>::new(edges());
    macro_rules! signs {
        ($($a:ident $b:ident;)*) => { $(
            let signed = (<$a as Packed>::SIGNED, <$b as Packed>::SIGNED);
            let name = |what| format!("{what} {} {}", stringify!($a), stringify!($b));
            table = table
                .ternary(name("dp4a"), |a, b, c| dp4a($a, a, $b, b, c), move |a, b, c| dot4(a, b, c, signed))
                .ternary(name("dp2a_low"), |a, b, c| dp2a_low($a, a, $b, b, c), move |a, b, c| dot2(a, b, c, signed, 0))
                .ternary(name("dp2a_high"), |a, b, c| dp2a_high($a, a, $b, b, c), move |a, b, c| dot2(a, b, c, signed, 2));
        )* };
    }
    signs! {
        Signed Signed;
        Signed Unsigned;
        Unsigned Signed;
        Unsigned Unsigned;
    }
    table.check();
}

#[test]
fn packed_words() {
    Table::<u16, u16, u16, u32>::new(edges())
        .binary(
            "pack_u16",
            |low, high| pack_u16(low, high),
            |low, high| u32::from(high) << 16 | u32::from(low),
        )
        .check();
    Table::<u32, u32, u32, u16>::new(edges())
        .unary("low half", |x| x.unpack_u16()[0], |x| x as u16)
        .unary("high half", |x| x.unpack_u16()[1], |x| (x >> 16) as u16)
        .check();
    Table::<f16, f16, f16, u32>::new(
        edges::<f16, f16, f16>().into_iter().filter(|r| !(r.0.is_nan() || r.1.is_nan())).collect(),
    )
    .binary(
        "pack_half2",
        |low, high| pack_half2(low, high).bitcast::<u32>(),
        |low, high| u32::from(high.to_bits()) << 16 | u32::from(low.to_bits()),
    )
    .check();
}

macro_rules! rotations {
    ($($name:ident $ty:ident;)*) => { $(
        #[test]
        fn $name() {
            type T = $ty;
            let amounts = [0u32, 1, 7, 8, 31, 33, 64];
            let rows = T::edges().into_iter().flat_map(|x| amounts.map(|amount| (x, amount, 0)));
            Table::<T, u32, u32, T>::new(rows.collect())
                .binary("rotate_left", |x, n| x.rotate_left(n), |x, n| x.rotate_left(n % T::BITS))
                .binary("rotate_right", |x, n| x.rotate_right(n), |x, n| x.rotate_right(n % T::BITS))
                .unary("swap_bytes", |x| x.swap_bytes(), |x| x.swap_bytes())
                .check();
        }
    )* };
}
rotations! {
    rotated_u8 u8;
    rotated_i8 i8;
    rotated_u16 u16;
    rotated_i16 i16;
    rotated_u32 u32;
    rotated_i32 i32;
    rotated_u64 u64;
    rotated_i64 i64;
}
