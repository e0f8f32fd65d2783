//! The kernel's pointers and the consumers' barrier, which the kernel and its epilogue share.

use bespoke_codegen::prelude::*;

/// Number of the barrier among the consumer warps.
pub(super) const CONSUMER_BARRIER: u8 = 1;

/// The kernel's pointers.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// Weights, biases and norm weights, at the shape's offsets.
    pub w: Ptr<Global, u8>,
    /// Input.
    pub x: Ptr<Global, f32>,
    /// Output.
    pub y: Ptr<Global, f32>,
    /// Value and row of each CTA's largest output.
    pub best: Option<(Ptr<Global, f32>, Ptr<Global, u32>)>,
}
