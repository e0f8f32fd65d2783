//! Account of the metadata keys of tokenizers: each is read, harmless, refused, or unknown and named in a warning.

use bespoke_gguf::{Gguf, Value};

use super::TokenizerError;
use super::ends::END_KEYS;

const PREFIX: &str = "tokenizer.ggml.";

/// Keys that are read, besides [`END_KEYS`].
const READ: [&str; 12] = [
    "eos_token_ids",
    "model",
    "pre",
    "tokens",
    "token_type",
    "scores",
    "merges",
    "bos_token_id",
    "unknown_token_id",
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
];

/// Keys that do not change how the supported models encode text: of other models, or of ids that nothing inserts.
const HARMLESS: [&str; 15] = [
    "token_type_count",
    "padding_token_id",
    "seperator_token_id",
    "separator_token_id",
    "cls_token_id",
    "mask_token_id",
    "fim_pre_token_id",
    "fim_suf_token_id",
    "fim_mid_token_id",
    "prefix_token_id",
    "suffix_token_id",
    "middle_token_id",
    // llama.cpp uses these three for WordPiece and unigram models only.
    "remove_extra_whitespaces",
    "precompiled_charsmap",
    "add_sep_token",
];

/// Keys that may be there as long as they are false or empty: they announce what encoding does not support.
const UNSUPPORTED_UNLESS_OFF: [&str; 3] =
    ["normalizer.lowercase", "normalizer.strip_accents", "suppress_tokens"];

/// Checks that no key below `tokenizer.ggml` requires an unsupported feature. Unknown keys are named in a warning,
/// because files have many that do not matter.
pub fn check(file: &Gguf) -> Result<(), TokenizerError> {
    for (key, value) in file.metadata() {
        let Some(name) = key.strip_prefix(PREFIX) else { continue };
        let off = match value {
            Value::Bool(on) => !on,
            Value::Array(array) => array.is_empty(),
            _ => false,
        };
        let known = READ.contains(&name) || END_KEYS.contains(&key) || HARMLESS.contains(&name);
        if UNSUPPORTED_UNLESS_OFF.contains(&name) {
            if !off {
                return Err(TokenizerError::UnsupportedKey { key: key.into() });
            }
        } else if !known {
            tracing::warn!("metadata key {key} is not known, and is ignored");
        }
    }
    Ok(())
}
