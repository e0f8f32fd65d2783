//! Arithmetic and comparisons of integers.

use bespoke_codegen::prelude::*;

use crate::table::{Table, edges};

#[device]
fn less<T: Number>(a: Val<T>, b: Val<T>) -> Val<u32> {
    select(a < b, 1, 0)
}

/// A bit mask of the comparisons that hold: bit 0 for `==`, then `!=`, `<`, `<=`, `>`, `>=`.
#[device]
pub fn compared<T: Number>(a: Val<T>, b: Val<T>) -> Val<u32> {
    let relations = [a == b, a != b, a < b, a <= b, a > b, a >= b];
    let mut bits = val(0u32);
    for (i, relation) in relations.iter().enumerate() {
        bits |= select(*relation, 1u32 << i, 0);
    }
    bits
}

/// Host counterpart of [`compared`].
pub fn compared_on_host<T: PartialOrd>(a: T, b: T) -> u32 {
    let relations = [a == b, a != b, a < b, a <= b, a > b, a >= b];
    relations.iter().enumerate().map(|(i, &relation)| u32::from(relation) << i).sum()
}

/// The smaller operand, selected by branches, with comparisons of either operand order.
#[device]
fn smaller<T: Number>(a: Val<T>, b: Val<T>) -> Val<T> {
    let mut result = b;
    if a < b {
        result = a;
    }
    result
}

/// Shift amounts, including amounts beyond every width.
const SHIFTS: [u32; 12] = [0, 1, 3, 7, 8, 15, 16, 31, 32, 33, 64, u32::MAX];

macro_rules! integers {
    ($($ty:ident $($signed:ident)?;)*) => { $(
        #[test]
        fn $ty() {
            type T = $ty;
            Table::<T, T, T, T>::new(edges())
                .binary("add", |a, b| a + b, |a, b| a.wrapping_add(b))
                .binary("sub", |a, b| a - b, |a, b| a.wrapping_sub(b))
                .binary("mul", |a, b| a * b, |a, b| a.wrapping_mul(b))
                .binary("and", |a, b| a & b, |a, b| a & b)
                .binary("or", |a, b| a | b, |a, b| a | b)
                .binary("xor", |a, b| a ^ b, |a, b| a ^ b)
                .binary("min", |a, b| a.min(b), |a, b| a.min(b))
                .binary("max", |a, b| a.max(b), |a, b| a.max(b))
                .binary("smaller", smaller, |a, b| a.min(b))
                .unary("not", |a| !a, |a| !a)
                .unary("neg", |a| -a, |a| a.wrapping_neg())
                .unary("add a constant", |a| a + (100 as T), |a| a.wrapping_add(100))
                .unary("constant less a value", |a| (100 as T) - a, |a| (100 as T).wrapping_sub(a))
                .unary("product with a power of two", |a| a * (16 as T), |a| a.wrapping_mul(16))
                .ternary(
                    "select",
                    |a, b, c| select(less_than(a, b), b, c),
                    |a, b, c| if a < b { b } else { c },
                )
                $(.unary("abs", |a| a.abs(), |a| integers!(@$signed a.wrapping_abs())))?
                .check();

            let divisible = edges::<T, T, T>().into_iter().filter(|&(a, b, _)| b != 0 && a.checked_div(b).is_some());
            Table::<T, T, T, T>::new(divisible.collect())
                .binary("div", |a, b| a / b, |a, b| a / b)
                .binary("rem", |a, b| a % b, |a, b| a % b)
                .unary("quotient of a power of two", |a| a / (8 as T), |a| a / 8)
                .unary("remainder of a power of two", |a| a % (8 as T), |a| a % 8)
                .check();

            let shifts = edges::<T, T, T>().into_iter().flat_map(|(a, ..)| SHIFTS.map(|by| (a, by, 0)));
            let fill = |a: T| if T::MIN != 0 && a.leading_zeros() == 0 { !0 } else { 0 };
            Table::<T, u32, u32, T>::new(shifts.collect())
                .binary("shl", |a, by| a << by, |a, by| a.checked_shl(by).unwrap_or(0))
                .binary("shr", |a, by| a >> by, move |a, by| a.checked_shr(by).unwrap_or(fill(a)))
                .check();

            Table::<T, T, T, u32>::new(edges())
                .binary("compared", compared, compared_on_host)
                .binary("less", less, |a, b| u32::from(a < b))
                .check();
        }
    )* };
    (@signed $value:expr) => { $value };
}

#[device]
fn less_than<T: Number>(a: Val<T>, b: Val<T>) -> Val<bool> {
    a < b
}

integers! {
    u8;
    u16;
    u32;
    u64;
    i8 signed;
    i16 signed;
    i32 signed;
    i64 signed;
}

macro_rules! multiplied {
    ($($name:ident $ty:ident $wide:ident $($mul_add:ident)?;)*) => { $(
        #[test]
        fn $name() {
            type T = $ty;
            let high = |a: T, b: T| (<$wide>::from(a).wrapping_mul(<$wide>::from(b)) >> T::BITS) as T;
            Table::<T, T, T, T>::new(edges())
                .binary("mul_high", |a, b| mul_high::<T>(a, b), high)
                $(.ternary("mul_add", |a, b, c| $mul_add::<T>(a, b, c), |a, b, c| a.wrapping_mul(b).wrapping_add(c)))?
                .check();
        }
    )* };
}
multiplied! {
    products_u16 u16 u32;
    products_i16 i16 i32;
    products_u32 u32 u64 mul_add;
    products_i32 i32 i64 mul_add;
    products_u64 u64 u128 mul_add;
    products_i64 i64 i128 mul_add;
}

#[test]
fn wide_products() {
    Table::<u32, u32, u32, u64>::new(edges())
        .binary("mul_wide", |a, b| mul_wide(a, b), |a, b| u64::from(a) * u64::from(b))
        .check();
}

#[device]
fn logic(a: Val<u32>, b: Val<u32>, c: Val<u32>) -> Val<u32> {
    let (p, q, r) = (a & 1 == 1, b > 7, c == 0);
    let results =
        [p & q, p | q, p ^ q, !p, p && q, p || r, select(p, q, r), select(p, true, r), select(q, p, false)];
    let mut bits = val(0u32);
    for (i, result) in results.iter().enumerate() {
        bits |= select(*result, 1u32 << i, 0);
    }
    bits
}

#[test]
fn predicates() {
    Table::<u32, u32, u32, u32>::new(edges())
        .ternary("logic", logic, |a, b, c| {
            let (p, q, r) = (a & 1 == 1, b > 7, c == 0);
            let chosen = if p { q } else { r };
            let results = [p & q, p | q, p ^ q, !p, p && q, p || r, chosen, p || r, q && p];
            results.iter().enumerate().map(|(i, &result)| u32::from(result) << i).sum()
        })
        .check();
}
