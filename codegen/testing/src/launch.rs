//! Builder for a kernel launch on the emulator.

use std::fmt;

use bespoke_codegen::dsl::Scalar;
use bespoke_codegen::ir::{TensorLayout, Type};
use bespoke_codegen::launch::{Argument, DevicePointer, TensorDescription, TensorMap, params};
use bespoke_codegen::ptx::Target;
use bespoke_codegen::{CompileError, Compiled, Kernel, Module};
use bespoke_emulator::{
    Checks, DriverTensorMap, Finding, LaunchConfig, Memory, MemoryError, Options, ParseError, Profile, Stats,
};

use crate::element::{Element, from_bytes, to_bytes};

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

#[derive(Clone, Copy)]
struct Buffer {
    address: u64,
    bytes: usize,
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
        /// What is wrong, with the place in the PTX.
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

/// Completed launch with its memory.
pub struct Done {
    compiled: Compiled,
    buffers: Vec<Buffer>,
    memory: Memory,
    stats: Stats,
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

impl Done {
    /// Contents of buffer number `index` after the launch; scalar arguments are not counted. Uninitialised elements are
    /// zero.
    ///
    /// # Panics
    /// If the launch has no such buffer.
    #[track_caller]
    pub fn buffer<T: Element>(&self, index: usize) -> Vec<T> {
        let Some(&Buffer { address, bytes }) = self.buffers.get(index) else {
            panic!("no buffer {index}: the launch has {} buffers", self.buffers.len());
        };
        let mut content = vec![0; bytes];
        self.memory.read(address, &mut content).expect("a buffer is one allocation");
        from_bytes(&content)
    }

    /// Checks that every element of buffer number `index` differs from the expected one by at most `tolerance`, relative
    /// to the expected one if that is greater than 1. A NaN is close to a NaN only.
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
    /// #[kernel(threads = 32)]
    /// fn roots(x: Ptr<Global, f32>) {
    ///     x.at(lane()).store(x.at(lane()).load().sqrt());
    /// }
    /// let done = Launch::of(&roots()?).buffer(&[2.0f32; 32]).run()?;
    /// done.assert_close(0, &[1.41421f32; 32], 1e-5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If an element is too far away, or the buffer has another number of elements; the message has the first such
    /// element, its distance, and how many there are. Also if the launch has no such buffer.
    #[track_caller]
    pub fn assert_close<T: Element + Copy + Into<f64>>(&self, index: usize, expected: &[T], tolerance: f64) {
        let found = self.buffer::<T>(index);
        assert!(
            found.len() == expected.len(),
            "buffer {index} has {} elements, and {} are expected",
            found.len(),
            expected.len()
        );
        let far = found.iter().zip(expected).enumerate().filter_map(|(at, (&found, &expected))| {
            let (found, expected): (f64, f64) = (found.into(), expected.into());
            let distance = (found - expected).abs() / expected.abs().max(1.0);
            let same = found == expected || found.is_nan() && expected.is_nan();
            // A distance that is not a number is not close either.
            let close = same || distance <= tolerance;
            (!close).then_some((at, found, expected, distance))
        });
        let far: Vec<(usize, f64, f64, f64)> = far.collect();
        if let Some((at, value, wanted, distance)) = far.first() {
            panic!(
                "element {at} of buffer {index} is {value}, not {wanted}: the difference {distance:e} exceeds \
                 {tolerance:e}; so do {} of {} elements",
                far.len(),
                found.len()
            );
        }
    }

    /// Text that the kernel printed.
    pub fn printed(&self) -> &str {
        &self.stats.printed
    }

    /// Number of instructions, bytes and conflicts of the launch, by line; none without [`Launch::profile`].
    pub fn profile(&self) -> Option<&Profile> {
        self.stats.profile.as_deref()
    }

    /// Accesses of shared memory with bank conflicts: for each instruction the maximum number of words of one bank, the Rust
    /// line and the PTX. Copies by `cp.async` are accesses, too.
    ///
    /// # Panics
    /// If the launch was not measured: see [`Launch::profile`].
    #[track_caller]
    pub fn bank_conflicts(&self) -> Vec<String> {
        let profile = self.profile().expect("bank conflicts are counted by a launch with `.profile()`");
        let conflicts = profile.instructions.iter().filter(|instruction| {
            let shared = &instruction.counts.shared;
            shared.wavefronts > shared.ideal_wavefronts
        });
        let text = |instruction: &bespoke_emulator::InstructionProfile| {
            let line = instruction.source.as_ref().map_or_else(String::new, |source| format!("{source}: "));
            format!("{line}{}-way: {}", instruction.counts.shared.worst_ways, instruction.ptx_text.trim())
        };
        conflicts.map(text).collect()
    }

    /// PTX that the emulator ran.
    pub fn ptx(&self) -> &str {
        &self.compiled.ptx
    }

    /// Whether some instruction of the PTX, without its guard, starts with `text`, in which `…` matches any characters.
    pub fn has(&self, text: &str) -> bool {
        self.ptx().lines().any(|line| {
            let line = line.trim_start();
            let unguarded = match line.strip_prefix('@') {
                Some(guarded) => guarded.split_once(' ').map_or("", |(_, rest)| rest),
                None => line,
            };
            let mut parts = text.split('…');
            let rest = parts.next().and_then(|first| unguarded.strip_prefix(first));
            rest.is_some_and(|rest| {
                parts.try_fold(rest, |rest, part| rest.split_once(part).map(|(_, after)| after)).is_some()
            })
        })
    }

