//! Stacks of matrices of a model that a product multiplies with one input vector.

use crate::kernels::gemv::Output;
use crate::kernels::launching::Trigger;
use crate::plan::{LaunchLabel, LaunchRole};
use crate::shape::tensors::{Tensor, TensorName};
use crate::shape::{Attention, FeedForward, Matrix, ModelShape, TensorSlice};
use crate::weights::WeightType;

/// Name of the buffer of the embedding.
pub(super) const EMBEDDING: &str = "token_embd";

/// A whole tensor of the model as a matrix without a bias.
pub(super) fn model_matrix(tensor: Tensor, rows: u32, ty: WeightType) -> Matrix {
    Matrix { slice: TensorSlice { tensor: tensor.of_model(), first_row: 0, rows }, ty, bias: None }
}

/// A stack of matrices that are multiplied with the same input vector.
#[derive(Clone)]
pub(super) struct Stack {
    pub label: LaunchLabel,
    /// Name of the weight buffer.
    pub buffer: String,
    pub cols: u32,
    pub members: Vec<Matrix>,
    /// Weights of the norm before the product.
    pub norm: Option<TensorName>,
    pub output: Output,
    /// Factor of the product.
    pub scale: f32,
    /// Soft cap of the product.
    pub softcap: Option<f32>,
    pub trigger: Trigger,
    /// Whether the inputs are outputs of the previous product, with or without a norm, so that it may write them
    /// ([`NextInputs`](crate::kernels::gemv::tokens::NextInputs)).
    pub may_receive: bool,
    /// See [`GemvShape::stores_factors`](crate::kernels::gemv::GemvShape::stores_factors).
    pub stores_factors: bool,
}

impl Stack {
    /// A stack without a norm, whose outputs are stored.
    pub fn plain(label: LaunchLabel, cols: u32, members: Vec<Matrix>) -> Stack {
        Stack {
            label,
            buffer: label.to_string(),
            cols,
            members,
            norm: None,
            output: Output::Store,
            scale: 1.0,
            softcap: None,
            trigger: Trigger::AtStart,
            may_receive: false,
            stores_factors: false,
        }
    }

    /// The stack with [`Stack::may_receive`].
    pub fn may_receive(self, may_receive: bool) -> Stack {
        Stack { may_receive, ..self }
    }

    /// Queries, keys and values of a layer.
    pub fn qkv(layer: u32, facts: &Attention, shape: &ModelShape) -> Stack {
        let label = LaunchLabel { layer: Some(layer), role: LaunchRole::AttnQkv };
        Stack {
            norm: facts.norms.before,
            // Attention reads the row's record, the page table, and earlier keys and values, before it waits.
            trigger: Trigger::AfterWait,
            ..Stack::plain(label, shape.dimensions.hidden, vec![facts.q, facts.k, facts.v])
        }
    }

    /// Gate and up of a layer.
    pub fn gate_up(layer: u32, facts: &FeedForward, shape: &ModelShape) -> Stack {
        let FeedForward::Dense { norms, activation, gate, up, .. } = facts;
        let label = LaunchLabel { layer: Some(layer), role: LaunchRole::FfnGateUp };
        Stack {
            norm: norms.before,
            output: Output::Glu(*activation),
            ..Stack::plain(label, shape.dimensions.hidden, vec![*gate, *up])
        }
    }

    /// The LM head: its own matrix, or the embedding.
    pub fn head(shape: &ModelShape) -> Stack {
        let (tensor, ty) = match shape.head {
            Some(ty) => (Tensor::Output, ty),
            None => (Tensor::TokenEmbd, shape.embedding),
        };
        let members = vec![model_matrix(tensor, shape.dimensions.vocab, ty)];
        let stack = Stack::plain(LaunchRole::Output.into(), shape.dimensions.hidden, members);
        Stack {
            buffer: if shape.head.is_some() { stack.buffer } else { EMBEDDING.into() },
            norm: Some(Tensor::OutputNorm.of_model()),
            output: Output::Argmax,
            scale: shape.multipliers.logits,
            softcap: shape.multipliers.softcap,
            ..stack
        }
    }
}
