//! The elementary functions of f32 with their documented bounds, and the measurement of their errors on the emulator.

use std::fmt;

use bespoke_codegen::launch::{Argument, DevicePointer, params};
use bespoke_codegen::prelude::*;
use bespoke_emulator::{Checks, LaunchConfig, Memory, Module, Options};

/// A function of one f32.
pub struct Function {
    pub name: &'static str,
    pub gpu: fn(Val<f32>) -> Val<f32>,
    /// The function in f64, with an error below 2⁻²⁰ ulp of an f32.
    pub exact: fn(f64) -> f64,
    /// Documented bound of the error, in ulp.
    pub bound: f64,
}

/// Every function of one argument, in the order of BOOK's table.
pub const FUNCTIONS: [Function; 11] = [
    Function { name: "exp", gpu: |x| x.exp(), exact: libm::exp, bound: 1.0 },
    Function { name: "exp2", gpu: |x| x.exp2(), exact: libm::exp2, bound: 1.0 },
    Function { name: "ln", gpu: |x| x.ln(), exact: libm::log, bound: 1.0 },
    Function { name: "log2", gpu: |x| x.log2(), exact: libm::log2, bound: 1.6 },
    Function { name: "log10", gpu: |x| x.log10(), exact: libm::log10, bound: 2.0 },
    Function { name: "sin", gpu: |x| x.sin(), exact: libm::sin, bound: 1.6 },
    Function { name: "cos", gpu: |x| x.cos(), exact: libm::cos, bound: 1.6 },
    Function { name: "tanh", gpu: |x| x.tanh(), exact: libm::tanh, bound: 1.6 },
    Function { name: "sigmoid", gpu: |x| x.sigmoid(), exact: |x| 1.0 / (1.0 + libm::exp(-x)), bound: 2.5 },
    Function { name: "erf", gpu: |x| x.erf(), exact: libm::erf, bound: 1.1 },
    Function { name: "round", gpu: |x| x.round(), exact: f64::round, bound: 0.0 },
];

/// Documented bound of the error of `pow`, in ulp.
pub const POW_BOUND: f64 = 1.3;

/// The largest error among some arguments.
#[derive(Clone, Copy, Default)]
pub struct Worst {
    /// In ulp of the exact result.
    pub error: f64,
    pub argument: [f32; 2],
    pub found: f32,
    pub exact: f64,
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Worst { error, argument: [x, y], found, exact } = self;
        write!(f, "{error:.4} ulp at ({x:e}, {y:e}): {found:e}, not {exact:e}")
    }
}

impl Worst {
    fn see(&mut self, argument: [f32; 2], found: f32, exact: f64) {
        let error = error_in_ulp(found, exact);
        if error > self.error {
            *self = Worst { error, argument, found, exact };
        }
    }

    fn or(self, other: Worst) -> Worst {
        if other.error > self.error { other } else { self }
    }
}

/// |found − exact| in units of the last place of an f32 of the size of `exact`.
pub fn error_in_ulp(found: f32, exact: f64) -> f64 {
    if found.is_nan() || exact.is_nan() {
        return if found.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if exact == 0.0 && found == 0.0 && exact.is_sign_negative() != found.is_sign_negative() {
        return f64::INFINITY;
    }
    // An infinite result counts as the number that would follow the largest.
    let limit = 2f64.powi(128);
    let [found, exact] = [f64::from(found), exact].map(|x| x.clamp(-limit, limit));
    let exponent = ((exact.to_bits() >> 52 & 0x7ff) as i32 - 1023).clamp(-126, 127);
    (found - exact).abs() / 2f64.powi(exponent - 23)
}

/// out[i] = function(the f32 with the bits first + i · step).
#[kernel(threads = 256)]
fn apply(out: Ptr<Global, f32>, first: Val<u32>, step: Val<u32>, function: fn(Val<f32>) -> Val<f32>) {
    let i = block_index() * 256 + thread_index();
    out.at(i).store(function((first + i * step).bitcast::<f32>()));
}

/// out[i] = x[i]^y[i].
#[kernel(threads = 256)]
fn apply_pow(x: Ptr<Global, f32>, y: Ptr<Global, f32>, out: Ptr<Global, f32>) {
    let i = block_index() * 256 + thread_index();
    out.at(i).store(x.at(i).load().pow(y.at(i).load()));
}

/// Runs the kernel on `count` elements (a multiple of 256) and returns the buffer at `out`.
fn launch(module: &Module, name: &str, memory: &Memory, out: u64, count: usize, params: &[u8]) -> Vec<f32> {
    let kernel = module.kernel(name).expect("a module has its kernel");
    let options = Options { checks: Checks::NONE, ..Options::default() };
    let config = LaunchConfig::linear((count / 256) as u32, 256);
    bespoke_emulator::run(kernel, memory, &config, params, &options)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = vec![0; count * 4];
    memory.read(out, &mut bytes).expect("the buffer has this size");
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn parsed(kernel: Recorded) -> Module {
    let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
    let compiled = kernel.compile(Target::Sm80).unwrap_or_else(|error| panic!("{error}"));
    Module::parse(&compiled.ptx).unwrap_or_else(|error| panic!("{error}"))
}

/// Splits `0..count` among the host's cores.
fn on_all_cores(count: usize, part: impl Fn(std::ops::Range<usize>) -> Worst + Sync) -> Worst {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let length = count.div_ceil(cores);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..cores)
            .map(|core| (core * length).min(count)..((core + 1) * length).min(count))
            .map(|range| scope.spawn(|| part(range)))
            .collect();
        parts.into_iter().fold(Worst::default(), |worst, part| worst.or(part.join().expect("no panic")))
    })
}

