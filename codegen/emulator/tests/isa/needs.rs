//! The least `.target` and `.version` of instructions: `needs.txt`, which an assembler has said.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use bespoke_emulator::{Module, ParseErrorKind};

use crate::module;

const NEEDS: &str = include_str!("needs.txt");

/// Targets with the version that first knows them, each of which has what those before it have.
const TARGETS: [(&str, &str); 8] = [
    ("sm_75", "6.3"),
    ("sm_80", "7.0"),
    ("sm_86", "7.1"),
    ("sm_89", "7.8"),
    ("sm_90", "7.8"),
    ("sm_90a", "8.0"),
    ("sm_100", "8.6"),
    ("sm_100a", "8.6"),
];

const VERSIONS: [&str; 22] = [
    "6.3", "6.4", "6.5", "7.0", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8", "8.0", "8.1", "8.2",
    "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0",
];
const NEWEST: &str = VERSIONS[VERSIONS.len() - 1];

/// A text and whether it is refused for its target or version.
struct Case {
    text: String,
    what: String,
    refused: bool,
}

/// Where the instruction is first there, and the steps before that; `again` if an earlier target has it too, as of a
/// later version.
fn cases(target: &str, version: &str, instruction: &str, again: bool) -> Vec<Case> {
    let case = |target: &str, version: &str, refused| Case {
        text: module(target, version, instruction),
        what: format!("`{instruction}` for {target} and {version}"),
        refused,
    };
    let mut cases = vec![case(target, version, false)];
    let at = TARGETS.iter().position(|(known, _)| *known == target).expect("one of the targets");
    if let Some((before, _)) = at.checked_sub(1).map(|at| TARGETS[at])
        && !again
    {
        cases.push(case(before, NEWEST, true));
    }
    let at_version = VERSIONS.iter().position(|known| *known == version).expect("one of the versions");
    if version != TARGETS[at].1 {
        cases.push(case(target, VERSIONS[at_version - 1], true));
    }
    cases
}

fn rows() -> impl Iterator<Item = Vec<Case>> {
    let lines = NEEDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut seen = HashSet::new();
    lines.map(move |line| {
        let (target, rest) = line.split_once(' ').expect("a target");
        let (version, instruction) = rest.trim_start().split_once(' ').expect("a version");
        let instruction = instruction.trim_start();
        cases(target, version, instruction, !seen.insert(instruction))
    })
}

#[test]
fn an_instruction_is_refused_before_its_target_and_version() {
    let mut wrong = String::new();
    for Case { text, what, refused } in rows().flatten() {
        let errors = Module::load(&text).err().unwrap_or_default();
        let for_target = errors.iter().all(|error| error.kind == ParseErrorKind::Target);
        if errors.is_empty() == refused || !for_target {
            let _ = writeln!(wrong, "{what}: {errors:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn an_assembler_says_the_same() {
    let Some(ptxas) = std::env::var_os("EMULATOR_PTXAS").map(PathBuf::from) else { return };
    let folder = std::env::temp_dir().join(format!("needs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the texts");
    let wrong: String = rows()
        .flatten()
        .filter(|case| assembles(&ptxas, &folder, &case.text) == case.refused)
        .map(|case| format!("{}: refused is not {}\n", case.what, case.refused))
        .collect();
    std::fs::remove_dir_all(&folder).expect("it was made above");
    assert!(wrong.is_empty(), "{wrong}");
}

fn assembles(ptxas: &Path, folder: &Path, text: &str) -> bool {
    let file = folder.join("needs.ptx");
    std::fs::write(&file, text).expect("the folder was made");
    let target = text.split_once(".target ").and_then(|(_, rest)| rest.lines().next()).expect("a target");
    let mut command = Command::new(ptxas);
    command.args(["--compile-only", "-arch", target, "-o"]).arg(folder.join("needs.o")).arg(&file);
    command.output().expect("an assembler").status.success()
}
