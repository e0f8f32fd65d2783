//! What random programs are compiled with: the definitions of their types for the host and for the GPU, and a comparison.

use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

/// Host definitions of the names that programs use.
#[allow(dead_code)]
mod host_types {
    pub type U = u32;
    pub type I = i32;
    pub type F = f32;
    pub type B = bool;

    #[derive(Clone, Copy)]
    pub struct Pair {
        pub low: U,
        pub high: I,
    }
    impl Pair {
        pub fn raise(&mut self, by: U) -> B {
            self.low += by;
            if self.low > 1000 {
                self.high += 1;
                return true;
            }
            self.high < 3
        }
    }

    pub fn val<T>(value: T) -> T {
        value
    }
    pub fn u_to_i(x: U) -> I {
        x as i32
    }
    pub fn i_to_u(x: I) -> U {
        x as u32
    }
    pub fn u_to_f(x: U) -> F {
        x as f32
    }
    pub fn f_to_u(x: F) -> U {
        x as u32
    }
    /// The bits of a number; 1 for NaN, whose payload is left open.
    pub fn bits(x: F) -> U {
        if x == x { x.to_bits() } else { 1 }
    }
    pub fn flag(x: B) -> U {
        x as u32
    }
    pub fn mix(hash: U, x: U) -> U {
        (hash ^ x).wrapping_mul(0x0100_0193)
    }

    /// Unrolls nothing on the host.
    pub trait Unroll: Sized {
        fn unroll(self, _factor: u32) -> Self {
            self
        }
    }
    impl Unroll for std::ops::Range<u32> {}
}

/// GPU definitions of the names that programs use.
#[allow(dead_code)]
mod gpu_types {
    pub use bespoke_codegen::prelude::*;
    pub type U = Val<u32>;
    pub type I = Val<i32>;
    pub type F = Val<f32>;
    pub type B = Val<bool>;

    #[derive(Clone, Copy, Carry)]
    pub struct Pair {
        pub low: U,
        pub high: I,
    }
    impl Pair {
        #[device]
        pub fn raise(&mut self, by: U) -> B {
            self.low += by;
            if self.low > 1000 {
                self.high += 1;
                return val(true);
            }
            self.high < 3
        }
    }

    pub fn u_to_i(x: U) -> I {
        x.cast()
    }
    pub fn i_to_u(x: I) -> U {
        x.cast()
    }
    pub fn u_to_f(x: U) -> F {
        x.cast()
    }
    pub fn f_to_u(x: F) -> U {
        x.cast()
    }
    #[device]
    pub fn bits(x: F) -> U {
        if x == x { x.bitcast::<u32>() } else { 1 }
    }
    pub fn flag(x: B) -> U {
        select(x, 1, 0)
    }
    pub fn mix(hash: U, x: U) -> U {
        (hash ^ x) * 0x0100_0193
    }
}

macro_rules! programs {
    ($($(#[$call:ident])? fn $name:ident($($parameters:tt)*) $(-> $output:ty)? { $($body:tt)* })*) => {
        #[allow(warnings)]
        mod host {
            use super::host_types::*;
            $(pub fn $name($($parameters)*) $(-> $output)? { $($body)* })*
        }
        #[allow(warnings)]
        mod gpu {
            use super::gpu_types::*;
            $(#[device$(($call))?] pub fn $name($($parameters)*) $(-> $output)? { $($body)* })*
        }
    };
}

type Host = fn(u32, u32, i32, f32) -> u32;
type Gpu = fn(Val<u32>, Val<u32>, Val<i32>, Val<f32>) -> Val<u32>;

/// y[i] = program(a[i], b[i], c[i], d[i]).
#[kernel(threads = 64)]
fn table(
    a: Ptr<Global, u32>,
    b: Ptr<Global, u32>,
    c: Ptr<Global, i32>,
    d: Ptr<Global, f32>,
    y: Ptr<Global, u32>,
    program: Gpu,
) {
    let i = thread_index();
    y.at(i).store(program(a.at(i).load(), b.at(i).load(), c.at(i).load(), d.at(i).load()));
}

/// Compares the program's results on the emulator with the host's; describes the first difference.
fn check(host: Host, gpu: Gpu) -> Result<(), String> {
    let a: Vec<u32> = (0..64u32).map(|i| if i < 32 { i % 9 } else { i.wrapping_mul(0x9e37_79b9) }).collect();
    let b: Vec<u32> = (0..64u32).map(|i| if i % 2 == 0 { i / 4 } else { !i << (i % 29) }).collect();
    let c: Vec<i32> = (0..64i32).map(|i| if i < 40 { i - 20 } else { i << 25 }).collect();
    let d: Vec<f32> = (0..64u8).map(|i| (f32::from(i) - 30.0) * if i < 50 { 0.75 } else { 1.0e37 }).collect();
    let expected: Vec<u32> = (0..64).map(|i| host(a[i], b[i], c[i], d[i])).collect();
    let kernel = table(gpu).map_err(|error| error.to_string())?;
    let launch = Launch::of(&kernel).buffer(&a).buffer(&b).buffer(&c).buffer(&d).uninitialised::<u32>(64);
    let done = launch.run().map_err(|failure| failure.to_string())?;
    let found = done.buffer::<u32>(4);
    match (0..64).find(|&i| found[i] != expected[i]) {
        Some(i) => Err(format!(
            "p({}, {}, {}, {:?}) is {:#x} on the host, {:#x} on the emulator",
            a[i], b[i], c[i], d[i], expected[i], found[i]
        )),
        None => Ok(()),
    }
}

fn main() {
    let mut failed = false;
    for (name, host, gpu) in PROGRAMS {
        let outcome = std::panic::catch_unwind(|| check(*host, *gpu)).unwrap_or(Err("panicked".into()));
        if let Err(message) = outcome {
            println!("{name}: {message}");
            failed = true;
        }
    }
    std::process::exit(i32::from(failed));
}
