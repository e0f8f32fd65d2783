//! Calls of functions, the parameters and the results that they pass; see `signature`.

use super::operand::Class;
use super::printer::Printer;
use super::signature::{RESULTS, RETURNED, fields, param_name, passed, results_declaration};
use crate::ir::{Callee, InstData, Type, Value};

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
