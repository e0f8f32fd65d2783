//! Reader of the metadata below an architecture's prefix, which tracks the keys that were read.

use std::cell::RefCell;
use std::collections::HashSet;

use bespoke_gguf::dequant::QUANTIZATION_VERSION;
use bespoke_gguf::{Error, Gguf, Value, Writer};
use serde::{Deserialize, Serialize};

use super::ShapeError;

/// Value of a key of a model's metadata.
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
    /// A bool for each layer.
    Flags(Vec<bool>),
}

impl Setting {
    /// Converts a value of a file; `None` for arrays that are not flags, and for numbers that do not fit.
    pub(super) fn of(value: Value<'_>) -> Option<Setting> {
        match value {
            Value::Bool(flag) => Some(Setting::Flag(flag)),
            Value::F32(number) => Some(Setting::Float(number)),
            Value::F64(number) => Some(Setting::Float(number as f32)),
            Value::String(text) => Some(Setting::Text(text.to_owned())),
            Value::Array(array) => array.iter().map(flag).collect::<Option<_>>().map(Setting::Flags),
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
            Setting::Flags(flags) => writer.set_array(key, flags),
        }
    }
}

/// A flag: a bool, or an integer that is 0 for false.
fn flag(value: Value<'_>) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(flag),
        other => other.as_integer().map(|number| number != 0),
    }
}

/// Values with which a key does not change what a decoder computes.
enum Harmless {
    /// Any value.
    Any,
    /// 0 or false, or an array of them.
    Zero,
    /// 0 or 1: the factor of models without one.
    ZeroOrOne,
    /// True.
    True,
    /// -1, or an array of it.
    MinusOne,
}

/// Keys that need not be read, with the values that make them harmless. `*` stands for any rest of a name.
const UNREAD: [(&str, Harmless); 26] = [
    // The vocabulary is that of the embedding.
    ("vocab_size", Harmless::Any),
    // Layout of the source of a conversion.
    ("tensor_data_layout", Harmless::Any),
    // A remark on the model's training. For Granite it is read.
    ("rope.scaling.finetuned", Harmless::Any),
    // YaRN's share of the unscaled frequency is 1: neither transformers nor llama.cpp reads another from these models.
    ("rope.scaling.yarn_ext_factor", Harmless::Any),
    // How embedding models sum up a text.
    ("pooling_type", Harmless::Any),
    // All norms are RMSNorms, which have their own ε.
    ("attention.layer_norm_epsilon", Harmless::Any),
    // Parts with tensors of their own, which are refused: experts and state-space layers. Granite 4 describes them in
    // dense models, too.
    ("expert_*", Harmless::Any),
    ("ssm.*", Harmless::Any),
    // The positions from which `attention.temperature_scale` applies.
    ("attention.temperature_length", Harmless::Any),
    ("attention.clamp_kqv", Harmless::Zero),
    ("attention.max_alibi_bias", Harmless::Zero),
    ("attention.shared_kv_layers", Harmless::Zero),
    ("attention.temperature_scale", Harmless::Zero),
    ("attention.value_scale", Harmless::Zero),
    ("leading_dense_block_count", Harmless::Zero),
    ("nextn_predict_layers", Harmless::Zero),
    ("rope.dimension_sections", Harmless::Zero),
    ("rope.scaling.alpha", Harmless::Zero),
    ("swin_norm", Harmless::Zero),
    ("use_parallel_residual", Harmless::Zero),
    ("embedding_scale", Harmless::ZeroOrOne),
    ("residual_scale", Harmless::ZeroOrOne),
    ("logit_scale", Harmless::ZeroOrOne),
    ("attention.causal", Harmless::True),
    // The layers that take features of an image.
    ("deepstack_mapping", Harmless::MinusOne),
    ("num_deepstack_layers", Harmless::Zero),
];

impl Harmless {
    fn has(&self, value: Value<'_>) -> bool {
        match (self, value) {
            (Harmless::Any, _) => true,
            (_, Value::Array(array)) => array.iter().all(|value| self.has(value)),
            (Harmless::True, value) => value == Value::Bool(true),
            (_, Value::Bool(flag)) => matches!(self, Harmless::Zero) && !flag,
            (_, value) => {
                let number = match value {
                    Value::F32(number) => Some(number.into()),
                    Value::F64(number) => Some(number),
                    other => other.as_integer().map(|number| number as f64),
                };
                number.is_some_and(|number| match self {
                    Harmless::ZeroOrOne => number == 0.0 || number == 1.0,
                    Harmless::MinusOne => number == -1.0,
                    _ => number == 0.0,
                })
            }
        }
    }
}

/// Whether a key below an architecture's prefix, which decoding did not read, is known not to matter.
pub(super) fn is_harmless(name: &str, value: Value<'_>) -> bool {
    UNREAD.iter().any(|(known, harmless)| {
        let same = match known.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *known,
        };
        same && harmless.has(value)
    })
}

/// Checks `general.quantization_version` of a file with quantised tensors: other versions have other layouts of blocks.
pub(super) fn check_quantization_version(gguf: &Gguf) -> Result<(), ShapeError> {
    const KEY: &str = "general.quantization_version";
    let quantised = gguf.tensors().iter().any(|tensor| tensor.ty.block_elements() > 1);
    match gguf.opt_u32(KEY)? {
        Some(version) if quantised && version != QUANTIZATION_VERSION => {
            Err(ShapeError::Unsupported(format!(
                "metadata key {KEY} is {version}; only the blocks of version {QUANTIZATION_VERSION} are supported: quantise \
             the model again with a current llama.cpp"
            )))
        }
        _ => Ok(()),
    }
}

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

    /// Whether the file has the key.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.get(&self.key(name)).is_some()
    }

    pub fn u32(&self, name: &str) -> Result<u32, Error> {
        self.gguf.u32(&self.key(name))
    }

    pub fn opt_u32(&self, name: &str) -> Result<Option<u32>, Error> {
        self.gguf.opt_u32(&self.key(name))
    }

    /// An integer that all layers share: a number, or an array that has it for each of `layers` layers.
    pub fn opt_u32_of_layers(&self, name: &str, layers: u32) -> Result<Option<u32>, ShapeError> {
        let key = self.key(name);
        let Some(Value::Array(array)) = self.gguf.get(&key) else { return Ok(self.gguf.opt_u32(&key)?) };
        let mut values = array.iter().map(|value| u32::try_from(value.as_integer()?).ok());
        match values.next() {
            Some(Some(first))
                if array.len() == layers as usize && values.all(|value| value == Some(first)) =>
            {
                Ok(Some(first))
            }
            _ => Err(ShapeError::Unsupported(format!(
                "metadata key {key}: only the same integer for each of {layers} layers is supported"
            ))),
        }
    }

    /// An integer that all layers share, and that the file must have.
    pub fn u32_of_layers(&self, name: &str, layers: u32) -> Result<u32, ShapeError> {
        let missing = || Error::MissingKey { key: self.key(name) };
        Ok(self.opt_u32_of_layers(name, layers)?.ok_or_else(missing)?)
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
            if !read.contains(key) && !is_harmless(name, value) {
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
