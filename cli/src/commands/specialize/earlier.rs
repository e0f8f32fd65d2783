//! What an earlier `bespoke specialize` left in a folder.

use std::io;
use std::path::{Path, PathBuf};

use bespoke_codegen::emit::{Manifest, ManifestKernel};
use bespoke_codegen::ptx::Target;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::output::cannot_write;

/// What shows that something was emitted into `out`.
pub fn trace(out: &Path) -> Option<PathBuf> {
    ["kernels.json", "kernels.rs", "plans"].into_iter().map(|name| out.join(name)).find(|path| path.exists())
}

/// Removes the files that the manifest and the plans in `out` stand for, then folders that are empty. Whatever else
/// lies there stays.
pub fn remove(out: &Path) -> miette::Result<()> {
    let mut files = plans(&out.join("plans"));
    let manifest = out.join("kernels.json");
    if let Some(Manifest { kernels, .. }) = read(&manifest) {
        files.extend(kernels.iter().flat_map(|kernel| modules(out, kernel)));
        files.extend([out.join("kernels.rs"), manifest]);
    }
    for file in files {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot_write(&file, &error)),
            _ => {}
        }
    }
    let targets = Target::ALL.into_iter().map(|target| out.join(target.to_string()));
    for folder in targets.chain([out.join("plans")]) {
        // One that is not empty, or not there, stays as it is.
        let _ = std::fs::remove_dir(folder);
    }
    Ok(())
}

/// The files of a kernel; none of one whose name is a path elsewhere.
fn modules(out: &Path, kernel: &ManifestKernel) -> Vec<PathBuf> {
    if !kernel.name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return Vec::new();
    }
    let of_target = |target: Target| {
        let folder = out.join(target.to_string());
        ["ptx", "cubin"].map(|extension| folder.join(format!("{}.{extension}", kernel.name)))
    };
    kernel.modules.iter().flat_map(|module| of_target(module.target)).collect()
}

/// What a plan of any version says of itself.
#[derive(Deserialize)]
struct PlanHead {
    shape: ShapeHead,
    target: Target,
}

#[derive(Deserialize)]
struct ShapeHead {
    name: String,
}

/// The plans in a folder, and what the assembler said of each. A plan's name says what is in it.
fn plans(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(PlanHead { shape, target }) = read(&path) else { continue };
        let stem = format!("{}.{target}", shape.name);
        if entry.file_name().to_str() == Some(&format!("{stem}.json")) {
            files.extend([path, folder.join(format!("{stem}.report.json"))]);
        }
    }
    files
}

/// A JSON file that is what is looked for.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
