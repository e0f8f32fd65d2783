//! Summary of a model's file: what its metadata, tensors and tokenizer say, for any file and without a plan.

use std::collections::BTreeMap;

use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::{Gguf, Value};
use serde::Serialize;

/// Key of the chat template; named templates have `.NAME` behind it.
const TEMPLATE: &str = "tokenizer.chat_template";

/// What a model's file says about itself. A key that the file lacks, or has in another form, is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSummary {
    /// `general.name`.
    pub name: Option<String>,
    /// `general.architecture`.
    pub architecture: Option<String>,
    /// Size of all files, in bytes.
    pub bytes: u64,
    /// Number of elements of all tensors.
    pub parameters: u64,
    /// Positions that the model was trained for.
    pub context: Option<u32>,
    /// Number of layers.
    pub layers: Option<u32>,
    /// Width of the residual stream.
    pub hidden: Option<u32>,
    /// Width of the feed-forward network.
    pub ffn: Option<u32>,
    /// Number of query heads.
    pub heads: Option<u32>,
    /// Number of key and value heads.
    pub kv_heads: Option<u32>,
    /// Tensors of each type, the type with the most bytes first.
    pub types: Vec<TypeSummary>,
    /// The tokenizer; `None` for a file without one.
    pub tokenizer: Option<TokenizerSummary>,
    /// Names of the chat templates; the one without a name is `default`.
    pub templates: Vec<String>,
}

/// The tensors of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeSummary {
    /// Name of the type.
    pub name: String,
    /// Number of tensors.
    pub tensors: usize,
    /// Bytes of their data.
    pub bytes: u64,
}

/// A model's tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenizerSummary {
    /// `tokenizer.ggml.model`, such as `gpt2` or `llama`.
    pub model: String,
    /// `tokenizer.ggml.pre`: the pre-tokenizer.
    pub pre: Option<String>,
    /// Size of the vocabulary.
    pub tokens: usize,
    /// Beginning-of-sequence token, if there is one.
    pub bos: Option<NamedToken>,
    /// Whether texts begin with that token.
    pub adds_bos: bool,
    /// Tokens that end an answer.
    pub ends: Vec<NamedToken>,
    /// Why the tokenizer is not supported, if it is not.
    pub unsupported: Option<String>,
}

/// A token with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedToken {
    /// The token's id.
    pub id: u32,
    /// The token's name in the vocabulary.
    pub name: String,
}

impl ModelSummary {
    /// Summarises a model.
    pub fn of(gguf: &Gguf) -> ModelSummary {
        let text = |key: &str| gguf.opt_str(key).ok().flatten().map(str::to_owned);
        let architecture = text("general.architecture");
        let number = |key: &str| number(gguf, &format!("{}.{key}", architecture.as_deref()?));
        let templates = gguf.metadata().filter_map(|(key, _)| match key.strip_prefix(TEMPLATE)? {
            "" => Some("default".to_owned()),
            name => name.strip_prefix('.').map(str::to_owned),
        });
        ModelSummary {
            name: text("general.name"),
            bytes: gguf.file_bytes(),
            parameters: gguf.tensors().iter().map(|info| info.dims.iter().product::<u64>()).sum(),
            context: number("context_length"),
            layers: number("block_count"),
            hidden: number("embedding_length"),
            ffn: number("feed_forward_length"),
            heads: number("attention.head_count"),
            kv_heads: number("attention.head_count_kv").or_else(|| number("attention.head_count")),
            types: types(gguf),
            tokenizer: text("tokenizer.ggml.model").map(|model| {
                let pre = text("tokenizer.ggml.pre");
                TokenizerSummary::of(gguf, model, pre)
            }),
            templates: templates.collect(),
            architecture,
        }
    }
}

impl TokenizerSummary {
    fn of(gguf: &Gguf, model: String, pre: Option<String>) -> TokenizerSummary {
        let without = TokenizerSummary {
            model,
            pre,
            tokens: 0,
            bos: None,
            adds_bos: false,
            ends: Vec::new(),
            unsupported: None,
        };
        match Tokenizer::from_gguf(gguf) {
            Ok(tokenizer) => {
                let named =
                    |id: u32| NamedToken { id, name: tokenizer.token(id).unwrap_or_default().to_owned() };
                TokenizerSummary {
                    tokens: tokenizer.len(),
                    bos: tokenizer.bos().map(named),
                    adds_bos: tokenizer.encode("").is_ok_and(|ids| ids.first() == tokenizer.bos().as_ref()),
                    ends: tokenizer.end_tokens().iter().copied().map(named).collect(),
                    ..without
                }
            }
            Err(error) => {
                let tokens = gguf.strings("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len());
                TokenizerSummary { tokens, unsupported: Some(error.to_string()), ..without }
            }
        }
    }
}

/// An integer, or the one that all elements of an array are: some files give a number for each layer.
fn number(gguf: &Gguf, key: &str) -> Option<u32> {
    let integer = |value: Value<'_>| u32::try_from(value.as_integer()?).ok();
    match gguf.get(key)? {
        Value::Array(array) => {
            let mut values = array.iter().map(integer);
            let first = values.next()??;
            values.all(|value| value == Some(first)).then_some(first)
        }
        value => integer(value),
    }
}

/// Tensors and bytes of each type.
fn types(gguf: &Gguf) -> Vec<TypeSummary> {
    let mut found: BTreeMap<_, (usize, u64)> = BTreeMap::new();
    for info in gguf.tensors() {
        let (tensors, bytes) = found.entry(info.ty).or_default();
        *tensors += 1;
        *bytes += info.bytes;
    }
    let summary = |(ty, (tensors, bytes)): (bespoke_gguf::GgmlType, _)| TypeSummary {
        name: ty.name().to_owned(),
        tensors,
        bytes,
    };
    let mut types: Vec<TypeSummary> = found.into_iter().map(summary).collect();
    types.sort_by_key(|ty| std::cmp::Reverse(ty.bytes));
    types
}
