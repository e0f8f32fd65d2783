//! Addresses of device functions, and the functions that an indirect call may call.
//!
//! A function has an address if the module takes it: as an operand, or in the initial value of a variable. The loader
//! compares the address of an indirect call with those of all such functions of the call's type.

use std::collections::{BTreeMap, BTreeSet};

use super::ast::{Ast, Function, Instruction, Operand, Prototype};

/// Address of the first function, and distance between two functions; no memory has these addresses.
const FIRST: u64 = 0x5000_0000;
const DISTANCE: u64 = 16;

/// Device functions whose address the module takes.
pub(crate) struct FunctionAddresses<'a> {
    functions: BTreeMap<&'a str, (&'a Function, u64)>,
}

impl<'a> FunctionAddresses<'a> {
    /// Finds the functions of `ast` whose address is taken.
    pub(crate) fn new(ast: &'a Ast) -> FunctionAddresses<'a> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for function in ast.functions.iter().chain(ast.device.values().flatten()) {
            let others = function.body.iter().filter(|one| !matches!(one.opcode.as_str(), "call" | "bra"));
            others.flat_map(|one| &one.operands).for_each(|operand| add_names(operand, &mut names));
        }
        names.extend(ast.globals.iter().flat_map(|global| &global.addresses).map(|it| it.name.as_str()));
        let functions = names.into_iter().filter_map(|name| Some((name, ast.device.get(name)?.as_ref()?)));
        let addresses = (0..).map(|index| FIRST + DISTANCE * index);
        FunctionAddresses {
            functions: functions.zip(addresses).map(|((name, it), address)| (name, (it, address))).collect(),
        }
    }

    /// The functions with their addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a str, u64)> {
        self.functions.iter().map(|(&name, &(_, address))| (name, address))
    }

    /// Functions that a `call` through a register may call, with their addresses; empty for other instructions.
    pub(crate) fn callees(&self, call: &Instruction) -> Vec<(&'a str, u64)> {
        let Some(Operand::Prototype(prototype)) = call.operands.last().filter(|_| call.opcode == "call")
        else {
            return Vec::new();
        };
        let is_callee = |&(name, (function, _)): &(&&str, &(&Function, u64))| match &**prototype {
            Prototype::Targets(targets) => targets.iter().any(|target| target == name),
            Prototype::Signature { returns, params } => {
                let equal = |formals: &[super::ast::ParamDecl], bytes: &[u32]| {
                    formals.iter().map(|formal| formal.bytes).eq(bytes.iter().copied())
                };
                equal(&function.returns, returns) && equal(&function.params, params)
            }
        };
        let callees = self.functions.iter().filter(is_callee);
        callees.map(|(&name, &(_, address))| (name, address)).collect()
    }
}

/// Adds the symbols that an operand names.
pub(crate) fn add_names<'a>(operand: &'a Operand, names: &mut BTreeSet<&'a str>) {
    match operand {
        Operand::Symbol(name, _) => _ = names.insert(name),
        Operand::Address(base, _) => add_names(base, names),
        Operand::Tensor(map, coordinates) => {
            add_names(map, names);
            coordinates.iter().for_each(|coordinate| add_names(coordinate, names));
        }
        Operand::Vector(elements) => elements.iter().for_each(|element| add_names(element, names)),
        _ => {}
    }
}
