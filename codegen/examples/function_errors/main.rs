//! Measures the errors of the elementary functions: `cargo run --release -p bespoke-codegen --example function_errors`.
//!
//! Computes every function of every f32 on the emulator and compares with f64. With an argument, only every that many
//! f32s; with names behind it, only these functions.

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
}
