//! Rows of a prefill step whose next tokens are chosen.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::state;

/// Compile-time parameters of the selection of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelectRowsShape {
    /// Number of rows of the step.
    pub tokens: u32,
    /// Number of columns: the width of the residual stream.
    pub cols: u32,
    /// Threads per CTA.
    pub threads: u32,
}

impl SelectRowsShape {
    /// CTAs: the columns along x, the rows of the step along y.
    pub fn grid(&self) -> [u32; 3] {
        [self.cols.div_ceil(self.threads), self.tokens, 1]
    }
}

/// y[row, i] = x[source of row, i]; 0 for a row that does not exist.
///
/// `x` is f32 [rows of the prefill step, cols], `state`: see [`state`] ([`state::SOURCE`]), `y` f32 [rows of the step, cols].
#[kernel(threads = s.threads)]
pub fn select_rows(x: Ptr<Global, f32>, state: Ptr<Global, u32>, y: Ptr<Global, f32>, s: &SelectRowsShape) {
    let column = block_index() * s.threads + thread_index();
    if column < s.cols {
        let (row, record) = (block_index_y(), state::record(state, block_index_y(), s.tokens));
        let active = (record.at(state::FLAGS).load() & state::ACTIVE) != 0;
        let source = select(active, record.at(state::SOURCE).load(), 0u32);
        let value = x.at(source * s.cols).at(column).load();
        let y = if s.tokens == 1 { y } else { y.at(row * s.cols) };
        y.at(column).store(select(active, value, 0.0f32));
    }
}
