//! Builder for a kernel launch on the emulator.

mod done;
#[cfg(test)]
mod tests;

use std::fmt;

use bespoke_codegen::dsl::Scalar;
use bespoke_codegen::ir::{TensorLayout, Type};
use bespoke_codegen::launch::{Argument, DevicePointer, TensorDescription, TensorMap, params};
use bespoke_codegen::ptx::Target;
use bespoke_codegen::{CompileError, Compiled, Kernel, Module};
use bespoke_emulator::{
    Checks, DriverTensorMap, Finding, LaunchConfig, Memory, MemoryError, Options, ParseError,
};

use crate::element::{Element, to_bytes};
use done::Buffer;
pub use done::Done;

/// Default of [`Launch::instruction_limit`].
const INSTRUCTION_LIMIT: u64 = 1 << 24;

/// Number of CTAs or threads along one, two or three axes.
pub trait Extent {
    /// The numbers along x, y and z.
    fn axes(self) -> [u32; 3];
}

impl Extent for u32 {
    fn axes(self) -> [u32; 3] {
        [self, 1, 1]
    }
}

impl Extent for (u32, u32) {
    fn axes(self) -> [u32; 3] {
        [self.0, self.1, 1]
    }
}

impl Extent for (u32, u32, u32) {
    fn axes(self) -> [u32; 3] {
        self.into()
    }
}

/// Builder of a launch; the arguments are added in the order of the kernel's parameters.
pub struct Launch<'k> {
    kernel: &'k Kernel,
    /// The module that the kernel is part of; none if it is compiled to a module of its own.
    module: Option<&'k Module>,
    target: Option<Target>,
    grid: [u32; 3],
    threads: Option<[u32; 3]>,
    dynamic_shared: u32,
    checks: Checks,
    instruction_limit: u64,
    profile: bool,
    arguments: Vec<Box<dyn Argument>>,
    buffers: Vec<Buffer>,
    memory: Memory,
}

/// Kind and type of an argument, compared with the kernel's parameter.
#[derive(Clone, Copy)]
enum ArgumentKind {
    PointerTo(Type),
    Value(Type),
    TensorMap(Type, usize),
}

