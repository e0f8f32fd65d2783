//! The gated activation of the feed-forward network.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// SwiGLU's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SwigluShape {
    /// Elements.
    pub width: u32,
    /// Threads a CTA; the grid covers the elements once.
    pub threads: u32,
}

impl SwigluShape {
    /// CTAs.
    pub fn grid(&self) -> u32 {
        self.width.div_ceil(self.threads)
    }
}

/// y[i] = gate[i] / (1 + e^−gate[i]) · up[i].
///
/// `x` f32 [2, width]: the gate, then up; `y` f32 [width].
#[kernel(threads = s.threads)]
pub fn swiglu(x: Ptr<Global, f32>, y: Ptr<Global, f32>, s: &SwigluShape) {
    let i = block_index() * s.threads + thread_index();
    if i < s.width {
        let (gate, up) = (x.at(i).load(), x.at(i).at(s.width).load());
        y.at(i).store(gate / (1.0 + (-gate).exp()) * up);
    }
}
