//! Embeds the sources of the kernels, so that the binary can show source lines without the repository.

use std::path::{Path, PathBuf};
use std::{fmt::Write, fs};

/// Folders with kernel code, relative to the workspace's root.
const FOLDERS: [&str; 2] = ["kernels-gen/src/kernels", "codegen/src/dsl"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let written = std::env::var_os("OUT_DIR")
        .ok_or_else(|| "OUT_DIR is not set".to_owned())
        .and_then(|out| write(Path::new(&out)));
    if let Err(message) = written {
        // An error must be one line for Cargo.
        println!("cargo::error={}", message.replace('\n', " "));
    }
}

/// Writes `sources.rs`: file names relative to the workspace's root, with the texts of the files.
fn write(out: &Path) -> Result<(), String> {
    let root = fs::canonicalize("../..").map_err(|error| format!("the workspace's root: {error}"))?;
    let mut text = String::from(
        "/// Names from the workspace's root, and texts.\nstatic SOURCES: &[(&str, &str)] = &[\n",
    );
    for folder in FOLDERS {
        let path = root.join(folder);
        println!("cargo::rerun-if-changed={}", path.display());
        let mut files = Vec::new();
        collect(&path, &mut files).map_err(|error| format!("{}: {error}", path.display()))?;
        files.sort();
        for file in files {
            let name = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
            // Writing to a string does not fail.
            let _ = writeln!(text, "    ({name:?}, include_str!({:?})),", file.display().to_string());
        }
    }
    text.push_str("];\n");
    let path = out.join("sources.rs");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
