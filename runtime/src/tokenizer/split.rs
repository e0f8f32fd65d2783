//! Splitting of text by a pre-tokenizer's steps, in time proportional to the text.
//!
//! Published patterns end with `\s+(?!\S)|\s+`: a run of white space before a word leaves its last character to the
//! word. This look-ahead is the only one that they need, so it is a rule on a match of `\s+` here, and the rest of the
//! pattern runs on automata: no text makes them backtrack.

use regex_automata::Input;
use regex_automata::meta::{BuildError, Regex};

use super::pre::SplitRule;

/// Compiled steps of a pre-tokenizer.
pub struct Splitter {
    steps: Vec<Compiled>,
}

enum Compiled {
    /// The pattern, and perhaps a second one for a run of white space.
    Split { regex: Regex, runs: Runs },
    /// Runs of digits, as groups of three.
    GroupDigits { runs: Regex, before_boundary: bool },
}

/// What a run of white space becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// Nothing special: the pattern has no alternative for runs.
    Matched,
    /// One piece without the run's last character, if text follows.
    LeaveLast,
    /// Pieces of the largest sizes of [`SIZES`], without the run's last character, if text follows.
    Sizes,
}

/// Ends of patterns with a look-ahead, and what they do with a run of white space.
const RUN_SUFFIXES: [(&str, Runs); 2] = [
    (r"|\s+(?!\S)|\s+", Runs::LeaveLast),
    (
        r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        Runs::Sizes,
    ),
];

/// Sizes of pieces for [`Runs::Sizes`], in characters.
const SIZES: [usize; 10] = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1];

impl Splitter {
    /// Compiles the steps.
    pub fn new(steps: &[SplitRule]) -> Result<Self, Box<BuildError>> {
        Ok(Self { steps: steps.iter().map(|&step| Compiled::new(step)).collect::<Result<_, _>>()? })
    }

    /// Splits text into pieces, which together are the text.
    pub fn split<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut pieces = vec![text];
        for step in &self.steps {
            let mut next = Vec::with_capacity(pieces.len());
            for piece in pieces {
                step.split(piece, &mut next);
            }
            pieces = next;
        }
        pieces
    }
}

impl Compiled {
    fn new(step: SplitRule) -> Result<Self, Box<BuildError>> {
        let compiled = match step {
            SplitRule::GroupDigits { before_boundary } => {
                Self::GroupDigits { runs: Regex::new(r"\d+")?, before_boundary }
            }
            SplitRule::Split(pattern) => {
                let stripped = |&(suffix, runs): &(&str, Runs)| Some((pattern.strip_suffix(suffix)?, runs));
                match RUN_SUFFIXES.iter().find_map(stripped) {
                    Some((rest, runs)) => Self::Split { regex: Regex::new_many(&[rest, r"\s+"])?, runs },
                    None => Self::Split { regex: Regex::new(pattern)?, runs: Runs::Matched },
                }
            }
        };
        Ok(compiled)
    }

    /// Appends the pieces of `text`.
    fn split<'t>(&self, text: &'t str, pieces: &mut Vec<&'t str>) {
        let regex = match self {
            Self::Split { regex, .. } => regex,
            Self::GroupDigits { runs, .. } => runs,
        };
        let mut at = 0;
        while let Some(found) = regex.search(&Input::new(text).range(at..)) {
            if found.start() > at {
                pieces.push(&text[at..found.start()]);
            }
            let run = &text[found.range()];
            let follows = text[found.end()..].chars().next();
            let taken = match *self {
                Self::Split { runs, .. } if found.pattern().as_usize() == 1 => {
                    split_run(run, runs, follows.is_some(), pieces)
                }
                Self::GroupDigits { before_boundary: true, .. } if follows.is_some_and(is_word) => {
                    pieces.push(run);
                    run.len()
                }
                Self::GroupDigits { .. } => group_digits(run, pieces),
                Self::Split { .. } => {
                    pieces.push(run);
                    run.len()
                }
            };
            at = found.start() + taken;
        }
        if at < text.len() {
            pieces.push(&text[at..]);
        }
    }
}

