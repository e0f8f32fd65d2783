//! A copy of the compiler with all mistakes in it, and its tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Bug, Result};

/// Tests that take longer are taken to hang, which counts as noticed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the copy of the library gets, so that it can be told which mistake to make.
const SWITCH: &str = r#"
pub(crate) fn mistake(name: &str) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("BESPOKE_MISTAKE").ok());
    CHOSEN.as_deref() == Some(name)
}
"#;

/// Packages that the compiler needs and that no mistake is made in: they are used from where they are.
const SHARED: [&str; 2] = ["macros", "emulator"];

/// A workspace of the compiler and what it needs.
pub struct Workspace {
    root: PathBuf,
    /// What is to stand in its files.
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Its tests, as far as they have been built.
    tests: BTreeMap<String, PathBuf>,
    /// The original's, where what the compiler depends on has been built.
    target: PathBuf,
}

impl Workspace {
    /// Copies the compiler.
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
        // Only the packages that were copied.
        let (head, tail) = text.split_once("members = [").ok_or("the workspace has no members")?;
        let (_, tail) = tail.split_once("]\n").ok_or("the workspace's members have no end")?;
        for line in format!("{head}members = [\"codegen\", \"codegen/testing\"]\n{tail}").lines() {
            let shared = SHARED.iter().find(|name| line.starts_with(&format!("bespoke-{name} = {{ path")));
            match shared {
                Some(name) => {
                    let path = codegen.join(name);
                    manifest += &format!("bespoke-{name} = {{ path = {path:?} }}\n");
                }
                None if line.starts_with("default-members") => {}
                None => manifest = manifest + line + "\n",
            }
        }
        files.insert(root.join("Cargo.toml"), manifest.into());
        Ok(Workspace { root, files, tests: BTreeMap::new(), target })
    }

    /// Puts the mistake beside what is right.
    pub fn insert(&mut self, bug: &Bug) -> Result<()> {
        let path = self.root.join("codegen/src").join(&bug.file);
        let file = self.files.get_mut(&path).ok_or_else(|| format!("{}: no such file", bug.file))?;
        let text = String::from_utf8(file.clone())?;
        let times = text.matches(&bug.find).count();
        if times != 1 {
            let (name, find, file) = (&bug.name, bug.find.trim(), &bug.file);
            let message =
                format!("`{find}` stands in {file} {times} times, not once: write it anew in bugs.toml");
            return Err(format!("{name}: {message}").into());
        }
        let switch = format!("crate::mistake(\"{}\")", bug.name);
        *file = text.replacen(&bug.find, &bug.replace.replace("MISTAKE", &switch), 1).into();
        Ok(())
    }

    /// Writes the files.
    pub fn write(&self) -> Result<()> {
        for (path, content) in &self.files {
            // What has not changed keeps its time, so that nothing is built for it.
            if fs::read(path).ok().as_ref() != Some(content) {
                fs::create_dir_all(path.parent().ok_or("a file has no folder")?)?;
                fs::write(path, content)?;
            }
        }
        Ok(())
    }

    /// Where the tests of this name are: integration tests, or those of the library. Built when they are first asked for.
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
            return Err("the compiler with the mistakes in it does not build".into());
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

    /// Runs those of the tests that `names` begin, all if there are none, with the mistake of this name.
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
                None if begin.elapsed() > PATIENCE => {
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

/// What a test run printed.
pub struct Ran {
    pub success: bool,
    pub hangs: bool,
    pub text: String,
}

impl Ran {
    /// The tests that failed.
    pub fn failed(&self) -> Vec<String> {
        let name = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
        self.text.lines().filter_map(name).collect()
    }
}

/// Takes the file `from`, or all in the folder, for the content of `to`.
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
