//! Golden PTX of every kind of shipped kernel, for a small model (`golden/`). `UPDATE_EXPECT=1` in the environment
//! rewrites it.
//!
//! `.loc` and `.file` lines, and the names that they refer to, are excluded: a moved line of Rust is no difference.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bespoke_codegen::ptx::Target;
use bespoke_gguf::Gguf;
use bespoke_kernels::emit::compile;
use bespoke_kernels::plan::{Plan, PlanParams, Sampling};
use bespoke_kernels::shape::ModelShape;

/// Models and targets: K-quants, bulk copies and sampling; Q8_0, `cp.async` and the greedy choice.
const CASES: [(&str, Target, Sampling); 2] =
    [("llama-q4_k_m", Target::Sm90, Sampling::Sampled), ("llama-q8_0", Target::Sm80, Sampling::Greedy)];

/// Maximum lines of a difference in a message.
const SHOWN: usize = 12;

/// The modules of a case, by name.
fn emitted(model: &str, target: Target, sampling: Sampling) -> BTreeMap<String, String> {
    let path = format!("{}/../tests/fixtures/{model}.gguf", env!("CARGO_MANIFEST_DIR"));
    let gguf = Gguf::open(path).expect("the fixture opens");
    let shape = ModelShape::from_gguf(&gguf, model).expect("the fixture has a shape");
    let params = PlanParams::single(shape.dimensions.context).with_sampling(sampling);
    let plan = Plan::new(&shape, target, params).expect("a plan");
    let specs: Vec<_> = plan.kernels.into_iter().map(|kernel| kernel.spec).collect();
    let kernels = compile(&specs, target).expect("the kernels compile");
    let without_locations = |ptx: &str| -> String {
        let is_location =
            |line: &&str| [".loc ", ".file "].iter().any(|name| line.trim_start().starts_with(name));
        // The strings of `.loc` lines come last: the names of inlined functions.
        let ptx = ptx.split("\n.section .debug_str").next().unwrap_or_default();
        ptx.lines().filter(|line| !is_location(line)).map(|line| format!("{line}\n")).collect()
    };
    kernels.into_iter().map(|k| (k.compiled.name, without_locations(&k.compiled.ptx))).collect()
}

fn files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    entries.map(|path| (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path)).collect()
}

/// Number of occurrences of each opcode.
fn opcodes(ptx: &str) -> BTreeMap<&str, i32> {
    let mut counts = BTreeMap::new();
    for line in ptx.lines().filter(|line| line.ends_with(';')) {
        let opcode = line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
        *counts.entry(opcode.trim_end_matches(';')).or_insert(0) += 1;
    }
    counts
}

/// Description of a difference: opcodes whose number changed, and the lines around the first difference. Registers are
/// numbered in order, so nearly every line after an added or removed instruction differs.
fn difference(expected: &str, found: &str) -> String {
    let (before, after) = (opcodes(expected), opcodes(found));
    let mut text = String::new();
    for opcode in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let count = |counts: &BTreeMap<&str, i32>| counts.get(*opcode).copied().unwrap_or(0);
        let (before, after) = (count(&before), count(&after));
        if before != after {
            text += &format!("  {opcode}: {before} became {after}\n");
        }
    }
    let same = expected.lines().zip(found.lines()).take_while(|(a, b)| a == b).count();
    text += &format!("  from line {}:\n", same + 1);
    let context = expected.lines().take(same).skip(same.saturating_sub(3));
    let lines = |sign: char, ptx: &str| -> String {
        ptx.lines().skip(same).take(SHOWN).map(|line| format!("  {sign} {line}\n")).collect()
    };
    text.extend(context.map(|line| format!("    {line}\n")));
    text + &lines('-', expected) + &lines('+', found)
}

#[test]
fn kernels_equal_the_golden_ptx() {
    let mut failures = Vec::new();
    for (model, target, sampling) in CASES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{model}.{target}"));
        let emitted = emitted(model, target, sampling);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            drop(std::fs::remove_dir_all(&folder));
            std::fs::create_dir_all(&folder).expect("the folder of expected modules");
            for (name, ptx) in &emitted {
                std::fs::write(folder.join(format!("{name}.ptx")), ptx).expect("an expected module");
            }
            continue;
        }
        let files = files(&folder);
        let missing = files.keys().filter(|name| !emitted.contains_key(*name));
        failures.extend(missing.map(|name| format!("{target}: {name} is no longer emitted\n")));
        for (name, found) in &emitted {
            let expected = files.get(name).and_then(|path| std::fs::read_to_string(path).ok());
            match expected {
                None => failures.push(format!("{target}: {name} is new\n")),
                Some(expected) if expected == *found => {}
                Some(expected) => {
                    failures.push(format!("{target}: {name}\n{}", difference(&expected, found)));
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} kernels changed (UPDATE_EXPECT=1 accepts them)\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn a_difference_names_opcodes_and_lines() {
    let before = "\tmov.b32 %r1, 1;\n\tadd.u32 %r2, %r1, 3;\n\tret;\n";
    let after = "\tmov.b32 %r1, 1;\n\t@%p1 bra $L;\n\tret;\n";
    let expected = "  add.u32: 1 became 0
  bra: 0 became 1
  from line 2:
    \tmov.b32 %r1, 1;
  - \tadd.u32 %r2, %r1, 3;
  - \tret;
  + \t@%p1 bra $L;
  + \tret;
";
    assert_eq!(difference(before, after), expected);
}
