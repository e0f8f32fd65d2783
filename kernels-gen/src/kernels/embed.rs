//! A row of the embedding matrix: `x = E[token]`.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::gemv::float_weights;
use super::quants;
use super::state;
use crate::weights::{Layout, PlaneKind, WeightType};

/// The embedding's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EmbedShape {
    /// The weights' type.
    pub ty: WeightType,
    /// Tokens.
    pub vocab: u32,
    /// Width.
    pub cols: u32,
    /// Threads a CTA; the grid covers the row once.
    pub threads: u32,
}

impl EmbedShape {
    /// Where the matrix' planes lie.
    ///
    /// # Panics
    /// If the type's blocks do not divide the width; a plan checks that first.
    pub fn layout(&self) -> Layout {
        Layout::new(self.ty, self.vocab, self.cols).expect("whole blocks a row")
    }

    /// Threads that have work: one for each chunk of 32 weights, or each 16 bytes of floats.
    fn units(&self) -> u32 {
        if self.ty.is_quantised() { self.cols / 32 } else { self.layout().planes[0].row_bytes / 16 }
    }

    /// CTAs.
    pub fn grid(&self) -> u32 {
        self.units().div_ceil(self.threads)
    }
}

/// x[i] = E[tokens[position], i].
///
/// `w` is the matrix [vocab, cols] in its [`Layout`], `tokens` u32 by position, `state` see [`state`], `x` f32
/// [cols]. A token outside the vocabulary reads row 0.
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
        let token = tokens.at(state::position(state)).load();
        let row = select(token < s.vocab, token, 0u32);
        if s.ty.is_quantised() {
            let chunk = quants::load_chunk(w, &layout, row, unit);
            let out = x.at(unit * 32);
            let values = quants::values(&chunk);
            for (i, four) in values.chunks_exact(4).enumerate() {
                out.at(4 * i).store_vector([four[0], four[1], four[2], four[3]]);
            }
        } else {
            let plane = layout.plane(PlaneKind::Floats);
            let values = float_weights(w.bytes(mul_wide(row, plane.row_bytes)).bytes(unit * 16), s.ty);
            let first = unit * values.len() as u32;
            for (i, value) in values.into_iter().enumerate() {
                let column = first + i as u32;
                if column < s.cols {
                    x.at(column).store(value);
                }
            }
        }
    }
}
