//! Signatures of kernels and of called functions.
//!
//! Parameters and results of functions are in `.param` space, as the ABI has them: each parameter is a scalar, and the results are
//! fields of one structure. A predicate is a 32-bit number, 0 or 1.

use std::fmt::Write;

use super::operand::{Class, bits};
use crate::ir::{Function, TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES, Type};

/// Name of the structure of results in a function.
pub(super) const RESULTS: &str = "results";

/// Name of the structure of results at a call.
pub(super) const RETURNED: &str = "returned";

/// Names that hide functions of the same names.
pub(super) const NAMES: [&str; 2] = [RESULTS, RETURNED];

/// Alignment of the structure of results, in bytes.
const RESULTS_ALIGN: u32 = 8;

/// PTX type of a parameter or result.
pub(super) fn passed(ty: Type) -> &'static str {
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
pub(super) fn fields(results: &[Type]) -> (Vec<u32>, u32) {
    let mut end = 0u32;
    let offsets = results.iter().map(|&ty| {
        let offset = end.next_multiple_of(size(ty));
        end = offset + size(ty);
        offset
    });
    (offsets.collect(), end)
}

pub(super) fn results_declaration(name: &str, results: &[Type]) -> String {
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

/// PTX name of a kernel parameter, prefixed because parameters share a name space with the module's symbols.
pub(super) fn param_name(function: &Function, index: usize) -> String {
    format!("{}_param_{}", function.name, function.params[index].name)
}

/// Prints the signature of a kernel.
pub(super) fn entry_signature(function: &Function, out: &mut String) {
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "{text}");
    };
    // Local arrays are on the stack, as spilled registers are.
    let locals: u64 = function.functions.iter().chain([function]).map(Function::local_bytes).sum();
    let stack = u64::from(function.allow_spills) + locals;
    if stack > 0 {
        line(format_args!("{}{stack} bytes of stack", crate::ptxas::ALLOWED));
    }
    line(format_args!(".visible .entry {}(", function.name));
    for (index, param) in function.params.iter().enumerate() {
        let comma = if index + 1 < function.params.len() { "," } else { "" };
        let kind = match Class::of(param.ty) {
            Class::Half => bits(param.ty),
            // A predicate parameter is passed as a byte that is 0 or 1.
            Class::Pred => "u8",
            _ => super::operand::memory(param.ty),
        };
        if param.ty == Type::TensorMap {
            let name = param_name(function, index);
            let size = format!("[{TENSOR_MAP_BYTES}]");
            line(format_args!("\t.param .align {TENSOR_MAP_ALIGN} .b8 {name}{size}{comma}"));
            continue;
        }
        let aligned = param.align.map_or(String::new(), |bytes| format!(".ptr .global .align {bytes} "));
        line(format_args!("\t.param .{kind} {aligned}{}{comma}", param_name(function, index)));
    }
    line(format_args!(")"));
    if let Some([x, y, z]) = function.threads_by_axis() {
        line(format_args!(".reqntid {x}, {y}, {z}"));
    }
    if let Some(blocks) = function.min_blocks {
        line(format_args!(".minnctapersm {blocks}"));
    }
    if let Some(registers) = function.max_registers {
        line(format_args!(".maxnreg {registers}"));
    }
    if let Some(blocks) = function.cluster {
        line(format_args!(".reqnctapercluster {blocks}, 1, 1"));
    }
}
