//! Metadata below an architecture's prefix: reading it, with an account of what was read.

use std::cell::RefCell;
use std::collections::HashSet;

use bespoke_gguf::{Error, Gguf, Value, Writer};
use serde::{Deserialize, Serialize};

use super::ShapeError;

/// Scalar of a model's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A bool.
    Flag(bool),
    /// An unsigned integer.
    Integer(u32),
    /// A float.
    Float(f32),
    /// A string.
    Text(String),
}

impl Setting {
    /// The setting that a value of a file is; `None` for arrays and for numbers that do not fit.
    pub(super) fn of(value: Value<'_>) -> Option<Setting> {
        match value {
            Value::Bool(flag) => Some(Setting::Flag(flag)),
            Value::F32(number) => Some(Setting::Float(number)),
            Value::F64(number) => Some(Setting::Float(number as f32)),
            Value::String(text) => Some(Setting::Text(text.to_owned())),
            other => other.as_integer()?.try_into().ok().map(Setting::Integer),
        }
    }

    /// Writes the setting.
    pub(super) fn write(&self, key: &str, writer: &mut Writer) -> Result<(), Error> {
        match self {
            Setting::Flag(flag) => writer.set(key, *flag),
            Setting::Integer(number) => writer.set(key, *number),
            Setting::Float(number) => writer.set(key, *number),
            Setting::Text(text) => writer.set(key, text.as_str()),
        }
    }
}

/// Keys that do not change what a decoder computes.
const HARMLESS: [&str; 4] = [
    // The vocabulary is that of the embedding.
    "vocab_size",
    // Layout of the source of a conversion.
    "tensor_data_layout",
    // A remark on the model's training. For Granite it is read.
    "rope.scaling.finetuned",
    // How embedding models sum up a text.
    "pooling_type",
];

/// Keys that may be there as long as they are 0 or false: they announce what decoding does not support.
const UNSUPPORTED_UNLESS_ZERO: [&str; 14] = [
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.shared_kv_layers",
    "attention.temperature_scale",
    "attention.value_scale",
    "expert_feed_forward_length",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "leading_dense_block_count",
    "nextn_predict_layers",
    "rope.scaling.alpha",
    "swin_norm",
    "use_parallel_residual",
];

/// Metadata below an architecture's prefix. Remembers which keys were read, so that keys that nothing understands are
/// found.
pub(super) struct Settings<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
    read: RefCell<HashSet<String>>,
}

impl<'a> Settings<'a> {
    pub fn new(gguf: &'a Gguf, architecture: &'a str) -> Settings<'a> {
        Settings { gguf, architecture, read: RefCell::default() }
    }

    /// The whole key of `name`, which counts as read.
    pub fn key(&self, name: &str) -> String {
        let key = format!("{}.{name}", self.architecture);
        self.read.borrow_mut().insert(key.clone());
        key
    }

    pub fn u32(&self, name: &str) -> Result<u32, Error> {
        self.gguf.u32(&self.key(name))
    }

    pub fn opt_u32(&self, name: &str) -> Result<Option<u32>, Error> {
        self.gguf.opt_u32(&self.key(name))
    }

    pub fn f32(&self, name: &str) -> Result<f32, Error> {
        self.gguf.f32(&self.key(name))
    }

    pub fn opt_f32(&self, name: &str) -> Result<Option<f32>, Error> {
        self.gguf.opt_f32(&self.key(name))
    }

    pub fn opt_bool(&self, name: &str) -> Result<Option<bool>, Error> {
        self.gguf.opt_bool(&self.key(name))
    }

    pub fn opt_str(&self, name: &str) -> Result<Option<&'a str>, Error> {
        self.gguf.opt_str(&self.key(name))
    }

    /// A finite float other than 0, for which exporters also write 0 if the model does not have it.
    pub fn opt_nonzero(&self, name: &str) -> Result<Option<f32>, ShapeError> {
        match self.opt_f32(name)? {
            Some(value) if !value.is_finite() || value < 0.0 => {
                Err(ShapeError::Unsupported(format!("metadata key {} is {value}", self.key(name))))
            }
            value => Ok(value.filter(|value| *value != 0.0)),
        }
    }

    /// An array of bools or integers with an element for each layer; `None` if the key is missing or not an array.
    pub fn layer_flags(&self, name: &str, layers: u32) -> Result<Option<Vec<bool>>, ShapeError> {
        let key = self.key(name);
        let Some(Value::Array(array)) = self.gguf.get(&key) else { return Ok(None) };
        let flag = |value: Value<'_>| match value {
            Value::Bool(flag) => Some(flag),
            other => other.as_integer().map(|number| number != 0),
        };
        let flags: Option<Vec<bool>> = array.iter().take(layers as usize).map(flag).collect();
        match flags.filter(|flags| flags.len() == layers as usize) {
            Some(flags) => Ok(Some(flags)),
            None => Err(ShapeError::Unsupported(format!(
                "metadata key {key}: expected a bool or integer for each of {layers} layers, found an array of {} {}s",
                array.len(),
                array.kind().name()
            ))),
        }
    }

    /// Checks that every key below the architecture's prefix was read, or is known not to matter.
    pub fn check_all_read(&self) -> Result<(), ShapeError> {
        let prefix = format!("{}.", self.architecture);
        let read = self.read.borrow();
        for (key, value) in self.gguf.metadata() {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            let zero = match value {
                Value::Bool(flag) => !flag,
                Value::F32(number) => number == 0.0,
                Value::F64(number) => number == 0.0,
                other => other.as_integer() == Some(0),
            };
            let known = read.contains(key)
                || HARMLESS.contains(&name)
                || UNSUPPORTED_UNLESS_ZERO.contains(&name) && zero
                || name == "attention.causal" && value == Value::Bool(true);
            if !known {
                return Err(ShapeError::Unsupported(format!(
                    "metadata key {key}: decoding of {} models does not support it, and ignoring it could give wrong \
                     results",
                    self.architecture
                )));
            }
        }
        Ok(())
    }
}
