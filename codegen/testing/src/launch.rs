//! One launch on the emulator, argument by argument.

use std::fmt;

use bespoke_codegen::launch::{Argument, DevicePointer, params};
use bespoke_codegen::ptx::Target;
use bespoke_codegen::{CompileError, Compiled, Kernel};
use bespoke_emulator::{Finding, LaunchConfig, Memory, MemoryError, Module, Options, ParseError};

use crate::element::{Element, from_bytes, to_bytes};

/// A kernel and what it is launched with: its arguments in the order of its parameters.
pub struct Launch<'k> {
    kernel: &'k Kernel,
    target: Option<Target>,
    grid: [u32; 3],
    threads: Option<u32>,
    dynamic_shared: u32,
    arguments: Vec<Box<dyn Argument>>,
    buffers: Vec<Buffer>,
    memory: Memory,
}

#[derive(Clone, Copy)]
struct Buffer {
    address: u64,
    bytes: usize,
}

/// Why a launch did not come to its end. `{:?}` is the message, too, so that `unwrap` shows a test's reader the finding.
#[derive(thiserror::Error)]
pub enum Failure {
    /// The kernel does not become PTX.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The emulator does not know an instruction.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The emulator found a mistake.
    #[error("{0}")]
    Finding(Box<Finding>),
    /// A buffer cannot be written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A launch that came to its end, and its memory.
pub struct Done {
    compiled: Compiled,
    buffers: Vec<Buffer>,
    memory: Memory,
}

impl<'k> Launch<'k> {
    /// A launch of one CTA, of as many threads as the kernel fixes, or else 32, for the oldest target that has all of
    /// the kernel's instructions.
    pub fn of(kernel: &'k Kernel) -> Launch<'k> {
        Launch {
            kernel,
            target: None,
            grid: [1; 3],
            threads: None,
            dynamic_shared: 0,
            arguments: Vec::new(),
            buffers: Vec::new(),
            memory: Memory::new(),
        }
    }

    /// For this target.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// As many CTAs.
    #[must_use]
    pub fn grid(mut self, ctas: u32) -> Self {
        self.grid = [ctas, 1, 1];
        self
    }

    /// As many threads a CTA, where the kernel fixes none.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = Some(threads);
        self
    }

    /// As many bytes of dynamic shared memory.
    #[must_use]
    pub fn dynamic_shared(mut self, bytes: u32) -> Self {
        self.dynamic_shared = bytes;
        self
    }

    /// The next argument: a pointer to a buffer that holds `values`.
    ///
    /// # Panics
    /// If the kernel's next parameter is no pointer to such values.
    #[must_use]
    #[track_caller]
    pub fn buffer<T: Element>(mut self, values: &[T]) -> Self {
        let bytes = to_bytes(values);
        let address = self.pointer::<T>(bytes.len());
        self.memory.write(address, &bytes).expect("a buffer holds what it was made for");
        self
    }

    /// The next argument: a pointer to a buffer of `count` elements that must be written before they are read.
    ///
    /// # Panics
    /// If the kernel's next parameter is no pointer to such elements.
    #[must_use]
    #[track_caller]
    pub fn uninitialised<T: Element>(mut self, count: usize) -> Self {
        self.pointer::<T>(count * T::TYPE.bytes() as usize);
        self
    }

    #[track_caller]
    fn pointer<T: Element>(&mut self, bytes: usize) -> u64 {
        let params = self.kernel.params();
        let (name, expected) = match params.get(self.arguments.len()) {
            Some(param) => (param.name.clone(), param.element),
            None => panic!("{} has {} parameters", self.kernel.name(), params.len()),
        };
        assert_eq!(expected, Some(T::TYPE), "the elements of parameter `{name}` of {}", self.kernel.name());
        let address = self.memory.alloc(&name, bytes as u64);
        self.buffers.push(Buffer { address, bytes });
        self.arguments.push(Box::new(DevicePointer::<T>::new(address)));
        address
    }

    /// The next argument: a number, of exactly the parameter's type.
    #[must_use]
    pub fn value(mut self, value: impl Argument + 'static) -> Self {
        self.arguments.push(Box::new(value));
        self
    }

    /// Compiles the kernel and runs it under all checks.
    ///
    /// # Errors
    /// What the compiler or the emulator found.
    pub fn run(self) -> Result<Done, Failure> {
        let compiled = self.compile()?;
        let module = Module::parse(&compiled.ptx)?;
        let kernel = module.kernel(self.kernel.name()).expect("a module has its kernel");
        let threads = self.threads.or(self.kernel.threads()).unwrap_or(32);
        let (grid, dynamic_shared) = (self.grid, self.dynamic_shared);
        // A kernel says itself what its clusters are.
        let config = LaunchConfig { grid, block: [threads, 1, 1], dynamic_shared, cluster: None };
        let arguments: Vec<&dyn Argument> = self.arguments.iter().map(|argument| &**argument).collect();
        bespoke_emulator::run(kernel, &self.memory, &config, &params(&arguments), &Options::default())
            .map_err(Failure::Finding)?;
        Ok(Done { compiled, buffers: self.buffers, memory: self.memory })
    }

    fn compile(&self) -> Result<Compiled, CompileError> {
        if let Some(target) = self.target {
            return self.kernel.compile(target);
        }
        let [older @ .., newest] = Target::ALL;
        let first = older.into_iter().find_map(|target| self.kernel.compile(target).ok());
        first.map_or_else(|| self.kernel.compile(newest), Ok)
    }
}

impl Done {
    /// What the buffer number `index` holds; of the launch's buffers alone, numbers are not counted.
    ///
    /// # Panics
    /// If there is no such buffer, or the kernel wrote only a part of it.
    #[track_caller]
    pub fn buffer<T: Element>(&self, index: usize) -> Vec<T> {
        let Buffer { address, bytes } = self.buffers[index];
        let mut content = vec![0; bytes];
        self.memory.read(address, &mut content).unwrap_or_else(|error| panic!("buffer {index}: {error}"));
        from_bytes(&content)
    }

    /// The PTX that ran.
    pub fn ptx(&self) -> &str {
        &self.compiled.ptx
    }

    /// Whether some instruction, without its guard, starts with `text`, in which `…` stands for anything.
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

    /// The target that it was compiled for.
    pub fn target(&self) -> Target {
        self.compiled.target
    }
}
