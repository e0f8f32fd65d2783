//! Element types of the KV cache.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvType {
    /// IEEE binary16.
    #[default]
    F16,
    /// Signed bytes with an f16 scale for every 32 elements of a position, rounded as GGML's Q8_0.
    Q8_0,
}

impl KvType {
    /// All types.
    pub const ALL: [KvType; 2] = [KvType::F16, KvType::Q8_0];

    /// Bytes of an element, without its scale.
    pub(super) fn element_bytes(self) -> u32 {
        match self {
            KvType::F16 => 2,
            KvType::Q8_0 => 1,
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        })
    }
}

/// Error of parsing a [`KvType`].
#[derive(Debug, thiserror::Error)]
#[error("no KV cache of type `{0}`; expected f16 or q8_0")]
pub struct UnknownKvType(String);

impl FromStr for KvType {
    type Err = UnknownKvType;

    fn from_str(name: &str) -> Result<KvType, UnknownKvType> {
        let found = KvType::ALL.into_iter().find(|ty| ty.to_string() == name.to_lowercase());
        found.ok_or_else(|| UnknownKvType(name.to_owned()))
    }
}

/// Elements of a position that share a scale.
pub const BLOCK: u32 = 32;

/// Bias that is added to an integer of type q8_0 when it is stored as a byte.
pub const BIAS: u32 = 128;
