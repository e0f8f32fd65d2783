//! The residual connection.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// The addition's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResidualAddShape {
    /// Elements.
    pub width: u32,
    /// Threads a CTA; the grid covers the elements once.
    pub threads: u32,
}

impl ResidualAddShape {
    /// CTAs.
    pub fn grid(&self) -> u32 {
        self.width.div_ceil(self.threads)
    }
}

/// x[i] += y[i], both f32 [width].
#[kernel(threads = s.threads)]
pub fn residual_add(x: Ptr<Global, f32>, y: Ptr<Global, f32>, s: &ResidualAddShape) {
    let i = block_index() * s.threads + thread_index();
    if i < s.width {
        x.at(i).store(x.at(i).load() + y.at(i).load());
    }
}
