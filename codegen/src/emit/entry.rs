//! A kernel to emit with its launch geometry, and the emitted kernel.

use serde::Serialize;
use serde_json::Value;

use super::EmitError;
use crate::dsl::Recorded;
use crate::ir::Param;
use crate::kernel::{Compiled, Kernel};
use crate::ptx::Target;
use crate::ptxas::Assembled;

/// Launch geometry that is known at emission: grid, block, dynamic shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    grid: Option<[u32; 3]>,
    block: Option<[u32; 3]>,
    dynamic_shared: u32,
}

impl Geometry {
    /// Geometry with a fixed grid: CTAs along x, y and z. The stub has the launch configuration as the constant
    /// `CONFIG`.
    pub fn fixed(grid: [u32; 3]) -> Geometry {
        Geometry { grid: Some(grid), block: None, dynamic_shared: 0 }
    }

    /// Geometry whose grid is chosen at each launch: the first argument of the stub.
    pub fn per_launch() -> Geometry {
        Geometry { grid: None, block: None, dynamic_shared: 0 }
    }

    /// Sets the threads per CTA along x, y and z. Not needed if the kernel has `#[kernel(threads = …)]`.
    #[must_use]
    pub fn block(self, threads: [u32; 3]) -> Geometry {
        Geometry { block: Some(threads), ..self }
    }

    /// Sets the dynamic shared memory per CTA, in bytes (`dynamic_shared()` in the kernel); 0 by default.
    #[must_use]
    pub fn dynamic_shared(self, bytes: u32) -> Geometry {
        Geometry { dynamic_shared: bytes, ..self }
    }
}

/// A kernel to emit, with geometry, documentation and compile-time parameters.
#[derive(Clone, Debug)]
pub struct Entry {
    kernel: Recorded,
    geometry: Geometry,
    summary: String,
    /// Compile-time parameters as JSON, or the message of the serialisation error.
    constants: Result<Value, String>,
}

impl Entry {
    /// Entry for the result of calling a `#[kernel]` function, launched with `geometry`.
    pub fn new(kernel: Recorded, geometry: Geometry) -> Entry {
        Entry { kernel, geometry, summary: String::new(), constants: Ok(Value::Null) }
    }

    /// Sets the documentation of the stub: the kernel's purpose in a few words.
    #[must_use]
    pub fn summary(self, summary: impl Into<String>) -> Entry {
        Entry { summary: summary.into(), ..self }
    }

    /// Sets the compile-time parameters that the manifest lists.
    #[must_use]
    pub fn constants(self, constants: impl Serialize) -> Entry {
        let constants = serde_json::to_value(constants).map_err(|error| error.to_string());
        Entry { constants, ..self }
    }

    /// The kernel; an error if it was not recorded, or its name cannot be that of a Rust module.
    pub(super) fn kernel(&self) -> Result<&Kernel, EmitError> {
        let kernel = self.kernel.as_ref().map_err(Clone::clone)?;
        check_name(kernel.name())?;
        Ok(kernel)
    }

    /// The kernel with its launch, from its compiled form in the file `module`.
    pub(super) fn emitted(&self, compiled: Compiled, module: &str) -> Result<Emitted, EmitError> {
        let (kernel, target) = (self.kernel()?, compiled.target);
        let emitted = Emitted {
            recorded: kernel.clone(),
            module: module.to_owned(),
            params: kernel.params().to_vec(),
            grid: self.geometry.grid,
            block: self.block(kernel).map_err(|why| geometry_error(kernel, target, why))?,
            cluster: kernel.function().cluster,
            dynamic_shared: self.geometry.dynamic_shared,
            summary: self.summary.clone(),
            constants: match &self.constants {
                Ok(constants) => constants.clone(),
                Err(error) => return Err(EmitError::Json(serde::ser::Error::custom(error))),
            },
            compiled,
            assembled: None,
        };
        emitted.check().map_err(|why| geometry_error(kernel, target, why))?;
        Ok(emitted)
    }

