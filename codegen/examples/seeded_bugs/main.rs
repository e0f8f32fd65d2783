//! Injects bugs into the compiler, one at a time, and checks that its tests notice them.
//!
//! Usage: `cargo run -p bespoke-codegen --example seeded_bugs [-- NAME …]`
//!
//! `tests/seeded/bugs.toml` lists the bugs. A bug replaces a text in a source file; in the replacement, the condition
//! `MISTAKE` is true while the bug is active. A copy of the compiler in the target folder contains all bugs. The copy
//! is built once, and an environment variable activates one bug at a time: each bug named on the command line, or every
//! bug in the list if none is named.
//!
//! For each bug, the file tests run first, then random kernels if the file tests pass, and then the unit tests. The
//! results are written to the table in `tests/seeded/README.md`. It is an error if the text of a bug does not occur
//! exactly once in its file, or if no test notices a bug.

mod table;
mod workspace;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;

use table::{Outcome, Table};
use workspace::Workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Environment variables for the random kernels: fewer than in the tests, and without reduction of failing kernels.
const RANDOM: [(&str, &str); 2] = [("BESPOKE_RANDOM", "200"), ("BESPOKE_RANDOM_SHRINK", "0")];

/// The list of bugs, from `bugs.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bugs {
    bug: Vec<Bug>,
}

/// A bug to inject.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    /// Unique name, which begins with the part of the compiler that has the bug.
    name: String,
    /// Wrong behaviour that results from the bug.
    what: String,
    /// Path of the source file, relative to `codegen/src`.
    file: String,
    find: String,
    replace: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let codegen = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeded = codegen.join("tests/seeded");
    let Bugs { bug: bugs } = toml::from_str(&fs::read_to_string(seeded.join("bugs.toml"))?)?;
    let names: Vec<String> = std::env::args().skip(1).collect();
    let chosen: Vec<&Bug> = bugs.iter().filter(|bug| names.is_empty() || names.contains(&bug.name)).collect();
    let mut workspace = Workspace::copy(codegen)?;
    for bug in &bugs {
        workspace.insert(bug)?;
    }
    workspace.write()?;
    println!("{} bugs apply", bugs.len());
    let mut table = Table::read(&seeded.join("README.md"))?;
    // A test that also fails without any bug cannot notice one.
    let clean = [
        workspace.test("filetests", "", &[], &["filetests"])?,
        workspace.test("random", "", &RANDOM, &["the_pipeline", "nor_do_passes"])?,
        workspace.test("bespoke_codegen", "", &[], &[])?,
    ];
    if let Some(failed) = clean.iter().find(|ran| !ran.success) {
        return Err(format!("the tests fail without any bug:\n{}", failed.text).into());
    }
    let mut all = true;
    for bug in chosen {
        let outcome = outcome(&mut workspace, bug)?;
        print!("{}", table::row(bug, &outcome));
        table.enter(&bugs, bug, &outcome)?;
        all &= outcome.noticed();
    }
    Ok(all)
}

/// Runs the tests, the fastest first, until one notices the bug.
fn outcome(workspace: &mut Workspace, bug: &Bug) -> Result<Outcome> {
    let files = workspace.test("filetests", &bug.name, &[], &["filetests"])?;
    let failed = files.text.lines().filter(|line| line.contains(".ir: ")).count();
    if failed > 0 || files.hangs {
        return Ok(Outcome { files: failed, kernels: None, units: None, hangs: files.hangs });
    }
    let ran = workspace.test("random", &bug.name, &RANDOM, &["the_pipeline", "nor_do_passes"])?;
    let kernels = ["the_pipeline_changes", "nor_do_passes"].map(|test| kernel(&ran.text, test));
    if kernels != [None; 2] || ran.hangs {
        return Ok(Outcome { files: 0, kernels: Some(kernels), units: None, hangs: ran.hangs });
    }
    let units = workspace.test("bespoke_codegen", &bug.name, &[], &[])?;
    Ok(Outcome { files: 0, kernels: Some(kernels), units: Some(units.failed()), hangs: units.hangs })
}

/// Number of the random kernel at which the test called `test` failed.
fn kernel(text: &str, test: &str) -> Option<u64> {
    let begin = text.find(&format!("---- {test}"))?;
    let rest = text[begin..].split_once("\nkernel ")?.1;
    rest.split(':').next()?.parse().ok()
}
