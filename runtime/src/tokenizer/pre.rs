//! The patterns that split text before byte-level BPE merges it.
//!
//! `tokenizer.ggml.pre` names one of the tokenizers that llama.cpp knows; the patterns are those of the models'
//! published `tokenizer.json` files. A merge never crosses the end of a piece.

/// A way to split text, and two habits that come with it.
#[derive(Debug, PartialEq)]
pub struct Pre {
    names: &'static [&'static str],
    /// Applied one after the other; matches and what lies between them all become pieces.
    pub patterns: &'static [&'static str],
    /// Whether a piece that is a token as a whole is taken as it is, whatever the merges make of it.
    pub ignore_merges: bool,
    /// Whether a beginning-of-sequence token is added where the file does not say.
    pub add_bos: bool,
}

const GPT2_PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

const LLAMA3_PATTERN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const QWEN2_PATTERN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const TEKKEN_PATTERN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const GPT4O_PATTERN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const DEEPSEEK3_PATTERN: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const GPT2: Pre = Pre {
    names: &["gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "gigachat"],
    patterns: &[GPT2_PATTERN],
    ignore_merges: false,
    add_bos: false,
};

const DEFAULT: Pre = Pre {
    names: &["default"],
    patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]"],
    ..GPT2
};

/// Every pattern that is known by name.
static KNOWN: [Pre; 11] = [
    GPT2,
    DEFAULT,
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        patterns: &[LLAMA3_PATTERN],
        ignore_merges: true,
        add_bos: true,
    },
    Pre { names: &["smaug-bpe", "dbrx", "chatglm-bpe", "glm4"], patterns: &[LLAMA3_PATTERN], ..GPT2 },
    Pre {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"],
        patterns: &[QWEN2_PATTERN],
        ..GPT2
    },
    Pre {
        names: &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"],
        patterns: &[r"\p{N}", GPT2_PATTERN],
        ..GPT2
    },
    Pre {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
        ..GPT2
    },
    Pre {
        names: &["deepseek-v3"],
        patterns: &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3_PATTERN],
        ..GPT2
    },
    Pre {
        names: &["falcon"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]"],
        ..GPT2
    },
    Pre { names: &["tekken"], patterns: &[TEKKEN_PATTERN], ignore_merges: true, add_bos: true },
    Pre { names: &["gpt-4o", "llama4"], patterns: &[GPT4O_PATTERN], ..GPT2 },
];

/// The pattern of this name. An unknown name is taken for GPT-2's and a missing one for `default`, with a warning:
/// text is split well enough to be read, but not always as the model was trained.
pub fn named(name: Option<&str>) -> &'static Pre {
    let known = |name: &str| KNOWN.iter().find(|pre| pre.names.contains(&name));
    let (found, fallback) = match name {
        Some(name) => (known(name), "gpt-2"),
        None => (None, "default"),
    };
    found.unwrap_or_else(|| {
        let name = name.unwrap_or("(missing)");
        tracing::warn!("tokenizer.ggml.pre {name} is not known; splitting text as `{fallback}` does");
        known(fallback).unwrap_or(&KNOWN[0])
    })
}
