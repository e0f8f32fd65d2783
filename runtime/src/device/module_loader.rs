//! Selection of a module's machine code: built in, cached on disk, or assembled by the driver.
//!
//! [`ModuleLoader::load`] selects the origin; an [`Assembler`] makes the driver calls.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Once;

use bespoke_codegen::cache::{Cache, Key};
use bespoke_codegen::launch::KernelSource;
use serde::Serialize;

use super::{Error, Result};

/// Environment variable that names the folder of the machine-code cache.
pub const CACHE_VARIABLE: &str = "BESPOKE_CACHE";

/// Size limit of the cache: the kernels of some hundred models.
const CACHE_BYTES: u64 = 256 << 20;

/// First bytes of a cubin, which is an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// Source of a module: PTX and optionally machine code.
#[derive(Clone, Copy, Debug)]
pub struct ModuleSource<'a> {
    /// Name of the module in messages.
    pub name: &'a str,
    /// PTX text of the module.
    pub ptx: &'a str,
    /// The PTX assembled ahead of time.
    pub machine_code: Option<MachineCode<'a>>,
}

impl<'a> ModuleSource<'a> {
    /// A source without machine code.
    pub fn ptx(name: &'a str, ptx: &'a str) -> ModuleSource<'a> {
        ModuleSource { name, ptx, machine_code: None }
    }
}

impl From<&KernelSource> for ModuleSource<'static> {
    fn from(kernel: &KernelSource) -> ModuleSource<'static> {
        let compute = kernel.target.compute();
        let machine_code = kernel.cubin.map(|cubin| MachineCode { compute, cubin });
        ModuleSource { name: kernel.name, ptx: kernel.ptx, machine_code }
    }
}

/// Machine code of a module for one compute capability.
#[derive(Clone, Copy, Debug)]
pub struct MachineCode<'a> {
    /// Compute capability: major, minor.
    pub compute: (u32, u32),
    /// Cubin: an ELF file with the machine code.
    pub cubin: &'a [u8],
}

/// Origin of a module's machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeOrigin {
    /// Assembled when this binary was built.
    Embedded,
    /// Assembled by the driver in an earlier process.
    Cached,
    /// Assembled by the driver in this process.
    Assembled,
}

/// Operations of the driver on PTX and machine code; tests use a fake driver.
pub(super) trait Assembler {
    /// A loaded module.
    type Module;
    /// Loads machine code.
    fn load(&self, cubin: &[u8]) -> Result<Self::Module>;
    /// Assembles and links PTX, and returns the machine code.
    fn link(&self, ptx: &str) -> Result<Assembled<Vec<u8>>>;
    /// Assembles PTX and loads the result.
    fn assemble(&self, ptx: &str) -> Result<Assembled<Self::Module>>;
}

/// Result of an assembler run, with the assembler's log.
pub(super) struct Assembled<T> {
    pub result: T,
    pub log: String,
}

/// A loaded module, the assembler's log if it ran, and the origin of the machine code.
#[derive(Debug)]
pub(super) struct Loaded<M> {
    pub module: M,
    pub log: String,
    pub origin: CodeOrigin,
}

/// Loads modules for a device, whose compute capability and driver determine which machine code is valid.
pub(super) struct ModuleLoader {
    /// The device's compute capability.
    compute: (u32, u32),
    /// Exact driver version, part of the cache key because another version may generate other code.
    driver: String,
    cache: Option<Cache>,
    /// Limits the log to one message about rejected built-in machine code: if the driver rejects one module, it rejects
    /// all.
    rejected: Once,
}

impl ModuleLoader {
    /// A loader for a device, with the cache that the environment names.
    pub fn new(compute: (u32, u32), driver: &str) -> ModuleLoader {
        ModuleLoader { compute, driver: driver.to_owned(), cache: cache(), rejected: Once::new() }
    }

