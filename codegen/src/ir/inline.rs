//! Inline PTX: instructions that the IR has no opcode for, with the properties that passes need.

use std::fmt::Write;

use super::effect::{Effect, OpaqueEffect, Requirement};
use super::intern::Interned;
use super::lex::{Kind, ParseError};
use super::members::{Format, Variant};
use super::reader::Reader;
use super::rule::{OperandType, Rule, exactly, untyped};
use super::types::Type;
use crate::target::{IsaVersion, Target};

/// Text and properties of inline PTX. Entries are interned for the life of the process, since opcodes are `Copy`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct InlineText {
    /// PTX statements. `{0}`, `{1}`, … stand for the registers of the results and then of the operands.
    pub ptx: String,
    /// Types of the results.
    pub results: Vec<Type>,
    /// Types of the operands.
    pub operands: Vec<Type>,
    /// Side effect.
    pub effect: OpaqueEffect,
    /// Whether all lanes of the warp must execute it together.
    pub convergent: bool,
    /// Lowest target and PTX ISA version.
    pub needs: (Target, IsaVersion),
}

/// Inline PTX as a member of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inline(&'static InlineText);

static TEXTS: Interned<InlineText> = Interned::new();

impl Inline {
    /// Inline PTX with this text and these properties.
    pub fn new(text: InlineText) -> Inline {
        Inline(TEXTS.get(text))
    }

    /// Text and properties.
    pub fn text(self) -> &'static InlineText {
        self.0
    }

    pub(super) fn rule(self) -> Rule {
        let slots = |types: &[Type]| types.iter().map(|&ty| exactly(ty)).collect::<Vec<OperandType>>();
        untyped(&slots(&self.0.operands), &slots(&self.0.results)).check(check(self.0))
    }

    pub(super) fn effect(self) -> Effect {
        self.0.effect.of_instruction()
    }

    pub(super) fn requirement(self) -> Option<Requirement> {
        let (target, isa) = self.0.needs;
        let name =
            format!("inline PTX `{}`", self.0.ptx.split(['{', ';', '\n']).next().unwrap_or_default().trim());
        Some(Requirement { name, target, isa })
    }
}

/// A piece of the text: PTX, or the number of a result or operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// PTX that is printed as it is.
    Ptx(&'a str),
    /// The name in braces.
    Name(&'a str),
}

/// Splits PTX at its placeholders: names of letters, digits and `_` in braces, without blanks.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut start, mut from) = (0, 0);
    while let Some(open) = text[from..].find('{').map(|at| at + from) {
        from = open + 1;
        let length = text[from..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let Some(length) = length.filter(|&length| length > 0 && text[from + length..].starts_with('}'))
        else {
            continue;
        };
        pieces.push(Piece::Ptx(&text[start..open]));
        pieces.push(Piece::Name(&text[from..from + length]));
        from += length + 1;
        start = from;
    }
    pieces.push(Piece::Ptx(&text[start..]));
    pieces.retain(|piece| *piece != Piece::Ptx(""));
    pieces
}

fn check(text: &InlineText) -> Result<(), String> {
    let count = text.results.len() + text.operands.len();
    for piece in pieces(&text.ptx) {
        if let Piece::Name(name) = piece
            && name.parse::<usize>().ok().filter(|&index| index < count).is_none()
        {
            return Err(format!("inline PTX has no operand {{{name}}}"));
        }
    }
    if text.results.is_empty() && matches!(text.effect, OpaqueEffect::Pure | OpaqueEffect::Reads) {
        return Err("inline PTX without results and side effects does nothing".into());
    }
    Ok(())
}

/// Text form: `"…" (u32) of (u32, f32) pure convergent sm_80 7.0`.
pub(super) struct InlineFormat;

impl Format<Inline> for InlineFormat {
    fn print(&self, inline: Inline, _: Type) -> String {
        let InlineText { ptx, results, operands, effect, convergent, needs: (target, isa) } = inline.0;
        let mut text = String::from("\"");
        for c in ptx.chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                c => text.push(c),
            }
        }
        let convergent = if *convergent { " convergent" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\" ({}) of ({}) {effect}{convergent} {target} {}.{}",
            list(results),
            list(operands),
            isa.0,
            isa.1
        );
        text
    }

    fn read(&self, reader: &mut Reader, ty: Type) -> Result<Inline, ParseError> {
        let Kind::Text(ptx) = reader.kind().clone() else {
            return Err(reader.error("expected PTX in quotation marks"));
        };
        reader.at += 1;
        let results = types(reader)?;
        reader.keyword("of")?;
        let operands = types(reader)?;
        let effect = Variant.read(reader, ty)?;
        let convergent = reader.eat_word("convergent");
        let target = reader.parsed("a target")?;
        let version = reader.word("a PTX version")?;
        let numbers = version.split_once('.').map(|(major, minor)| (major.parse().ok(), minor.parse().ok()));
        let Some((Some(major), Some(minor))) = numbers else {
            return Err(reader.error_before(format!("`{version}` is not a PTX version")));
        };
        let needs = (target, (major, minor));
        Ok(Inline::new(InlineText { ptx, results, operands, effect, convergent, needs }))
    }

    fn examples(&self) -> Vec<Inline> {
        let example = |ptx: &str, results: &[Type], operands: &[Type], effect, convergent| {
            let (results, operands) = (results.to_vec(), operands.to_vec());
            let needs = (Target::Sm80, (7, 0));
            Inline::new(InlineText { ptx: ptx.into(), results, operands, effect, convergent, needs })
        };
        let (word, wide) = (Type::U32, Type::U64);
        vec![
            example("bfind.u32 {0}, {1};", &[word], &[word], OpaqueEffect::Pure, false),
            example("activemask.b32 {0};", &[word], &[], OpaqueEffect::Reads, true),
            example("membar.cta;", &[], &[], OpaqueEffect::Synchronises, false),
            example("{\n.reg .b32 \"t\\\";\n}", &[], &[wide, Type::F64], OpaqueEffect::Writes, false),
        ]
    }
}

/// Types as the text form lists them.
pub(super) fn list(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

/// Reads a list of types in parentheses.
pub(super) fn types(reader: &mut Reader) -> Result<Vec<Type>, ParseError> {
    let mut types = Vec::new();
    reader.punct('(')?;
    while !reader.eat(')') {
        if !types.is_empty() {
            reader.punct(',')?;
        }
        types.push(reader.parsed("a type")?);
    }
    Ok(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_names_in_braces() {
        use Piece::{Name, Ptx};
        for (text, expected) in [
            ("bfind.u32 {y}, {x};", &[Ptx("bfind.u32 "), Name("y"), Ptx(", "), Name("x"), Ptx(";")][..]),
            ("{ .reg .b32 t; }", &[Ptx("{ .reg .b32 t; }")]),
            (
                "ld.global.v2.u32 {{a}, {b}}, [{p}];",
                &[
                    Ptx("ld.global.v2.u32 {"),
                    Name("a"),
                    Ptx(", "),
                    Name("b"),
                    Ptx("}, ["),
                    Name("p"),
                    Ptx("];"),
                ],
            ),
            ("{}{", &[Ptx("{}{")]),
            ("{x", &[Ptx("{x")]),
        ] {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }
}
