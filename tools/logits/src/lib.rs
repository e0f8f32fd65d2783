//! Files of logits, and the error of logits against a reference.

use std::path::Path;

use miette::{IntoDiagnostic, WrapErr};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// Encodes a safetensors file with `tokens` (i32 `[tokens]`) and `logits` (f32 `[tokens, vocab]`).
pub fn safetensors(tokens: &[u32], logits: &[f32], vocab: usize) -> miette::Result<Vec<u8>> {
    let count = tokens.len();
    let tokens: Vec<u8> = tokens.iter().flat_map(|&token| (token as i32).to_le_bytes()).collect();
    let logits: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    let tensors = [
        ("tokens", TensorView::new(Dtype::I32, vec![count], &tokens).into_diagnostic()?),
        ("logits", TensorView::new(Dtype::F32, vec![count, vocab], &logits).into_diagnostic()?),
    ];
    safetensors::serialize(tensors, None).into_diagnostic()
}

/// Tokens, and the logits after some or all of them.
pub struct Reference {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Positions of the tokens whose logits are stored, in ascending order.
    pub positions: Vec<u32>,
    /// Tokens of the vocabulary: logits after each token.
    pub vocab: usize,
    /// Logits after each of these tokens, f32 [positions, vocab].
    pub logits: Vec<f32>,
}

/// Why logits cannot be compared with a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Incomparable {
    /// The vocabularies have different sizes.
    #[error("the reference has logits of {reference} tokens, the model has a vocabulary of {model}")]
    Vocab {
        /// Tokens of the reference's vocabulary.
        reference: usize,
        /// Tokens of the model's vocabulary.
        model: usize,
    },
    /// The sequences have different lengths.
    #[error(
        "the reference has {reference} tokens, the prompt has {given}; without a prompt, those of the reference are used"
    )]
    Length {
        /// Number of tokens of the reference.
        reference: usize,
        /// Number of tokens of the prompt.
        given: usize,
    },
    /// The sequences differ.
    #[error(
        "the reference has token {reference} at position {position}, the prompt has {given}; without a prompt, the tokens of the reference are used"
    )]
    Token {
        /// The first position that differs.
        position: usize,
        /// The reference's token.
        reference: u32,
        /// The prompt's token.
        given: u32,
    },
}

impl Reference {
    /// Reads a safetensors file as [`safetensors()`] encodes it. A file may also have `positions` (i32): the positions
    /// whose logits it stores; without it, those are all positions.
    pub fn read(path: &Path) -> miette::Result<Reference> {
        let context = || format!("cannot read {}", path.display());
        let bytes = std::fs::read(path).into_diagnostic().wrap_err_with(context)?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|error| miette::miette!("{} is not a safetensors file: {error}", path.display()))?;
        let words = |name: &str, dtype: Dtype| -> miette::Result<Vec<[u8; 4]>> {
            let tensor = file.tensor(name).into_diagnostic().wrap_err_with(context)?;
            if tensor.dtype() != dtype {
                miette::bail!("{}: `{name}` is {:?}, not {dtype:?}", path.display(), tensor.dtype());
            }
            Ok(tensor.data().as_chunks::<4>().0.to_vec())
        };
        let integers = |name: &str| -> miette::Result<Vec<u32>> {
            Ok(words(name, Dtype::I32)?.into_iter().map(u32::from_le_bytes).collect())
        };
        let tokens = integers("tokens")?;
        let positions = match file.tensor("positions") {
            Ok(_) => integers("positions")?,
            Err(_) => (0..tokens.len() as u32).collect(),
        };
        let ascending = positions.is_sorted_by(|a, b| a < b);
        if !ascending || positions.last().is_some_and(|&last| last as usize >= tokens.len()) {
            miette::bail!(
                "{}: `positions` must be ascending and below {}, the number of tokens",
                path.display(),
                tokens.len()
            );
        }
        let shape = file.tensor("logits").into_diagnostic().wrap_err_with(context)?.shape().to_vec();
        let vocab = match shape.as_slice() {
            &[rows, vocab] if rows == positions.len() => vocab,
            _ => miette::bail!(
                "{}: `logits` has the shape {shape:?}, not [{}, vocab] for its positions",
                path.display(),
                positions.len()
            ),
        };
        Ok(Reference {
            tokens,
            positions,
            vocab,
            logits: words("logits", Dtype::F32)?.into_iter().map(f32::from_le_bytes).collect(),
        })
    }
}

impl Reference {
    /// Checks that a model with `vocab` tokens in its vocabulary has logits to compare after `tokens`, if these are given.
    ///
    /// # Errors
    /// If the vocabularies' sizes or the tokens differ.
    pub fn check_comparable(&self, tokens: Option<&[u32]>, vocab: usize) -> Result<(), Incomparable> {
        if vocab != self.vocab {
            return Err(Incomparable::Vocab { reference: self.vocab, model: vocab });
        }
        let Some(tokens) = tokens else { return Ok(()) };
        let pairs = self.tokens.iter().zip(tokens).enumerate();
        if let Some((position, (&reference, &given))) = pairs.into_iter().find(|(_, (a, b))| a != b) {
            return Err(Incomparable::Token { position, reference, given });
        }
        if tokens.len() != self.tokens.len() {
            return Err(Incomparable::Length { reference: self.tokens.len(), given: tokens.len() });
        }
        Ok(())
    }
}

/// Normalised mean squared error Σ(ours − reference)² / Σ reference² in float64; `None` if the sizes differ.
pub fn nmse(ours: &[f32], reference: &[f32]) -> Option<f64> {
    if ours.len() != reference.len() {
        return None;
    }
    let (mut error, mut energy) = (0.0, 0.0);
    for (&ours, &reference) in ours.iter().zip(reference) {
        error += (f64::from(ours) - f64::from(reference)).powi(2);
        energy += f64::from(reference).powi(2);
    }
    Some(error / energy)
}
