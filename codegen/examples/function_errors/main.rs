//! Measures the errors of the elementary functions: `cargo run --release -p bespoke-codegen --example function_errors`.
//!
//! Computes every function of every f32 on the emulator and compares with f64. With an argument, only every that many
//! f32s; with names behind it, only these functions. The functions of f64 are computed for 2³² random arguments divided by
//! the argument, and compared with a reference of about 106 bits; their names have the suffix `64`.

mod double;
mod reference;
mod table;

use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let step: u32 = arguments.next().map_or(1, |step| step.parse().expect("a number"));
    let names: Vec<String> = arguments.collect();
    let chosen = |name: &str| names.is_empty() || names.iter().any(|other| other == name);
    let row = |name: &str, worst: table::Worst, bound: f64, start: Instant| {
        println!("{name}: {worst}; bound {bound}; {} s", start.elapsed().as_secs());
    };
    for function in table::FUNCTIONS.iter().filter(|function| chosen(function.name)) {
        let start = Instant::now();
        let worst = table::worst_of(function, 0, step);
        row(function.name, worst, function.bound, start);
    }
    if chosen("pow") {
        let start = Instant::now();
        let rounds = 256 / u64::from(step.min(256));
        let worst = (0..rounds).map(|seed| table::worst_of_pow(1 << 20, seed));
        let worst = worst.reduce(|a, b| if b.error > a.error { b } else { a }).unwrap_or_default();
        row("pow", worst, table::POW_BOUND, start);
    }
    const CHUNK: usize = 1 << 20;
    let chunks = (1u64 << 32).div_ceil(u64::from(step) * CHUNK as u64);
    let measure = |name: &str, bound: f64, worst_of: &dyn Fn(u64) -> double::Worst| {
        let name = format!("{name}64");
        if chosen(&name) {
            let start = Instant::now();
            let worst = (0..chunks).map(worst_of).reduce(|a, b| if b.error > a.error { b } else { a });
            let worst = worst.unwrap_or_default();
            println!("{name}: {worst}; bound {bound}; {} s", start.elapsed().as_secs());
        }
    };
    for function in &double::FUNCTIONS {
        measure(function.name, function.bound, &|seed| double::worst_of(function, CHUNK, seed << 32));
    }
    measure("pow", double::POW_BOUND, &|seed| double::worst_of_pow(CHUNK, seed << 32));
}
