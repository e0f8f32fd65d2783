//! Compiles the built-in kernels with `bespoke_kernels::emit`.
//!
//! By default these are the kernels of every shape in the repository, of the demo model and of the test fixtures; with
//! `BESPOKE_MODEL`, those of one GGUF file. They are the kernels of decode steps of one row; of the demo model and of
//! `BESPOKE_MODEL`, those of all steps. `BESPOKE_TARGETS` lists the targets. `BESPOKE_MULTIPROCESSORS` is the number of
//! multiprocessors for which work is divided; the default is that of each target's largest common GPU. `BESPOKE_TUNE` names a file of tuning
//! rules for the kernels, as `--tune` does. `BESPOKE_PTXAS` names an assembler that adds machine code.

use std::env;
use std::path::{Path, PathBuf};

use bespoke_codegen::cache::Cache;
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::{self, Ptxas};
use bespoke_gguf::Gguf;
use bespoke_kernels::emit::Emission;
use bespoke_kernels::kernels::probe::{MmaProbeShape, ProbeShape};
use bespoke_kernels::plan::{StepSize, Tuning};
use bespoke_kernels::shape::{ModelShape, builtin};
use bespoke_kernels::spec::KernelSpec;

use crate::pack;

/// Targets without `BESPOKE_TARGETS`: sm_80 runs on every supported GPU; sm_90 is faster on Hopper and later.
const DEFAULT_TARGETS: &str = "sm_80,sm_90";

/// Path of the demo model, relative to this package. The kernels of the demo model are built in, so that a run without
/// arguments compiles no kernels.
const DEMO: &str = "../demo/demo.gguf";

/// Size limit of the machine code cached between builds: several times that of all built-in shapes.
const CUBIN_BYTES: u64 = 1 << 30;

/// Folder of the fixtures' models, relative to this package.
const FIXTURES: &str = "../tests/fixtures";

/// Compiles the kernels into `OUT_DIR`, and declares what they depend on.
pub fn emit_kernels() {
    println!("cargo::rerun-if-env-changed=BESPOKE_MODEL");
    println!("cargo::rerun-if-env-changed=BESPOKE_TARGETS");
    println!("cargo::rerun-if-env-changed=BESPOKE_MULTIPROCESSORS");
    println!("cargo::rerun-if-env-changed=BESPOKE_TUNE");
    println!("cargo::rerun-if-env-changed={}", ptxas::VARIABLE);
    if let Err(message) = emit() {
        // An error of a build script is a single line.
        println!("cargo::error={}", message.replace('\n', " "));
    }
}

fn emit() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let probes =
        [KernelSpec::ReadProbe(ProbeShape::default()), KernelSpec::MmaProbe(MmaProbeShape::default())];
    let mut emission = probes.into_iter().fold(Emission::new(), Emission::kernel);
    for target in targets()? {
        emission = emission.target(target);
    }
    if let Some(count) = multiprocessors()? {
        emission = emission.multiprocessors(count);
    }
    emission = add_shapes(emission)?;
    if let Some(tuning) = tuning()? {
        emission = emission.tuning(tuning);
    }
    if let Some(ptxas) = assembler(&out)? {
        emission = emission.assembler(ptxas);
    }
    let kernels = emission.kernels().map_err(|error| format!("cannot compile kernels: {error}"))?;
    pack::write(&kernels, &out).map_err(|error| format!("cannot write kernels to {}: {error}", out.display()))
}

/// The assembler, if machine code is built in: with `BESPOKE_MODEL` or `BESPOKE_PTXAS`. By default machine code is not
/// built in, because assembling the kernels of all shapes takes 15 s of processor time and 14 MB of the binary for each
/// target.
fn assembler(out: &Path) -> Result<Option<Ptxas>, String> {
    if env::var_os(ptxas::VARIABLE).is_none() && variable("BESPOKE_MODEL")?.is_none() {
        return Ok(None);
    }
    let Some(ptxas) = Ptxas::find().map_err(|error| error.to_string())? else { return Ok(None) };
    println!("cargo::rerun-if-changed={}", ptxas.path().display());
    // Unchanged kernels are not assembled again.
    ptxas.cached(Cache::new(out.join("cubins"), CUBIN_BYTES)).map(Some).map_err(|error| error.to_string())
}

/// Value of an environment variable that is set and not empty.
fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(value)) => Err(format!("{name} is not UTF-8: {}", value.display())),
    }
}

/// Absolute path in an environment variable.
fn path(name: &str) -> Result<Option<PathBuf>, String> {
    match variable(name)?.map(PathBuf::from) {
        Some(path) if path.is_relative() => Err(format!(
            "{name}: {} is not an absolute path; build scripts do not run in the current folder",
            path.display()
        )),
        path => Ok(path),
    }
}

/// Tuning rules of `BESPOKE_TUNE`.
fn tuning() -> Result<Option<Tuning>, String> {
    let Some(path) = path("BESPOKE_TUNE")? else { return Ok(None) };
    println!("cargo::rerun-if-changed={}", path.display());
    let failed = |error: &dyn std::fmt::Display| format!("BESPOKE_TUNE: {}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| failed(&error))?;
    Tuning::parse(&text).map(Some).map_err(|error| failed(&error))
}

fn multiprocessors() -> Result<Option<u32>, String> {
    let number =
        |text: String| text.trim().parse().map_err(|error| format!("BESPOKE_MULTIPROCESSORS: {error}"));
    variable("BESPOKE_MULTIPROCESSORS")?.map(number).transpose()
}

fn targets() -> Result<Vec<Target>, String> {
    let names = variable("BESPOKE_TARGETS")?.unwrap_or_else(|| DEFAULT_TARGETS.to_owned());
    names
        .split(',')
        .map(|name| name.trim().parse().map_err(|error| format!("BESPOKE_TARGETS: {error}")))
        .collect()
}

/// Adds the shapes. Kernels of all steps of all shapes would make the build take several times as long: `benches/NOTES.md`.
fn add_shapes(mut emission: Emission) -> Result<Emission, String> {
    if let Some(path) = path("BESPOKE_MODEL")? {
        let shape = model_shape(&path).map_err(|error| format!("BESPOKE_MODEL: {error}"))?;
        return Ok(emission.shape_with_steps(shape, StepSize::all()));
    }
    for file in builtin() {
        let shapes = file.shapes().map_err(|error| format!("shape {}: {error}", file.name))?;
        emission = shapes.into_iter().fold(emission, Emission::shape);
    }
    emission = emission.shape_with_steps(model_shape(Path::new(DEMO))?, StepSize::all());
    for path in fixtures()? {
        emission = emission.shape(model_shape(&path)?);
    }
    Ok(emission)
}

/// Models of the fixtures, sorted by name; none without the folder.
fn fixtures() -> Result<Vec<PathBuf>, String> {
    let folder = Path::new(FIXTURES);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    println!("cargo::rerun-if-changed={FIXTURES}");
    let unreadable = |error| format!("{FIXTURES}: {error}");
    let mut models = Vec::new();
    for entry in folder.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "gguf") {
            models.push(path);
        }
    }
    models.sort();
    Ok(models)
}

/// Shape of a model file, named after the file.
fn model_shape(path: &Path) -> Result<ModelShape, String> {
    println!("cargo::rerun-if-changed={}", path.display());
    let name = path.file_stem().map_or("model".into(), |stem| stem.to_string_lossy().into_owned());
    let read = || Ok(ModelShape::from_gguf(&Gguf::open(path)?, &name)?);
    read().map_err(|error: Box<dyn std::error::Error>| format!("{}: {error}", path.display()))
}
