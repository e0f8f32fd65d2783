//! Embedding of the token of each row: `x = scale · E[token]`.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::rows;
use super::state;
use crate::weights::{Layout, WeightType};

/// Compile-time parameters of the embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbedShape {
    /// Number of rows of the step.
    pub tokens: u32,
    /// Type of the embedding's weights.
    pub ty: WeightType,
    /// Number of tokens in the vocabulary: rows of the embedding.
    pub vocab: u32,
    /// Number of columns: the width of the residual stream.
    pub cols: u32,
    /// Factor of the row; normally 1.
    pub scale: f32,
    /// Threads per CTA.
    pub threads: u32,
}

impl EmbedShape {
    /// Layout of the embedding in device memory.
    ///
    /// # Panics
    /// If the block size of the type does not divide `cols`; plans check that first.
    pub fn layout(&self) -> Layout {
        Layout::new(self.ty, self.vocab, self.cols).expect("whole blocks a row")
    }

    /// Number of threads that have work: one per eight columns.
    fn units(&self) -> u32 {
        self.cols.div_ceil(32) * 4
    }

    /// CTAs: the columns along x, the rows of the step along y.
    pub fn grid(&self) -> [u32; 3] {
        [self.units().div_ceil(self.threads), self.tokens, 1]
    }
}

/// x[row, i] = scale · E[tokens[position of the row], i]; 0 for a row that does not exist.
///
/// `w` is the matrix [vocab, cols] in its [`Layout`], `tokens` u32: the tokens of each sequence by position, `state`: see
/// [`state`], `x` f32 [rows of the step, cols]. A token outside the vocabulary reads row 0.
#[kernel(threads = s.threads)]
pub fn embed(
    w: Ptr<Global, u8>,
    tokens: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    x: Ptr<Global, f32>,
    s: &EmbedShape,
) {
    let unit = block_index() * s.threads + thread_index();
    let layout = s.layout();
    if unit < s.units() {
        let record = state::record(state, block_index_y(), s.tokens);
        let x = if s.tokens == 1 { x } else { x.at(block_index_y() * s.cols) };
        let active = (record.at(state::FLAGS).load() & state::ACTIVE) != 0;
        let at = record.at(state::TOKENS).load() + state::position(record);
        let token = tokens.at(select(active, at, 0u32)).load();
        let row = select(token < s.vocab, token, 0u32);
        let (chunk, quarter) = (unit >> 2, unit & 3);
        let eight = rows::quarter_of_chunk(w, &layout, row, chunk, quarter);
        for (column, values) in eight.columns.into_iter().zip(eight.values) {
            let column = chunk * 32 + column;
            let values = values.map(|value| if s.scale == 1.0 { value } else { value * s.scale });
            let values = values.map(|value| select(active, value, 0.0f32));
            if s.cols % 32 == 0 {
                x.at(column).store_vector(values);
            } else {
                for (i, value) in (0u32..).zip(values) {
                    if column + i < s.cols {
                        x.at(column + i).store(value);
                    }
                }
            }
        }
    }
}
