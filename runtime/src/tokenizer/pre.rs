//! Pre-tokenizers, which split text into pieces before BPE. Merges do not cross the boundary of a piece.
//!
//! `tokenizer.ggml.pre` names one of llama.cpp's pre-tokenizers. Each row of the table has the names that share a
//! splitting, and the steps of the models' published `tokenizer.json` files. llama.cpp approximates some of these
//! patterns (the case of letters outside ASCII in `tekken` and `gpt-4o`, for example); the published pattern is the
//! one that the model was trained with.

use super::TokenizerError;

/// A pre-tokenizer, with the settings of the models that use it.
#[derive(Debug)]
pub struct PreTokenizer {
    names: &'static [&'static str],
    /// Steps, applied in order to the pieces of the step before.
    pub steps: &'static [SplitRule],
    /// Whether a piece that is a token is encoded as that token, whatever the merges would give.
    pub ignore_merges: bool,
    /// Whether a beginning-of-sequence token is added if the file does not specify it.
    pub add_bos: bool,
    /// Spelling of tokens in the vocabulary.
    pub spelling: Spelling,
}

/// A step of a pre-tokenizer.
#[derive(Clone, Copy, Debug)]
pub enum SplitRule {
    /// Matches of the pattern, and the text between matches, become pieces.
    Split(&'static str),
    /// Runs of decimal digits become groups of three, counted from the right: `1234567` is `1`, `234`, `567`.
    GroupDigits {
        /// Whether a run is left whole if a letter, a mark or an underscore follows.
        before_boundary: bool,
    },
}

/// How a BPE vocabulary spells text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// A character for each byte of UTF-8 ([`byte_to_char`](super::byte_to_char)).
    Bytes,
    /// The text itself, with `▁` for a space and `<0x0A>` for a byte of a character without a token.
    Text,
}

/// Pattern of GPT-2, which is also that of a `tokenizer.json` with `ByteLevel` and `use_regex`.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// A case-insensitive English contraction.
macro_rules! contraction {
    () => {
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}

/// Pattern of a word with at most one mark before it, in Llama 3 and its relatives.
macro_rules! word {
    () => {
        r"[^\r\n\p{L}\p{N}]?\p{L}+"
    };
}

/// Pattern of marks with line ends after them, and of white space.
macro_rules! marks_and_space {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}

/// Pattern of words that begin at an upper-case letter after a lower-case one, as in o200k and tekken.
macro_rules! cased_words {
    ($suffix:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix,
        )
    };
}

/// Pattern of marks with line ends or slashes after them, and of white space.
macro_rules! marks_and_paths {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}

const LLAMA3: &str = concat!(contraction!(), "|", word!(), r"|\p{N}{1,3}|", marks_and_space!());
const QWEN2: &str = concat!(contraction!(), "|", word!(), r"|\p{N}|", marks_and_space!());
const QWEN35: &str = concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const UFAKZEKA: &str = concat!(word!(), r"|\p{N}|", marks_and_space!());
const MINICPM5: &str = concat!(contraction!(), "|", word!(), r"|\p{N}+|", marks_and_space!());
const SEED_CODER: &str =
    concat!(contraction!(), "|", word!(), r"|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+");
const BAILING: &str =
    concat!(contraction!(), "|", word!(), r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+");
const EXAONE_MOE: &str = concat!(
    contraction!(),
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
);
const JAIS2: &str = concat!(
    contraction!(),
    "|",
    word!(),
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)",
    r"|\s{1,2}(?!\S)|\s{1}"
);
const TEKKEN: &str = concat!(cased_words!(""), r"|\p{N}|", marks_and_paths!());
const GPT4O: &str = concat!(cased_words!(concat!(contraction!(), "?")), r"|\p{N}{1,3}|", marks_and_paths!());
const YOUTU: &str = concat!(cased_words!(concat!(contraction!(), "?")), r"|\p{N}|", marks_and_paths!());
const KIMI: &str = concat!(
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    contraction!(),
    r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    contraction!(),
    r"?|\p{N}{1,3}|",
    marks_and_space!()
);
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const SPARK: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
);
/// Letters of the scripts with upper and lower case, as listed in DeepSeek-LLM's `tokenizer.json`.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώ",
    r"ᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ",
    r"𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
);
const CJK: &str = r"[一-龥぀-ゟ゠-ヿ]+";
const CJK_AND_HANGUL: &str = r"[一-龥ࠀ-一가-퟿]+";
const ASIAN_SCRIPTS: &str = "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const LINES: &str = r"[^\n]+|[\n]+";

/// A row without special settings; the rows of the table override them.
const PLAIN: PreTokenizer = PreTokenizer {
    names: &[],
    steps: &[SplitRule::Split(GPT2)],
    ignore_merges: false,
    add_bos: false,
    spelling: Spelling::Bytes,
};

