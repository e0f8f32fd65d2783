//! Lexer of the text form.

/// Syntax error in a text form, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was expected, or what is wrong.
    pub message: String,
}

impl ParseError {
    pub(super) fn new(line: u32, column: u32, message: impl Into<String>) -> ParseError {
        ParseError { line, column, message: message.into() }
    }
}

/// Kind of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Letters, digits, `_`, `.` and `$`; numbers too, with the exponent's sign but without a leading minus.
    Word(String),
    /// A string literal, without its quotation marks.
    Text(String),
    /// Any other character.
    Punct(char),
    /// The end of a line that has tokens.
    Newline,
    /// The end of the text.
    End,
}

/// A token and its position.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    pub line: u32,
    pub column: u32,
}

/// The tokens of the text, the last one `End`. Empty lines and comments have no tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut tokens = Vec::new();
    let mut end = (1, 1);
    for (line, number) in text.lines().zip(1..) {
        let mut lexer = Line { chars: line.chars().collect(), at: 0, line: number };
        let before = tokens.len();
        while let Some(token) = lexer.next()? {
            tokens.push(token);
        }
        if tokens.len() > before {
            end = (number, lexer.at as u32 + 1);
            tokens.push(Token { kind: Kind::Newline, line: end.0, column: end.1 });
        }
    }
    tokens.push(Token { kind: Kind::End, line: end.0, column: end.1 });
    Ok(tokens)
}

struct Line {
    chars: Vec<char>,
    at: usize,
    line: u32,
}

impl Line {
    fn next(&mut self) -> Result<Option<Token>, ParseError> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        let column = self.at as u32 + 1;
        let kind = match self.peek() {
            None | Some(';') => return Ok(None),
            Some('"') => Kind::Text(self.quoted()?),
            Some(c) if is_word(c) => Kind::Word(self.word()),
            Some(c) => {
                self.at += 1;
                Kind::Punct(c)
            }
        };
        Ok(Some(Token { kind, line: self.line, column }))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek() {
            // The sign of a decimal exponent belongs to the number.
            let number = word.starts_with(|c: char| c.is_ascii_digit()) && !word.starts_with("0x");
            let exponent = matches!(c, '-' | '+') && number && word.ends_with('e');
            if !is_word(c) && !exponent {
                break;
            }
            word.push(c);
            self.at += 1;
        }
        word
    }

    fn quoted(&mut self) -> Result<String, ParseError> {
        let column = self.at as u32 + 1;
        let mut text = String::new();
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '"' => return Ok(text),
                '\\' => {
                    let escaped = self.peek();
                    self.at += 1;
                    match escaped {
                        Some('n') => text.push('\n'),
                        Some('r') => text.push('\r'),
                        Some(c @ ('"' | '\\')) => text.push(c),
                        _ => {
                            let column = self.at as u32 - 1;
                            return Err(ParseError::new(self.line, column, "unknown escape in a file name"));
                        }
                    }
                }
                c => text.push(c),
            }
        }
        Err(ParseError::new(self.line, column, "a file name without its closing quotation mark"))
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')
}
