//! Functions that are called: their signature as a member of an opcode.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use super::inline::{list, types};
use super::lex::ParseError;
use super::members::Format;
use super::reader::Reader;
use super::rule::{Rule, Slot, exactly, untyped};
use super::types::Type;

/// Name and types of a function. Entries are interned for the life of the process, since opcodes are `Copy`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct FunctionSignature {
    /// Name of the function, among those of the kernel that calls it.
    pub name: String,
    /// Types of the parameters.
    pub params: Vec<Type>,
    /// Types of the results.
    pub results: Vec<Type>,
}

/// The function that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Callee(&'static FunctionSignature);

static INTERNED: LazyLock<Mutex<HashSet<&'static FunctionSignature>>> = LazyLock::new(Mutex::default);

impl Callee {
    /// The function with this signature.
    pub fn new(signature: FunctionSignature) -> Callee {
        let mut interned = INTERNED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = interned.get(&signature) {
            return Callee(known);
        }
        let kept: &'static FunctionSignature = Box::leak(Box::new(signature));
        interned.insert(kept);
        Callee(kept)
    }

    /// Name and types.
    pub fn signature(self) -> &'static FunctionSignature {
        self.0
    }

    pub(super) fn rule(self) -> Rule {
        let slots = |types: &[Type]| types.iter().map(|&ty| exactly(ty)).collect::<Vec<Slot>>();
        untyped(&slots(&self.0.params), &slots(&self.0.results))
    }
}

/// Text form: `@name (f32) of (f32, u32)`, results before parameters.
pub(super) struct CalleeFormat;

impl Format<Callee> for CalleeFormat {
    fn print(&self, callee: Callee, _: Type) -> String {
        let FunctionSignature { name, params, results } = callee.0;
        format!("@{name} ({}) of ({})", list(results), list(params))
    }

    fn read(&self, reader: &mut Reader, _: Type) -> Result<Callee, ParseError> {
        reader.punct('@')?;
        let name = reader.word("the function's name")?;
        let results = types(reader)?;
        reader.keyword("of")?;
        let params = types(reader)?;
        Ok(Callee::new(FunctionSignature { name, params, results }))
    }

    fn examples(&self) -> Vec<Callee> {
        let example = |results: &[Type], params: &[Type]| {
            let (params, results) = (params.to_vec(), results.to_vec());
            Callee::new(FunctionSignature { name: "f".into(), params, results })
        };
        vec![example(&[Type::F32], &[Type::F32, Type::Global]), example(&[], &[])]
    }
}
