//! Tokens of a tag.

/// Part of a tag: a name, a number, a text literal, or one other character.
pub struct Token<'a> {
    /// Position in the tag.
    pub start: usize,
    /// Text of the token.
    pub text: &'a str,
}

impl Token<'_> {
    /// Position after the token.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Whether an operand may end with the token: a value, or a closing bracket.
    pub fn ends_operand(&self) -> bool {
        match self.text.as_bytes()[0] {
            b')' | b']' | b'}' | b'"' | b'\'' => true,
            _ => is_word(self.text) && !KEYWORDS.contains(&self.text),
        }
    }
}

/// Names that are no values.
const KEYWORDS: [&str; 8] = ["and", "or", "not", "in", "is", "if", "else", "recursive"];

/// Whether a token is a name or a number.
pub fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphanumeric() || first == '_')
}

/// Tokens of a tag from a position on, without white space.
pub fn tokens(tag: &str, from: usize) -> impl Iterator<Item = Token<'_>> {
    let mut at = from.min(tag.len());
    std::iter::from_fn(move || {
        let rest = tag.get(at..)?;
        let skipped = rest.len() - rest.trim_start().len();
        let rest = &rest[skipped..];
        let first = rest.chars().next()?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            '"' | '\'' => end_of_literal(rest, first),
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let start = at + skipped;
        at = start + length;
        Some(Token { start, text: &rest[..length] })
    })
}

/// Length of a text literal, with its quotes.
fn end_of_literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return index + 1,
            _ => {}
        }
    }
    text.len()
}
