//! Byte-level BPE: merges, and the name of the pre-tokenizer.

use bespoke::tokenizer::pre_named_for;
use bespoke_gguf::Writer;

use super::Vocabulary;
use crate::HfError;
use crate::json::Document;

/// Writes the keys of the model `gpt2`.
pub fn write(vocabulary: &Vocabulary<'_>, header: &mut Writer) -> Result<(), HfError> {
    let document = &vocabulary.document;
    for normalizer in parts(document, "normalizer", "normalizers")? {
        match normalizer.str("type")? {
            // Published GGUF files of these models do not normalise either.
            Some("NFC") => {}
            other => {
                let fault = format!("{} is not supported for a byte-level BPE", other.unwrap_or("null"));
                return Err(normalizer.fault("type", fault));
            }
        }
    }
    let patterns = patterns(vocabulary)?;
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let ignore_merges = vocabulary.model.bool("ignore_merges")?.unwrap_or(false);
    let pre = pre_named_for(&patterns, ignore_merges).ok_or_else(|| {
        let fault = format!(
            "no known pre-tokenizer has these patterns{}: {}",
            if ignore_merges { " and ignores merges" } else { "" },
            patterns.join("  ")
        );
        document.fault("pre_tokenizer", fault)
    })?;
    header.set("tokenizer.ggml.model", "gpt2")?;
    header.set("tokenizer.ggml.pre", pre)?;
    // A space inside a token is spelled `Ġ`, as everywhere in byte-level BPE.
    let encoded = |token: &str| token.replace(' ', "Ġ");
    let merges: Vec<String> = vocabulary
        .merges
        .iter()
        .map(|(left, right)| format!("{} {}", encoded(left), encoded(right)))
        .collect();
    header.set_array("tokenizer.ggml.merges", &merges)?;
    Ok(())
}

/// Steps of the pre-tokenizer.
pub fn steps<'a>(vocabulary: &Vocabulary<'a>) -> Result<Vec<Document<'a>>, HfError> {
    parts(&vocabulary.document, "pre_tokenizer", "pretokenizers")
}

/// The object at `key`, or its parts if it is a sequence.
pub fn parts<'a>(document: &Document<'a>, key: &str, list: &str) -> Result<Vec<Document<'a>>, HfError> {
    match document.object(key)? {
        None => Ok(Vec::new()),
        Some(sequence) if sequence.str("type")? == Some("Sequence") => sequence.objects(list),
        Some(part) => Ok(vec![part]),
    }
}

/// Patterns of the pre-tokenizer's steps, in the form that [`pre_named_for`] expects.
fn patterns(vocabulary: &Vocabulary<'_>) -> Result<Vec<String>, HfError> {
    let mut patterns = Vec::new();
    for step in steps(vocabulary)? {
        let pattern = match step.str("type")? {
            Some("ByteLevel") => {
                if step.bool("add_prefix_space")?.unwrap_or(true) {
                    return Err(step.fault("add_prefix_space", "is not supported for a byte-level BPE"));
                }
                step.bool("use_regex")?.unwrap_or(true).then(|| "ByteLevel".to_owned())
            }
            Some("Digits") => {
                let individual = step.bool("individual_digits")?.unwrap_or(false);
                Some(if individual { r"\p{N}" } else { r"\p{N}+" }.to_owned())
            }
            Some("Punctuation") => Some("Punctuation".to_owned()),
            Some("Split") => Some(split(&step)?),
            other => {
                return Err(step.fault("type", format!("{} is not supported", other.unwrap_or("null"))));
            }
        };
        patterns.extend(pattern);
    }
    Ok(patterns)
}

/// The pattern of a `Split` whose matches become pieces, and so does the text between them.
fn split(step: &Document<'_>) -> Result<String, HfError> {
    let behavior = step.str("behavior")?.unwrap_or("Isolated");
    let invert = step.bool("invert")?.unwrap_or(false);
    // `Removed` with `invert` keeps the matches; the patterns of such files match all text.
    if !matches!((behavior, invert), ("Isolated", false) | ("Removed", true)) {
        return Err(step.fault("behavior", format!("{behavior} with invert {invert} is not supported")));
    }
    let pattern = step.object("pattern")?;
    let pattern = step.required("pattern", pattern)?;
    let regex = pattern.str("Regex")?;
    pattern.required("Regex", regex).map(str::to_owned)
}