/// The largest error over all f32 whose bits are `first` modulo `step`.
pub fn worst_of(function: &Function, first: u32, step: u32) -> Worst {
    const CHUNK: usize = 1 << 20;
    let module = parsed(apply(function.gpu));
    let memory = Memory::new();
    let out = memory.alloc("out", 4 * CHUNK as u64);
    let arguments = (u64::from(u32::MAX - first) / u64::from(step)) as usize + 1;
    let mut worst = Worst::default();
    for start in (0..arguments).step_by(CHUNK) {
        // The last chunk may wrap around; its arguments are also valid.
        let first = first.wrapping_add((start as u32).wrapping_mul(step));
        let pointer = DevicePointer::<f32>::new(out);
        let given: [&dyn Argument; 3] = [&pointer, &first, &step];
        let found = launch(&module, "apply", &memory, out, CHUNK, &params(&given));
        worst = worst.or(on_all_cores(CHUNK, |range| {
            let mut worst = Worst::default();
            for i in range {
                let x = f32::from_bits(first.wrapping_add((i as u32).wrapping_mul(step)));
                worst.see([x, 0.0], found[i], (function.exact)(x.into()));
            }
            worst
        }));
    }
    worst
}

/// The largest error of `pow` over `count` pairs (a multiple of 256): positive bases of all sizes with exponents that
/// give results of all sizes, and exponents up to 50 for bases near 1.
pub fn worst_of_pow(count: usize, seed: u64) -> Worst {
    let mut state = seed;
    let mut random = || {
        // Weyl sequence with a multiplicative hash.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((mixed ^ mixed >> 32) >> 11) as f64 / 2f64.powi(53)
    };
    let pairs: Vec<(f32, f32)> = (0..count)
        .map(|i| match i % 4 {
            0 => ((0.5 + 1.5 * random()) as f32, (100.0 * random() - 50.0) as f32),
            _ => {
                let x = (random() * 276.0 - 149.0).exp2() as f32;
                (x, ((random() * 193.0 - 104.0) / f64::from(x).ln()) as f32)
            }
        })
        .collect();
    pairs_worst(&pairs)
}

/// The largest error of `pow` among the pairs, whose number is a multiple of 256.
pub fn pairs_worst(pairs: &[(f32, f32)]) -> Worst {
    let module = parsed(apply_pow());
    let memory = Memory::new();
    let [x, y, out] = ["x", "y", "out"].map(|name| memory.alloc(name, 4 * pairs.len() as u64));
    let write = |address, numbers: Vec<f32>| {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        memory.write(address, &bytes).expect("the buffer has this size");
    };
    write(x, pairs.iter().map(|pair| pair.0).collect());
    write(y, pairs.iter().map(|pair| pair.1).collect());
    let pointers = [x, y, out].map(DevicePointer::<f32>::new);
    let given = pointers.each_ref().map(|pointer| pointer as &dyn Argument);
    let found = launch(&module, "apply_pow", &memory, out, pairs.len(), &params(&given));
    on_all_cores(pairs.len(), |range| {
        let mut worst = Worst::default();
        for i in range {
            let (x, y) = pairs[i];
            worst.see([x, y], found[i], libm::pow(x.into(), y.into()));
        }
        worst
    })
}
