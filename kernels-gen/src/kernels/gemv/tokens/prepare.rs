//! Preparation of the inputs of a product of several tokens: normalises and quantises each input once, where every CTA of
//! the product would have to do it otherwise.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::inputs::store_unit;
use crate::kernels::gemv::inputs::{UNIT, load_unit, sum_of_squares};
use crate::kernels::gemv::layout::InputLayout;
use crate::kernels::launching::Trigger;

/// Compile-time parameters of [`prepare`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PrepareShape {
    /// Number of inputs of a token.
    pub cols: u32,
    /// Whether the inputs are multiplied by the weights of a norm, and their squares added up.
    pub normed: bool,
    /// Layout of the prepared inputs.
    pub layout: InputLayout,
    /// The event that lets the product start: it loads weights meanwhile.
    pub trigger: Trigger,
}

/// Warps per CTA; each has 256 columns of a token.
const WARPS: u32 = 4;

impl PrepareShape {
    /// Threads per CTA.
    pub fn threads(&self) -> u32 {
        WARPS * WARP
    }

    /// Number of CTAs.
    pub fn grid(&self) -> u32 {
        self.layout.padded_tokens() * self.layout.squares() / WARPS
    }

    /// Size of the prepared inputs in bytes: the records of [`InputLayout`], then for a norm the sums of squares, f32
    /// `[token][256 columns]`.
    pub fn bytes(&self) -> u64 {
        let squares = if self.normed { self.layout.padded_tokens() * self.layout.squares() * 4 } else { 0 };
        u64::from(self.layout.bytes()) + u64::from(squares)
    }
}

/// Writes the inputs x, multiplied by the norm's weights if there are any, to `y` in the layout that products of several
/// tokens read, and for a norm the sums of their squares.
///
/// `x` is f32 `[tokens][cols]`, `norm` f32 `[cols]`, `y` has [`PrepareShape::bytes`] bytes, aligned to 16.
#[kernel(threads = s.threads())]
pub fn prepare(
    x: Ptr<Global, f32>,
    #[present(s.normed)] norm: Option<Ptr<Global, f32>>,
    y: Ptr<Global, u8>,
    s: &PrepareShape,
) {
    s.trigger.at_start();
    let layout = &s.layout;
    let warp = block_index() * WARPS + warp_index();
    let (token, group) = (warp / layout.squares(), warp % layout.squares());
    let unit = group * WARP + lane();
    let weights = norm.map(|norm| load_unit(norm, unit, s.cols));
    s.trigger.wait();
    let mut values = vec![val(0.0f32); UNIT as usize];
    if layout.padded_tokens() == layout.tokens {
        values = load_unit(x.byte_add(mul_wide(token, s.cols * 4)), unit, s.cols);
    } else {
        if token < layout.tokens {
            values = load_unit(x.byte_add(mul_wide(token, s.cols * 4)), unit, s.cols);
        }
    }
    if let Some(weights) = weights {
        let sum = sum_of_squares(&values);
        if lane() == 0 {
            y.byte_add(layout.bytes()).cast::<f32>().at(warp).store(sum);
        }
        values = values.iter().zip(&weights).map(|(&value, &weight)| value * weight).collect();
    }
    store_unit(&values, unit, token, y, layout);
}