    /// Loads a module: from built-in machine code for exactly this compute capability, else from the cache, else by the
    /// driver's assembler. Machine code that the driver rejects is skipped.
    pub fn load<A: Assembler>(&self, assembler: &A, source: &ModuleSource<'_>) -> Result<Loaded<A::Module>> {
        if let Some(code) = source.machine_code.filter(|code| code.compute == self.compute) {
            match load_cubin(assembler, code.cubin)? {
                Ok(module) => return Ok(Loaded { module, log: String::new(), origin: CodeOrigin::Embedded }),
                Err(rejection) => self.rejected.call_once(|| {
                    tracing::info!(
                        "the driver rejects the machine code in this binary ({rejection}, `{}`), perhaps because the \
                         driver is older than the assembler; it assembles the PTX instead",
                        source.name
                    )
                }),
            }
        }
        match &self.cache {
            Some(cache) => self.load_cached(cache, assembler, source),
            None => assemble(assembler, source),
        }
    }

    /// Loads a module from cached machine code, or links the module and adds its machine code to the cache.
    fn load_cached<A: Assembler>(
        &self,
        cache: &Cache,
        assembler: &A,
        source: &ModuleSource<'_>,
    ) -> Result<Loaded<A::Module>> {
        let (name, key) = (source.name, self.key(source.ptx));
        if let Some(cubin) = cache.get(key) {
            match load_cubin(assembler, &cubin)? {
                Ok(module) => return Ok(Loaded { module, log: String::new(), origin: CodeOrigin::Cached }),
                Err(rejection) => {
                    tracing::debug!("the driver rejects the cached machine code of `{name}` ({rejection})");
                    cache.remove(key);
                }
            }
        }
        // On failure, assembling without the linker gives the better error, and may succeed.
        let linked = match assembler.link(source.ptx) {
            Ok(linked) => linked,
            Err(error) => {
                tracing::debug!("`{name}` is not cached: {error}");
                return assemble(assembler, source);
            }
        };
        let module = match load_cubin(assembler, &linked.result)? {
            Ok(module) => module,
            Err(rejection) => {
                tracing::debug!(
                    "`{name}` is not cached: the driver rejects the output of its linker ({rejection})"
                );
                return assemble(assembler, source);
            }
        };
        if let Err(error) = cache.put(key, &linked.result) {
            tracing::debug!("`{name}` is not cached: {}: {error}", cache.folder().display());
        }
        Ok(Loaded { module, log: linked.log, origin: CodeOrigin::Assembled })
    }

    /// Cache key: machine code depends on PTX, driver and compute capability.
    fn key(&self, ptx: &str) -> Key {
        let (major, minor) = self.compute;
        let device = format!("{major}.{minor}");
        Key::of(&[b"linked with line information", self.driver.as_bytes(), device.as_bytes(), ptx.as_bytes()])
    }
}

fn assemble<A: Assembler>(assembler: &A, source: &ModuleSource<'_>) -> Result<Loaded<A::Module>> {
    let Assembled { result, log } = assembler.assemble(source.ptx)?;
    Ok(Loaded { module: result, log, origin: CodeOrigin::Assembled })
}

/// Loads machine code. The inner error means that the code does not match the device or the driver.
fn load_cubin<A: Assembler>(assembler: &A, cubin: &[u8]) -> Result<Result<A::Module, String>> {
    if !cubin.starts_with(ELF) {
        return Ok(Err("not an ELF file".to_owned()));
    }
    match assembler.load(cubin) {
        Ok(module) => Ok(Ok(module)),
        Err(Error::Driver(failure)) if is_rejection(failure.code) => Ok(Err(failure.name.clone())),
        Err(error) => Err(error),
    }
}

/// Whether an error code means that an image does not match the device and the driver: `INVALID_IMAGE`,
/// `NO_BINARY_FOR_GPU`, `INVALID_PTX`, `UNSUPPORTED_PTX_VERSION`, `INVALID_SOURCE`.
pub(super) fn is_rejection(code: u32) -> bool {
    matches!(code, 200 | 209 | 218 | 222 | 300)
}

/// Machine-code cache on disk; none unless `BESPOKE_CACHE` names a folder.
///
/// The cache is opt-in, because only linked code can be cached, and linked code is slower: 727 tokens/s against 776 for
/// Llama-3.1-8B on an H200. The driver itself caches the code that it assembles.
pub fn cache() -> Option<Cache> {
    cache_folder(env::var_os(CACHE_VARIABLE)).map(|folder| Cache::new(folder, CACHE_BYTES))
}

fn cache_folder(value: Option<OsString>) -> Option<PathBuf> {
    value.filter(|value| !value.is_empty() && value != "none").map(PathBuf::from)
}

#[cfg(test)]
mod tests;