    /// Threads per CTA along x, y and z, from the kernel or its geometry.
    fn block(&self, kernel: &Kernel) -> Result<[u32; 3], String> {
        match (kernel.block(), self.geometry.block) {
            (Some(own), None) => Ok(own),
            (Some(own), Some(block)) if block != own => {
                let threads = match own {
                    [threads, 1, 1] => format!("{threads} threads"),
                    own => format!("{own:?} threads"),
                };
                Err(format!(
                    "its CTAs have {threads} (`#[kernel(threads = …)]`), not {block:?}: leave `Geometry::block` out"
                ))
            }
            (_, Some(block)) => Ok(block),
            (None, None) => {
                Err("nothing says how many threads a CTA has: write `#[kernel(threads = …)]`, or \
                                 `Geometry::block([…, 1, 1])`"
                    .to_owned())
            }
        }
    }
}

fn geometry_error(kernel: &Kernel, target: Target, why: String) -> EmitError {
    EmitError::Geometry { kernel: kernel.name().to_owned(), target, why }
}

/// Checks that a kernel's name can be a module of the generated file, which also has modules named after targets.
fn check_name(name: &str) -> Result<(), EmitError> {
    let error = |why| Err(EmitError::Name { kernel: name.to_owned(), why });
    if syn::parse_str::<syn::Ident>(name).is_err() {
        return error("the name is no Rust identifier, or a keyword");
    }
    if name.parse::<Target>().is_ok() {
        return error("the name is a target's");
    }
    Ok(())
}

/// A kernel that was compiled for a target.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The kernel as recorded, before any pass.
    pub recorded: Kernel,
    /// Name of the PTX file without its extension: the kernel's name, or that of the module that it shares with others.
    pub module: String,
    /// PTX, IR and statistics.
    pub compiled: Compiled,
    /// Machine code and resource usage, if an assembler was set.
    pub assembled: Option<Assembled>,
    /// Run-time parameters, in order.
    pub params: Vec<Param>,
    /// CTAs along x, y and z; none if the host chooses the grid at each launch.
    pub grid: Option<[u32; 3]>,
    /// Threads per CTA along x, y and z.
    pub block: [u32; 3],
    /// CTAs per cluster, along x; none without clusters.
    pub cluster: Option<u32>,
    /// Dynamic shared memory per CTA, in bytes.
    pub dynamic_shared: u32,
    /// Purpose of the kernel in a few words; may be empty.
    pub summary: String,
    /// Compile-time parameters; null if none were set.
    pub constants: Value,
}

impl Emitted {
    /// Whether the host launches both kernels in the same way: same geometry and parameters.
    pub(super) fn is_launched_like(&self, other: &Emitted) -> bool {
        let launch = |kernel: &Emitted| (kernel.grid, kernel.block, kernel.cluster, kernel.dynamic_shared);
        launch(self) == launch(other) && self.params == other.params
    }

    /// Rejects launches that no device can run.
    fn check(&self) -> Result<(), String> {
        let threads: u64 = self.block.iter().map(|&size| u64::from(size)).product();
        if !(1..=1024).contains(&threads) {
            return Err(format!("a CTA of {:?} has {threads} threads, not 1 to 1024", self.block));
        }
        if let Some(grid) = self.grid {
            if grid.contains(&0) {
                return Err(format!("a grid of {grid:?} has no CTAs"));
            }
            if let Some(cluster) = self.cluster.filter(|&cluster| !grid[0].is_multiple_of(cluster)) {
                return Err(format!(
                    "a grid of {grid:?} is not a multiple of the cluster size {cluster} along x"
                ));
            }
        }
        let fixed = self.compiled.report.static_shared;
        let limit = self.compiled.target.shared_memory_per_block();
        if fixed.saturating_add(self.dynamic_shared) > limit {
            return Err(format!(
                "it needs {fixed} bytes of static and {} of dynamic shared memory; a CTA has {limit}",
                self.dynamic_shared
            ));
        }
        Ok(())
    }
}
