//! Pre-tokenisation patterns, which split text into pieces before byte-level BPE.
//!
//! `tokenizer.ggml.pre` names one of llama.cpp's pre-tokenizers; the patterns are those of the models' published
//! `tokenizer.json` files. Merges do not cross the boundary of a piece.

/// A pre-tokenizer, with two settings of the models that use it.
#[derive(Debug, PartialEq)]
pub struct PreTokenizer {
    names: &'static [&'static str],
    /// Patterns, applied in order. Matches and the text between them become pieces.
    pub patterns: &'static [&'static str],
    /// Whether a piece that is a token is encoded as that token, whatever the merges would give.
    pub ignore_merges: bool,
    /// Whether a beginning-of-sequence token is added if the file does not specify it.
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

const GPT2: PreTokenizer = PreTokenizer {
    names: &["gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "gigachat"],
    patterns: &[GPT2_PATTERN],
    ignore_merges: false,
    add_bos: false,
};

const DEFAULT: PreTokenizer = PreTokenizer {
    names: &["default"],
    patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]"],
    ..GPT2
};

/// All supported pre-tokenizers.
static ALL: [PreTokenizer; 11] = [
    GPT2,
    DEFAULT,
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        patterns: &[LLAMA3_PATTERN],
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["smaug-bpe", "dbrx", "chatglm-bpe", "glm4"],
        patterns: &[LLAMA3_PATTERN],
        ..GPT2
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"],
        patterns: &[QWEN2_PATTERN],
        ..GPT2
    },
    PreTokenizer {
        names: &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"],
        patterns: &[r"\p{N}", GPT2_PATTERN],
        ..GPT2
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
        ..GPT2
    },
    PreTokenizer {
        names: &["deepseek-v3"],
        patterns: &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3_PATTERN],
        ..GPT2
    },
    PreTokenizer {
        names: &["falcon"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]"],
        ..GPT2
    },
    PreTokenizer { names: &["tekken"], patterns: &[TEKKEN_PATTERN], ignore_merges: true, add_bos: true },
    PreTokenizer { names: &["gpt-4o", "llama4"], patterns: &[GPT4O_PATTERN], ..GPT2 },
];

/// Pre-tokenizer by name. Falls back, with a warning, to GPT-2's pre-tokenizer for an unknown name and to `default` for
/// a missing name; text is then not always split as in the model's training.
pub fn named(name: Option<&str>) -> &'static PreTokenizer {
    let known = |name: &str| ALL.iter().find(|pre| pre.names.contains(&name));
    let (found, fallback) = match name {
        Some(name) => (known(name), "gpt-2"),
        None => (None, "default"),
    };
    found.unwrap_or_else(|| {
        let name = name.unwrap_or("(missing)");
        tracing::warn!("tokenizer.ggml.pre `{name}` is unknown; text is split as for `{fallback}`");
        known(fallback).unwrap_or(&ALL[0])
    })
}
