//! Sort keys of logits, and orderings of tokens.
//!
//! The *key* of a logit is a u32 with the same order: the bits of the float with the sign bit inverted, and for
//! negative numbers all other bits as well. Both zeros have the same key; a NaN has the key of −∞. Key 0 is below the
//! key of every logit and stands for no token; key 2³² − 1 is above them and marks a logit that the model gave and that is
//! not finite.
//!
//! The *ordering* of a token is a u64 that ranks it: the key in bits 19 to 50, and 2¹⁹ − 1 minus the token's number
//! below. Orderings are unique; of equal logits the smaller token ranks higher.

use bespoke_codegen::prelude::*;

/// Number of bits of the token's number in an ordering.
pub const TOKEN_BITS: u32 = 19;
/// Sort key of the logit −∞.
pub const LOWEST: u32 = !f32::NEG_INFINITY.to_bits();

/// Sort key of a token whose logit, before bias and penalties, is not finite.
pub const NOT_FINITE: u32 = u32::MAX;

/// Sort key of a logit.
#[device]
pub fn key(logit: Val<f32>) -> Val<u32> {
    // `max` of a NaN and a number is the number.
    let number = logit.max(f32::NEG_INFINITY);
    let bits = select(number == 0.0, 0.0f32, number).bitcast::<u32>();
    let sign = (bits.bitcast::<i32>() >> 31).bitcast::<u32>();
    bits ^ (sign | 0x8000_0000)
}

/// The logit that has sort key `key`.
#[device]
pub fn logit(key: Val<u32>) -> Val<f32> {
    select(key >= 0x8000_0000, key ^ 0x8000_0000, !key).bitcast::<f32>()
}

/// Ordering of token `token`, whose logit has sort key `key`.
#[device]
pub fn ordering(key: Val<u32>, token: Val<u32>) -> Val<u64> {
    (key.cast::<u64>() << TOKEN_BITS) | ((1 << TOKEN_BITS) - 1 - token).cast::<u64>()
}

/// Lowest ordering of a token whose logit has sort key `key`.
#[device]
pub fn lowest_with(key: Val<u32>) -> Val<u64> {
    key.cast::<u64>() << TOKEN_BITS
}

/// The sort key in an ordering.
#[device]
pub fn key_of(ordering: Val<u64>) -> Val<u32> {
    (ordering >> TOKEN_BITS).cast::<u32>()
}

/// The token's number in an ordering.
#[device]
pub fn token_of(ordering: Val<u64>) -> Val<u32> {
    ((1 << TOKEN_BITS) - 1) - (ordering.cast::<u32>() & ((1 << TOKEN_BITS) - 1))
}
