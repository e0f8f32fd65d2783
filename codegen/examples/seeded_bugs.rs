//! Makes one mistake at a time in the compiler and looks whether its tests notice.
//!
//!     cargo run -p bespoke-codegen --example seeded_bugs [-- NAME …]
//!
//! The mistakes are in `tests/seeded/bugs.toml`: a text in a file and what takes its place, where `MISTAKE` stands for
//! whether this one is to be made. All of them go into a copy of the compiler in the target folder, which is built once
//! and told by an environment variable which mistake to make. Those named are made, or all, and what noticed each goes
//! into the table of `tests/seeded/README.md`. A mistake whose text does not stand in its file exactly once is an error,
//! and so is one that nothing notices.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

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

/// What the tests say of one mistake.
struct Outcome {
    /// How many file tests fail.
    files: usize,
    /// Which kernel fails first, of those that the pipeline runs on and of those that passes in any order do.
    kernels: [Option<u64>; 2],
    /// Tests that fail besides; looked at only if nothing else does.
    others: Vec<String>,
    /// The tests do not end.
    hangs: bool,
}

impl Outcome {
    fn noticed(&self) -> bool {
        self.hangs || self.files > 0 || self.kernels != [None; 2] || !self.others.is_empty()
    }
}

/// The tests that should notice, and those that are asked if they do not.
const FIRST: [&str; 8] =
    ["--test", "filetests", "--test", "random", "--", "filetests", "the_pipeline", "nor_do_passes"];
const SECOND: [&str; 1] = ["--lib"];

/// How many random kernels run: a tenth of what the tests run by themselves.
const KERNELS: &str = "1000";

/// What the copy of the library gets, so that it can be told which mistake to make.
const SWITCH: &str = r#"
pub(crate) fn mistake(name: &str) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("BESPOKE_MISTAKE").ok());
    CHOSEN.as_deref() == Some(name)
}
"#;

/// Tests that take longer are taken to hang, which counts as noticed.
const PATIENCE: Duration = Duration::from_secs(900);

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
    let copy = Copy::make(codegen)?;
    for bug in &bugs {
        copy.insert(bug)?;
    }
    println!("{} mistakes apply; the tests without any:", bugs.len());
    let clean = copy.test("", &FIRST)?;
    if !clean.success {
        return Err(format!("the tests fail before any mistake is made:\n{}", clean.text).into());
    }
    let mut all = true;
    for bug in chosen {
        let outcome = copy.outcome(bug)?;
        let row = row(bug, &outcome);
        print!("{row}");
        enter(&seeded.join("README.md"), &bugs, bug, &row)?;
        all &= outcome.noticed();
    }
    Ok(all)
}

/// Writes the mistake's row; the rows are in the order of the mistakes.
fn enter(readme: &Path, bugs: &[Bug], bug: &Bug, row: &str) -> Result<()> {
    const RULE: &str = "| --- | --- | --- | --- | --- |\n";
    let text = fs::read_to_string(readme)?;
    let (head, table) = text.split_once(RULE).ok_or("README.md has no table")?;
    let known =
        |other: &Bug| table.split_inclusive('\n').find(|row| row.starts_with(&format!("| {} |", other.name)));
    let rows = bugs.iter().filter_map(|other| if other.name == bug.name { Some(row) } else { known(other) });
    Ok(fs::write(readme, format!("{head}{RULE}{}", rows.collect::<String>()))?)
}

fn row(bug: &Bug, outcome: &Outcome) -> String {
    let mut row = format!("| {} | {} |", bug.name, bug.what);
    let count = |n: Option<u64>| n.map_or("–".into(), |n| n.to_string());
    let files = if outcome.files > 0 { outcome.files.to_string() } else { "–".into() };
    let _ = write!(row, " {files} | {} | {}", count(outcome.kernels[0]), count(outcome.kernels[1]));
    if outcome.hangs {
        row += " (hangs)";
    } else if !outcome.noticed() {
        row += " **unnoticed**";
    } else if let Some(first) = outcome.others.first() {
        let _ = write!(row, " ({} others, such as `{first}`)", outcome.others.len());
    }
    row + " |\n"
}

