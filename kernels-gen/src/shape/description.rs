//! Description of a dense decoder: what a plan is built from, without the name of an architecture.
//!
//! ```text
//! x = embedding(token) · multipliers.embedding
//! for each layer, for each block (attention, feed-forward):
//!     x += multipliers.residual · after(block(before(x)))          before, after: RMSNorm or nothing
//! logits = softcap(output(RMSNorm(x)) · multipliers.logits)
//! ```

use serde::{Deserialize, Serialize};

use super::rope::RopeTable;
use super::tensors::{Tensor, TensorName};
use super::{Architecture, Dimensions, ShapeError};
use crate::kernels::activation::Activation;
use crate::kernels::attention::NormSpan;
use crate::weights::WeightType;

/// Everything about a model that kernels and plans are specialised for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Name, used in messages and in names of files.
    pub name: String,
    /// The architecture, for messages and metadata keys.
    pub architecture: Architecture,
    /// The dimensions.
    pub dimensions: Dimensions,
    /// Longest context that plans support, in positions, if later positions need a temperature of the queries.
    pub max_context: Option<u32>,
    /// Constant factors, and the soft cap of the logits.
    pub multipliers: Multipliers,
    /// Tables of RoPE's frequencies, each once.
    pub ropes: Vec<RopeTable>,
    /// Type of `token_embd`.
    pub embedding: WeightType,
    /// Type of `output`; none if the embedding serves as the output matrix.
    pub head: Option<WeightType>,
    /// The layers.
    pub layers: Vec<Layer>,
}

impl ModelShape {
    /// Checks that the description is consistent: its dimensions are supported, and it has as many layers as they say and the
    /// tables of RoPE that these name.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self) -> Result<(), ShapeError> {
        self.dimensions.check()?;
        let (layers, expected) = (self.layers.len(), self.dimensions.layers);
        if layers as u64 != u64::from(expected) {
            return Err(ShapeError::Unsupported(format!(
                "{layers} layers are described, {expected} expected"
            )));
        }
        let tables = self.ropes.len();
        if tables > MAX_ROPES {
            return Err(ShapeError::Unsupported(format!(
                "{tables} tables of RoPE's frequencies; at most {MAX_ROPES} are supported"
            )));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            if let Some(table) = layer.attention.rope.filter(|&table| table >= tables) {
                return Err(ShapeError::Unsupported(format!(
                    "layer {index} has table {table} of RoPE's frequencies, counted from 0, but the model has {tables}"
                )));
            }
        }
        Ok(())
    }
}

/// Largest number of tables of RoPE's frequencies: of layers with and without a window.
const MAX_ROPES: usize = 2;

/// Constant factors of a model, and the soft cap of its logits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Multipliers {
    /// Factor of the embedding.
    pub embedding: f32,
    /// Factor of a block's output before the residual is added.
    pub residual: f32,
    /// Factor of the logits.
    pub logits: f32,
    /// Bound of the logits: x becomes softcap · tanh(x / softcap), after the factor.
    pub softcap: Option<f32>,
}

/// A layer: attention, then a feed-forward network, each with a residual connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// The attention block.
    pub attention: Attention,
    /// The feed-forward block.
    pub feed_forward: FeedForward,
}

/// Weights of the RMSNorms around a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// Norm of the block's input.
    pub before: Option<TensorName>,
    /// Norm of the block's output, before the residual is added.
    pub after: Option<TensorName>,
}

/// Attention of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Norms around the block.
    pub norms: Norms,
    /// Projection to queries.
    pub q: Matrix,
    /// Projection to keys.
    pub k: Matrix,
    /// Projection to values.
    pub v: Matrix,
    /// Projection of attention's result.
    pub output: Matrix,
    /// Norms of queries and keys before RoPE.
    pub qk_norm: Option<LayerQkNorm>,
    /// Index in [`ModelShape::ropes`]; `None` for a layer without RoPE.
    pub rope: Option<usize>,
    /// Sliding window: a position attends to itself and to the `window - 1` positions before it.
    pub window: Option<u32>,
    /// Factor of the scores.
    pub scale: f32,
    /// Bound of the scaled scores: x becomes softcap · tanh(x / softcap).
    pub softcap: Option<f32>,
}

/// RMSNorms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerQkNorm {
    /// The elements that are normalised together.
    pub span: NormSpan,
    /// Weights of the norm of queries.
    pub q: TensorName,
    /// Weights of the norm of keys.
    pub k: TensorName,
}

/// Feed-forward network of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedForward {
    /// down · (activation(gate · x) ⊙ up · x): one network for all tokens.
    Dense {
        /// Norms around the block.
        norms: Norms,
        /// Activation of the gate.
        activation: Activation,
        /// Projection to the gate.
        gate: Matrix,
        /// Projection to the values that the gate multiplies.
        up: Matrix,
        /// Projection to the residual stream.
        down: Matrix,
    },
}

/// Rows of a tensor: a whole tensor, or a part of a fused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSlice {
    /// The tensor.
    pub tensor: TensorName,
    /// Index of the first row.
    pub first_row: u32,
    /// Number of rows.
    pub rows: u32,
}

/// A weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// The rows of a tensor that hold the matrix.
    #[serde(flatten)]
    pub slice: TensorSlice,
    /// Type of the weights.
    pub ty: WeightType,
    /// The bias, whose elements have the indices of the matrix' rows.
    pub bias: Option<TensorName>,
}

impl ModelShape {
    /// The weight matrices of the layers in order, then the head.
    pub fn matrix_types(&self) -> impl Iterator<Item = WeightType> {
        self.layers.iter().flat_map(|layer| layer.matrices().map(|matrix| matrix.ty)).chain(self.head)
    }

    /// Names of the model's tensors: embedding and RoPE's divisors, the layers in order, then the head.
    pub fn tensors(&self) -> impl Iterator<Item = TensorName> {
        let ropes = self.ropes.iter().flat_map(|rope| rope.divisors.tensors());
        let mut ropes: Vec<TensorName> = ropes.collect();
        ropes.dedup();
        let before = [Tensor::TokenEmbd.of_model()].into_iter().chain(ropes);
        let layers = (0..).zip(&self.layers).flat_map(|(layer, facts)| {
            // The order of the table.
            let names = facts.tensors();
            let listed = Tensor::OF_LAYER.iter().map(move |tensor| tensor.of_layer(layer));
            listed.filter_map(move |listed| names.iter().copied().find(|name| name.tensor == listed.tensor))
        });
        let after = [Tensor::OutputNorm.of_model()].into_iter();
        before.chain(layers).chain(after).chain(self.head.map(|_| Tensor::Output.of_model()))
    }
}

impl Layer {
    /// The layer's matrices: Q, K, V, output, then those of the feed-forward network.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let Attention { q, k, v, output, .. } = &self.attention;
        let FeedForward::Dense { gate, up, down, .. } = &self.feed_forward;
        [q, k, v, output, gate, up, down].into_iter()
    }

    /// Names of the layer's tensors, in no particular order.
    fn tensors(&self) -> Vec<TensorName> {
        let FeedForward::Dense { norms, .. } = &self.feed_forward;
        let mut names: Vec<TensorName> = self.matrices().map(|matrix| matrix.slice.tensor).collect();
        names.extend(self.matrices().filter_map(|matrix| matrix.bias));
        for norms in [&self.attention.norms, norms] {
            names.extend(norms.before.into_iter().chain(norms.after));
        }
        names.extend(self.attention.qk_norm.into_iter().flat_map(|norm| [norm.q, norm.k]));
        names
    }
}
