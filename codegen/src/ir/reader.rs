//! A cursor over the tokens of the text form.

use std::str::FromStr;

use super::lex::{self, Kind, ParseError, Token};

/// Largest number of a value or block, which limits the memory that a hostile text can demand.
const MAX_NUMBER: u32 = 1 << 22;

/// Number of an entity as written, with its position in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub number: u32,
    pub line: u32,
    pub column: u32,
}

impl Name {
    pub fn error(self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.line, self.column, message)
    }
}

/// The tokens of a text and a position in them.
pub(super) struct Reader {
    tokens: Vec<Token>,
    pub(super) at: usize,
}

impl Reader {
    pub(super) fn new(text: &str) -> Result<Reader, ParseError> {
        Ok(Reader { tokens: lex::tokens(text)?, at: 0 })
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.tokens[self.at].kind
    }

    /// Kind of the token after the current token.
    pub(super) fn next_kind(&self) -> Option<&Kind> {
        self.tokens.get(self.at + 1).map(|token| &token.kind)
    }

    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        let token = &self.tokens[self.at];
        ParseError::new(token.line, token.column, message)
    }

    /// Error at the position of the previous token.
    pub(super) fn error_before(&self, message: impl Into<String>) -> ParseError {
        let token = &self.tokens[self.at.saturating_sub(1)];
        ParseError::new(token.line, token.column, message)
    }

    pub(super) fn peek_word(&self) -> Option<&str> {
        match self.kind() {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn at_block(&self) -> bool {
        let digits = self.peek_word().and_then(|word| word.strip_prefix("block"));
        digits.is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
    }

    pub(super) fn word(&mut self, what: &str) -> Result<String, ParseError> {
        let word =
            self.peek_word().map(str::to_owned).ok_or_else(|| self.error(format!("expected {what}")))?;
        self.at += 1;
        Ok(word)
    }

    pub(super) fn eat(&mut self, punct: char) -> bool {
        let found = self.kind() == &Kind::Punct(punct);
        self.at += usize::from(found);
        found
    }

    pub(super) fn eat_word(&mut self, expected: &str) -> bool {
        let found = self.peek_word() == Some(expected);
        self.at += usize::from(found);
        found
    }

    pub(super) fn punct(&mut self, punct: char) -> Result<(), ParseError> {
        if self.eat(punct) { Ok(()) } else { Err(self.error(format!("expected `{punct}`"))) }
    }

    pub(super) fn keyword(&mut self, expected: &str) -> Result<(), ParseError> {
        if self.eat_word(expected) { Ok(()) } else { Err(self.error(format!("expected `{expected}`"))) }
    }

    pub(super) fn newline(&mut self) -> Result<(), ParseError> {
        if self.kind() != &Kind::Newline {
            return Err(self.error("expected the end of the line"));
        }
        self.at += 1;
        Ok(())
    }

    pub(super) fn parsed<T: FromStr>(&mut self, what: &str) -> Result<T, ParseError> {
        let word = self.word(what)?;
        word.parse().map_err(|_| self.error_before(format!("`{word}` is not {what}")))
    }

    /// Reads a name that consists of `prefix` and a number.
    pub(super) fn name(&mut self, prefix: &str) -> Result<Name, ParseError> {
        let number = self.peek_word().and_then(|word| word.strip_prefix(prefix)).and_then(canonical_number);
        let Some(number) = number else {
            return Err(self.error(format!("expected a name of the form {prefix}0")));
        };
        let &Token { line, column, .. } = &self.tokens[self.at];
        if number > MAX_NUMBER {
            return Err(self.error(format!("the number is larger than {MAX_NUMBER}")));
        }
        self.at += 1;
        Ok(Name { number, line, column })
    }

    /// Reads one of the words in `choices`; returns the word's value.
    pub(super) fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, ParseError> {
        let found = self.peek_word().and_then(|word| choices.iter().find(|(text, _)| *text == word));
        let Some(&(_, choice)) = found else {
            let names: Vec<_> = choices.iter().map(|(text, _)| *text).collect();
            return Err(self.error(format!("expected one of {}", names.join(", "))));
        };
        self.at += 1;
        Ok(choice)
    }

    /// Reads a variant's name if the next word is one; otherwise reads nothing.
    pub(super) fn optional<T: FromStr>(&mut self) -> Option<T> {
        let variant = self.peek_word()?.parse().ok()?;
        self.at += 1;
        Some(variant)
    }
}

/// Parses a decimal number without sign and leading zeros, so that every entity has exactly one name.
fn canonical_number(digits: &str) -> Option<u32> {
    let canonical = digits == "0" || digits.starts_with(|c: char| ('1'..='9').contains(&c));
    if canonical { digits.parse().ok() } else { None }
}
