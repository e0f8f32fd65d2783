//! Lexer: splits PTX text into tokens.

use crate::load::error::{ParseError, ParseErrorKind};

/// Token of a PTX text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Token<'a> {
    /// Identifier such as `add`, `%r1`, `$L_2` or `_`.
    Ident(&'a str),
    /// Word after a dot, without the dot: `.f32`, `.L2::128B`.
    Dot(&'a str),
    Int(u64),
    /// Integer with the suffix `U`.
    Unsigned(u64),
    /// Bits of a single-precision literal such as `0f3F800000`.
    F32(u32),
    /// Bits of a double-precision literal such as `0d3FF0000000000000`, or of a decimal literal.
    F64(u64),
    Text(&'a str),
    Punct(char),
    /// The beginning `//@ assume` of an assumption, which is a comment to other readers of PTX.
    Assume,
    End,
}

/// Token with its line and column, both 1-based.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spanned<'a> {
    pub(crate) token: Token<'a>,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// Splits `text` into tokens; the last token is always [`Token::End`].
pub(crate) fn lex(text: &str) -> Result<Vec<Spanned<'_>>, ParseError> {
    // NVRTC ends its text by a NUL, which programs write to files. The driver reads no further either.
    let text = text.split_once('\0').map_or(text, |(text, _)| text);
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0, line: 1, line_start: 0 };
    let mut tokens = Vec::with_capacity(text.len() / 4);
    loop {
        lexer.skip_blank()?;
        let (line, column) = (lexer.line, (lexer.at - lexer.line_start + 1) as u32);
        // Errors are reported at the start of the token.
        let token = lexer.next().map_err(|error| ParseError { line, column, ..error })?;
        tokens.push(Spanned { token, line, column });
        if token == Token::End {
            return Ok(tokens);
        }
    }
}

/// Beginning of an assumption, with the dot that follows.
const ASSUME: &[u8] = b"//@ assume.";

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

impl<'a> Lexer<'a> {
    fn error(&self, message: impl Into<String>) -> ParseError {
        let column = (self.at - self.line_start + 1) as u32;
        ParseError::new(ParseErrorKind::Syntax, (self.line, column), message)
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn newline(&mut self) {
        self.line += 1;
        self.line_start = self.at + 1;
    }

    fn skip_blank(&mut self) -> Result<(), ParseError> {
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.newline();
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.bytes[self.at..].starts_with(ASSUME) => break,
                b'/' if self.peek(1) == b'/' => {
                    while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
                        self.at += 1;
                    }
                }
                b'/' if self.peek(1) == b'*' => {
                    let open = self.error("unterminated comment");
                    self.at += 2;
                    loop {
                        match self.bytes.get(self.at) {
                            None => return Err(open),
                            Some(b'*') if self.peek(1) == b'/' => break,
                            Some(b'\n') => self.newline(),
                            Some(_) => {}
                        }
                        self.at += 1;
                    }
                    self.at += 2;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.at < self.bytes.len() && accept(self.bytes[self.at]) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn next(&mut self) -> Result<Token<'a>, ParseError> {
        let Some(&byte) = self.bytes.get(self.at) else { return Ok(Token::End) };
        match byte {
            b'/' if self.bytes[self.at..].starts_with(ASSUME) => {
                self.at += ASSUME.len() - 1;
                Ok(Token::Assume)
            }
            b'"' => self.text_literal(),
            b'0'..=b'9' => self.number(),
            b'.' if self.starts_fraction() => self.number(),
            b'.' => {
                self.at += 1;
                let start = self.at;
                self.take_while(is_word);
                while self.peek(0) == b':' && self.peek(1) == b':' && is_word(self.peek(2)) {
                    self.at += 2;
                    self.take_while(is_word);
                }
                if self.at == start {
                    return Err(self.error("a name must follow the dot"));
                }
                Ok(Token::Dot(&self.text[start..self.at]))
            }
            b'%' => {
                let start = self.at;
                self.at += 1;
                self.take_while(is_word);
                Ok(Token::Ident(&self.text[start..self.at]))
            }
            _ if is_word(byte) => Ok(Token::Ident(self.take_while(is_word))),
            b',' | b';' | b':' | b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b'@' | b'!'
            | b'|' | b'+' | b'-' | b'=' | b'~' | b'*' | b'/' | b'&' | b'^' | b'?' => {
                self.at += 1;
                Ok(Token::Punct(byte as char))
            }
            _ => {
                let found = self.text[self.at..].chars().next().unwrap_or('?');
                Err(self.error(format!("unexpected character {found:?}")))
            }
        }
    }

    fn text_literal(&mut self) -> Result<Token<'a>, ParseError> {
        self.at += 1;
        let text = self.take_while(|byte| byte != b'"' && byte != b'\n');
        if self.peek(0) != b'"' {
            return Err(self.error("unterminated string"));
        }
        self.at += 1;
        Ok(Token::Text(text))
    }

