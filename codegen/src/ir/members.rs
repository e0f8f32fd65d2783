//! Text forms of opcode members: each [`Format`] prints a member and reads it back.

use std::fmt::Display;
use std::str::FromStr;

use half::{bf16, f16};

use super::entities::{LocalVar, SharedVar, TableVar};
use super::lex::ParseError;
use super::named::Named;
use super::reader::Reader;
use super::types::Type;

/// Text form of an opcode's member of type `T`.
pub(super) trait Format<T> {
    /// The member as words separated by blanks; empty if the member is omitted. `ty` is the instruction's type.
    fn print(&self, member: T, ty: Type) -> String;

    /// Parses a member that `print` wrote.
    fn read(&self, reader: &mut Reader, ty: Type) -> Result<T, ParseError>;

    /// Values of the member for tests: all, or a few that differ where the text form or a rule does.
    fn examples(&self) -> Vec<T>;
}

/// Format of an enumeration: the name of the variant.
pub(super) struct Variant;

impl<T: Named> Format<T> for Variant {
    fn print(&self, member: T, _: Type) -> String {
        member.name().into()
    }

    fn read(&self, reader: &mut Reader, _: Type) -> Result<T, ParseError> {
        let choices: Vec<(&str, T)> = T::ALL.iter().map(|&variant| (variant.name(), variant)).collect();
        reader.choice(&choices)
    }

    fn examples(&self) -> Vec<T> {
        T::ALL.to_vec()
    }
}

/// Format of a member with a few values: one word per value.
pub(super) struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Format<T> for Choice<T> {
    fn print(&self, member: T, _: Type) -> String {
        let word = self.0.iter().find(|(_, value)| *value == member);
        word.map_or("invalid", |(word, _)| word).into()
    }

    fn read(&self, reader: &mut Reader, _: Type) -> Result<T, ParseError> {
        reader.choice(self.0)
    }

    fn examples(&self) -> Vec<T> {
        self.0.iter().map(|&(_, value)| value).collect()
    }
}

/// Format of a boolean: a word if true, nothing if false.
pub(super) struct Flag(pub &'static str);

impl Format<bool> for Flag {
    fn print(&self, member: bool, _: Type) -> String {
        if member { self.0.into() } else { String::new() }
    }

    fn read(&self, reader: &mut Reader, _: Type) -> Result<bool, ParseError> {
        Ok(reader.eat_word(self.0))
    }

    fn examples(&self) -> Vec<bool> {
        vec![false, true]
    }
}

/// Format of a decimal number.
pub(super) struct Number<T: 'static> {
    /// Name of the counted thing, for messages.
    pub what: &'static str,
    /// See [`Format::examples`].
    pub examples: &'static [T],
}

impl<T: Copy + Display + FromStr> Format<T> for Number<T> {
    fn print(&self, member: T, _: Type) -> String {
        member.to_string()
    }

    fn read(&self, reader: &mut Reader, _: Type) -> Result<T, ParseError> {
        reader.parsed(self.what)
    }

    fn examples(&self) -> Vec<T> {
        self.examples.to_vec()
    }
}

/// Format of a number of threads: `threads` and the number; nothing for 0 if that is allowed.
pub(super) struct Threads {
    /// Whether 0 is a valid number, for all threads of the CTA.
    pub or_all: bool,
}

impl Format<u32> for Threads {
    fn print(&self, member: u32, _: Type) -> String {
        if self.or_all && member == 0 { String::new() } else { format!("threads {member}") }
    }

    fn read(&self, reader: &mut Reader, _: Type) -> Result<u32, ParseError> {
        if reader.eat_word("threads") {
            return reader.parsed("a number of threads");
        }
        if self.or_all { Ok(0) } else { Err(reader.error("expected `threads`")) }
    }

    fn examples(&self) -> Vec<u32> {
        if self.or_all { vec![0, 96] } else { vec![96] }
    }
}

/// Format of a truth table: a byte in hexadecimal.
pub(super) struct TruthTable;

impl Format<u8> for TruthTable {
    fn print(&self, member: u8, _: Type) -> String {
        format!("{member:#04x}")
    }

    fn read(&self, reader: &mut Reader, _: Type) -> Result<u8, ParseError> {
        let word = reader.word("a truth table like 0x96")?;
        let bits = word.strip_prefix("0x").and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bits.ok_or_else(|| reader.error_before("expected a truth table like 0x96"))
    }

    fn examples(&self) -> Vec<u8> {
        vec![0x96, 0x0a]
    }
}

