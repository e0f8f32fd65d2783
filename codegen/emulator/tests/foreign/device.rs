//! Module from another compiler with its device memory, launched under all checks.

use bespoke_emulator::{Finding, LaunchConfig, Memory, Module, Options, Stats, run};

/// Loaded module with its device memory.
pub struct Device {
    module: Module,
    memory: Memory,
}

/// Type of a buffer's elements.
pub trait Number: Copy {
    /// Bytes of the value, little-endian.
    fn bytes(self) -> Vec<u8>;
    /// Value of the little-endian bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($ty:ty)*) => { $(
        impl Number for $ty {
            fn bytes(self) -> Vec<u8> { self.to_le_bytes().to_vec() }
            fn from_bytes(bytes: &[u8]) -> Self { <$ty>::from_le_bytes(bytes.try_into().expect("its size")) }
        }
    )* };
}
numbers!(u8 i8 u16 i16 u32 i32 u64 i64 f32);

impl Device {
    #[track_caller]
    pub fn load(text: &str) -> Device {
        match Module::load(text) {
            Ok(module) => Device { module, memory: Memory::new() },
            Err(errors) => panic!("{}", errors.iter().map(|error| format!("{error}\n")).collect::<String>()),
        }
    }

    /// Allocates a buffer that contains these values; returns its address.
    pub fn buffer<T: Number>(&self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        let address = self.memory.alloc("input", bytes.len() as u64);
        self.memory.write(address, &bytes).expect("inside");
        address
    }

    /// Allocates an uninitialised buffer of `count` elements; returns its address.
    pub fn output<T: Number>(&self, count: usize) -> u64 {
        self.memory.alloc("output", (count * size_of::<T>()) as u64)
    }

    pub fn read<T: Number>(&self, address: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * size_of::<T>()];
        self.memory.read(address, &mut bytes).expect("inside");
        bytes.chunks(size_of::<T>()).map(T::from_bytes).collect()
    }

    /// Launches a kernel; `arguments` are the bits of its parameters.
    #[track_caller]
    pub fn run(&self, kernel: &str, config: LaunchConfig, arguments: &[u64]) -> Stats {
        match self.try_run(kernel, config, arguments) {
            Ok(stats) => stats,
            Err(finding) => panic!("{finding}"),
        }
    }

    /// Launches a kernel that has a finding.
    #[track_caller]
    pub fn finding(&self, kernel: &str, config: LaunchConfig, arguments: &[u64]) -> Finding {
        *self.try_run(kernel, config, arguments).expect_err("a finding")
    }

    pub fn try_run(
        &self,
        kernel: &str,
        config: LaunchConfig,
        arguments: &[u64],
    ) -> Result<Stats, Box<Finding>> {
        let bytes: Vec<Vec<u8>> = arguments.iter().map(|value| value.to_le_bytes().to_vec()).collect();
        self.try_run_bytes(kernel, config, &bytes)
    }

    /// Launches a kernel; `arguments` are the bytes of its parameters, of which a parameter may take fewer.
    pub fn try_run_bytes(
        &self,
        kernel: &str,
        config: LaunchConfig,
        arguments: &[Vec<u8>],
    ) -> Result<Stats, Box<Finding>> {
        let kernel = self.module.kernel(kernel).expect("the kernel's name");
        // Triton adds pointers to scratch memory, which these kernels do not use: their arguments are zero.
        let mut params = vec![0; kernel.param_bytes() as usize];
        for (param, value) in kernel.params().iter().zip(arguments) {
            let (start, size) = (param.offset as usize, param.size as usize);
            params[start..start + size].copy_from_slice(&value[..size]);
        }
        run(kernel, &self.memory, &config, &params, &Options::default())
    }
}

/// Launch of a two-dimensional grid of two-dimensional CTAs.
pub fn grid(grid: [u32; 2], block: [u32; 2], dynamic_shared: u32) -> LaunchConfig {
    LaunchConfig {
        grid: [grid[0], grid[1], 1],
        block: [block[0], block[1], 1],
        dynamic_shared,
        cluster: None,
        cooperative: false,
    }
}

/// Bits of an `f32` argument.
pub fn float(x: f32) -> u64 {
    x.to_bits() as u64
}

/// Pseudo-random words (xorshift), the same on every run.
pub fn words(count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    (0..count).map(next).collect()
}

/// Numbers in [-1, 1) with few significant bits, which makes short sums exact.
pub fn singles(count: usize, seed: u64) -> Vec<f32> {
    words(count, seed).into_iter().map(|word| (word >> 24) as f32 / 128.0 - 1.0).collect()
}

/// Compares numbers within a tolerance that is both relative and absolute.
#[track_caller]
pub fn close(got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len());
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let within = (got - expected).abs() <= tolerance * (1.0 + expected.abs());
        assert!(within, "element {at} is {got}, not {expected}");
    }
}
