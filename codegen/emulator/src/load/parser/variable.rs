//! Declarations of variables, with their initial values.

use super::{Linkage, Parser};
use crate::load::ast::{InitialAddress, Variable};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::Token;
use crate::load::types::Ty;

/// Largest alignment and size of a variable that the parser accepts, in bytes.
const MAX_ALIGN: u64 = 1024;
const MAX_VARIABLE: u64 = 1 << 32;

/// Initial bytes of a variable, and the addresses in them.
type Initial = (Vec<u8>, Vec<InitialAddress>);

impl Parser<'_> {
    /// Parses the number after `.align`.
    pub(super) fn align(&mut self) -> Result<u32, ParseError> {
        let align = self.int("an alignment")?;
        if !align.is_power_of_two() || align > MAX_ALIGN {
            self.at -= 1;
            return Err(self.error(format!("{align} is not a power of two up to {MAX_ALIGN}")));
        }
        Ok(align as u32)
    }

    /// Parses a declaration such as `.align 16 .b8 name[64] = {…};`, which follows the state space. Also returns the
    /// position of the name.
    pub(super) fn variable(&mut self, linkage: &Linkage) -> Result<(Variable, (u32, u32)), ParseError> {
        let mut align = None;
        let mut ty = None;
        let mut vector = 1;
        while let Token::Dot(word) = self.peek() {
            self.at += 1;
            match word {
                "align" => align = Some(self.align()?),
                "v2" => vector = 2,
                "v4" => vector = 4,
                "attribute" => self.variable_attributes()?,
                _ => match Ty::parse(word) {
                    Some(found) if found != Ty::Pred => ty = Some(found),
                    _ => {
                        self.at -= 1;
                        return Err(self.unknown_word(&format!("attribute `.{word}` of a variable"), word));
                    }
                },
            }
        }
        let Some(ty) = ty else { return self.expected("the variable's type") };
        let at = self.here();
        let name = self.ident("the variable's name")?.to_string();
        let element = ty.bytes() as u64 * vector;
        let mut bytes = Some(element);
        let (mut dynamic, mut unsized_at) = (false, None);
        while self.take('[') {
            if self.take(']') {
                dynamic = linkage.external;
                unsized_at = unsized_at.or(Some(self.here()).filter(|_| !dynamic));
                continue;
            }
            let count = self.array_size()?;
            bytes = bytes.and_then(|bytes| bytes.checked_mul(count));
            self.expect(']')?;
        }
        if let Some(at) = unsized_at {
            let sized_by_values = self.peek() == Token::Punct('=');
            let (kind, message) = match sized_by_values {
                true => (
                    ParseErrorKind::Unsupported,
                    "the emulator does not support arrays whose size follows from their values",
                ),
                false => (ParseErrorKind::Syntax, &*format!("`{name}` has no size")),
            };
            self.report(ParseError::new(kind, at, message));
            bytes = Some(MAX_VARIABLE);
        }
        let bytes = match bytes {
            Some(bytes) if bytes <= MAX_VARIABLE => bytes,
            _ => {
                let message = format!("`{name}` is too large");
                return Err(self.error_of(ParseErrorKind::Unsupported, message));
            }
        };
        let (mut init, mut addresses) =
            if self.take('=') { self.initial_bytes(ty, bytes)? } else { Default::default() };
        self.expect(';')?;
        if unsized_at.is_some() {
            init.clear();
            addresses.clear();
        }
        let variable = Variable {
            name,
            bytes: if dynamic || unsized_at.is_some() { 0 } else { bytes },
            align: align.unwrap_or(element.next_power_of_two() as u32),
            init,
            addresses,
            dynamic,
            at,
        };
        Ok((variable, at))
    }

    /// Parses the attributes in brackets after `.attribute`. They are about memory of the host and of other devices, which the
    /// emulator does not have.
    fn variable_attributes(&mut self) -> Result<(), ParseError> {
        self.expect('(')?;
        loop {
            match self.peek() {
                Token::Dot("managed") => self.at += 1,
                Token::Dot("unified") => {
                    self.at += 1;
                    self.expect('(')?;
                    self.int("the first half of an identifier")?;
                    self.expect(',')?;
                    self.int("the second half of an identifier")?;
                    self.expect(')')?;
                }
                Token::Dot(word) => {
                    return Err(self.unknown_word(&format!("attribute `.{word}` of a variable"), word));
                }
                _ => return self.expected("`.managed` or `.unified`"),
            }
            if !self.take(',') {
                return self.expect(')');
            }
        }
    }

    /// Parses the array size in brackets. A constant expression is reported and skipped, and counts as 1.
    fn array_size(&mut self) -> Result<u64, ParseError> {
        let known = match self.peek() {
            Token::Punct('(') => Err(self.expression()),
            _ => {
                let size = self.int("an array size")?;
                self.refuse_expression().map(|()| size)
            }
        };
        known.or_else(|error| {
            self.report(error);
            while !matches!(self.peek(), Token::Punct(']' | ';') | Token::End) {
                self.at += 1;
            }
            Ok(1)
        })
    }

    /// Parses the initial value after `=` to bytes. Unsupported values are reported and skipped, and count as zeros.
    fn initial_bytes(&mut self, ty: Ty, bytes: u64) -> Result<Initial, ParseError> {
        let error = match self.initialiser(ty, bytes) {
            Err(error) if error.kind == ParseErrorKind::Unsupported => error,
            result => return result,
        };
        self.report(error);
        while !matches!(self.peek(), Token::Punct(';') | Token::End) {
            self.at += 1;
        }
        Ok(Initial::default())
    }

    /// Parses the address `name`, `name+8`, `generic(name)` or `generic(name)+8`, up to its last token. A variable's
    /// generic address equals its address in the global space.
    fn initial_address(&mut self, at: u64) -> Result<InitialAddress, ParseError> {
        let mut place = self.here();
        let mut name = self.ident("a name")?;
        let generic = name == "generic" && self.take('(');
        if generic {
            place = self.here();
            name = self.ident("a name")?;
            self.expect(')')?;
        }
        let mut offset = 0;
        if self.take('+') {
            offset = self.int("an offset")? as i64;
        }
        // The caller skips the last token.
        self.at -= 1;
        Ok(InitialAddress { at, name: name.to_string(), offset, place })
    }

    /// Parses a constant, or a list of constants in braces, to bytes.
    fn initialiser(&mut self, ty: Ty, bytes: u64) -> Result<Initial, ParseError> {
        let (mut init, mut addresses) = Initial::default();
        let mut depth = 0;
        loop {
            if self.take('{') {
                depth += 1;
                continue;
            }
            let negative = self.take('-');
            let bits = match self.peek() {
                Token::Int(value) if negative => value.wrapping_neg(),
                Token::Int(value) => value,
                Token::F32(bits) => bits as u64 ^ (negative as u64) << 31,
                Token::F64(bits) => {
                    let value = f64::from_bits(bits ^ (negative as u64) << 63);
                    if ty == Ty::F32 { (value as f32).to_bits() as u64 } else { value.to_bits() }
                }
                Token::Ident(_) if !negative && ty.bytes() == 8 => {
                    addresses.push(self.initial_address(init.len() as u64)?);
                    0
                }
                Token::Ident(_) => {
                    let message = "the emulator supports addresses as initial values of 64-bit elements only";
                    return Err(self.error_of(ParseErrorKind::Unsupported, message));
                }
                Token::Punct('(' | '-' | '~' | '!') => return Err(self.expression()),
                _ => return self.expected("a constant"),
            };
            self.at += 1;
            if addresses.last().is_none_or(|last| last.at != init.len() as u64) {
                self.refuse_expression()?;
            }
            init.extend_from_slice(&bits.to_le_bytes()[..ty.bytes() as usize]);
            while depth > 0 && self.take('}') {
                depth -= 1;
            }
            if init.len() as u64 > bytes {
                return Err(self.error("more initial values than elements"));
            }
            if depth == 0 {
                return Ok((init, addresses));
            }
            self.expect(',')?;
        }
    }
}
