//! Makes one mistake at a time in the compiler and looks whether its tests notice.
//!
//!     cargo run -p bespoke-codegen --example seeded_bugs [-- NAME …]
//!
//! The mistakes are in `tests/seeded/bugs.toml`: a text in a file and what takes its place, where `MISTAKE` stands for
//! whether this one is to be made. All of them go into a copy of the compiler in the target folder, which is built once
//! and told by an environment variable which mistake to make. Those named are made, or all, and what noticed each goes
//! into the table of `tests/seeded/README.md`: the file tests are asked first, the random kernels if these notice nothing,
//! and then the unit tests. A mistake whose text does not stand in its file exactly once is an error, and so is one that
//! nothing notices.

mod table;
mod workspace;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;

use table::{Outcome, Table};
use workspace::Workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the random kernels are told: to be a few of those that the tests run by themselves, and not to be made small.
const RANDOM: [(&str, &str); 2] = [("BESPOKE_RANDOM", "200"), ("BESPOKE_RANDOM_SHRINK", "0")];

/// The file of mistakes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bugs {
    bug: Vec<Bug>,
}

/// One mistake.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    /// Unique; begins with what it is made in.
    name: String,
    /// What is then wrong.
    what: String,
    /// Beneath `codegen/src`.
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
    println!("{} mistakes apply", bugs.len());
    let mut table = Table::read(&seeded.join("README.md"))?;
    // What fails without any mistake notices nothing.
    let clean = [
        workspace.test("filetests", "", &[], &["filetests"])?,
        workspace.test("random", "", &RANDOM, &["the_pipeline", "nor_do_passes"])?,
        workspace.test("bespoke_codegen", "", &[], &[])?,
    ];
    if let Some(failed) = clean.iter().find(|ran| !ran.success) {
        return Err(format!("the tests fail before any mistake is made:\n{}", failed.text).into());
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

/// What notices the mistake: the quickest first, and the others only if those before do not.
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

/// The number of the kernel at which a test of this name failed.
fn kernel(text: &str, test: &str) -> Option<u64> {
    let begin = text.find(&format!("---- {test}"))?;
    let rest = text[begin..].split_once("\nkernel ")?.1;
    rest.split(':').next()?.parse().ok()
}