/// Error of a launch. `{:?}` prints the message, so that `unwrap` in a test shows the finding.
#[derive(thiserror::Error)]
pub enum Failure {
    /// The kernel does not compile to PTX.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The emulator cannot load the PTX, for example because of inline PTX.
    #[error("{error}{}", place.as_ref().map_or(String::new(), |place| format!("\n  --> {place}")))]
    Parse {
        /// The parser's error, with its position in the PTX.
        error: ParseError,
        /// File, line and column in Rust.
        place: Option<String>,
    },
    /// The launch stopped because of a finding.
    #[error("{0}")]
    Finding(Box<Finding>),
    /// A buffer could not be written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// File, line and column in Rust of a line of PTX, from the `.loc` before it.
fn rust_place(ptx: &str, line: u32) -> Option<String> {
    let before = ptx.lines().take(line as usize).collect::<Vec<_>>();
    let loc = before.iter().rev().find_map(|line| line.trim().strip_prefix(".loc "))?;
    let numbers: Vec<&str> = loc.split([' ', ',']).take(3).collect();
    let &[file, line, column] = &numbers[..] else { return None };
    let name = ptx.lines().find_map(|line| line.strip_prefix(&format!(".file {file} ")))?;
    Some(format!("{}:{line}:{column}", name.trim_matches('"')))
}

/// Name of the type in Rust.
fn rust_name(ty: Type) -> String {
    match ty {
        Type::Pred => "`bool`".to_owned(),
        other => format!("`{other}`"),
    }
}

/// Encodes a tensor map for the emulator.
fn encode<T: Scalar, const RANK: usize>(
    description: &TensorDescription<T, RANK>,
) -> Result<TensorMap<T, RANK>, Box<dyn std::error::Error>> {
    let arguments = description.driver_arguments()?;
    let map = bespoke_emulator::TensorMap::from_driver(&DriverTensorMap {
        data_type: arguments.data_type,
        address: arguments.address,
        sizes: &arguments.sizes,
        strides: &arguments.strides,
        box_sizes: &arguments.tile,
        steps: &arguments.steps,
        interleave: arguments.interleave,
        swizzle: arguments.swizzle,
        fill: arguments.fill,
    })?;
    Ok(TensorMap::encoded(description, map.encode()?))
}

impl<'k> Launch<'k> {
    /// Creates a launch of one CTA for the oldest target that supports all of the kernel's instructions. The number of
    /// threads is the number that the kernel declares, or else 32.
    pub fn of(kernel: &'k Kernel) -> Launch<'k> {
        Launch {
            kernel,
            module: None,
            target: None,
            grid: [1; 3],
            threads: None,
            dynamic_shared: 0,
            checks: Checks::ALL,
            instruction_limit: INSTRUCTION_LIMIT,
            profile: false,
            arguments: Vec::new(),
            buffers: Vec::new(),
            memory: Memory::new(),
        }
    }

    /// Creates a launch of the kernel called `name` of a module, whose PTX has the entry points of all its kernels.
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
    /// #[kernel(threads = 32)]
    /// fn doubled(x: Ptr<Global, u32>) {
    ///     x.at(lane()).store(x.at(lane()).load() * 2);
    /// }
    /// #[kernel(threads = 32)]
    /// fn next(x: Ptr<Global, u32>) {
    ///     x.at(lane()).store(x.at(lane()).load() + 1);
    /// }
    /// let module = Module::new().kernel(doubled()?).kernel(next()?);
    /// let done = Launch::entry(&module, "doubled").buffer(&[3u32; 32]).run()?;
    /// let done = Launch::entry(&module, "next").buffer(&done.buffer::<u32>(0)).run()?;
    /// assert_eq!(done.buffer::<u32>(0), [7; 32]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the module has no such kernel.
    #[track_caller]
    pub fn entry(module: &'k Module, name: &str) -> Launch<'k> {
        let Some(kernel) = module.kernels().iter().find(|kernel| kernel.name() == name) else {
            let names: Vec<&str> = module.kernels().iter().map(Kernel::name).collect();
            panic!("the module has no kernel `{name}`; its kernels are {names:?}");
        };
        Launch { module: Some(module), ..Launch::of(kernel) }
    }

    /// Sets the target for which the kernel is compiled.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Sets the number of CTAs: `grid(8)`, `grid((8, 2))` or `grid((8, 2, 3))`.
    #[must_use]
    pub fn grid(mut self, ctas: impl Extent) -> Self {
        self.grid = ctas.axes();
        self
    }

    /// Sets the number of threads per CTA, along one to three axes, if the kernel does not declare this number.
    #[must_use]
    pub fn threads(mut self, threads: impl Extent) -> Self {
        self.threads = Some(threads.axes());
        self
    }

    /// Sets the size of dynamic shared memory in bytes.
    #[must_use]
    pub fn dynamic_shared(mut self, bytes: u32) -> Self {
        self.dynamic_shared = bytes;
        self
    }

    /// Sets the optional checks; [`Checks::ALL`] without it. Bounds, alignment and barriers are always checked.
    #[must_use]
    pub fn checks(mut self, checks: Checks) -> Self {
        self.checks = checks;
        self
    }

    /// Sets the number of warp instructions after which a launch is stopped with a finding, because it seems not to
    /// end. Without it, 2^24: seconds also where the emulator is built without optimisation.
    #[must_use]
    pub fn instruction_limit(mut self, instructions: u64) -> Self {
        self.instruction_limit = instructions;
        self
    }

    /// Measures the launch: [`Done::profile`] has the counts of every instruction.
    #[must_use]
    pub fn profile(mut self) -> Self {
        self.profile = true;
        self
    }

    /// Adds an argument: a pointer to a buffer that contains `values`.
    ///
    /// # Panics
    /// If the kernel's next parameter is not a pointer to elements of type `T`.
    #[must_use]
    #[track_caller]
    pub fn buffer<T: Element>(mut self, values: &[T]) -> Self {
        let bytes = to_bytes(values);
        let address = self.pointer::<T>(bytes.len());
        self.memory.write(address, &bytes).expect("the buffer has the size of the values");
        self
    }

    /// Adds an argument: a pointer to a buffer of `count` uninitialised elements.
    ///
    /// # Panics
    /// If the kernel's next parameter is not a pointer to elements of type `T`.
    #[must_use]
    #[track_caller]
    pub fn uninitialised<T: Element>(mut self, count: usize) -> Self {
        self.pointer::<T>(count * T::TYPE.bytes() as usize);
        self
    }

    /// Adds an argument: a tensor map of a new buffer that contains `values`, a tensor without gaps of `sizes` elements along
    /// each dimension, dimension 0 contiguous. Tile and swizzle are those that the kernel's parameter states. The buffer
    /// counts as one for [`Done::buffer`].
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
    /// #[kernel(threads = 1)]
    /// fn ones(#[tile([4, 2])] x: TensorMap<f32, 2>) {
    ///     let tile = x.shared_tile();
    ///     for (column, row) in [(0u32, 0u32), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1)] {
    ///         tile.at((column, row)).store(1.0);
    ///     }
    ///     fence_async_shared();
    ///     x.store((0, 1), tile, None);
    ///     commit_bulk_stores();
    ///     wait_bulk_stores_read(0);
    /// }
    /// // Elements of the tile outside the tensor are not stored.
    /// let done = Launch::of(&ones()?).tensor(&[0.0f32; 8], [4, 2]).run()?;
    /// assert_eq!(done.buffer::<f32>(0), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the kernel's next parameter is not a tensor map of `RANK` dimensions with elements of type `T`, or `sizes` are not
    /// those of the values.
    #[must_use]
    #[track_caller]
    pub fn tensor<T: Element, const RANK: usize>(self, values: &[T], sizes: [u64; RANK]) -> Self {
        let elements: u64 = sizes.iter().product();
        assert!(
            elements == values.len() as u64,
            "a tensor of {sizes:?} has {elements} elements, and there are {} values",
            values.len()
        );
        self.tensor_with(values, |address, layout| {
            let tile = layout.tile[..].try_into().expect("the rank has been checked");
            TensorDescription::dense(address, sizes, tile).swizzle(layout.swizzle)
        })
    }

    /// Adds an argument: a tensor map of a new buffer that contains `values`. `describe` makes the description from the
    /// buffer's address and the layout that the kernel's parameter states.
    ///
    /// # Panics
    /// If the kernel's next parameter is not a tensor map of `RANK` dimensions with elements of type `T`, no device can
    /// encode the description, or its tile or swizzle are not those that the parameter states.
    #[must_use]
    #[track_caller]
    pub fn tensor_with<T: Element, const RANK: usize>(
        mut self,
        values: &[T],
        describe: impl FnOnce(DevicePointer<T>, &TensorLayout) -> TensorDescription<T, RANK>,
    ) -> Self {
        let name = self.next_parameter(ArgumentKind::TensorMap(T::TYPE, RANK));
        let bytes = to_bytes(values);
        let address = self.memory.alloc(&name, bytes.len() as u64);
        self.memory.write(address, &bytes).expect("the buffer has the size of the values");
        self.buffers.push(Buffer { address, bytes: bytes.len() });
        let layout = self.kernel.params()[self.arguments.len()].tensor.as_ref();
        let layout = layout.expect("the parameter's kind has been checked");
        let map = encode(&describe(DevicePointer::new(address), layout));
        let map = map.unwrap_or_else(|error| panic!("the tensor map `{name}`: {error}"));
        assert!(
            map.layout() == *layout,
            "the tensor map `{name}` has the layout {:?}, and its parameter states {layout:?}",
            map.layout()
        );
        self.arguments.push(Box::new(map));
        self
    }

    #[track_caller]
    fn pointer<T: Element>(&mut self, bytes: usize) -> u64 {
        let name = self.next_parameter(ArgumentKind::PointerTo(T::TYPE));
        let address = self.memory.alloc(&name, bytes as u64);
        self.buffers.push(Buffer { address, bytes });
        self.arguments.push(Box::new(DevicePointer::<T>::new(address)));
        address
    }

    /// Adds an argument: a scalar.
    ///
    /// # Panics
    /// If the kernel's next parameter is not of type `T`.
    #[must_use]
    #[track_caller]
    pub fn value<T: Scalar + Argument>(mut self, value: T) -> Self {
        self.next_parameter(ArgumentKind::Value(T::TYPE));
        self.arguments.push(Box::new(value));
        self
    }

    /// Name of the parameter for the next argument; panics if its type is not that of the argument.
    #[track_caller]
    fn next_parameter(&self, given: ArgumentKind) -> String {
        let (kernel, all, number) = (self.kernel.name(), self.kernel.params(), self.arguments.len() + 1);
        let Some(param) = all.get(number - 1) else {
            panic!("`{kernel}` has {} parameters: argument {number} is one too many", all.len());
        };
        let tensor =
            |element, rank| format!("is a tensor map of {rank} dimensions with {}", rust_name(element));
        if let Some(TensorLayout { element, tile, .. }) = &param.tensor {
            match given {
                ArgumentKind::TensorMap(ty, rank) if *element == ty && tile.len() == rank => {
                    return param.name.clone();
                }
                ArgumentKind::TensorMap(ty, rank) => panic!(
                    "argument {number} of `{kernel}`: its parameter `{}` {}, but this tensor has {rank} dimensions with {}",
                    param.name,
                    tensor(*element, tile.len()),
                    rust_name(ty)
                ),
                _ => panic!(
                    "argument {number} of `{kernel}`: its parameter `{}` {}: pass a `tensor`",
                    param.name,
                    tensor(*element, tile.len())
                ),
            }
        }
        let what = match (param.element, given) {
            (_, ArgumentKind::TensorMap(..)) => {
                "is no tensor map: pass a `buffer` or a `value` instead of a `tensor`".to_owned()
            }
            (Some(element), ArgumentKind::PointerTo(ty)) if element == ty => return param.name.clone(),
            (None, ArgumentKind::Value(ty)) if param.ty == ty => return param.name.clone(),
            (Some(element), ArgumentKind::PointerTo(ty)) => {
                format!("points to {}, but this buffer contains {}", rust_name(element), rust_name(ty))
            }
            (Some(element), ArgumentKind::Value(_)) => {
                format!("points to {}: pass a `buffer` instead of a `value`", rust_name(element))
            }
            (None, ArgumentKind::PointerTo(_)) => {
                format!("is of type {}: pass a `value` instead of a buffer", rust_name(param.ty))
            }
            (None, ArgumentKind::Value(ty)) => {
                format!("is of type {}, but this value is of type {}", rust_name(param.ty), rust_name(ty))
            }
        };
        panic!("argument {number} of `{kernel}`: its parameter `{}` {what}", param.name);
    }

    /// Compiles the kernel and runs it with all checks of the emulator.
    ///
    /// # Errors
    /// If the kernel does not compile, the emulator cannot load the PTX, or a check reports a finding.
    ///
    /// # Panics
    /// If a parameter of the kernel has no argument.
    #[track_caller]
    pub fn run(self) -> Result<Done, Failure> {
        if let Some(param) = self.kernel.params().get(self.arguments.len()) {
            panic!(
                "`{}` is launched without an argument for its parameter `{}`",
                self.kernel.name(),
                param.name
            );
        }
        let compiled = self.compile()?;
        let module = bespoke_emulator::Module::parse(&compiled.ptx)
            .map_err(|error| Failure::Parse { place: rust_place(&compiled.ptx, error.line), error })?;
        let kernel = module.kernel(self.kernel.name()).expect("a module has its kernel");
        let block = self.threads.or(self.kernel.block()).unwrap_or([32, 1, 1]);
        let (grid, dynamic_shared) = (self.grid, self.dynamic_shared);
        // The PTX of the kernel declares the cluster size.
        let config = LaunchConfig { grid, block, dynamic_shared, cluster: None, cooperative: false };
        let arguments: Vec<&dyn Argument> = self.arguments.iter().map(|argument| &**argument).collect();
        let options = Options {
            checks: self.checks,
            instruction_limit: self.instruction_limit,
            profile: self.profile,
            ..Options::default()
        };
        let stats = bespoke_emulator::run(kernel, &self.memory, &config, &params(&arguments), &options)
            .map_err(Failure::Finding)?;
        Ok(Done { compiled, buffers: self.buffers, memory: self.memory, stats })
    }

    fn compile(&self) -> Result<Compiled, CompileError> {
        if let Some(target) = self.target {
            return self.compile_for(target);
        }
        let [older @ .., newest] = Target::ALL;
        let first = older.into_iter().find_map(|target| self.compile_for(target).ok());
        first.map_or_else(|| self.compile_for(newest), Ok)
    }

    fn compile_for(&self, target: Target) -> Result<Compiled, CompileError> {
        let Some(module) = self.module else { return self.kernel.compile(target) };
        let mut compiled = module.compile(target)?.kernels;
        compiled.retain(|kernel| kernel.name == self.kernel.name());
        Ok(compiled.pop().expect("a compiled module has its kernels"))
    }
}
