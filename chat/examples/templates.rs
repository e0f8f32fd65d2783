//! Compares rendered templates with those of Python's jinja2, which `tests/references/templates.py` wrote.
//!
//!     cargo run -p bespoke-chat --example templates -- FOLDER EXPECTED.json

#[path = "../tests/compare/mod.rs"]
mod compare;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, expected] = arguments.as_slice() else {
        eprintln!("usage: templates FOLDER EXPECTED.json");
        return ExitCode::from(2);
    };
    let counts = compare::compare(Path::new(folder), Path::new(expected));
    for difference in &counts.differences {
        println!("{difference}");
    }
    println!("{counts}");
    if counts.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
