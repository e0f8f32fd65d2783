//! Philox-4x32-10, a counter-based random number generator.
//!
//! Salmon, Moraes, Dror and Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011. Ten rounds of two 32-bit
//! multiplications map a counter of four words and a key of two words to four random words. The generator has no state.

use bespoke_codegen::prelude::*;

/// Multipliers of the first and the third word.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Increments of the key per round: the fractions of the golden ratio and of √3.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Number of rounds of Philox-4x32-10.
const ROUNDS: u32 = 10;

/// The random words of a counter under a key.
#[device]
pub fn philox(counter: [Val<u32>; 4], key: [Val<u32>; 2]) -> [Val<u32>; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    let [mut first, mut second] = key;
    for _ in 0..ROUNDS {
        let (low_a, high_a) = (a * MULTIPLIERS[0], mul_high(a, MULTIPLIERS[0]));
        let (low_c, high_c) = (c * MULTIPLIERS[1], mul_high(c, MULTIPLIERS[1]));
        a = high_c ^ b ^ first;
        b = low_c;
        c = high_a ^ d ^ second;
        d = low_a;
        first += WEYL[0];
        second += WEYL[1];
    }
    [a, b, c, d]
}
