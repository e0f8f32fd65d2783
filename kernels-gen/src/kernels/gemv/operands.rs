//! The kernel's pointers and the consumers' barrier, which the kernel and its epilogue share.

use bespoke_codegen::prelude::*;

/// Number of the named barrier of the consumer warps.
pub(super) const CONSUMER_BARRIER: u8 = 1;

/// The pointers of a GEMV kernel.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// Weights, biases and norm weights, at the offsets of [`GemvShape::offsets`](super::GemvShape::offsets).
    pub w: Ptr<Global, u8>,
    /// Inputs: f32 `[tokens][cols]`, or the records that `prepare` or the previous product wrote.
    pub x: Ptr<Global, f32>,
    /// Output vector, f32 `[outputs]`; `None` if the outputs are only stored as the inputs of the next product.
    pub y: Option<Ptr<Global, f32>>,
    /// Value and row of each CTA's largest output; `None` unless the output is an argmax.
    pub best: Option<(Ptr<Global, f32>, Ptr<Global, u32>)>,
    /// The sums of squares of the inputs, with [`GemvShape::received`](super::GemvShape::received) and a norm.
    pub squares: Option<Ptr<Global, u64>>,
    /// Where the factors of the norm are stored, f32 `[token]`, with [`GemvShape::stores_factors`](super::GemvShape::stores_factors).
    pub factors: Option<Ptr<Global, f32>>,
    /// The sums of squares of the next norm, fixed-point numbers `[part][token]` (`tokens/next`). Cleared with
    /// [`GemvShape::stores_factors`](super::GemvShape::stores_factors); with [`GemvShape::next`](super::GemvShape::next) and a norm, added
    /// to.
    pub next_squares: Option<Ptr<Global, u64>>,
    /// What is written for the next product, with [`GemvShape::next`](super::GemvShape::next).
    pub next: Option<NextOperands>,
}

impl Operands {
    /// The output vector of a product that stores one.
    pub fn outputs(&self) -> Ptr<Global, f32> {
        self.y.expect("the product stores its outputs")
    }

    /// The inputs of the next product, of a product that writes them.
    pub fn next_inputs(&self) -> Ptr<Global, u8> {
        self.next.expect("the product writes the inputs of the next one").inputs
    }
}

/// What an epilogue writes for the next product, and what it needs for that.
#[derive(Clone, Copy)]
pub(super) struct NextOperands {
    /// The inputs, in the layout of [`NextInputs`](super::tokens::NextInputs).
    pub inputs: Ptr<Global, u8>,
    /// For the norm of the next product, if it has one.
    pub norm: Option<NextNorm>,
}

/// Operands for the norm of the next product.
#[derive(Clone, Copy)]
pub(super) struct NextNorm {
    /// Its weights, f32 `[outputs]`.
    pub weights: Ptr<Global, f32>,
    /// The factors 1 / √(mean(x²) + ε) of the previous norm, f32 `[token]`.
    pub factors: Ptr<Global, f32>,
}
