//! Row records: the data of a step that changes from step to step, in device memory.
//!
//! A step processes rows; each row is one token of one sequence. Each row has a record of [`WORDS`] u32:
//!
//! | word | contents |
//! | --- | --- |
//! | 0 | position of the row's token in its sequence, from 0 |
//! | 1 | number of prompt tokens of the sequence; tokens at lower positions come from the prompt |
//! | 2 | flags: [`ACTIVE`], [`CHOOSES`] |
//! | 3 | index of the sequence's slot, which selects its sampling parameters |
//! | 4 | index in the token buffers of the sequence's token at position 0 |
//! | 5 | index in the page table of the sequence's first page |
//! | 6 | in a first-token step, index of the row in the prefill step before it that processed the token |
//! | 7 | reserved, zero |
//!
//! The token buffers have the tokens of each sequence by position: the prompt, then the chosen tokens. The last kernel of a
//! step writes the next token of each row that [`CHOOSES`] and advances the row's position, so that a replay needs no
//! data from the host.

use bespoke_codegen::prelude::*;

/// Number of u32 words of a row's record.
pub const WORDS: u32 = 8;
/// Index of the position's word in a row's record.
pub const POSITION: u32 = 0;
/// Index of the word for the number of prompt tokens.
pub const PROMPT: u32 = 1;
/// Index of the word of flags.
pub const FLAGS: u32 = 2;
/// Index of the word for the sequence's slot.
pub const SLOT: u32 = 3;
/// Index of the word for the sequence's first token in the token buffers.
pub const TOKENS: u32 = 4;
/// Index of the word for the sequence's first entry in the page table.
pub const PAGES: u32 = 5;
/// Index of the word for the row of the prefill step before a first-token step.
pub const SOURCE: u32 = 6;

/// Flag of a row that exists. A step's rows without this flag have no lasting effect.
pub const ACTIVE: u32 = 1;
/// Flag of a row after which the next token is chosen. The row's position then advances.
pub const CHOOSES: u32 = 2;

/// A row's record, as the host writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Position of the row's token in its sequence.
    pub position: u32,
    /// Number of prompt tokens of the sequence.
    pub prompt: u32,
    /// Whether the next token is chosen after this row; see [`CHOOSES`].
    pub chooses: bool,
    /// Index of the sequence's slot.
    pub slot: u32,
    /// Index in the token buffers of the sequence's token at position 0.
    pub tokens: u32,
    /// Index in the page table of the sequence's first page.
    pub pages: u32,
    /// In a first-token step, index of the row in the prefill step before it that processed the token. Otherwise 0.
    pub source: u32,
}

impl Row {
    /// The words of an active row's record. The record of a row that does not exist has only zeros.
    pub fn words(&self) -> [u32; WORDS as usize] {
        let mut words = [0; WORDS as usize];
        words[POSITION as usize] = self.position;
        words[PROMPT as usize] = self.prompt;
        words[FLAGS as usize] = ACTIVE | if self.chooses { CHOOSES } else { 0 };
        words[SLOT as usize] = self.slot;
        words[TOKENS as usize] = self.tokens;
        words[PAGES as usize] = self.pages;
        words[SOURCE as usize] = self.source;
        words
    }
}

/// Value that the host gets in place of a token if the step's logits are not all finite. No vocabulary has this
/// token.
pub const NOT_FINITE: u32 = u32::MAX - 1;

/// Record of row `row` of a step with `tokens` rows.
#[device]
pub fn record(state: Ptr<Global, u32>, row: Val<u32>, tokens: u32) -> Ptr<Global, u32> {
    if tokens == 1 { state } else { state.at(row * WORDS) }
}

/// Whether row `row` of a step of several rows exists.
#[device]
pub fn exists(state: Ptr<Global, u32>, row: Val<u32>) -> Val<bool> {
    (state.at(row * WORDS).at(FLAGS).load() & ACTIVE) != 0
}

/// Whether the next token is chosen after the row of a record.
#[device]
pub fn chooses(record: Ptr<Global, u32>) -> Val<bool> {
    (record.at(FLAGS).load() & CHOOSES) != 0
}

/// Loads the position of the token being processed, from a row's record.
#[device]
pub fn position(state: Ptr<Global, u32>) -> Val<u32> {
    state.at(POSITION).load()
}
