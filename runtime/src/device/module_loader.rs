//! Where a module's machine code comes from: the binary, the cache on disk, or the driver's assembler.
//!
//! Nothing here names the driver: [`ModuleLoader::load`] chooses, an [`Assembler`] does.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Once;

use bespoke_codegen::cache::{Cache, Key};
use bespoke_codegen::launch::KernelSource;
use serde::Serialize;

use super::{Error, Result};

/// The variable that says where machine code is kept.
pub const CACHE_VARIABLE: &str = "BESPOKE_CACHE";

/// Bytes that the cache may have: some hundred models' kernels.
const CACHE_BYTES: u64 = 256 << 20;

/// First bytes of a cubin, which is an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// What a module is loaded from.
#[derive(Clone, Copy, Debug)]
pub struct ModuleSource<'a> {
    /// What stands for the text in messages.
    pub name: &'a str,
    /// The module's text.
    pub ptx: &'a str,
    /// The same, assembled ahead of time.
    pub machine_code: Option<MachineCode<'a>>,
}

impl<'a> ModuleSource<'a> {
    /// A text alone.
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

/// A module as one compute capability executes it.
#[derive(Clone, Copy, Debug)]
pub struct MachineCode<'a> {
    /// The compute capability: major, minor.
    pub compute: (u32, u32),
    /// The cubin.
    pub cubin: &'a [u8],
}

/// How a device came to a module's machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeOrigin {
    /// It was assembled when this binary was built.
    Embedded,
    /// The driver assembled it for an earlier process.
    Cached,
    /// The driver assembled it now.
    Assembled,
}

/// What the driver can do with a module's text or machine code.
pub(super) trait Assembler {
    /// A loaded module.
    type Module;
    /// Loads machine code.
    fn load(&self, cubin: &[u8]) -> Result<Self::Module>;
    /// Assembles a text and gives the machine code back.
    fn link(&self, ptx: &str) -> Result<Assembled<Vec<u8>>>;
    /// Assembles a text and loads what comes of it.
    fn assemble(&self, ptx: &str) -> Result<Assembled<Self::Module>>;
}

/// What an assembler made, and its remarks.
pub(super) struct Assembled<T> {
    pub result: T,
    pub log: String,
}

/// A loaded module, the assembler's remarks if it ran, and where the machine code came from.
#[derive(Debug)]
pub(super) struct Loaded<M> {
    pub module: M,
    pub log: String,
    pub origin: CodeOrigin,
}

/// What machine code depends on besides the text, and where it is kept.
pub(super) struct ModuleLoader {
    /// The device's compute capability.
    compute: (u32, u32),
    /// The driver, as exactly as it tells: another one assembles otherwise.
    driver: String,
    cache: Option<Cache>,
    /// What is built in was refused, and that was said: the rest will be, too.
    refused: Once,
}

impl ModuleLoader {
    /// For a device, with the cache that the environment names.
    pub fn new(compute: (u32, u32), driver: &str) -> ModuleLoader {
        ModuleLoader { compute, driver: driver.to_owned(), cache: cache(), refused: Once::new() }
    }

    /// Loads a module: machine code that was built in for exactly this device, else what an earlier process has left,
    /// else what the driver's assembler makes. Machine code that the driver refuses is passed over.
    pub fn load<A: Assembler>(&self, assembler: &A, source: &ModuleSource<'_>) -> Result<Loaded<A::Module>> {
        if let Some(code) = source.machine_code.filter(|code| code.compute == self.compute) {
            match load_cubin(assembler, code.cubin)? {
                Ok(module) => return Ok(Loaded { module, log: String::new(), origin: CodeOrigin::Embedded }),
                Err(refusal) => self.refused.call_once(|| {
                    tracing::info!(
                        "the driver refuses the machine code in this binary ({refusal}, `{}`), perhaps because it is \
                         older than the assembler that made it; it assembles the PTX instead",
                        source.name
                    )
                }),
            }
        }
        match &self.cache {
            Some(cache) => self.load_with(cache, assembler, source),
            None => assemble(assembler, source),
        }
    }

    fn load_with<A: Assembler>(
        &self,
        cache: &Cache,
        assembler: &A,
        source: &ModuleSource<'_>,
    ) -> Result<Loaded<A::Module>> {
        let (name, key) = (source.name, self.key(source.ptx));
        if let Some(cubin) = cache.get(key) {
            match load_cubin(assembler, &cubin)? {
                Ok(module) => return Ok(Loaded { module, log: String::new(), origin: CodeOrigin::Cached }),
                Err(refusal) => {
                    tracing::debug!("the driver refuses the cache's machine code of `{name}` ({refusal})");
                    cache.remove(key);
                }
            }
        }
        // The way around the linker says best what is wrong with a text, and needs nothing but an assembler.
        let linked = match assembler.link(source.ptx) {
            Ok(linked) => linked,
            Err(error) => {
                tracing::debug!("`{name}` is not kept: {error}");
                return assemble(assembler, source);
            }
        };
        let module = match load_cubin(assembler, &linked.result)? {
            Ok(module) => module,
            Err(refusal) => {
                tracing::debug!("`{name}` is not kept: the driver refuses what its linker made ({refusal})");
                return assemble(assembler, source);
            }
        };
        if let Err(error) = cache.put(key, &linked.result) {
            tracing::debug!("`{name}` is not kept: {}: {error}", cache.folder().display());
        }
        Ok(Loaded { module, log: linked.log, origin: CodeOrigin::Assembled })
    }

    /// Two devices of one compute capability have the same machine code.
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

/// Loads machine code; the inner error says that it is not for this device or driver.
fn load_cubin<A: Assembler>(assembler: &A, cubin: &[u8]) -> Result<Result<A::Module, String>> {
    if !cubin.starts_with(ELF) {
        return Ok(Err("it is no ELF file".to_owned()));
    }
    match assembler.load(cubin) {
        Ok(module) => Ok(Ok(module)),
        Err(Error::Driver(failure)) if is_refusal(failure.code) => Ok(Err(failure.name.clone())),
        Err(error) => Err(error),
    }
}

/// Whether a code says that an image is not one for this device and driver: `INVALID_IMAGE`, `NO_BINARY_FOR_GPU`,
/// `INVALID_PTX`, `UNSUPPORTED_PTX_VERSION`, `INVALID_SOURCE`.
pub(super) fn is_refusal(code: u32) -> bool {
    matches!(code, 200 | 209 | 218 | 222 | 300)
}

/// Where machine code is kept between processes; nowhere if `BESPOKE_CACHE` names no folder.
///
/// It must be asked for, since only linked code can be kept, and that is slower: 727 tokens/s against 776 for
/// Llama-3.1-8B on an H200. The driver keeps what it assembles by itself, where it may.
pub fn cache() -> Option<Cache> {
    cache_folder(env::var_os(CACHE_VARIABLE)).map(|folder| Cache::new(folder, CACHE_BYTES))
}

fn cache_folder(value: Option<OsString>) -> Option<PathBuf> {
    value.filter(|value| !value.is_empty() && value != "none").map(PathBuf::from)
}

#[cfg(test)]
mod tests;
