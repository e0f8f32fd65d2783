//! Control flow. Each program is compiled twice from the same text: by rustc for the host, and through `#[device]` for
//! the GPU. The recorded IR, the optimised IR and the PTX on the emulator must give the host's results.

use bespoke_codegen::prelude::*;
use bespoke_emulator::{LaunchConfig, Memory, Module, Options, run};

use crate::interpret;
use text::{gpu, host};

/// Host definitions of the names that programs use.
mod host_types {
    /// A run-time number.
    pub type U = u32;
    /// A run-time condition.
    pub type B = bool;
    /// A run-time number with the value `value`.
    pub fn val(value: u32) -> U {
        value
    }
    /// A struct of run-time numbers and one compile-time number.
    #[derive(Clone, Copy)]
    pub struct Pair {
        pub low: U,
        pub high: U,
        pub weight: u32,
    }
    impl Pair {
        pub fn raise(&mut self, by: U) -> B {
            self.low += by;
            if self.low > 12 {
                self.high += 1;
            }
            self.low > 5
        }
    }
}

/// GPU definitions of the names that programs use.
mod gpu_types {
    pub use bespoke_codegen::prelude::{Carry, Val, device, val};
    pub type U = Val<u32>;
    pub type B = Val<bool>;
    #[derive(Clone, Copy, Carry)]
    pub struct Pair {
        pub low: U,
        pub high: U,
        #[carry(skip)]
        pub weight: u32,
    }
    impl Pair {
        #[device]
        pub fn raise(&mut self, by: U) -> B {
            self.low += by;
            if self.low > 12 {
                self.high += 1;
            }
            self.low > 5
        }
    }
}

macro_rules! both {
    ($(fn $name:ident($($parameters:tt)*) $(-> $output:ty)? { $($body:tt)* })*) => {
        #[allow(dead_code, unused_assignments, while_true, clippy::all)]
        pub mod host {
            use crate::programs::host_types::*;
            $(pub fn $name($($parameters)*) $(-> $output)? { $($body)* })*
        }
        #[allow(dead_code, while_true)]
        pub mod gpu {
            use crate::programs::gpu_types::*;
            $(#[device] pub fn $name($($parameters)*) $(-> $output)? { $($body)* })*
        }
    };
}

mod text;

/// Kernel that stores `program(a, b)` in `out[0]`.
#[kernel]
fn entry(out: Ptr<Global, u32>, a: Val<u32>, b: Val<u32>, program: fn(Val<u32>, Val<u32>) -> Val<u32>) {
    out.store(program(a, b));
}

/// Kernel that stores `program(a, b)` in `out[9 a + b]`, with one thread per pair (a, b).
#[kernel(threads = 96)]
fn table(out: Ptr<Global, u32>, program: fn(Val<u32>, Val<u32>) -> Val<u32>) {
    let i = thread_index();
    if i >= 81 {
        return;
    }
    out.at(i).store(program(i / 9, i % 9));
}

/// Results of a program for all pairs (a, b), from its PTX on the emulator, with divergent lanes.
fn emulated(gpu: fn(Val<u32>, Val<u32>) -> Val<u32>) -> Result<Vec<u32>, Box<dyn std::error::Error>> {
    let compiled = table(gpu)?.compile(Target::Sm80)?;
    let module = Module::parse(&compiled.ptx)?;
    let kernel = module.kernel("table").ok_or("no such kernel")?;
    let memory = Memory::new();
    let out = memory.alloc("out", 4 * 81);
    run(kernel, &memory, &LaunchConfig::linear(1, 96), &out.to_le_bytes(), &Options::default())?;
    let mut bytes = [0; 4 * 81];
    memory.read(out, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect())
}

fn check(name: &str, host: fn(u32, u32) -> u32, gpu: fn(Val<u32>, Val<u32>) -> Val<u32>) {
    let kernel = entry(gpu).unwrap_or_else(|error| panic!("{name}: {error}"));
    let compiled = kernel.compile(Target::Sm80).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut results = std::collections::BTreeSet::new();
    for (a, b) in (0..9).flat_map(|a| (0..9).map(move |b| (a, b))).chain([(1000, 7), (7, 1000), (48, 18)]) {
        for function in [kernel.function(), &compiled.function] {
            let mut memory = [u32::MAX];
            interpret::run(function, &[0, a, b], &mut memory);
            assert_eq!(memory[0], host(a, b), "{name}({a}, {b}):\n{function}");
            results.insert(memory[0]);
        }
    }
    let expected: Vec<u32> = (0..81).map(|i| host(i / 9, i % 9)).collect();
    let emulated = emulated(gpu).unwrap_or_else(|error| panic!("{name} on the emulator: {error}"));
    assert_eq!(emulated, expected, "{name} on the emulator:\n{}", compiled.ptx);
    assert!(results.len() > 1, "{name} says the same of everything, so it tests nothing");
}

macro_rules! programs {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            check(stringify!($name), host::$name, gpu::$name);
        }
    )* };
}

programs! {
    branches else_if_chain branch_values constant_sides compound_values nested_branches swap_in_a_branch diverging_branches
    gcd collatz while_over_two_conditions loop_with_break_in_the_middle loop_with_continue nested_loops labelled_jumps
    range range_from_variable range_with_step range_with_jumps range_index_after_break
    unrolled unrolled_break unrolled_continue unrolled_mixed_jumps unrolled_static_break_after_run_time_continue
    unrolled_labelled_jump_past_run_time_break static_while static_while_left_at_run_time
    unrolled_in_loop loop_in_unrolled
    early_return early_return_in_loops return_from_unrolled_loop return_writes_through calls returns_in_every_arm
    comparisons short_circuit guarded_division
    right_sides_assign right_sides_write_through right_sides_in_loops right_sides_jump right_sides_call_methods
    fields arrays tuples references_to_locals references_by_pattern iterated_references
    chosen_at_compile_time closures shadowing
}