/// A workspace of the compiler and what it needs.
struct Copy {
    root: PathBuf,
    /// The workspace's own, where what the compiler depends on has been built.
    target: PathBuf,
}

/// What a test run printed.
struct Ran {
    success: bool,
    hangs: bool,
    text: String,
}

impl Copy {
    fn make(codegen: &Path) -> Result<Copy> {
        let workspace = codegen.parent().ok_or("the package has no workspace")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(workspace.join("target"), PathBuf::from);
        let root = target.join("seeded/workspace");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        copy(codegen, &root.join("codegen"))?;
        fs::copy(workspace.join("Cargo.lock"), root.join("Cargo.lock"))?;
        let manifest = fs::read_to_string(workspace.join("Cargo.toml"))?;
        // Only the packages that were copied.
        let lines = manifest.lines().filter(|line| !line.starts_with("default-members"));
        let lines = lines.map(|line| match line.starts_with("members") {
            true => r#"members = ["codegen", "codegen/macros", "codegen/emulator", "codegen/testing"]"#,
            false => line,
        });
        let library = root.join("codegen/src/lib.rs");
        let text = fs::read_to_string(&library)?;
        fs::write(library, text + SWITCH)?;
        fs::write(root.join("Cargo.toml"), lines.map(|line| format!("{line}\n")).collect::<String>())?;
        Ok(Copy { root, target })
    }

    /// Puts the mistake beside what is right.
    fn insert(&self, bug: &Bug) -> Result<()> {
        let path = self.root.join("codegen/src").join(&bug.file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", bug.file))?;
        let times = text.matches(&bug.find).count();
        if times != 1 {
            let (name, find, file) = (&bug.name, bug.find.trim(), &bug.file);
            let message =
                format!("`{find}` stands in {file} {times} times, not once: write it anew in bugs.toml");
            return Err(format!("{name}: {message}").into());
        }
        let switch = format!("crate::mistake(\"{}\")", bug.name);
        Ok(fs::write(path, text.replacen(&bug.find, &bug.replace.replace("MISTAKE", &switch), 1))?)
    }

    /// Runs tests with the mistake of this name.
    fn test(&self, mistake: &str, which: &[&str]) -> Result<Ran> {
        let log = self.root.join("log");
        let file = fs::File::create(&log)?;
        let mut child = Command::new(env!("CARGO"))
            .args(["test", "--offline", "--no-fail-fast", "-p", "bespoke-codegen"])
            .args(which)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("BESPOKE_MISTAKE", mistake)
            .env("BESPOKE_RANDOM", KERNELS)
            .env("BESPOKE_RANDOM_SHRINK", "0")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let begin = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break Some(status),
                None if begin.elapsed() > PATIENCE => {
                    child.kill()?;
                    child.wait()?;
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok(Ran { success: status.is_some_and(|status| status.success()), hangs: status.is_none(), text })
    }

    fn outcome(&self, bug: &Bug) -> Result<Outcome> {
        let ran = self.test(&bug.name, &FIRST)?;
        let mut outcome = Outcome {
            files: ran.text.lines().filter(|line| line.contains(".ir: ")).count(),
            kernels: ["the_pipeline_changes", "nor_do_passes"].map(|test| kernel(&ran.text, test)),
            others: Vec::new(),
            hangs: ran.hangs,
        };
        if !outcome.noticed() {
            let ran = self.test(&bug.name, &SECOND)?;
            outcome.others.extend(ran.text.lines().filter_map(|line| {
                let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
                Some(name.to_string())
            }));
        }
        Ok(outcome)
    }
}

/// The number of the kernel at which a test of this name failed.
fn kernel(text: &str, test: &str) -> Option<u64> {
    let begin = text.find(&format!("---- {test}"))?;
    let rest = text[begin..].split_once("\nkernel ")?.1;
    rest.split(':').next()?.parse().ok()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
