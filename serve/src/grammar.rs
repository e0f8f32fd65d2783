//! Languages that answers must belong to: JSON schemas, regular expressions, Lark grammars and tools.
//!
//! `llguidance` parses an answer byte by byte and says which tokens may follow. A grammar is compiled on a thread that works on
//! requests; the decoding thread asks it before each choice of a token.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bespoke::generation::{Grammar, GrammarState, Next};
use bespoke::tokenizer::{EncodeOptions, Tokenizer};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;

/// White space between the parts of a JSON text: a space, or a line break with an indentation. In white space without a limit a
/// model may lose itself.
const SPACE: &str = r"\x20|\x0A[\x20\x09]{0,24}";
/// White space in calls of tools, which models write on one line.
const ONE_SPACE: &str = r"\x20";
/// Largest number of states of a grammar's lexer. They are made as an answer needs them, and kept for its request.
const LEXER_STATES: usize = 5_000;
/// About the largest number of bytes of a grammar: llguidance needs up to 2 KiB for a state of the lexer.
pub const GRAMMAR_BYTES: u64 = LEXER_STATES as u64 * 2048;
/// Largest text of a grammar's error in a message.
const ERROR_CHARS: usize = 500;

/// A language.
#[derive(Clone, Debug, PartialEq)]
pub enum Language {
    /// JSON that conforms to a schema.
    Json(Value),
    /// Text that a regular expression matches from its beginning to its end.
    Regex(String),
    /// Text of a grammar in llguidance's variant of Lark.
    Lark(String),
}

impl Language {
    /// Any JSON object.
    pub fn any_object() -> Language {
        Language::Json(serde_json::json!({"type": "object"}))
    }

    /// One of several texts.
    pub fn choice(texts: &[String]) -> Language {
        let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        Language::Lark(format!("start: {}", texts.join(" | ")))
    }
}

/// A text as a string of Lark.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A schema for a text on one line.
pub fn on_one_line(schema: Value) -> Value {
    with_space(schema, ONE_SPACE)
}

/// A schema with white space of a pattern, unless it says itself what it allows.
fn with_space(mut schema: Value, pattern: &str) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.entry("x-guidance").or_insert_with(|| serde_json::json!({"whitespace_pattern": pattern}));
    }
    schema
}

/// Compiles grammars for a vocabulary.
pub struct Grammars {
    factory: ParserFactory,
}

impl Grammars {
    /// Prepares a vocabulary. Answers end with the tokenizer's end tokens.
    ///
    /// # Errors
    /// If the vocabulary cannot be used, as a text.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Grammars, String> {
        let environment: TokEnv = Arc::new(Vocabulary::new(tokenizer));
        let mut factory = ParserFactory::new_simple(&environment).map_err(|error| error.to_string())?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.max_lexer_states = LEXER_STATES;
        limits.verbose_errors = false;
        Ok(Grammars { factory })
    }

    /// Compiles a grammar.
    ///
    /// # Errors
    /// If the language is not well-formed, too large, or has a feature that is not supported, as a text.
    pub fn compile(&self, language: &Language) -> Result<Compiled, String> {
        let grammar = match language {
            Language::Json(schema) => TopLevelGrammar::from_json_schema(with_space(schema.clone(), SPACE)),
            Language::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Language::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
        };
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        if let Some(error) = matcher.get_error() {
            return Err(short(&error));
        }
        for warning in matcher.grammar_warnings() {
            tracing::debug!("grammar: {warning}");
        }
        Ok(Compiled(Mutex::new(matcher)))
    }
}

/// The beginning of an error's text.
fn short(error: &str) -> String {
    let error = error.trim();
    match error.char_indices().nth(ERROR_CHARS) {
        Some((end, _)) => format!("{}…", &error[..end]),
        None => error.to_owned(),
    }
}

/// A compiled grammar.
pub struct Compiled(Mutex<Matcher>);

impl Compiled {
    fn matcher(&self) -> MutexGuard<'_, Matcher> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

impl Grammar for Compiled {
    fn start(&self) -> Box<dyn GrammarState> {
        Box::new(State { matcher: self.matcher().clone() })
    }
}

/// A grammar within an answer.
struct State {
    matcher: Matcher,
}

impl State {
    fn check(&self) -> Result<(), String> {
        let reason = self.matcher.stop_reason();
        match self.matcher.get_error() {
            Some(error) => Err(short(&error)),
            None if reason.is_ok() => Ok(()),
            None => Err(reason.to_string()),
        }
    }

