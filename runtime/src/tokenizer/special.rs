//! Tokens that are matched in text as a whole, before any other splitting.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};

use super::TokenizerError;
use super::vocab::{TokenType, Vocab};

/// Finder of the tokens that are matched whole.
pub struct Special {
    /// Control, unknown and user-defined tokens.
    all: Finder,
    /// User-defined tokens only, for text whose control tokens are ordinary text.
    user_defined: Finder,
    /// Whether white space after a token belongs to the token; empty if that holds for none.
    strips_right: Vec<bool>,
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'t> {
    /// Text without such tokens; not empty.
    Text(&'t str),
    /// A token.
    Token(u32),
}

struct Finder {
    automaton: Option<AhoCorasick>,
    /// Id of each pattern.
    ids: Vec<u32>,
}

impl Special {
    /// Builds the finders. `strips_right` tells for each token whether white space after it belongs to it.
    pub fn new(vocab: &Vocab<'_>) -> Result<Self, TokenizerError> {
        let is_user_defined = |id: u32| vocab.types[id as usize] == TokenType::UserDefined;
        let is_whole = |id: u32| vocab.types[id as usize].is_matched_whole();
        Ok(Self {
            all: Finder::new(vocab, is_whole)?,
            user_defined: Finder::new(vocab, is_user_defined)?,
            strips_right: vocab.strips_right(),
        })
    }

    /// Splits text at its tokens. At each position the longest token is found. With `control` false, control tokens in
    /// the text are text.
    pub fn split<'t>(&self, text: &'t str, control: bool) -> Vec<Part<'t>> {
        let finder = if control { &self.all } else { &self.user_defined };
        let mut parts = Vec::new();
        let mut at = 0;
        for (start, end, id) in finder.find(text) {
            if start > at {
                parts.push(Part::Text(&text[at..start]));
            }
            parts.push(Part::Token(id));
            at = end;
            if self.strips_right.get(id as usize).is_some_and(|&strips| strips) {
                let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
                at += text.as_bytes()[end..].iter().take_while(|byte| is_space(byte)).count();
            }
        }
        if at < text.len() {
            parts.push(Part::Text(&text[at..]));
        }
        parts
    }
}

impl Finder {
    fn new(vocab: &Vocab<'_>, selected: impl Fn(u32) -> bool) -> Result<Self, TokenizerError> {
        let all = (0..).zip(&vocab.tokens);
        let (ids, patterns): (Vec<u32>, Vec<&str>) =
            all.filter(|&(id, token)| !token.is_empty() && selected(id)).unzip();
        let automaton = if patterns.is_empty() {
            None
        } else {
            let builder = AhoCorasickBuilder::new().match_kind(MatchKind::LeftmostLongest).build(&patterns);
            Some(builder.map_err(|error| TokenizerError::Model(error.to_string()))?)
        };
        Ok(Self { automaton, ids })
    }

    /// Start, end and id of each token.
    fn find(&self, text: &str) -> impl Iterator<Item = (usize, usize, u32)> {
        let found = self.automaton.iter().flat_map(move |automaton| automaton.find_iter(text));
        found.map(|found| (found.start(), found.end(), self.ids[found.pattern().as_usize()]))
    }
}