/// Name of the pre-tokenizer of files that name none.
const DEFAULT: &str = "default";

/// Name of the pre-tokenizer of `tokenizer.ggml.model` `gemma4`.
pub const GEMMA4: &str = "gemma4";

/// All supported pre-tokenizers.
static ALL: &[PreTokenizer] = &[
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "roberta-bpe",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &[DEFAULT],
        steps: &[
            SplitRule::Split(r"[\p{P}\$\+<=>\^~\|]+"),
            SplitRule::Split(GPT2),
            SplitRule::Split(r"\p{N}+"),
            SplitRule::Split("[0-9][0-9][0-9]"),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        steps: &[SplitRule::Split(LLAMA3)],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        steps: &[SplitRule::Split(LLAMA3)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["glm4", "glm5"],
        steps: &[SplitRule::Split(LLAMA3)],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "hunyuan",
            "megrez",
            "kormo",
            "f2llmv2",
            "solar-open",
            "grok-2",
        ],
        steps: &[SplitRule::Split(QWEN2)],
        ..PLAIN
    },
    PreTokenizer { names: &["qwen35"], steps: &[SplitRule::Split(QWEN35)], ..PLAIN },
    PreTokenizer { names: &["laguna"], steps: &[SplitRule::Split(LINES), SplitRule::Split(QWEN2)], ..PLAIN },
    PreTokenizer { names: &["ufakzeka"], steps: &[SplitRule::Split(UFAKZEKA)], ..PLAIN },
    PreTokenizer {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        steps: &[SplitRule::Split(r"\p{N}"), SplitRule::Split(GPT2)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["falcon"],
        steps: &[
            SplitRule::Split(r"[\p{P}\$\+<=>\^~\|`]+"),
            SplitRule::Split(GPT2),
            SplitRule::Split("[0-9][0-9][0-9]"),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        steps: &[
            SplitRule::Split(r"[\r\n]"),
            SplitRule::Split(DEEPSEEK_LETTERS),
            SplitRule::Split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            SplitRule::Split(r"\s+$"),
            SplitRule::Split(CJK_AND_HANGUL),
            SplitRule::Split(r"\p{N}+"),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        steps: &[
            SplitRule::Split(r"[\r\n]"),
            SplitRule::Split(r"\s?\p{L}+"),
            SplitRule::Split(r"\s?\p{P}+"),
            SplitRule::Split(CJK_AND_HANGUL),
            SplitRule::Split(r"\p{N}"),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        steps: &[SplitRule::Split(r"\p{N}{1,3}"), SplitRule::Split(CJK), SplitRule::Split(DEEPSEEK3)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["spark2_5"],
        steps: &[
            SplitRule::Split(r"\p{N}{1,3}"),
            SplitRule::Split(CJK),
            SplitRule::Split(SPARK),
            SplitRule::Split(r"\p{N}"),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["afmoe"],
        steps: &[
            SplitRule::GroupDigits { before_boundary: false },
            SplitRule::Split(ASIAN_SCRIPTS),
            SplitRule::Split(DEEPSEEK3),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["youtu"],
        steps: &[
            SplitRule::Split("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
            SplitRule::Split(YOUTU),
        ],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["tekken"],
        steps: &[SplitRule::Split(TEKKEN)],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        steps: &[SplitRule::Split(GPT4O)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["granite-embed-multi-97m"],
        steps: &[SplitRule::Split(GPT4O)],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["tiny_aya", "cohere2moe"],
        steps: &[SplitRule::GroupDigits { before_boundary: true }, SplitRule::Split(GPT4O)],
        ..PLAIN
    },
    PreTokenizer { names: &["kimi-k2"], steps: &[SplitRule::Split(KIMI)], ..PLAIN },
    PreTokenizer {
        names: &["superbpe"],
        steps: &[SplitRule::Split(r"\p{N}+"), SplitRule::GroupDigits { before_boundary: false }],
        ..PLAIN
    },
    PreTokenizer {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        steps: &[SplitRule::Split(BAILING)],
        ..PLAIN
    },
    PreTokenizer { names: &["seed-coder"], steps: &[SplitRule::Split(SEED_CODER)], ..PLAIN },
    PreTokenizer { names: &["exaone-moe"], steps: &[SplitRule::Split(EXAONE_MOE)], ..PLAIN },
    PreTokenizer {
        names: &["minicpm5"],
        steps: &[SplitRule::Split(r"\p{N}{1,3}"), SplitRule::Split(MINICPM5)],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer { names: &["jais-2"], steps: &[SplitRule::Split(JAIS2)], ..PLAIN },
    PreTokenizer {
        names: &["bloom", "poro-chat", "gpt3-finnish"],
        steps: &[SplitRule::Split(BLOOM)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["viking"],
        steps: &[SplitRule::Split(BLOOM), SplitRule::Split(r"\p{N}")],
        ..PLAIN
    },
    PreTokenizer {
        names: &["chameleon"],
        steps: &[
            SplitRule::Split("<sentinel:[0-9]+>"),
            SplitRule::Split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
            SplitRule::Split(r"([\t\n]|    |  )"),
            SplitRule::Split(r"\p{N}"),
            SplitRule::Split(r"[\p{P}!-/:-@\[-`{-~]"),
            SplitRule::Split(GPT2),
        ],
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &[GEMMA4, "granite-embed-multi-311m"],
        steps: &[SplitRule::Split(LINES)],
        add_bos: true,
        spelling: Spelling::Text,
        ..PLAIN
    },
    PreTokenizer {
        names: &["sarvam-moe"],
        steps: &[SplitRule::Split(LINES)],
        spelling: Spelling::Text,
        ..PLAIN
    },
];

/// Pre-tokenizer by name. A file without a name gets `default`, with a warning, as in llama.cpp; an unknown name is an
/// error, because text would not be split as in the model's training.
pub fn named(name: Option<&str>) -> Result<&'static PreTokenizer, TokenizerError> {
    let wanted = name.unwrap_or_else(|| {
        tracing::warn!(
            "tokenizer.ggml.pre is missing; text is split as for `{DEFAULT}`, perhaps not as in training"
        );
        DEFAULT
    });
    ALL.iter()
        .find(|pre| pre.names.contains(&wanted))
        .ok_or_else(|| TokenizerError::UnknownPre { pre: wanted.into() })
}

/// Names of all supported pre-tokenizers.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().flat_map(|pre| pre.names).copied()
}

/// Name (`tokenizer.ggml.pre`) of the pre-tokenizer whose steps are those of a `tokenizer.json`, or `None`.
///
/// `patterns` has an entry for each step of the file's `pre_tokenizer`, in order: the expression of a `Split`, `\p{N}`
/// or `\p{N}+` for `Digits` with or without `individual_digits`, `Punctuation`, and `ByteLevel` for a `ByteLevel` with
/// `use_regex`. `ignore_merges` is the setting of the file's BPE model.
pub fn pre_named_for(patterns: &[&str], ignore_merges: bool) -> Option<&'static str> {
    let wanted: Vec<String> = patterns.iter().map(|pattern| canonical(pattern)).collect();
    let equal = |pre: &&PreTokenizer| {
        pre.ignore_merges == ignore_merges
            && pre.spelling == Spelling::Bytes
            && pre.steps.len() == wanted.len()
            && pre.steps.iter().zip(&wanted).all(|(step, wanted)| step.canonical() == *wanted)
    };
    ALL.iter().find(equal).map(|pre| pre.names[0])
}

impl SplitRule {
    fn canonical(self) -> String {
        match self {
            Self::Split(pattern) => canonical(pattern),
            Self::GroupDigits { before_boundary: true } => canonical(r"\d{1,3}(?=(?:\d{3})*\b)"),
            Self::GroupDigits { before_boundary: false } => canonical(r"(?=(\d{3})+(?!\d))"),
        }
    }
}

/// Rewrites spellings of the same expression to one: contractions, possessive quantifiers, control characters.
fn canonical(pattern: &str) -> String {
    const SAME: [(&str, &str); 11] = [
        ("\r", r"\r"),
        ("\n", r"\n"),
        ("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", contraction!()),
        ("'(?i:[sdmt]|ll|ve|re)", contraction!()),
        (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?+", concat!(contraction!(), "?")),
        ("]?+", "]?"),
        ("]++", "]+"),
        ("]*+", "]*"),
        (r"\p{N}{1}|", r"\p{N}|"),
        ("ByteLevel", GPT2),
        ("Punctuation", r"[\p{P}\$\+<=>\^~\|`]+"),
    ];
    SAME.iter().fold(pattern.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut all: Vec<&str> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_steps_of_a_tokenizer_json_select_a_name() {
        let llama3 = concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        let bailing = concat!(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*",
            r"|\s*[\r\n]|\s+(?!\S)|\s+"
        );
        let table: [(&[&str], bool, Option<&str>); 7] = [
            (&["ByteLevel"], false, Some("gpt-2")),
            (&[r"\p{N}", "ByteLevel"], false, Some("smollm")),
            (&[llama3], true, Some("llama-bpe")),
            (&[llama3], false, Some("dbrx")),
            (&[&llama3.replace("{1,3}", "")], false, Some("qwen2")),
            (&[bailing], false, Some("bailingmoe")),
            (&["[a-z]+"], false, None),
        ];
        for (patterns, ignore_merges, name) in table {
            assert_eq!(pre_named_for(patterns, ignore_merges), name, "{patterns:?}");
        }
    }
}
