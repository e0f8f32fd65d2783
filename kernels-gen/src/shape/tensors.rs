//! Names of tensors in a file. [`super::architecture`] has the table of tensors.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use super::architecture::Tensor;
pub use super::form::{Extent, Form};

impl Tensor {
    /// Name of this tensor, which belongs to the whole model.
    pub fn of_model(self) -> TensorName {
        TensorName { tensor: self, layer: None }
    }

    /// Name of this tensor in layer `layer`.
    pub fn of_layer(self, layer: u32) -> TensorName {
        TensorName { tensor: self, layer: Some(layer) }
    }
}

/// Name of a tensor in a file, such as `blk.3.attn_q.weight`.
#[derive(Clone, Copy, Debug, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TensorName {
    /// The tensor, without its layer.
    pub tensor: Tensor,
    /// The layer; `None` for a tensor of the whole model.
    pub layer: Option<u32>,
}

/// Names are equal if they are spelled equally: `ffn_up` is a name of two tensors of different architectures.
impl PartialEq for TensorName {
    fn eq(&self, other: &TensorName) -> bool {
        self.layer == other.layer && self.tensor.name() == other.tensor.name()
    }
}

impl std::hash::Hash for TensorName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.layer, self.tensor.name()).hash(state);
    }
}

impl fmt::Display for TensorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "blk.{layer}.{}", self.tensor.name()),
            None => f.write_str(self.tensor.name()),
        }
    }
}

impl From<TensorName> for String {
    fn from(name: TensorName) -> String {
        name.to_string()
    }
}

/// Error of parsing a [`TensorName`]: decoding reads no such tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("decoding reads no tensor {0}")]
pub struct UnknownTensor(pub String);

impl FromStr for TensorName {
    type Err = UnknownTensor;

    /// Parses a name. Of two tensors with one name in different architectures, this is the first in the table.
    fn from_str(name: &str) -> Result<TensorName, UnknownTensor> {
        let find = |tensors: &[Tensor], name: &str| tensors.iter().copied().find(|it| it.name() == name);
        let of_layer = || {
            let (layer, name) = name.strip_prefix("blk.")?.split_once('.')?;
            Some(find(Tensor::OF_LAYER, name)?.of_layer(layer.parse().ok()?))
        };
        let found = find(Tensor::OF_MODEL, name).map(Tensor::of_model).or_else(of_layer);
        found.ok_or_else(|| UnknownTensor(name.to_owned()))
    }
}

impl TryFrom<String> for TensorName {
    type Error = UnknownTensor;

    fn try_from(name: String) -> Result<TensorName, UnknownTensor> {
        name.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["token_embd.weight", "output.weight", "blk.0.attn_q.bias", "blk.31.ffn_down.weight"] {
            assert_eq!(name.parse::<TensorName>().unwrap().to_string(), name);
        }
        for name in ["blk.0.output.weight", "attn_q.weight", "blk.x.attn_q.weight", "blk.0.attn_sinks.weight"]
        {
            assert_eq!(name.parse::<TensorName>(), Err(UnknownTensor(name.to_owned())));
        }
    }
}
