//! Tokens of inline PTX.

use crate::ir::{Piece, pieces};

/// A token and where it starts in the text.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub at: usize,
}

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name with what follows it after dots: `add.u32`, `%tid.x`, `sum`.
    Word,
    /// A word that starts with a dot: `.reg`, `.b32`.
    Directive,
    /// A number.
    Number,
    /// A string in quotation marks.
    Text,
    /// An operand in braces: `{x}`.
    Operand,
    /// Any other character.
    Mark(char),
}

impl Token<'_> {
    /// Whether the token is this character.
    pub fn is(self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

/// The tokens of the text, or the position of a character that PTX does not have and what is wrong with it.
pub fn tokens(ptx: &str) -> Result<Vec<Token<'_>>, (usize, String)> {
    let mut tokens = Vec::new();
    let mut at = 0;
    for piece in pieces(ptx) {
        match piece {
            Piece::Name(name) => {
                tokens.push(Token { kind: Kind::Operand, text: name, at });
                at += name.len() + 2;
            }
            Piece::Ptx(text) => {
                words(text, at, &mut tokens)?;
                at += text.len();
            }
        }
    }
    Ok(tokens)
}

fn words<'a>(text: &'a str, base: usize, tokens: &mut Vec<Token<'a>>) -> Result<(), (usize, String)> {
    let mut from = 0;
    while let Some(first) = text[from..].chars().next() {
        let rest = &text[from..];
        let (kind, length) = match first {
            c if c.is_whitespace() => {
                from += c.len_utf8();
                continue;
            }
            '/' if rest.starts_with("//") => {
                from += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '/' if rest.starts_with("/*") => {
                let end = rest.find("*/").ok_or((base + from, "a comment does not end".to_owned()))?;
                from += end + 2;
                continue;
            }
            '"' => {
                let end = rest[1..].find('"').ok_or((base + from, "a string does not end".to_owned()))?;
                (Kind::Text, end + 2)
            }
            '0'..='9' => (Kind::Number, number(rest)),
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_alphabetic()) => {
                (Kind::Directive, 1 + name(&rest[1..]))
            }
            c if c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%') => (Kind::Word, dotted(rest)),
            ',' | ';' | ':' | '{' | '}' | '[' | ']' | '(' | ')' | '<' | '>' | '@' | '!' | '|' | '+' | '-'
            | '=' | '*' | '&' | '^' | '~' | '/' | '.' => (Kind::Mark(first), 1),
            other => return Err((base + from, format!("PTX has no character `{other}`"))),
        };
        tokens.push(Token { kind, text: &rest[..length], at: base + from });
        from += length;
    }
    Ok(())
}

/// Length of the name at the start of the text.
fn name(text: &str) -> usize {
    let end = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$';
    text.find(end).unwrap_or(text.len())
}

/// Length of the word at the start of the text, with what follows after dots and double colons.
fn dotted(text: &str) -> usize {
    let mut length = 1 + name(&text[1..]);
    loop {
        let rest = &text[length..];
        let separator = ["::", "."].into_iter().find(|separator| rest.starts_with(separator));
        let Some(separator) = separator else { return length };
        let part = name(&rest[separator.len()..]);
        if part == 0 {
            return length;
        }
        length += separator.len() + part;
    }
}

/// Length of the number at the start of the text.
fn number(text: &str) -> usize {
    let mut length = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(text.len());
    let has_exponent =
        !text.starts_with("0x") && !text.starts_with("0f") && text[..length].ends_with(['e', 'E']);
    if has_exponent && text[length..].starts_with(['+', '-']) {
        let digits = &text[length + 1..];
        length += 1 + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    }
    length
}
