//! Declarations of variables, with their initial values.

use super::{Linkage, Parser};
use crate::load::ast::{InitialAddress, Operand, Variable};
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
        let mut dimensions = 0;
        while self.take('[') {
            dimensions += 1;
            if self.take(']') {
                if dimensions > 1 {
                    return Err(self.error("only the first dimension of an array may be without a size"));
                }
                dynamic = linkage.external;
                unsized_at = Some(self.here()).filter(|_| !dynamic);
                continue;
            }
            let count = self.int("an array size")?;
            bytes = bytes.and_then(|bytes| bytes.checked_mul(count));
            self.expect(']')?;
        }
        let Some(mut bytes) = bytes.filter(|&bytes| bytes <= MAX_VARIABLE) else {
            return Err(self.error_of(ParseErrorKind::Unsupported, format!("`{name}` is too large")));
        };
        let has_values = self.take('=');
        let (init, addresses) = match (has_values, unsized_at) {
            (false, Some(at)) => {
                self.report(ParseError::new(ParseErrorKind::Syntax, at, format!("`{name}` has no size")));
                Default::default()
            }
            (false, None) => Default::default(),
            (true, None) => self.initial_bytes(ty, bytes)?,
            (true, Some(_)) => {
                let initial = self.initial_bytes(ty, MAX_VARIABLE)?;
                bytes = (initial.0.len() as u64).next_multiple_of(bytes.max(1));
                initial
            }
        };
        self.expect(';')?;
        let variable = Variable {
            name,
            bytes: if dynamic { 0 } else { bytes },
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

    /// Parses the initial value after `=` to bytes. Unsupported and unsuitable values are reported and skipped, and count
    /// as zeros.
    fn initial_bytes(&mut self, ty: Ty, bytes: u64) -> Result<Initial, ParseError> {
        let error = match self.initialiser(ty, bytes) {
            Err(error) if error.kind != ParseErrorKind::Syntax => error,
            result => return result,
        };
        self.report(error);
        while !matches!(self.peek(), Token::Punct(';') | Token::End) {
            self.at += 1;
        }
        Ok(Initial::default())
    }

    /// Parses the address `name`, `name+8`, `generic(name)` or `generic(name)+8`. A variable's generic address equals its
    /// address in the global space.
    fn initial_address(&mut self, at: u64) -> Result<InitialAddress, ParseError> {
        let mut place = self.here();
        let mut name = self.ident("a name")?;
        let generic = name == "generic" && self.take('(');
        if generic {
            place = self.here();
            name = self.ident("a name")?;
            self.expect(')')?;
        }
        let offset = if self.take('+') { self.integer_constant("an offset")? as i64 } else { 0 };
        Ok(InitialAddress { at, name: name.to_string(), offset, place })
    }

    /// Parses one initial value to its bits. An address is added to `addresses`; its bits are 0.
    fn initial_value(
        &mut self,
        ty: Ty,
        at: u64,
        addresses: &mut Vec<InitialAddress>,
    ) -> Result<u64, ParseError> {
        if matches!(self.peek(), Token::Ident(_)) && !self.starts_constant() {
            if ty.bytes() != 8 {
                let message = "the emulator supports addresses as initial values of 64-bit elements only";
                return Err(self.error_of(ParseErrorKind::Unsupported, message));
            }
            addresses.push(self.initial_address(at)?);
            return Ok(0);
        }
        let place = self.here();
        let mismatch = |message: &str| Err(ParseError::new(ParseErrorKind::Operand, place, message));
        let bits = match self.constant()? {
            Operand::Int(_) if matches!(ty, Ty::F32 | Ty::F64) => {
                return mismatch("the initial value of a float must be a float");
            }
            Operand::Int(value) => value,
            Operand::F32(bits) if matches!(ty, Ty::F32 | Ty::B32) => u64::from(bits),
            Operand::F32(bits) if ty == Ty::F64 => f64::from(f32::from_bits(bits)).to_bits(),
            Operand::F64(bits) if matches!(ty, Ty::F32 | Ty::B32) => {
                u64::from((f64::from_bits(bits) as f32).to_bits())
            }
            Operand::F64(bits) if matches!(ty, Ty::F64 | Ty::B64) => bits,
            _ => return mismatch("a float is no initial value of this type"),
        };
        if self.peek() == Token::Punct('(') {
            let message = "the emulator does not support single bytes of an address as initial values";
            return Err(self.error_of(ParseErrorKind::Unsupported, message));
        }
        Ok(bits)
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
            let bits = self.initial_value(ty, init.len() as u64, &mut addresses)?;
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
