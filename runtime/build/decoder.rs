//! Emits the kernels that the binary holds: see `bespoke_kernels::emit`.
//!
//! By default those of every shape in the repository, of the demo model and of the test fixtures; with `BESPOKE_MODEL`
//! those of one GGUF file alone. `BESPOKE_TARGETS` names the targets, `BESPOKE_TUNE` a file of rules that `bespoke tune`
//! wrote: the kernels are then those of a run with `--tune` and that file. `BESPOKE_PTXAS` names the assembler that makes
//! machine code of them, too.

use std::env;
use std::path::{Path, PathBuf};

use bespoke_codegen::cache::Cache;
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::{self, Ptxas};
use bespoke_gguf::Gguf;
use bespoke_kernels::emit::Emission;
use bespoke_kernels::kernels::probe::ProbeShape;
use bespoke_kernels::plan::Tuning;
use bespoke_kernels::shape::{ModelShape, builtin};
use bespoke_kernels::spec::KernelSpec;

/// The targets without `BESPOKE_TARGETS`: what every supported GPU can run, and what Hopper and later do better.
const DEFAULT_TARGETS: &str = "sm_80,sm_90";

/// The model inside the binary, from this package's folder. Its kernels are built in, too, so that the first run of the
/// binary shows what later ones do.
const DEMO: &str = "../demo/demo.gguf";

/// Bytes of machine code that are kept from build to build: several times that of every built-in shape.
const CUBIN_BYTES: u64 = 1 << 30;

/// Where the fixtures' models are, from this package's folder.
const FIXTURES: &str = "../tests/fixtures";

/// Writes them, and says what they depend on.
pub fn emit_kernels() {
    println!("cargo::rerun-if-env-changed=BESPOKE_MODEL");
    println!("cargo::rerun-if-env-changed=BESPOKE_TARGETS");
    println!("cargo::rerun-if-env-changed=BESPOKE_TUNE");
    println!("cargo::rerun-if-env-changed={}", ptxas::VARIABLE);
    if let Err(message) = emit() {
        // Cargo takes one line an error.
        println!("cargo::error={}", message.replace('\n', " "));
    }
}

fn emit() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let mut emission = Emission::new().kernel(KernelSpec::ReadProbe(ProbeShape::default()));
    for target in targets()? {
        emission = emission.target(target);
    }
    for shape in shapes()? {
        emission = emission.shape(shape);
    }
    if let Some(tuning) = tuning()? {
        emission = emission.tuning(tuning);
    }
    if let Some(ptxas) = assembler(&out)? {
        emission = emission.assembler(ptxas);
    }
    emission.write(&out).map_err(|error| format!("cannot emit kernels: {error}"))?;
    Ok(())
}

/// The assembler, if machine code is to be built in: where one model is specialised for, and where it is asked for. By
/// default it is not, since every shape's kernels are 15 s of processor time and 14 MB of the binary, a target.
fn assembler(out: &Path) -> Result<Option<Ptxas>, String> {
    if env::var_os(ptxas::VARIABLE).is_none() && variable("BESPOKE_MODEL")?.is_none() {
        return Ok(None);
    }
    let Some(ptxas) = Ptxas::find().map_err(|error| error.to_string())? else { return Ok(None) };
    println!("cargo::rerun-if-changed={}", ptxas.path().display());
    // A build that changes few kernels assembles few.
    ptxas.cached(Cache::new(out.join("cubins"), CUBIN_BYTES)).map(Some).map_err(|error| error.to_string())
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(value)) => Err(format!("{name} is not UTF-8: {}", value.display())),
    }
}

/// A variable that holds a file's path.
fn path(name: &str) -> Result<Option<PathBuf>, String> {
    match variable(name)?.map(PathBuf::from) {
        Some(path) if path.is_relative() => Err(format!(
            "{name}: {} is not an absolute path: the build does not run in your folder",
            path.display()
        )),
        path => Ok(path),
    }
}

/// The rules that kernels are cut by, if there are any.
fn tuning() -> Result<Option<Tuning>, String> {
    let Some(path) = path("BESPOKE_TUNE")? else { return Ok(None) };
    println!("cargo::rerun-if-changed={}", path.display());
    let failed = |error: &dyn std::fmt::Display| format!("BESPOKE_TUNE: {}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| failed(&error))?;
    Tuning::parse(&text).map(Some).map_err(|error| failed(&error))
}

fn targets() -> Result<Vec<Target>, String> {
    let names = variable("BESPOKE_TARGETS")?.unwrap_or_else(|| DEFAULT_TARGETS.to_owned());
    names
        .split(',')
        .map(|name| name.trim().parse().map_err(|error| format!("BESPOKE_TARGETS: {error}")))
        .collect()
}

fn shapes() -> Result<Vec<ModelShape>, String> {
    if let Some(path) = path("BESPOKE_MODEL")? {
        return Ok(vec![model_shape(&path).map_err(|error| format!("BESPOKE_MODEL: {error}"))?]);
    }
    let mut shapes = Vec::new();
    for file in builtin() {
        shapes.extend(file.shapes().map_err(|error| format!("shape {}: {error}", file.name))?);
    }
    shapes.push(model_shape(Path::new(DEMO))?);
    for path in fixtures()? {
        shapes.push(model_shape(&path)?);
    }
    Ok(shapes)
}

/// The fixtures' models in the order of their names; none where there is no such folder.
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

/// The shape of a model file, named like the file.
fn model_shape(path: &Path) -> Result<ModelShape, String> {
    println!("cargo::rerun-if-changed={}", path.display());
    let name = path.file_stem().map_or("model".into(), |stem| stem.to_string_lossy().into_owned());
    let read = || Ok(ModelShape::from_gguf(&Gguf::open(path)?, &name)?);
    read().map_err(|error: Box<dyn std::error::Error>| format!("{}: {error}", path.display()))
}
