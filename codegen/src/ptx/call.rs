//! Functions that are called: signatures, calls, parameters and results.
//!
//! Parameters and results are in `.param` space, as the ABI has them: each parameter is a scalar, and the results are fields
//! of one structure. A predicate is a 32-bit number, 0 or 1.

use std::fmt::Write;

use super::operand::Class;
use super::printer::{Printer, param_name};
use crate::ir::{Callee, Function, InstData, Type, Value};

/// Name of the structure of results in a function.
const RESULTS: &str = "results";

/// Name of the structure of results at a call.
const RETURNED: &str = "returned";

/// Names that hide functions of the same names.
pub(super) const NAMES: [&str; 2] = [RESULTS, RETURNED];

/// Alignment of the structure of results, in bytes.
const RESULTS_ALIGN: u32 = 8;

/// PTX type of a parameter or result.
fn passed(ty: Type) -> &'static str {
    match Class::of(ty) {
        Class::Pred => "b32",
        class => class.declared(),
    }
}

/// Size of a parameter or result in bytes.
fn size(ty: Type) -> u32 {
    match Class::of(ty) {
        Class::Half => 2,
        Class::Pred | Class::Word | Class::Float => 4,
        Class::Long | Class::Double => 8,
    }
}

/// Offsets of the results in their structure, and the structure's size.
fn fields(results: &[Type]) -> (Vec<u32>, u32) {
    let mut end = 0u32;
    let offsets = results.iter().map(|&ty| {
        let offset = end.next_multiple_of(size(ty));
        end = offset + size(ty);
        offset
    });
    (offsets.collect(), end)
}

fn results_declaration(name: &str, results: &[Type]) -> String {
    format!(".param .align {RESULTS_ALIGN} .b8 {name}[{}]", fields(results).1)
}

/// Prints the signature of a function called `name`.
pub(super) fn function_signature(function: &Function, name: &str, out: &mut String) {
    let results = function.results.as_deref().unwrap_or_default();
    let returned = match results {
        [] => String::new(),
        results => format!("({}) ", results_declaration(RESULTS, results)),
    };
    let params = function.params.iter().enumerate();
    let params: Vec<String> = params
        .map(|(index, param)| format!(".param .{} {}", passed(param.ty), param_name(function, index)))
        .collect();
    // Writing to a string cannot fail.
    let _ = writeln!(out, ".func {returned}{name}({})", params.join(", "));
}

impl Printer<'_> {
    /// Prints a call: a block with the `.param` variables of its parameters and results.
    pub(super) fn call(&mut self, callee: Callee, data: &InstData) {
        let signature = callee.signature();
        let name = self.callees.get(&signature.name).unwrap_or(&signature.name).clone();
        self.line(format_args!("{{"));
        let mut params = Vec::new();
        for (index, (&arg, &ty)) in data.args.iter().zip(&signature.params).enumerate() {
            self.line(format_args!(".param .{} param{index};", passed(ty)));
            self.pass(&format!("param{index}"), arg, ty);
            params.push(format!("param{index}"));
        }
        let params = params.join(", ");
        if signature.results.is_empty() {
            self.line(format_args!("call {name}, ({params});"));
        } else {
            self.line(format_args!("{};", results_declaration(RETURNED, &signature.results)));
            self.line(format_args!("call ({RETURNED}), {name}, ({params});"));
        }
        for ((&value, &ty), offset) in
            data.results.iter().zip(&signature.results).zip(fields(&signature.results).0)
        {
            self.receive(value, ty, &format!("{RETURNED}+{offset}"));
        }
        self.line(format_args!("}}"));
    }

    /// Prints the load of a function's parameter.
    pub(super) fn function_param(&mut self, index: usize, data: &InstData) {
        let name = param_name(self.function, index);
        self.receive(data.results[0], data.ty, &name);
    }

    /// Prints the store of a function's result.
    pub(super) fn set_result(&mut self, index: usize, data: &InstData) {
        let results = self.function.results.as_deref().unwrap_or_default();
        let offset = fields(results).0[index];
        self.pass(&format!("{RESULTS}+{offset}"), data.args[0], data.ty);
    }

    fn pass(&mut self, place: &str, value: Value, ty: Type) {
        let mut register = self.register(value);
        if ty == Type::Pred {
            let word = self.fresh(Class::Word);
            self.line(format_args!("selp.u32 {word}, 1, 0, {register};"));
            register = word;
        }
        self.line(format_args!("st.param.{} [{place}], {register};", passed(ty)));
    }

    fn receive(&mut self, value: Value, ty: Type, place: &str) {
        let to = self.register(value);
        if ty == Type::Pred {
            let word = self.fresh(Class::Word);
            self.line(format_args!("ld.param.b32 {word}, [{place}];"));
            self.line(format_args!("setp.ne.u32 {to}, {word}, 0;"));
        } else {
            self.line(format_args!("ld.param.{} {to}, [{place}];", passed(ty)));
        }
    }
}
