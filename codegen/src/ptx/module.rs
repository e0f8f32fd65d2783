//! Printer of a module: header, declarations of the module, and its entry points.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::lines::{INLINED_AT, Lines, inlined};
use super::printer::Printer;
use super::signature::{self, param_name};
use super::symbols::Symbols;
use super::unsupported::Unsupported;
use crate::ir::{ARRAY_ALIGN, Function, Op, Table};
use crate::target::{IsaVersion, Target};

/// Prints a verified function as a PTX module for `target`.
///
/// The `.version` is the lowest that the target and the instructions allow, so that older drivers can load the module.
pub fn print(function: &Function, target: Target) -> Result<String, Unsupported> {
    print_module(&[function], target)
}

/// Prints verified kernels as the entry points of one PTX module for `target`, in order. Their names differ from each
/// other and from the names of the module's constants.
///
/// The `.version` is the lowest that the target and all instructions allow. Equal tables are one variable, and equal functions
/// that kernels call one function.
pub fn print_module(kernels: &[&Function], target: Target) -> Result<String, Unsupported> {
    let all = with_functions(kernels);
    let mut isa = target.isa();
    for function in &all {
        isa = isa.max(check(function, target)?);
    }
    let symbols = Symbols::of(&all);
    let mut lines = Lines::default();
    let mut functions: Vec<(String, String)> = Vec::new();
    let mut entries = Vec::new();
    for kernel in kernels {
        let mut callees = BTreeMap::new();
        for function in &kernel.functions {
            // The function gets a number if its name is that of a kernel, of another symbol of the module, or of a
            // different function of another kernel.
            for number in 1.. {
                let name =
                    if number == 1 { function.name.clone() } else { format!("{}_{number}", function.name) };
                if kernels.iter().any(|kernel| kernel.name == name) || is_generated(&all, &symbols, &name) {
                    continue;
                }
                let printer =
                    Printer::new(function, &symbols, callees.clone(), lines.clone().next_function());
                let (text, after) = printer.function(&name);
                let known = functions.iter().find(|(known, _)| *known == name);
                if known.is_some_and(|(_, known)| *known != text) {
                    continue;
                }
                if known.is_none() {
                    lines = after;
                    functions.push((name.clone(), text));
                }
                callees.insert(function.name.clone(), name);
                break;
            }
        }
        let (text, after) = Printer::new(kernel, &symbols, callees, lines.next_function()).entry();
        lines = after;
        entries.push(text);
    }
    let entries: Vec<String> = functions.into_iter().map(|(_, text)| text).chain(entries).collect();
    let mut out = String::with_capacity(entries.iter().map(|entry| entry.len() + 1024).sum());
    header(&all, target, isa, &mut out);
    declarations(&all, &symbols, &mut out);
    out.push_str(&entries.join("\n"));
    lines.write_tables(&mut out);
    Ok(out)
}

/// Whether a module with these kernels declares another symbol called `name`.
pub(crate) fn declares(kernels: &[&Function], name: &str) -> bool {
    let all = with_functions(kernels);
    let symbols = Symbols::of(&all);
    variables(&all, &symbols).iter().any(|variable| variable.name == name)
        || name == "dynamic_shared" && operations(&all).any(|op| op == Op::DynamicShared)
        || name == "vprintf" && operations(&all).any(|op| matches!(op, Op::Print(_)))
        || name == WARP_SIZE
}

/// Whether the printer writes `name` itself, in the module or in a kernel or function, where it would hide a function.
fn is_generated(all: &[&Function], symbols: &Symbols<'_>, name: &str) -> bool {
    let is_numbered = |stem: &str| {
        let digits = name.strip_prefix(stem).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_parameter =
        |function: &&Function| (0..function.params.len()).any(|index| param_name(function, index) == name);
    [WARP_SIZE, "dynamic_shared", "vprintf", "vprintf_param_0", "vprintf_param_1", "func_retval0"]
        .contains(&name)
        || signature::NAMES.contains(&name)
        || ["shared", "local", "param"].into_iter().any(is_numbered)
        || variables(all, symbols).iter().any(|variable| variable.name == name)
        || all.iter().any(is_parameter)
}

/// PTX's constant for the number of threads in a warp.
const WARP_SIZE: &str = "WARP_SZ";

/// The text of an entry point in a PTX module: from its `.entry` to its closing brace.
pub fn entry_text<'a>(ptx: &'a str, kernel: &str) -> Option<&'a str> {
    let start = ptx.find(&format!(".visible .entry {kernel}("))?;
    let end = ptx[start..].find("\n}\n")?;
    Some(&ptx[start..start + end + 2])
}

