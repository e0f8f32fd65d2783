//! Runs the files of `filetests/`. The first line of a file is its command: `test` and one of
//!
//! - `print`: parses the kernel and prints it;
//! - `verify`: prints the verifier's errors;
//! - `convergence`: prints the errors of the convergence check;
//! - `uniformity`: prints the uniformity of each value;
//! - the name of a pass: runs the pass once;
//! - `pipeline`: runs the whole pipeline.
//!
//! Comments may follow, then the kernel, then a line of four dashes, then the expected output. `UPDATE_EXPECT=1`
//! rewrites the expected output.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bespoke_codegen::ir::Function;
use bespoke_codegen::ir::parse::parse;
use bespoke_codegen::ir::verify::verify;
use bespoke_codegen::passes::analysis::uniformity::{Level, Uniformity};
use bespoke_codegen::passes::{self, OptLevel, Pass, Unreachable, convergence};

const SEPARATOR: &str = "----\n";

fn output(command: &str, mut function: Function) -> String {
    let errors = |function: &Function| -> String {
        let errors = verify(function).err().unwrap_or_default();
        errors.iter().map(|error| format!("{error}\n")).collect()
    };
    let passes = passes::ROUND.iter().chain(passes::LAST).copied().chain([&Unreachable as &dyn Pass]);
    match command {
        "print" => return function.to_string(),
        "verify" => return errors(&function),
        "convergence" => {
            return convergence::check(&function)
                .map_or_else(|error| format!("{error}\n"), |()| String::new());
        }
        "uniformity" => return uniformity(&function),
        "pipeline" => drop(passes::optimize(&mut function, OptLevel::Default)),
        name => {
            let pass = passes.into_iter().find(|pass| pass.name() == name);
            let pass = pass.unwrap_or_else(|| panic!("no command `{name}`"));
            if name != Unreachable.name() {
                assert_eq!(errors(&function), "", "the verifier rejects the input");
            }
            let before = function.to_string();
            let changed = pass.run(&mut function);
            assert_eq!(
                changed,
                function.to_string() != before,
                "{name} is wrong about having changed something"
            );
        }
    }
    assert_eq!(errors(&function), "", "the verifier rejects the output\n{function}");
    function.to_string()
}

/// Names of the values at each uniformity level, one line per level.
fn uniformity(function: &Function) -> String {
    let uniformity = Uniformity::new(function);
    let mut values: BTreeMap<Level, Vec<String>> = BTreeMap::new();
    for &block in &function.layout {
        let insts = function.block(block).insts.iter();
        let results = insts.flat_map(|&inst| &function.inst(inst).results);
        for &value in function.block(block).params.iter().chain(results) {
            values.entry(uniformity.of(value)).or_default().push(value.to_string());
        }
    }
    values.iter().map(|(level, values)| format!("{level:?}: {}\n", values.join(" "))).collect()
}

fn check(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (input, expected) = text.split_once(SEPARATOR).unwrap_or((&text, ""));
    let (first, kernel) = input.split_once('\n').ok_or("the file has one line")?;
    let command = first.strip_prefix("test ").ok_or("the first line is not a `test` command")?;
    let function = parse(kernel).map_err(|error| format!("the kernel does not parse: {error}"))?;
    let found = output(command, function);
    if found == expected {
        return Ok(());
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        return fs::write(path, format!("{input}{SEPARATOR}{found}")).map_err(|error| error.to_string());
    }
    Err(format!("expected\n{expected}\nbut got\n{found}"))
}

#[test]
fn filetests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let entries = fs::read_dir(&folder).expect("the folder of file tests");
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ir"));
    paths.sort();
    assert!(paths.len() >= 100, "only {} file tests found", paths.len());
    let mut failures = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let result = std::panic::catch_unwind(|| check(&path));
        let result = result.unwrap_or_else(|_| Err("panicked, see above".into()));
        if let Err(message) = result {
            failures.push(format!("{name}: {message}"));
        }
    }
    assert!(failures.is_empty(), "{}\n(UPDATE_EXPECT=1 rewrites what is expected)", failures.join("\n"));
}
