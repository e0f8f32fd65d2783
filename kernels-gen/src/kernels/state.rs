//! Decoding state in device memory: the data that changes from token to token.
//!
//! Each slot (sequence) has a record of four u32:
//!
//! | word | contents |
//! | --- | --- |
//! | 0 | position of the token being processed, from 0 |
//! | 1 | number of prompt tokens; tokens at lower positions come from the prompt |
//! | 2, 3 | reserved |
//!
//! Each slot also has a u32 array of its tokens by position: the prompt, then the chosen tokens. The last kernel of a
//! step writes the next token and advances the position, so a replay needs no data from the host.

use bespoke_codegen::prelude::*;

/// Number of u32 words per slot.
pub const WORDS: u32 = 4;
/// Index of the position's word in a slot's record.
pub const POSITION: u32 = 0;
/// Index of the word for the number of prompt tokens.
pub const PROMPT: u32 = 1;

/// Tells the host, in place of a token, that the step's logits are not all finite. No vocabulary has this token.
pub const NOT_FINITE: u32 = u32::MAX - 1;

/// Loads the position of the token being processed, from a slot's record.
#[device]
pub fn position(state: Ptr<Global, u32>) -> Val<u32> {
    state.at(POSITION).load()
}
