//! Perplexity of a model on a text, and the divergence of two models' predictions.
//!
//! A text is cut into [`windows()`] of the length of the context. In each window the model predicts every token from the
//! tokens before it; some of the predictions are scored. Logits are computed on the device in f32, everything after
//! them on the host in double precision.

mod compare;
mod measure;
mod predictions;
mod statistics;
pub mod text;
mod vocabulary;
mod windows;

pub use compare::{Comparison, Divergence, compare};
pub use measure::{Perplexity, Score, Work, perplexity};
use predictions::Prediction;
pub use statistics::Estimate;
pub use vocabulary::{VocabularyError, check_vocabularies};
pub use windows::{Cut, Window, WindowError, positions, windows};

use std::ops::ControlFlow;

/// A text as tokens, and its division.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Token ids.
    pub tokens: &'a [u32],
    /// The windows, from [`windows()`].
    pub windows: &'a [Window],
    /// Beginning-of-sequence token that replaces the first token of each window; for models that expect one.
    pub bos: Option<u32>,
}

/// Progress callback: number of positions that were processed. A break ends the measurement; the result is that of the
/// predictions so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;
