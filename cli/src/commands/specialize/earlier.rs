//! Files that an earlier `bespoke specialize` wrote to a folder.

use std::io;
use std::path::{Path, PathBuf};

use bespoke_codegen::emit::{Manifest, ManifestKernel};
use bespoke_codegen::ptx::Target;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::output::cannot_write;

/// Path of a file in `out` that shows that kernels were emitted there earlier; none if there is no such file.
pub fn existing_output(out: &Path) -> Option<PathBuf> {
    ["kernels.json", "kernels.rs", "plans"].into_iter().map(|name| out.join(name)).find(|path| path.exists())
}

/// Removes the files that the manifest and the plans in `out` list, then empty folders. Other files stay.
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
        // Fails for a folder that is missing or not empty, which is fine.
        let _ = std::fs::remove_dir(folder);
    }
    Ok(())
}

/// Files of a kernel in `out`; none if the kernel's name is a path to another folder.
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

/// Fields that plans of all versions have.
#[derive(Deserialize)]
struct PlanHead {
    shape: ShapeHead,
    target: Target,
}

#[derive(Deserialize)]
struct ShapeHead {
    name: String,
}

/// Paths of the plans in a folder, and of their assembler reports. Files whose name disagrees with their content are
/// skipped.
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

/// Reads a JSON file; none if the file is missing or has another form.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