    fn number(&mut self) -> Result<Token<'a>, ParseError> {
        let radix = match (self.peek(0), self.peek(1)) {
            (b'0', b'x' | b'X') => Some(16),
            (b'0', b'b' | b'B') => Some(2),
            (b'0', b'f' | b'F') => {
                let bits = self.float_bits(8)?;
                return Ok(Token::F32(bits as u32));
            }
            (b'0', b'd' | b'D') => return Ok(Token::F64(self.float_bits(16)?)),
            _ => None,
        };
        if let Some(radix) = radix {
            self.at += 2;
            let digits = self.take_while(is_word);
            return self.integer(digits, radix, "");
        }
        let start = self.at;
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        let fraction = self.peek(0) == b'.' && (self.ends_whole_number() || self.peek(1).is_ascii_digit());
        let exponent = matches!(self.peek(0), b'e' | b'E');
        if !fraction && !exponent {
            let suffix = self.take_while(is_word);
            if !matches!(suffix, "" | "U" | "u") {
                return Err(self.error(format!("malformed number `{digits}{suffix}`")));
            }
            let radix = if digits.len() > 1 && digits.starts_with('0') { 8 } else { 10 };
            return self.integer(digits, radix, suffix);
        }
        if fraction {
            self.at += 1;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        if matches!(self.peek(0), b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek(0), b'+' | b'-') {
                self.at += 1;
            }
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let literal = &self.text[start..self.at];
        match literal.parse::<f64>() {
            Ok(value) => Ok(Token::F64(value.to_bits())),
            Err(_) => Err(self.error(format!("malformed number `{literal}`"))),
        }
    }

    /// Whether the number whose digits precede this dot ends with it, or with an exponent behind it: `0.`, `1.e5`.
    fn ends_whole_number(&self) -> bool {
        match self.peek(1) {
            b'e' | b'E' => matches!(self.peek(2), b'0'..=b'9' | b'+' | b'-'),
            byte => !is_word(byte),
        }
    }

    /// Whether this dot begins a number, such as `.5`. After a word it begins a modifier, such as `.2d`.
    fn starts_fraction(&self) -> bool {
        let after_word = self.at > 0 && is_word(self.bytes[self.at - 1]);
        let digits = self.bytes[self.at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let behind = self.peek(1 + digits);
        !after_word && digits > 0 && (!is_word(behind) || matches!(behind, b'e' | b'E'))
    }

    fn float_bits(&mut self, digits: usize) -> Result<u64, ParseError> {
        self.at += 2;
        let text = self.take_while(is_word);
        if text.len() != digits {
            return Err(self.error(format!("a hexadecimal float needs {digits} digits, not `{text}`")));
        }
        u64::from_str_radix(text, 16).map_err(|_| self.error(format!("malformed float `{text}`")))
    }

    fn integer(&self, text: &str, radix: u32, suffix: &str) -> Result<Token<'a>, ParseError> {
        let digits = text.trim_end_matches(['U', 'u']);
        let is_unsigned = digits.len() < text.len() || !suffix.is_empty();
        u64::from_str_radix(digits, radix)
            .map(if is_unsigned { Token::Unsigned } else { Token::Int })
            .map_err(|_| self.error(format!("malformed or too large integer `{digits}`")))
    }
}