    /// The target for which the kernel was compiled.
    pub fn target(&self) -> Target {
        self.compiled.target
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use bespoke_codegen::prelude::*;

    use super::*;

    #[kernel(threads = 1)]
    fn scaled(x: Ptr<Global, f32>, factor: Val<f32>, on: Val<bool>) {
        if on {
            x.store(x.load() * factor);
        }
    }

    #[kernel(threads = 1)]
    fn prefetched(#[tile([8, 2])] x: bespoke_codegen::dsl::TensorMap<f32, 2, Swizzle32>) {
        x.prefetch((0, 0), None);
    }

    #[test]
    fn a_wrong_tensor_is_an_error_that_names_it() {
        let kernel = prefetched().unwrap();
        let of = || Launch::of(&kernel);
        assert!(of().tensor(&[0.0f32; 16], [8, 2]).run().is_ok());
        let check = |wrong: &dyn Fn(), expected: &str| {
            let panic = catch_unwind(AssertUnwindSafe(wrong)).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(expected));
        };
        let parameter =
            "argument 1 of `prefetched`: its parameter `x` is a tensor map of 2 dimensions with `f32`";
        check(&|| drop(of().buffer(&[0.0f32])), &format!("{parameter}: pass a `tensor`"));
        check(
            &|| drop(of().tensor(&[0u32; 16], [8, 2])),
            &format!("{parameter}, but this tensor has 2 dimensions with `u32`"),
        );
        check(
            &|| drop(of().tensor(&[0.0f32; 16], [16])),
            &format!("{parameter}, but this tensor has 1 dimensions with `f32`"),
        );
        check(
            &|| drop(of().tensor(&[0.0f32; 16], [8, 3])),
            "a tensor of [8, 3] has 24 elements, and there are 16 values",
        );
        check(
            &|| drop(of().tensor(&[0.0f32; 10], [5, 2])),
            "the tensor map `x`: a stride of 20 bytes along dimension 1: it must be a multiple of 16 below 2^40; pad the \
             rows of the tensor",
        );
        let plain = |address, layout: &TensorLayout| {
            TensorDescription::<f32, 2>::dense(address, [8, 2], layout.tile[..].try_into().unwrap())
        };
        check(
            &|| drop(of().tensor_with(&[0.0f32; 16], plain)),
            "the tensor map `x` has the layout TensorLayout { element: F32, tile: [8, 2], swizzle: None }, and its \
             parameter states TensorLayout { element: F32, tile: [8, 2], swizzle: Bytes32 }",
        );
    }

    #[test]
    fn an_element_that_is_not_close_is_named() {
        let kernel = scaled().unwrap();
        let launch = || Launch::of(&kernel).buffer(&[3.0f32, 4.0, 5.0]).value(2.0f32).value(true);
        let done = launch().run().unwrap();
        assert!(done.profile().is_none());
        done.assert_close(0, &[6.00001f32, 4.0, 5.0], 1e-5);
        let message = |expected: &[f32]| {
            let panic = catch_unwind(AssertUnwindSafe(|| done.assert_close(0, expected, 1e-3))).unwrap_err();
            panic.downcast_ref::<String>().cloned().unwrap_or_default()
        };
        let found = message(&[6.0, 4.25, f32::NAN]);
        assert!(found.starts_with("element 1 of buffer 0 is 4, not 4.25: the difference 5.88"), "{found}");
        assert!(found.ends_with("exceeds 1e-3; so do 2 of 3 elements"), "{found}");
        assert_eq!(message(&[6.0]), "buffer 0 has 3 elements, and 1 are expected");
        assert!(launch().profile().run().unwrap().profile().is_some());
    }

    #[test]
    fn a_kernel_that_the_module_does_not_have_is_an_error_that_names_those_it_has() {
        let module = Module::new().kernel(scaled().unwrap()).kernel(prefetched().unwrap());
        let panic = catch_unwind(AssertUnwindSafe(|| drop(Launch::entry(&module, "scale")))).unwrap_err();
        let expected = "the module has no kernel `scale`; its kernels are [\"scaled\", \"prefetched\"]";
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(expected));
    }

    #[test]
    fn a_wrong_argument_is_an_error_that_names_it() {
        let kernel = scaled().unwrap();
        let of = || Launch::of(&kernel);
        let message = |wrong: &dyn Fn()| {
            let panic = catch_unwind(AssertUnwindSafe(wrong)).unwrap_err();
            panic.downcast_ref::<String>().cloned().unwrap_or_default()
        };
        let check = |wrong: &dyn Fn(), expected: &str| assert_eq!(message(wrong), expected);
        check(
            &|| drop(of().buffer(&[1u32])),
            "argument 1 of `scaled`: its parameter `x` points to `f32`, but this buffer contains `u32`",
        );
        check(
            &|| drop(of().value(1.0f32)),
            "argument 1 of `scaled`: its parameter `x` points to `f32`: pass a `buffer` instead of a `value`",
        );
        let first = || of().uninitialised::<f32>(1);
        check(
            &|| drop(first().buffer(&[2.0f32])),
            "argument 2 of `scaled`: its parameter `factor` is of type `f32`: pass a `value` instead of a buffer",
        );
        check(
            &|| drop(first().value(2u32)),
            "argument 2 of `scaled`: its parameter `factor` is of type `f32`, but this value is of type `u32`",
        );
        let all = || first().value(2.0f32).value(false);
        check(
            &|| drop(first().value(2.0f32).run()),
            "`scaled` is launched without an argument for its parameter `on`",
        );
        check(&|| drop(all().value(1u32)), "`scaled` has 3 parameters: argument 4 is one too many");
        check(&|| drop(all().run().unwrap().buffer::<f32>(1)), "no buffer 1: the launch has 1 buffers");
        let done = of().buffer(&[3.0f32]).value(2.0f32).value(true).run().unwrap();
        assert_eq!(done.buffer::<f32>(0), [6.0]);
    }
}