/// The lowest PTX ISA version that has all instructions of the function; an error if the target does not have one.
fn check(function: &Function, target: Target) -> Result<IsaVersion, Unsupported> {
    let mut isa = target.isa();
    if function.cluster.is_some() {
        if target < Target::Sm90 {
            return Err(Unsupported {
                kernel: function.name.clone(),
                instruction: "a cluster of CTAs".into(),
                needs: "sm_90 or later".into(),
                target,
                place: String::new(),
            });
        }
        isa = isa.max((7, 8));
    }
    for &block in &function.layout {
        for &inst in &function.block(block).insts {
            let data = function.inst(inst);
            if data.loc.is_some_and(|loc| inlined(function, loc).is_some()) {
                isa = isa.max(INLINED_AT);
            }
            let source = data.args.first().map(|&arg| function.value_type(arg));
            let Some(needed) = data.op.requirement(data.ty, source) else { continue };
            let exact = data.op.is_architecture_specific();
            if needed.target > target || exact && needed.target != target {
                let place = data.loc.map(|loc| &function.locs[loc]);
                return Err(Unsupported {
                    kernel: function.name.clone(),
                    instruction: needed.name,
                    needs: if exact {
                        format!("{}a, which later targets do not include", needed.target)
                    } else {
                        format!("{} or later", needed.target)
                    },
                    target,
                    place: place
                        .map_or(String::new(), |at| format!(" ({}:{}:{})", at.file, at.line, at.column)),
                });
            }
            isa = isa.max(needed.isa);
        }
    }
    Ok(isa)
}

/// The kernels, each after the functions that it calls.
fn with_functions<'a>(kernels: &[&'a Function]) -> Vec<&'a Function> {
    kernels.iter().flat_map(|&kernel| kernel.functions.iter().chain([kernel])).collect()
}

/// The opcodes of all instructions of the kernels.
fn operations<'a>(kernels: &'a [&'a Function]) -> impl Iterator<Item = Op> + 'a {
    kernels.iter().flat_map(|kernel| {
        let insts = kernel.layout.iter().flat_map(|&block| &kernel.block(block).insts);
        insts.map(|&inst| kernel.inst(inst).op)
    })
}

fn header(kernels: &[&Function], target: Target, isa: IsaVersion, out: &mut String) {
    let specific = kernels.iter().any(|kernel| kernel.uses_architecture_specific());
    // Writing to a string cannot fail.
    let _ = writeln!(out, ".version {}.{}", isa.0, isa.1);
    let _ = writeln!(out, ".target {target}{}", if specific { "a" } else { "" });
    let _ = writeln!(out, ".address_size 64\n");
}

/// Prints what the entry points share: dynamic shared memory, `vprintf`, formats and tables.
fn declarations(kernels: &[&Function], symbols: &Symbols<'_>, out: &mut String) {
    if operations(kernels).any(|op| op == Op::DynamicShared) {
        let align = kernels.iter().map(|kernel| kernel.dynamic_shared_alignment()).max().unwrap_or(1);
        let _ = writeln!(out, ".extern .shared .align {align} .b8 dynamic_shared[];\n");
    }
    if operations(kernels).any(|op| matches!(op, Op::Print(_))) {
        let parameters = ".param .b64 vprintf_param_0, .param .b64 vprintf_param_1";
        let _ = writeln!(out, ".extern .func (.param .b32 func_retval0) vprintf ({parameters});");
    }
    for Variable { name, table, format } in variables(kernels, symbols) {
        let place =
            if format { ".global .align 1".to_owned() } else { format!(".const .align {ARRAY_ALIGN}") };
        let _ = writeln!(out, "{place} .b8 {name}{};", initial_bytes(table));
    }
}

/// A variable of a module.
struct Variable<'a> {
    name: &'a str,
    table: &'a Table,
    /// Whether it is the format of a `printf` in global memory; otherwise a table in constant memory.
    format: bool,
}

/// The variables of a module: the distinct formats and tables of its kernels.
fn variables<'a>(kernels: &[&'a Function], symbols: &'a Symbols<'_>) -> Vec<Variable<'a>> {
    let (mut placed, mut variables) = (BTreeSet::new(), Vec::new());
    for kernel in kernels {
        let uses = |wanted: Op| operations(&[kernel]).any(|op| op == wanted);
        for (var, table) in &kernel.tables {
            // The driver reads formats through generic addresses of global memory.
            let prints = uses(Op::Print(var));
            let name = symbols.format(table);
            if prints && placed.insert(name) {
                variables.push(Variable { name, table, format: true });
            }
            let name = symbols.table(table);
            if (!prints || uses(Op::TableAddress(var))) && placed.insert(name) {
                variables.push(Variable { name, table, format: false });
            }
        }
    }
    variables
}

/// Size of a module's tables in constant memory, in bytes.
pub(crate) fn constant_bytes(kernels: &[&Function]) -> u64 {
    let all = with_functions(kernels);
    let symbols = Symbols::of(&all);
    let tables = variables(&all, &symbols).into_iter().filter(|variable| !variable.format);
    tables.map(|variable| variable.table.bytes().next_multiple_of(ARRAY_ALIGN.into())).sum()
}

/// Size and content of a table: `[4] = {1, 0, 0, 0}`.
fn initial_bytes(table: &Table) -> String {
    let bytes = table.element.bytes() as usize;
    let numbers: Vec<String> = table
        .values
        .iter()
        .flat_map(|bits| bits.to_le_bytes()[..bytes].to_vec())
        .map(|byte| byte.to_string())
        .collect();
    format!("[{}] = {{{}}}", numbers.len(), numbers.join(", "))
}
