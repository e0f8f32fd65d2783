//! The kernel's pointers and the consumers' barrier, which the kernel and its epilogue share.

use bespoke_codegen::prelude::*;

/// Number of the named barrier of the consumer warps.
pub(super) const CONSUMER_BARRIER: u8 = 1;

/// The pointers of a GEMV kernel.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// Weights, biases and norm weights, at the offsets of [`GemvShape::offsets`](super::GemvShape::offsets).
    pub w: Ptr<Global, u8>,
    /// Inputs: f32 `[tokens][cols]`, or the output of a launch of `prepare`.
    pub x: Ptr<Global, f32>,
    /// Output vector, f32 `[outputs]`.
    pub y: Ptr<Global, f32>,
    /// Value and row of each CTA's largest output; `None` unless the output is an argmax.
    pub best: Option<(Ptr<Global, f32>, Ptr<Global, u32>)>,
}