    /// Goes on behind tokens.
    fn consume(&mut self, tokens: &[u32]) -> Result<(), String> {
        self.matcher.consume_tokens(tokens).map_err(|error| short(&error.to_string()))?;
        self.check()
    }
}

impl GrammarState for State {
    fn next(&mut self) -> Result<Next, String> {
        self.check()?;
        if self.matcher.is_stopped() {
            return Ok(Next::End);
        }
        let certain = self.matcher.compute_ff_tokens();
        self.check()?;
        if !certain.is_empty() {
            self.consume(&certain)?;
            return Ok(Next::Only(certain));
        }
        let mask = self.matcher.compute_mask_or_eos().map_err(|error| short(&error.to_string()))?;
        self.check()?;
        if self.matcher.is_stopped() {
            return Ok(Next::End);
        }
        Ok(Next::Any(mask.as_slice().to_vec()))
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        self.consume(&[token])
    }

    fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

/// A model's vocabulary as llguidance sees it.
struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
    /// Whether a text that goes on in the middle of an answer is encoded as itself.
    canonical: bool,
}

impl Vocabulary {
    fn new(tokenizer: Arc<Tokenizer>) -> Vocabulary {
        let count = tokenizer.len() as u32;
        let words: Vec<Vec<u8>> = (0..count).map(|id| word(&tokenizer, id)).collect();
        let ends = tokenizer.end_tokens();
        // Without end tokens a grammar ends where nothing may follow.
        let info = TokRxInfo::new(count, ends.first().copied().unwrap_or(llguidance::toktrie::INVALID_TOKEN));
        let trie = TokTrie::from(&info, &words);
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(ends) };
        // Some vocabularies encode every text with a space before it.
        let probe = "{\"a\": \"b c\"}\n";
        let pieces = encode(&tokenizer, probe);
        let canonical = pieces.iter().flat_map(|&id| tokenizer.piece(id)).copied().eq(probe.bytes());
        Vocabulary { tokenizer, trie, canonical }
    }
}

/// The bytes of a token; the name of a control token behind the byte that marks it, which no text has.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let piece = tokenizer.piece(id);
    match tokenizer.token(id) {
        Some(name) if piece.is_empty() && name.starts_with('<') && name.ends_with('>') => {
            [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat()
        }
        _ => piece.to_vec(),
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let options = EncodeOptions { bos: false, eos: false, special: false };
    tokenizer.encode_with(text, options).unwrap_or_default()
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| encode(&self.tokenizer, text))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.canonical
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grammars() -> (Grammars, Arc<Tokenizer>) {
        let tokenizer = Arc::new(Tokenizer::from_gguf(&bespoke_demo::model().unwrap()).unwrap());
        (Grammars::new(Arc::clone(&tokenizer)).unwrap(), tokenizer)
    }

    /// The text that comes of always taking an allowed token: the one at `turn` modulo their number.
    fn walk(grammars: &Grammars, tokenizer: &Tokenizer, language: &Language, turn: usize) -> String {
        let mut state = grammars.compile(language).unwrap().start();
        let mut tokens = Vec::new();
        while !state.is_complete() && tokens.len() < 2000 {
            match state.next().unwrap() {
                Next::Only(certain) => tokens.extend(certain),
                Next::End => break,
                Next::Any(mask) => {
                    let allowed: Vec<u32> = (0..tokenizer.len() as u32)
                        .filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1)
                        .collect();
                    let token = allowed[turn * 7 % allowed.len()];
                    if tokenizer.is_end(token) {
                        break;
                    }
                    state.accept(token).unwrap();
                    tokens.push(token);
                }
            }
        }
        tokenizer.decode(&tokens)
    }

    #[test]
    fn whatever_is_chosen_belongs_to_the_language() {
        let (grammars, tokenizer) = grammars();
        let schema = json!({
            "type": "object",
            "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}, "kind": {"enum": ["a", "b"]}},
            "required": ["sum", "kind"],
            "additionalProperties": false,
        });
        for turn in 0..20 {
            let text = walk(&grammars, &tokenizer, &Language::Json(schema.clone()), turn);
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(
                value["sum"].as_u64().unwrap() < 100 && ["a", "b"].contains(&value["kind"].as_str().unwrap())
            );
            let text = walk(&grammars, &tokenizer, &Language::Regex("[0-9]{2}/[ab]+x".to_owned()), turn);
            assert!(text.len() >= 5 && text.as_bytes()[2] == b'/', "{text}");
            let texts = ["one".to_owned(), "two \"2\"".to_owned()];
            assert!(texts.contains(&walk(&grammars, &tokenizer, &Language::choice(&texts), turn)));
            let lark = Language::Lark("start: \"sum \" NUMBER\nNUMBER: /[1-9]/".to_owned());
            let text = walk(&grammars, &tokenizer, &lark, turn);
            assert!(text.starts_with("sum ") && text.len() == 5, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_language_is_an_error() {
        let (grammars, _) = grammars();
        for language in [
            Language::Regex("(".to_owned()),
            Language::Lark("start: missing".to_owned()),
            Language::Lark("root ::= \"a\"".to_owned()),
            Language::Json(json!({"type": "nothing"})),
            Language::Json(json!({"$ref": "#/$defs/missing"})),
        ] {
            assert!(grammars.compile(&language).is_err(), "{language:?}");
        }
    }
}
