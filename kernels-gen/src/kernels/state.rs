//! What changes from token to token, in device memory.
//!
//! One record of four u32 a slot (sequence):
//!
//! | word | contents |
//! | --- | --- |
//! | 0 | position of the token being processed, from 0 |
//! | 1 | number of prompt tokens; the token at a position below it is given, not chosen |
//! | 2, 3 | reserved |
//!
//! The tokens themselves are a u32 array a slot, indexed by position: the prompt, then what was chosen. The last
//! kernel of a step writes the next token and advances the position, so a replay needs nothing from the host.

use bespoke_codegen::prelude::*;

/// Words a slot.
pub const WORDS: u32 = 4;
/// Index of the position.
pub const POSITION: u32 = 0;
/// Index of the prompt's length.
pub const PROMPT: u32 = 1;

/// The position of the token being processed.
#[device]
pub fn position(state: Ptr<Global, u32>) -> Val<u32> {
    state.at(POSITION).load()
}
