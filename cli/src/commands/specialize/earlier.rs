//! Files that an earlier `bespoke specialize` wrote to a folder.

use std::path::{Path, PathBuf};

use bespoke_codegen::emit::{Manifest, ManifestKernel};
use bespoke_codegen::ptx::Target;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Path of a file in `out` that shows that kernels were emitted there earlier; none if there is no such file.
pub fn existing_output(out: &Path) -> Option<PathBuf> {
    let mut paths = ["kernels.json", "kernels.rs", "plans"].into_iter().map(|name| out.join(name));
    paths.find(|path| path.symlink_metadata().is_ok())
}

/// Paths in `out` of the files that its manifest and its plans list.
pub fn files(out: &Path) -> Vec<PathBuf> {
    let mut files = plans(out);
    if let Some(Manifest { kernels, .. }) = read(&out.join("kernels.json")) {
        files.extend(kernels.iter().flat_map(modules));
        files.extend(["kernels.rs", "kernels.json"].map(PathBuf::from));
    }
    files
}

/// Files of a kernel; none if the kernel's name is a path to another folder.
fn modules(kernel: &ManifestKernel) -> Vec<PathBuf> {
    if !kernel.name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return Vec::new();
    }
    let of_target = |target: Target| {
        ["ptx", "cubin"].map(|extension| format!("{target}/{}.{extension}", kernel.name).into())
    };
    kernel.modules.iter().flat_map(|module| of_target(module.target)).collect()
}

/// Fields that plans have: the GPU, or in earlier versions only its target.
#[derive(Deserialize)]
struct PlanHead {
    shape: ShapeHead,
    target: Option<Target>,
    gpu: Option<GpuHead>,
}

#[derive(Deserialize)]
struct GpuHead {
    target: Target,
}

#[derive(Deserialize)]
struct ShapeHead {
    name: String,
}

/// Paths in `out` of the plans, and of their assembler reports. Files whose name disagrees with their content are skipped.
fn plans(out: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in out.join("plans").read_dir().into_iter().flatten().flatten() {
        let Some(PlanHead { shape, target, gpu }) = read(&entry.path()) else { continue };
        let Some(target) = gpu.map(|gpu| gpu.target).or(target) else { continue };
        let stem = format!("{}.{target}", shape.name);
        if entry.file_name().to_str() == Some(&format!("{stem}.json")) {
            let plans = Path::new("plans");
            files.extend(["json", "report.json"].map(|extension| plans.join(format!("{stem}.{extension}"))));
        }
    }
    files
}

/// Reads a JSON file; none if the file is missing or has another form.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
