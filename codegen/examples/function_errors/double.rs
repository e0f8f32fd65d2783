//! The elementary functions of f64 with their documented bounds, and the measurement of their errors on the emulator.

use std::fmt;

use bespoke_codegen::launch::DevicePointer;
use bespoke_codegen::launch::{Argument, params};
use bespoke_codegen::prelude::*;
use bespoke_emulator::{Checks, LaunchConfig, Memory, Module, Options};

use super::reference::{self, Exact};

/// A function of one f64.
pub struct Function {
    pub name: &'static str,
    pub gpu: fn(Val<f64>) -> Val<f64>,
    /// The function with an error below 2⁻³⁰ ulp.
    pub exact: fn(f64) -> Exact,
    /// Half of the arguments are from this range, uniformly; the others have random bits.
    pub range: (f64, f64),
    /// Documented bound of the error, in ulp.
    pub bound: f64,
}

/// Every function of one argument, in the order of BOOK's table.
pub const FUNCTIONS: [Function; 10] = [
    Function { name: "exp", gpu: |x| x.exp(), exact: reference::exp, range: (-746.0, 710.0), bound: 1.0 },
    Function {
        name: "exp2",
        gpu: |x| x.exp2(),
        exact: reference::exp2,
        range: (-1075.0, 1024.0),
        bound: 1.0,
    },
    Function { name: "ln", gpu: |x| x.ln(), exact: reference::ln, range: (0.5, 3.0), bound: 1.0 },
    Function { name: "log2", gpu: |x| x.log2(), exact: reference::log2, range: (0.5, 3.0), bound: 0.6 },
    Function { name: "log10", gpu: |x| x.log10(), exact: reference::log10, range: (0.5, 3.0), bound: 0.6 },
    Function { name: "sin", gpu: |x| x.sin(), exact: reference::sin, range: (-50.0, 50.0), bound: 1.0 },
    Function { name: "cos", gpu: |x| x.cos(), exact: reference::cos, range: (-50.0, 50.0), bound: 1.0 },
    Function { name: "tanh", gpu: |x| x.tanh(), exact: reference::tanh, range: (-3.0, 3.0), bound: 2.6 },
    Function {
        name: "sigmoid",
        gpu: |x| x.sigmoid(),
        exact: reference::sigmoid,
        range: (-750.0, 40.0),
        bound: 2.5,
    },
    Function { name: "erf", gpu: |x| x.erf(), exact: reference::erf, range: (-6.0, 6.0), bound: 1.1 },
];

/// Documented bound of the error of `pow`, in ulp.
pub const POW_BOUND: f64 = 1.1;

/// The largest error among some arguments.
#[derive(Clone, Copy, Default)]
pub struct Worst {
    /// In ulp of the exact result.
    pub error: f64,
    pub argument: [f64; 2],
    pub found: f64,
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Worst { error, argument: [x, y], found } = self;
        write!(f, "{error:.4} ulp at ({x:e}, {y:e}): {found:e}")
    }
}

impl Worst {
    fn see(&mut self, argument: [f64; 2], found: f64, exact: Exact) {
        let error = exact.error_in_ulp(found);
        if error > self.error {
            *self = Worst { error, argument, found };
        }
    }
}

/// Random numbers: a Weyl sequence with a multiplicative hash.
pub struct Random(pub u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number from 0 to 1, without 1.
    fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / 2f64.powi(53)
    }

    fn between(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.fraction()
    }
}

/// A function of one or two arguments.
#[derive(Clone, Copy)]
enum Applied {
    One(fn(Val<f64>) -> Val<f64>),
    Two(fn(Val<f64>, Val<f64>) -> Val<f64>),
}

/// out[i] = function(x[i]) or function(x[i], y[i]).
#[kernel(threads = 256)]
fn apply(x: Ptr<Global, f64>, y: Ptr<Global, f64>, out: Ptr<Global, f64>, function: Applied) {
    let i = block_index() * 256 + thread_index();
    let result = match function {
        Applied::One(function) => function(x.at(i).load()),
        Applied::Two(function) => function(x.at(i).load(), y.at(i).load()),
    };
    out.at(i).store(result);
}

/// Results of a kernel for pairs of arguments, whose number is a multiple of 256.
fn results(kernel: Recorded, pairs: &[[f64; 2]]) -> Vec<f64> {
    let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
    let compiled = kernel.compile(Target::Sm80).unwrap_or_else(|error| panic!("{error}"));
    let module = Module::parse(&compiled.ptx).unwrap_or_else(|error| panic!("{error}"));
    let memory = Memory::new();
    let [x, y, out] = ["x", "y", "out"].map(|name| memory.alloc(name, 8 * pairs.len() as u64));
    for (index, address) in [x, y].into_iter().enumerate() {
        let bytes: Vec<u8> = pairs.iter().flat_map(|pair| pair[index].to_le_bytes()).collect();
        memory.write(address, &bytes).expect("the buffer has this size");
    }
    let pointers = [x, y, out].map(DevicePointer::<f64>::new);
    let given = pointers.each_ref().map(|pointer| pointer as &dyn Argument);
    let config = LaunchConfig::linear((pairs.len() / 256) as u32, 256);
    let options = Options { checks: Checks::NONE, ..Options::default() };
    let kernel = module.kernel("apply").expect("a module has its kernel");
    bespoke_emulator::run(kernel, &memory, &config, &params(&given), &options)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = vec![0; 8 * pairs.len()];
    memory.read(out, &mut bytes).expect("the buffer has this size");
    bytes.chunks_exact(8).map(|word| f64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
}

/// The largest error among `count` arguments, a multiple of 256.
pub fn worst_of(function: &Function, count: usize, seed: u64) -> Worst {
    let mut random = Random(seed);
    let pairs: Vec<[f64; 2]> = (0..count)
        .map(|i| {
            [if i % 2 == 0 { f64::from_bits(random.bits()) } else { random.between(function.range) }, 0.0]
        })
        .collect();
    let mut worst = Worst::default();
    for (pair, found) in pairs.iter().zip(results(apply(Applied::One(function.gpu)), &pairs)) {
        worst.see(*pair, found, (function.exact)(pair[0]));
    }
    worst
}

/// The largest error of `pow` among `count` pairs, a multiple of 256: positive bases of all sizes with exponents that give
/// results of all sizes, and exponents up to 500 for bases near 1.
pub fn worst_of_pow(count: usize, seed: u64) -> Worst {
    let mut random = Random(seed);
    let pairs: Vec<[f64; 2]> = (0..count)
        .map(|i| match i % 4 {
            0 => [random.between((0.5, 2.0)), random.between((-500.0, 500.0))],
            _ => {
                let x = random.between((-1074.0, 1024.0)).exp2();
                [x, random.between((-745.0, 710.0)) / x.ln()]
            }
        })
        .collect();
    worst_of_pairs(&pairs)
}

/// The largest error of `pow` among the pairs, whose number is a multiple of 256. The results of special cases are those of
/// `libm`.
pub fn worst_of_pairs(pairs: &[[f64; 2]]) -> Worst {
    let mut worst = Worst::default();
    for (&[x, y], found) in pairs.iter().zip(results(apply(Applied::Two(|x, y| x.pow(y))), pairs)) {
        let special = libm::pow(x, y);
        let ordinary = [x, y, special].iter().all(|number| number.is_finite()) && x != 0.0 && special != 0.0;
        let exact = match ordinary {
            true if special < 0.0 => -reference::pow(-x, y),
            true => reference::pow(x.abs(), y),
            false => Exact::from(special),
        };
        worst.see([x, y], found, exact);
    }
    worst
}
