//! Tokens that are matched in text as a whole, before any other splitting.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};

use super::TokenizerError;
use super::vocab::{TokenType, Vocab};

/// Finder of the tokens that are matched whole.
pub struct Special {
    /// Control, unknown and user-defined tokens.
    all: Finder,
    /// User-defined tokens only, for text whose control tokens are ordinary text.
    user_defined: Finder,
    /// Ids of the tokens that include the white space before them, and of those that include the white space after
    /// them.
    strips: [HashSet<u32>; 2],
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
    /// Builds the finders.
    pub fn new(vocab: &Vocab<'_>) -> Result<Self, TokenizerError> {
        let is_user_defined = |id: u32| vocab.types[id as usize] == TokenType::UserDefined;
        let is_whole = |id: u32| vocab.types[id as usize].is_matched_whole();
        Ok(Self {
            all: Finder::new(vocab, is_whole)?,
            user_defined: Finder::new(vocab, is_user_defined)?,
            strips: vocab.strips.clone(),
        })
    }

    /// Splits text at its tokens, with the white space that belongs to them. At each position the longest token is found.
    /// With `control` false, control tokens in the text are text.
    pub fn split<'t>(&self, text: &'t str, control: bool) -> Vec<Part<'t>> {
        let finder = if control { &self.all } else { &self.user_defined };
        let mut parts = Vec::new();
        let mut at = 0;
        let [left, right] = &self.strips;
        for (start, end, id) in finder.find(text) {
            // White space before the token may belong to the previous one.
            let before = &text[at.min(start)..start];
            let before = if left.contains(&id) { before.trim_end() } else { before };
            if !before.is_empty() {
                parts.push(Part::Text(before));
            }
            parts.push(Part::Token(id));
            at = end;
            if right.contains(&id) {
                at = text.len() - text[end..].trim_start().len();
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
