//! Functions that are called: their signature as a member of an opcode.

use super::effect::{Effect, OpaqueEffect};
use super::inline::{list, types};
use super::intern::Interned;
use super::lex::ParseError;
use super::members::Format;
use super::reader::Reader;
use super::rule::{OperandType, Rule, exactly, untyped};
use super::types::Type;

/// Name, types and side effect of a function. Entries are interned for the life of the process, since opcodes are `Copy`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct FunctionSignature {
    /// Name of the function, among those of the kernel that calls it.
    pub name: String,
    /// Types of the parameters.
    pub params: Vec<Type>,
    /// Types of the results.
    pub results: Vec<Type>,
    /// Side effect: that of the function's instructions, or a stronger one.
    pub effect: OpaqueEffect,
}

/// The function that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Callee(&'static FunctionSignature);

static SIGNATURES: Interned<FunctionSignature> = Interned::new();

impl Callee {
    /// The function with this signature.
    pub fn new(signature: FunctionSignature) -> Callee {
        Callee(SIGNATURES.get(signature))
    }

    /// Name, types and side effect.
    pub fn signature(self) -> &'static FunctionSignature {
        self.0
    }

    pub(super) fn rule(self) -> Rule {
        let slots = |types: &[Type]| types.iter().map(|&ty| exactly(ty)).collect::<Vec<OperandType>>();
        untyped(&slots(&self.0.params), &slots(&self.0.results))
    }

    pub(super) fn effect(self) -> Effect {
        self.0.effect.of_instruction()
    }
}

/// Text form: `@name (f32) of (f32, u32) pure`, results before parameters. Without an effect, the function synchronises.
pub(super) struct CalleeFormat;

impl Format<Callee> for CalleeFormat {
    fn print(&self, callee: Callee, _: Type) -> String {
        let FunctionSignature { name, params, results, effect } = callee.0;
        let effect = match effect {
            OpaqueEffect::Synchronises => String::new(),
            effect => format!(" {effect}"),
        };
        format!("@{name} ({}) of ({}){effect}", list(results), list(params))
    }

    fn read(&self, reader: &mut Reader, _: Type) -> Result<Callee, ParseError> {
        reader.punct('@')?;
        let name = reader.word("the function's name")?;
        let results = types(reader)?;
        reader.keyword("of")?;
        let params = types(reader)?;
        let effect = OpaqueEffect::ALL.iter().copied().find(|effect| reader.eat_word(effect.name()));
        let effect = effect.unwrap_or(OpaqueEffect::Synchronises);
        Ok(Callee::new(FunctionSignature { name, params, results, effect }))
    }

    fn examples(&self) -> Vec<Callee> {
        let example = |results: &[Type], params: &[Type], effect| {
            let (params, results) = (params.to_vec(), results.to_vec());
            Callee::new(FunctionSignature { name: "f".into(), params, results, effect })
        };
        vec![
            example(&[Type::F32], &[Type::F32, Type::Global], OpaqueEffect::Reads),
            example(&[], &[], OpaqueEffect::Synchronises),
        ]
    }
}
