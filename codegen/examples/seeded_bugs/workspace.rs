//! A copy of the compiler that contains all bugs, with its tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Bug, Result};

/// Time limit of a test run. A longer run is assumed to hang, which counts as noticing the bug.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Code appended to the copied library: tests whether the environment variable selects the bug called `name`.
const SWITCH: &str = r#"
pub(crate) fn mistake(name: &str) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("BESPOKE_MISTAKE").ok());
    CHOSEN.as_deref() == Some(name)
}
"#;

/// Packages without bugs, used from their original folders.
const SHARED: [(&str, &str); 3] =
    [("macros", "codegen/macros"), ("emulator", "codegen/emulator"), ("files", "files")];

/// A cargo workspace with the copied compiler and its dependencies.
pub struct Workspace {
    root: PathBuf,
    /// Files of the workspace, by path.
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Test binaries built so far, by the name of the tests.
    tests: BTreeMap<String, PathBuf>,
    /// The original target folder, which contains the compiled dependencies.
    target: PathBuf,
}

impl Workspace {
    /// Copies the compiler package from `codegen`, without bugs.
    pub fn copy(codegen: &Path) -> Result<Workspace> {
        let original = codegen.parent().ok_or("the package has no workspace")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(original.join("target"), PathBuf::from);
        let root = target.join("seeded/workspace");
        let mut files = BTreeMap::new();
        for part in ["BOOK.md", "Cargo.toml", "PASSES.md", "src", "testing", "tests"] {
            read(&codegen.join(part), &root.join("codegen").join(part), &mut files)?;
        }
        read(&original.join("Cargo.lock"), &root.join("Cargo.lock"), &mut files)?;
        files.entry(root.join("codegen/src/lib.rs")).or_default().extend(SWITCH.bytes());
        let mut manifest = String::new();
        let text = fs::read_to_string(original.join("Cargo.toml"))?;
        // The copied manifest lists only the copied packages as members.
        let (head, tail) = text.split_once("members = [").ok_or("the workspace has no members")?;
        let (_, tail) = tail.split_once("]\n").ok_or("the workspace's members have no end")?;
        for line in format!("{head}members = [\"codegen\", \"codegen/testing\"]\n{tail}").lines() {
            let shared =
                SHARED.iter().find(|(name, _)| line.starts_with(&format!("bespoke-{name} = {{ path")));
            match shared {
                Some((name, folder)) => {
                    let path = original.join(folder);
                    manifest += &format!("bespoke-{name} = {{ path = {path:?} }}\n");
                }
                None if line.starts_with("default-members") => {}
                None => manifest = manifest + line + "\n",
            }
        }
        files.insert(root.join("Cargo.toml"), manifest.into());
        Ok(Workspace { root, files, tests: BTreeMap::new(), target })
    }

    /// Inserts a bug into its source file, beside the correct code.
    pub fn insert(&mut self, bug: &Bug) -> Result<()> {
        let path = self.root.join("codegen/src").join(&bug.file);
        let file = self.files.get_mut(&path).ok_or_else(|| format!("{}: no such file", bug.file))?;
        let text = String::from_utf8(file.clone())?;
        let times = text.matches(&bug.find).count();
        if times != 1 {
            let (name, find, file) = (&bug.name, bug.find.trim(), &bug.file);
            let message = format!("`{find}` occurs {times} times in {file}, not once: update bugs.toml");
            return Err(format!("{name}: {message}").into());
        }
        let switch = format!("crate::mistake(\"{}\")", bug.name);
        *file = text.replacen(&bug.find, &bug.replace.replace("MISTAKE", &switch), 1).into();
        Ok(())
    }

    /// Writes the files.
    pub fn write(&self) -> Result<()> {
        for (path, content) in &self.files {
            // Unchanged files keep their modification time, so that nothing is rebuilt for them.
            if fs::read(path).ok().as_ref() != Some(content) {
                fs::create_dir_all(path.parent().ok_or("a file has no folder")?)?;
                fs::write(path, content)?;
            }
        }
        Ok(())
    }

    /// Path of the test binary of the integration tests `tests`, or of the library; built on first use.
    fn built(&mut self, tests: &str) -> Result<PathBuf> {
        if let Some(path) = self.tests.get(tests) {
            return Ok(path.clone());
        }
        let which = if tests == "bespoke_codegen" { vec!["--lib"] } else { vec!["--test", tests] };
        let output = Command::new(env!("CARGO"))
            .args(["test", "--quiet", "--offline", "--no-run", "--message-format=json-render-diagnostics"])
            .args(["-p", "bespoke-codegen"])
            .args(which)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err("the compiler with the bugs does not build".into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let path = messages
            .filter(|message| message["target"]["name"] == tests)
            .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
            .ok_or(format!("cargo built no tests `{tests}`"))?;
        self.tests.insert(tests.to_owned(), path.clone());
        Ok(path)
    }

    /// Runs the tests whose names begin with one of `names`, or all tests, with the given bug active.
    pub fn test(
        &mut self,
        tests: &str,
        mistake: &str,
        settings: &[(&str, &str)],
        names: &[&str],
    ) -> Result<Ran> {
        let binary = self.built(tests)?;
        let log = self.root.join("log");
        let file = fs::File::create(&log)?;
        let mut child = Command::new(binary)
            .args(names)
            .current_dir(self.root.join("codegen"))
            .env("BESPOKE_MISTAKE", mistake)
            .env("RUST_BACKTRACE", "0")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let begin = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break Some(status),
                None if begin.elapsed() > TIMEOUT => {
                    child.kill()?;
                    child.wait()?;
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok(Ran { success: status.is_some_and(|status| status.success()), hangs: status.is_none(), text })
    }
}

/// Result of a test run.
pub struct Ran {
    pub success: bool,
    pub hangs: bool,
    pub text: String,
}

impl Ran {
    /// Names of the failed tests.
    pub fn failed(&self) -> Vec<String> {
        let name = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
        self.text.lines().filter_map(name).collect()
    }
}

/// Reads a file, or all files of a folder, into `files` under the path `to`.
fn read(from: &Path, to: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    if !from.is_dir() {
        files.insert(to.to_owned(), fs::read(from)?);
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        read(&from.join(&name), &to.join(&name), files)?;
    }
    Ok(())
}
