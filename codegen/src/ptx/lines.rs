//! Source lines: `.loc` and `.file` directives, with the calls that an instruction was inlined through.
//!
//! In PTX, `inlined_at` refers to the call site by its location: the last line table entry with that location before
//! the directive. The entries of an inlined instruction's callers must therefore precede its own, unless they already
//! are the last entries of their locations.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use crate::ir::{Function, Loc};
use crate::target::IsaVersion;

/// The first PTX ISA version with `inlined_at` (PTX ISA, ".loc").
pub(super) const INLINED_AT: IsaVersion = (7, 2);

/// State of the line directives written so far. Files and names are those of the module; the rest is that of the
/// function being printed.
#[derive(Clone, Default)]
pub(super) struct Lines<'a> {
    /// Source files in the order of their numbers, from 1.
    files: Vec<&'a str>,
    /// Names of inlined functions, in the order of their numbers.
    functions: Vec<&'a str>,
    /// Location of the last directive, which applies to the next instruction.
    present: Option<Loc>,
    /// For each file, line and column: the location whose `.loc` directive was the last one written with that file,
    /// line and column. `inlined_at` refers to that directive.
    last_written: FxHashMap<(usize, u32, u32), Loc>,
}

/// The inlined function of a location and its call site, if both are known.
pub(super) fn inlined(function: &Function, loc: Loc) -> Option<(&str, Loc)> {
    let at = &function.locs[loc];
    Some((at.function.as_deref()?, at.inlined_at?))
}

impl<'a> Lines<'a> {
    /// The state at the start of the module's next function.
    pub fn next_function(self) -> Lines<'a> {
        Lines { files: self.files, functions: self.functions, ..Lines::default() }
    }

    /// Writes the `.loc` directive for the instructions that follow in `out`, unless the location is unchanged.
    pub fn locate(&mut self, function: &'a Function, loc: Loc, out: &mut String) {
        if self.present != Some(loc) {
            self.present = Some(loc);
            self.say(function, loc, out);
        }
    }

    fn say(&mut self, function: &'a Function, loc: Loc, out: &mut String) {
        let place = self.place(function, loc);
        let mut inlining = String::new();
        if let Some((name, outer)) = inlined(function, loc) {
            let (file, line, column) = self.place(function, outer);
            if self.last_written.get(&(file, line, column)) != Some(&outer) {
                self.say(function, outer, out);
            }
            let label = label(number(&mut self.functions, name));
            inlining = format!(", function_name {label}, inlined_at {file} {line} {column}");
        }
        self.last_written.insert(place, loc);
        let (file, line, column) = place;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\t.loc {file} {line} {column}{inlining}");
    }

    fn place(&mut self, function: &'a Function, loc: Loc) -> (usize, u32, u32) {
        let at = &function.locs[loc];
        (number(&mut self.files, &at.file), at.line, at.column)
    }

    /// Writes the `.file` directives and the table of function names.
    pub fn write_tables(&self, out: &mut String) {
        for (index, file) in self.files.iter().enumerate() {
            let first = if index == 0 { "\n" } else { "" };
            let _ = writeln!(out, "{first}.file {} \"{file}\"", index + 1);
        }
        if self.functions.is_empty() {
            return;
        }
        out.push_str("\n.section .debug_str\n{\n");
        for (index, name) in self.functions.iter().enumerate() {
            let bytes: Vec<String> = name.bytes().chain([0]).map(|byte| byte.to_string()).collect();
            let _ = writeln!(out, "{}: // {name}\n\t.b8 {}", label(index + 1), bytes.join(","));
        }
        out.push_str("}\n");
    }
}

/// Number of a name, from 1; a new name gets the next number.
fn number<'a>(names: &mut Vec<&'a str>, name: &'a str) -> usize {
    match names.iter().position(|&known| known == name) {
        Some(index) => index + 1,
        None => {
            names.push(name);
            names.len()
        }
    }
}

fn label(number: usize) -> String {
    format!("$L_function{number}")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::ir::parse::parse;
    use crate::ptx::{Target, print};

    /// `inner` is inlined into `outer`, which is inlined into the kernel twice by one call (a `for` over a Rust range
    /// unrolls) and once by another.
    const KERNEL: &str = r#"kernel @k(p: global u32) {
block0:
  v0 = param.global 0 @ "k.rs":1:1
  v1 = load.u32 v0 @ "d.rs":20:5 in inner < "d.rs":10:5 in outer < "k.rs":3:9
  store.u32 v0 + 4, v1 @ "d.rs":11:5 in outer < "k.rs":3:9
  v2 = load.u32 v0 + 8 @ "d.rs":20:5 in inner < "d.rs":10:5 in outer < "k.rs":4:9
  v3 = load.u32 v0 + 12 @ "d.rs":21:5 in inner < "d.rs":10:5 in outer < "k.rs":4:9
  store.u32 v0 + 16, v2 @ "d.rs":30:5 < "k.rs":5:1
  store.u32 v0 + 20, v3 @ "d.rs":20:5 in inner < "d.rs":10:5 in outer < "k.rs":3:9
  return @ "k.rs":6:1
}
"#;

    #[test]
    fn an_inlined_place_names_the_place_above_as_it_was_said_last() {
        let text = print(&parse(KERNEL).unwrap(), Target::Sm80).unwrap();
        let lines: String = text
            .lines()
            .filter(|line| line.starts_with(".version") || !line.starts_with('\t') || line.contains(".loc"))
            .filter(|line| !line.trim().is_empty())
            .map(|line| format!("{line}\n"))
            .collect();
        expect![[r#"
            .version 7.2
            .target sm_80
            .address_size 64
            .visible .entry k(
            )
            {
            	.loc 1 1 1
            	.loc 1 3 9
            	.loc 2 10 5, function_name $L_function1, inlined_at 1 3 9
            	.loc 2 20 5, function_name $L_function2, inlined_at 2 10 5
            	.loc 2 11 5, function_name $L_function1, inlined_at 1 3 9
            	.loc 1 4 9
            	.loc 2 10 5, function_name $L_function1, inlined_at 1 4 9
            	.loc 2 20 5, function_name $L_function2, inlined_at 2 10 5
            	.loc 2 21 5, function_name $L_function2, inlined_at 2 10 5
            	.loc 2 30 5
            	.loc 2 10 5, function_name $L_function1, inlined_at 1 3 9
            	.loc 2 20 5, function_name $L_function2, inlined_at 2 10 5
            	.loc 1 6 1
            }
            .file 1 "k.rs"
            .file 2 "d.rs"
            .section .debug_str
            {
            $L_function1: // outer
            $L_function2: // inner
            }
        "#]]
        .assert_eq(&lines);
    }
}