/// Appends the pieces of a run of white space, and returns their length in bytes.
fn split_run<'t>(run: &'t str, runs: Runs, text_follows: bool, pieces: &mut Vec<&'t str>) -> usize {
    let last = run.chars().next_back().map_or(0, char::len_utf8);
    // A single character is a piece, whatever follows.
    let taken = if text_follows && run.len() > last { run.len() - last } else { run.len() };
    if runs != Runs::Sizes {
        pieces.push(&run[..taken]);
        return taken;
    }
    let mut rest = &run[..taken];
    let mut left = rest.chars().count();
    for size in SIZES {
        while left >= size {
            let (piece, after) = split_chars(rest, size);
            pieces.push(piece);
            rest = after;
            left -= size;
        }
    }
    taken
}

/// Appends groups of three digits, counted from the right, and returns the length of all in bytes.
fn group_digits<'t>(run: &'t str, pieces: &mut Vec<&'t str>) -> usize {
    let mut rest = run;
    let mut size = match run.chars().count() % 3 {
        0 => 3,
        first => first,
    };
    while !rest.is_empty() {
        let (piece, after) = split_chars(rest, size);
        pieces.push(piece);
        rest = after;
        size = 3;
    }
    run.len()
}

/// Splits text after `count` characters.
fn split_chars(text: &str, count: usize) -> (&str, &str) {
    let at = text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
    text.split_at(at)
}

/// Whether a character continues a word, so that `\b` does not match before it.
fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::pre;
    use super::*;

    fn splitter(name: &str) -> Splitter {
        Splitter::new(pre::named(Some(name)).unwrap().steps).unwrap()
    }

    fn split<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        splitter(name).split(text)
    }

    #[test]
    fn every_pattern_compiles_and_loses_no_text() {
        let text = "It's 1234567 naïve\u{301} Words, <|x|> \t\n\n  日本語 \u{85}한국어\u{0}🦀  end ";
        for name in pre::names() {
            assert_eq!(split(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn patterns_split_as_published() {
        let table: [(&str, &str, &[&str]); 14] = [
            ("gpt-2", "it's  a\n\nb ", &["it", "'s", " ", " a", "\n", "\n", "b", " "]),
            ("llama-bpe", "it'S  a\n\n b 12345", &["it", "'S", " ", " a", "\n\n", " b", " ", "123", "45"]),
            ("llama-bpe", "   x", &["  ", " x"]),
            ("llama-bpe", "   ", &["   "]),
            ("llama-bpe", "a \u{3000}!", &["a", " ", "\u{3000}", "!"]),
            ("qwen2", "12 3", &["1", "2", " ", "3"]),
            ("smollm", "a12 b", &["a", "1", "2", " b"]),
            ("tekken", "fooBar XMLHttp", &["foo", "Bar", " XMLHttp"]),
            ("gpt-4o", "Don't/\nÉa", &["Don't", "/\n", "Éa"]),
            ("tiny_aya", "1234567 12345a", &["1", "234", "567", " ", "123", "45", "a"]),
            ("superbpe", "a 1234567", &["a ", "1", "234", "567"]),
            ("jais-2", "a       b", &["a", "    ", "  ", " b"]),
            ("kimi-k2", "漢字kana かな", &["漢字", "kana", " かな"]),
            ("gemma4", "a b\n\nc", &["a b", "\n\n", "c"]),
        ];
        for (name, text, pieces) in table {
            assert_eq!(split(name, text), pieces, "{name} {text:?}");
        }
    }

    #[test]
    fn long_runs_take_linear_time() {
        for name in ["gpt-2", "llama-bpe", "jais-2", "tiny_aya", "deepseek-llm", "tekken"] {
            let splitter = splitter(name);
            for unit in [" ", "a", "1", "\n", "!", " \n", "\u{301}", "🦀"] {
                // The shortest of three times, since other processes may run in between.
                let time = |bytes: usize| {
                    let text = format!("{}x", unit.repeat(bytes / unit.len()));
                    let times = (0..3).map(|_| {
                        let start = Instant::now();
                        assert_eq!(splitter.split(&text).concat().len(), text.len());
                        start.elapsed()
                    });
                    times.min().unwrap()
                };
                // Quadratic time would be 256 times as long.
                let (short, long) = (time(1 << 13), time(1 << 17));
                assert!(
                    long < 64 * short + Duration::from_millis(100),
                    "{name} {unit:?}: {short:?}, {long:?}"
                );
            }
        }
    }
}
