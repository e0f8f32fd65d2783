//! rustc with the libraries that this test was built with, so that a test case compiles without Cargo.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs};

/// Libraries that belong together, in the folder with all of their dependencies.
pub struct Libraries {
    folder: PathBuf,
    /// Names of crates with their files.
    crates: Vec<(&'static str, PathBuf)>,
}

impl Libraries {
    /// The newest libraries of these crates that compile `probe`. There may be others, of other features.
    pub fn find<const N: usize>(crates: [&'static str; N], probe: &str, scratch: &Path) -> Libraries {
        let this = env::current_exe().expect("a test is a file");
        let folder = this.parent().expect("a file is in a folder");
        let source = scratch.join("probe.rs");
        fs::write(&source, probe).expect("a folder under target");
        // All choices of a file for each crate, those of new files first.
        let mut choices = vec![Vec::new()];
        for name in crates {
            let files = files_of(folder, name);
            let with = |choice: &Vec<_>| {
                files
                    .iter()
                    .map(|file| [choice.as_slice(), &[(name, file.clone())]].concat())
                    .collect::<Vec<_>>()
            };
            choices = choices.iter().flat_map(with).collect();
        }
        let mut found = choices.into_iter().map(|crates| Libraries { folder: folder.to_owned(), crates });
        let fits = |libraries: &Libraries| {
            libraries
                .rustc(&source, &["--emit", "metadata", "-o"])
                .arg(scratch.join("probe"))
                .output()
                .expect("rustc starts")
                .status
                .success()
        };
        found.find(fits).unwrap_or_else(|| {
            panic!("no libraries of {} belong together: run this by `cargo test`", crates.join(", "))
        })
    }

    /// rustc for a program, with these further arguments.
    pub fn rustc(&self, source: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into()));
        command.args(["--edition", "2024", "-L"]).arg(format!("dependency={}", self.folder.display()));
        for (name, file) in &self.crates {
            command.arg("--extern").arg(format!("{name}={}", file.display()));
        }
        command.arg(source).args(arguments);
        command
    }
}

/// Library files of a crate in a folder, the newest first.
fn files_of(folder: &Path, name: &str) -> Vec<PathBuf> {
    let prefix = format!("lib{name}-");
    let files = fs::read_dir(folder).expect("the folder of this test").flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.starts_with(&prefix) && file.ends_with(".rlib")
    };
    let mut found: Vec<PathBuf> = files.filter(is_library).collect();
    let age = |path: &PathBuf| {
        fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    found.sort_by_key(|path| std::cmp::Reverse(age(path)));
    found
}
