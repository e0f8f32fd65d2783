//! Labels of launches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a launch computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchRole {
    /// The division of the rows among the CTAs of attention, in steps of many rows.
    AttentionShares,
    /// The load of the token's row of the embedding.
    Embed,
    /// The selection of the rows of a prefill step whose next tokens are chosen, in first-token steps.
    SelectRows,
    /// Projections to queries, keys and values.
    AttnQkv,
    /// The preparation of the inputs of the product after it, in steps of many rows.
    Prepare,
    /// The append of keys and values to the KV cache, in steps whose attention does not append.
    Append,
    /// Attention of the queries to the KV cache.
    Attention,
    /// The output projection of attention.
    AttnOutput,
    /// The norm after attention, and the residual connection, in models with norms after blocks.
    AttnPostNorm,
    /// The gate and up projections of the feed-forward network, and its activation.
    FfnGateUp,
    /// The down projection of the feed-forward network.
    FfnDown,
    /// The norm after the feed-forward network, and the residual connection, in models with norms after blocks.
    FfnPostNorm,
    /// The LM head, which computes the logits.
    Output,
    /// Conversion of logits to sort keys, for sampling.
    SampleKeys,
    /// The choice of the next token.
    Choose,
}

impl LaunchRole {
    /// Every role.
    pub const ALL: [LaunchRole; 15] = [
        LaunchRole::AttentionShares,
        LaunchRole::Embed,
        LaunchRole::SelectRows,
        LaunchRole::AttnQkv,
        LaunchRole::Prepare,
        LaunchRole::Append,
        LaunchRole::Attention,
        LaunchRole::AttnOutput,
        LaunchRole::AttnPostNorm,
        LaunchRole::FfnGateUp,
        LaunchRole::FfnDown,
        LaunchRole::FfnPostNorm,
        LaunchRole::Output,
        LaunchRole::SampleKeys,
        LaunchRole::Choose,
    ];

    /// Roles whose division of work a tuning can change, in the order of a step.
    pub const TUNABLE: [LaunchRole; 6] = [
        LaunchRole::AttnQkv,
        LaunchRole::Attention,
        LaunchRole::AttnOutput,
        LaunchRole::FfnGateUp,
        LaunchRole::FfnDown,
        LaunchRole::Output,
    ];

    /// Name in labels and tuning files.
    pub fn name(self) -> &'static str {
        match self {
            LaunchRole::AttentionShares => "attention_shares",
            LaunchRole::Embed => "embed",
            LaunchRole::SelectRows => "select_rows",
            LaunchRole::AttnQkv => "attn_qkv",
            LaunchRole::Prepare => "prepare",
            LaunchRole::Append => "append",
            LaunchRole::Attention => "attention",
            LaunchRole::AttnOutput => "attn_output",
            LaunchRole::AttnPostNorm => "attn_post_norm",
            LaunchRole::FfnGateUp => "ffn_gate_up",
            LaunchRole::FfnDown => "ffn_down",
            LaunchRole::FfnPostNorm => "ffn_post_norm",
            LaunchRole::Output => "output",
            LaunchRole::SampleKeys => "sample_keys",
            LaunchRole::Choose => "choose",
        }
    }

    /// Whether a tuning can change how the launch's work is divided.
    pub fn is_tunable(self) -> bool {
        LaunchRole::TUNABLE.contains(&self)
    }
}

impl fmt::Display for LaunchRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Role and layer of a launch, written as `blk.3.attn_qkv`, or `output` outside the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LaunchLabel {
    /// The layer; none for launches of the whole model.
    pub layer: Option<u32>,
    /// What the launch computes.
    pub role: LaunchRole,
}

impl From<LaunchRole> for LaunchLabel {
    /// The label of a launch outside the layers.
    fn from(role: LaunchRole) -> LaunchLabel {
        LaunchLabel { layer: None, role }
    }
}

impl fmt::Display for LaunchLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => f.pad(&format!("blk.{layer}.{}", self.role)),
            None => f.pad(self.role.name()),
        }
    }
}

impl From<LaunchLabel> for String {
    fn from(label: LaunchLabel) -> String {
        label.to_string()
    }
}

/// Error of parsing a [`LaunchLabel`]: no launch has this label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown launch label {0:?}")]
pub struct UnknownLabel(pub String);

impl FromStr for LaunchLabel {
    type Err = UnknownLabel;

    fn from_str(text: &str) -> Result<LaunchLabel, UnknownLabel> {
        let unknown = || UnknownLabel(text.to_owned());
        let (layer, name) = match text.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((layer, name)) => (Some(layer.parse().map_err(|_| unknown())?), name),
            None => (None, text),
        };
        let role = LaunchRole::ALL.into_iter().find(|role| role.name() == name).ok_or_else(unknown)?;
        Ok(LaunchLabel { layer, role })
    }
}

impl TryFrom<String> for LaunchLabel {
    type Error = UnknownLabel;

    fn try_from(text: String) -> Result<LaunchLabel, UnknownLabel> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip() {
        for text in ["embed", "blk.0.attn_qkv", "blk.31.ffn_down", "blk.2.ffn_post_norm", "choose"] {
            assert_eq!(text.parse::<LaunchLabel>().unwrap().to_string(), text);
        }
        for text in ["blk.attn_qkv", "blk.x.attn_qkv", "ffn_up"] {
            assert_eq!(text.parse::<LaunchLabel>(), Err(UnknownLabel(text.to_owned())));
        }
    }
}
