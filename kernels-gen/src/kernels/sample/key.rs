//! Keys: words that compare like the logits they are made of.
//!
//! The key of a logit is its bits with the sign turned round, and all others as well if it is negative: a u32 that
//! compares as the float does. Both zeros have the same key, a NaN that of −∞. 0, below every logit's key, stands for no
//! token.
//!
//! An *ordering* is a u64 that ranks tokens: the key in bits 19 to 50, below it the token's number subtracted from
//! 2¹⁹ − 1, so that orderings are unique and of equal logits the smaller token comes first.

use bespoke_codegen::prelude::*;

/// Bits of a token's number in an ordering.
pub const TOKEN_BITS: u32 = 19;
/// The key of −∞.
pub const LOWEST: u32 = !f32::NEG_INFINITY.to_bits();

/// The key of a logit.
#[device]
pub fn key(logit: Val<f32>) -> Val<u32> {
    // Of a NaN and a number, `max` gives the number.
    let number = logit.max(f32::NEG_INFINITY);
    let bits = select(number == 0.0, 0.0f32, number).bitcast::<u32>();
    let sign = (bits.bitcast::<i32>() >> 31).bitcast::<u32>();
    bits ^ (sign | 0x8000_0000)
}

/// The logit of a key.
#[device]
pub fn logit(key: Val<u32>) -> Val<f32> {
    select(key >= 0x8000_0000, key ^ 0x8000_0000, !key).bitcast::<f32>()
}

/// The ordering of a key and its token.
#[device]
pub fn ordering(key: Val<u32>, token: Val<u32>) -> Val<u64> {
    (key.cast::<u64>() << TOKEN_BITS) | ((1 << TOKEN_BITS) - 1 - token).cast::<u64>()
}

/// The lowest ordering with this key.
#[device]
pub fn lowest_with(key: Val<u32>) -> Val<u64> {
    key.cast::<u64>() << TOKEN_BITS
}

/// The key in an ordering.
#[device]
pub fn key_of(ordering: Val<u64>) -> Val<u32> {
    (ordering >> TOKEN_BITS).cast::<u32>()
}

/// The token in an ordering.
#[device]
pub fn token_of(ordering: Val<u64>) -> Val<u32> {
    ((1 << TOKEN_BITS) - 1) - (ordering.cast::<u32>() & ((1 << TOKEN_BITS) - 1))
}
