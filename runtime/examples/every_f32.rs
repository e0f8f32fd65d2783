//! Largest errors of the elementary functions of f32 over all arguments, computed on a device.
//!
//! `every_f32 [--device auto|cuda|cuda:N|emulator] [--step N] [--only NAME]`
//!
//! A kernel computes each function of every f32 in f32, and as the language's function of f64, whose measured errors are below
//! 2⁻²⁶ ulp of an f32 (`codegen/examples/function_errors`). `pow` is computed for 2³² pseudo-random pairs. On the emulator give a
//! step: a launch for every 1,009th f32 takes seconds.

use std::error::Error;
use std::process::ExitCode;

use bespoke::device::{self, Device, Launch, Selector};
use bespoke_codegen::launch::Argument as _;
use bespoke_codegen::prelude::*;
use clap::Parser;

/// The command line.
#[derive(Parser)]
struct Arguments {
    /// auto, cuda, cuda:N or emulator
    #[arg(long, default_value = "auto")]
    device: Selector,
    /// Only every N-th f32
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    step: u32,
    /// Only the function with this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// A function in both precisions. Functions of one argument ignore the second.
struct Function {
    name: &'static str,
    single: fn(Val<f32>, Val<f32>) -> Val<f32>,
    double: fn(Val<f64>, Val<f64>) -> Val<f64>,
}

macro_rules! functions {
    ($($name:ident)*) => {
        [$(Function { name: stringify!($name), single: |x, _| x.$name(), double: |x, _| x.$name() },)*
        Function { name: "pow", single: |x, y| x.pow(y), double: |x, y| x.pow(y) }]
    };
}
const FUNCTIONS: [Function; 12] = functions!(exp exp2 ln log2 log10 sin cos tanh sigmoid erf round);

/// Threads of a CTA, and arguments of a thread.
const THREADS: u32 = 256;
const EACH: u32 = 64;

/// |found − exact| in units of the last place of an f32 of the size of `exact`; infinity if only one is a NaN, or zeros have
/// different signs. An infinite result counts as the number that would follow the largest.
#[device]
fn error_in_ulp(found: Val<f64>, exact: Val<f64>) -> Val<f64> {
    let sign = |x: Val<f64>| x.bitcast::<u64>() >> 63;
    let (both, one) = (found.is_nan() & exact.is_nan(), found.is_nan() | exact.is_nan());
    let zeros = found == 0.0 && exact == 0.0;
    if both {
        return val(0.0);
    }
    if one || (zeros && sign(found) != sign(exact)) {
        return val(f64::INFINITY);
    }
    let limit = 2f64.powi(128);
    let (found, exact) = (found.clamp(-limit, limit), exact.clamp(-limit, limit));
    let exponent = (exact.bitcast::<u64>() >> 52 & 0x7ff).cast::<i64>() - 1023;
    let places = (1023 + 23 - exponent.clamp(-126, 127)).cast::<u64>() << 52;
    (found - exact).abs() * places.bitcast::<f64>()
}

/// Bits that look random, of a number.
fn mixed(x: Val<u32>) -> Val<u32> {
    let x = (x ^ x >> 16) * 0x7feb_352d;
    let x = (x ^ x >> 15) * 0x846c_a68b;
    x ^ x >> 16
}

/// A base and an exponent whose power has any size: the exponent is a number from -150 to 129, divided by the base's logarithm.
#[device]
fn pair(number: Val<u32>) -> (Val<f32>, Val<f32>) {
    let x = (mixed(number) & 0x7fff_ffff).bitcast::<f32>();
    let power = mixed(number ^ 0x5555_5555).cast::<f32>() * (279.0 / 4_294_967_296.0) - 150.0;
    (x, power / x.log2())
}

/// worst = max(worst, error and number of the argument) over the numbers i · step < 2³², of which a thread takes [`EACH`].
#[kernel(threads = THREADS)]
fn worst_of(worst: Ptr<Global, u64>, step: Val<u32>, count: Val<u32>, function: &'static Function) {
    let first = (block_index() * THREADS + thread_index()) * EACH;
    let mut most = val(0u64);
    for i in (first..first + EACH).unroll(1) {
        if i <= count {
            let number = i * step;
            let (x, y) = match function.name {
                "pow" => pair(number),
                _ => (number.bitcast::<f32>(), val(0.0)),
            };
            let found = (function.single)(x, y).cast::<f64>();
            let exact = (function.double)(x.cast::<f64>(), y.cast::<f64>());
            let error = error_in_ulp(found, exact).cast::<f32>();
            most = most.max(error.bitcast::<u32>().cast::<u64>() << 32 | number.cast::<u64>());
        }
    }
    worst.atomic_max(most, Scope::Gpu);
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let opened = device::open(arguments.device)?;
    println!("{}, 1 of {} f32", opened.device.info().name, arguments.step);
    for function in &FUNCTIONS {
        if arguments.only.as_ref().is_none_or(|only| only == function.name) {
            let (error, number) = measure(&*opened.device, function, arguments.step)?;
            println!("{:<8} {error:.4} ulp at {}", function.name, argument(function, number));
        }
    }
    Ok(())
}

/// The largest error of a function, and the number of its argument.
fn measure(
    device: &dyn Device,
    function: &'static Function,
    step: u32,
) -> Result<(f32, u32), Box<dyn Error>> {
    let ptx = worst_of(function)?.compile(Target::Sm80)?.ptx;
    let module = device.load(function.name, &ptx)?;
    let kernel = module.kernels().next().ok_or("the module has no kernel")?;
    let worst = device.alloc("worst", 8)?;
    device.upload(worst.address(), &[0; 8])?;
    let count = u32::MAX / step;
    let mut params = Vec::new();
    worst.address().0.append(&mut params);
    step.append(&mut params);
    count.append(&mut params);
    let launch = Launch {
        kernel: kernel.clone(),
        grid: [count / (THREADS * EACH) + 1, 1, 1],
        block: [THREADS, 1, 1],
        dynamic_shared: 0,
        params,
        programmatic: false,
    };
    device.sequence(vec![launch])?.run_eager()?;
    device.wait()?;
    let mut bytes = [0; 8];
    device.download(worst.address(), &mut bytes)?;
    let bits = u64::from_le_bytes(bytes);
    Ok((f32::from_bits((bits >> 32) as u32), bits as u32))
}

/// The argument with this number, as text.
fn argument(function: &Function, number: u32) -> String {
    match function.name {
        "pow" => format!("pair {number}"),
        _ => format!("{:e}", f32::from_bits(number)),
    }
}