macro_rules! variable_formats {
    ($($(#[$doc:meta])* $format:ident: $variable:ident, $prefix:literal;)*) => { $(
        $(#[$doc])*
        pub(super) struct $format;

        impl Format<$variable> for $format {
            fn print(&self, member: $variable, _: Type) -> String {
                member.to_string()
            }

            fn read(&self, reader: &mut Reader, _: Type) -> Result<$variable, ParseError> {
                Ok($variable::from_u32(reader.name($prefix)?.number))
            }

            fn examples(&self) -> Vec<$variable> {
                vec![$variable::from_u32(0)]
            }
        }
    )* };
}
variable_formats! {
    /// Format of a shared variable: its name.
    Variable: SharedVar, "shared";
    /// Format of an array in local memory: its name.
    LocalName: LocalVar, "local";
    /// Format of a table of constants: its name.
    TableName: TableVar, "table";
}

/// Format of a byte offset: nothing here; the instruction's printer and parser write it after the pointer operand.
pub(super) struct AtPointer;

impl Format<i32> for AtPointer {
    fn print(&self, _: i32, _: Type) -> String {
        String::new()
    }

    fn read(&self, _: &mut Reader, _: Type) -> Result<i32, ParseError> {
        Ok(0)
    }

    fn examples(&self) -> Vec<i32> {
        vec![0, 48, -64, i32::MIN, i32::MAX]
    }
}

/// Format of a constant of the instruction's type: a finite float as the shortest decimal that reads back to the same
/// bits, any other float as its bits in hexadecimal.
pub(super) struct Literal;

impl Format<u64> for Literal {
    fn print(&self, bits: u64, ty: Type) -> String {
        let float = |value: f32| if value.is_finite() { format!("{value:?}") } else { format!("{bits:#x}") };
        match ty {
            Type::Pred => if bits == 0 { "false" } else { "true" }.into(),
            Type::F32 => float(f32::from_bits(bits as u32)),
            Type::F64 if f64::from_bits(bits).is_finite() => format!("{:?}", f64::from_bits(bits)),
            Type::F64 => format!("{bits:#x}"),
            Type::F16 => float(f16::from_bits(bits as u16).to_f32()),
            Type::Bf16 => float(bf16::from_bits(bits as u16).to_f32()),
            Type::F16x2 | Type::Bf16x2 => format!("{bits:#010x}"),
            _ if ty.is_signed() => ty.sign_extend(bits).to_string(),
            _ => bits.to_string(),
        }
    }

    fn read(&self, reader: &mut Reader, ty: Type) -> Result<u64, ParseError> {
        let negative = reader.eat('-');
        let word = reader.word("a constant")?;
        let bits = if let Some(digits) = word.strip_prefix("0x") {
            if negative { None } else { u64::from_str_radix(digits, 16).ok() }
        } else if ty == Type::Pred {
            ["false", "true"].iter().position(|text| !negative && *text == word).map(|bits| bits as u64)
        } else if ty.is_float() {
            decimal_float(ty, &word, negative)
        } else {
            decimal_int(ty, &word, negative)
        };
        bits.ok_or_else(|| reader.error_before(format!("`{word}` is not a constant of type {ty}")))
    }

    fn examples(&self) -> Vec<u64> {
        vec![0, 1, 0x7e, 0x8001, 0xff80_0000, 0x3dcc_cccd, 0x8000_0000, 1 << 63]
    }
}

fn decimal_float(ty: Type, word: &str, negative: bool) -> Option<u64> {
    // The standard library also reads `inf` and `nan`, which the text form writes as bits.
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if ty == Type::F64 {
        let value: f64 = word.parse().ok()?;
        return value.is_finite().then_some((if negative { -value } else { value }).to_bits());
    }
    let value: f32 = word.parse().ok()?;
    let value = if negative { -value } else { value };
    let (bits, exact) = match ty {
        Type::F32 => (u64::from(value.to_bits()), value),
        Type::F16 => (u64::from(f16::from_f32(value).to_bits()), f16::from_f32(value).to_f32()),
        Type::Bf16 => (u64::from(bf16::from_f32(value).to_bits()), bf16::from_f32(value).to_f32()),
        _ => return None,
    };
    // A 16-bit constant is written exactly, never as a number that merely rounds to it.
    (exact == value && value.is_finite()).then_some(bits)
}

fn decimal_int(ty: Type, word: &str, negative: bool) -> Option<u64> {
    let size: i128 = word.parse::<u64>().ok()?.into();
    let value = if negative { -size } else { size };
    let bits = value as u64 & ty.mask();
    let back = if ty.is_signed() { ty.sign_extend(bits).into() } else { i128::from(bits) };
    (back == value).then_some(bits)
}
