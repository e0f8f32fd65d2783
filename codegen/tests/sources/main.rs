//! Random kernels as Rust source: generated as text, compiled by rustc for the host and through `#[device]` for the GPU,
//! and compared bit by bit. This tests the macros and the recorder; `tests/random` tests the compiler behind them.
//!
//! `cargo test` compiles one small batch. More, with any seeds:
//!
//! ```text
//! BESPOKE_SOURCES=FIRST_SEED,BATCHES cargo test -p bespoke-codegen --test sources -- --ignored --nocapture
//! ```
//!
//! A failing batch keeps its source; the message has its path and the names of the programs.

mod generate;
#[path = "../rustc/mod.rs"]
mod rustc;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use rustc::Libraries;

const TEMPLATE: &str = include_str!("template.rs");

/// Text of a program with `count` random programs.
fn source(seed: u64, count: usize) -> String {
    let mut text = format!("{TEMPLATE}\nprograms! {{\n");
    for number in 0..count {
        text += &generate::program(seed, number);
    }
    text += "}\n\nconst PROGRAMS: &[(&str, Host, Gpu)] = &[\n";
    for number in 0..count {
        writeln!(text, "    (\"p{number}\", host::p{number}, gpu::p{number}),").expect("strings grow");
    }
    text + "];\n"
}

/// The libraries of the language and of `bespoke-testing`.
fn libraries(folder: &Path) -> Libraries {
    let probe =
        "fn main() {}\nfn launch(kernel: &bespoke_codegen::Kernel) { bespoke_testing::Launch::of(kernel); }";
    Libraries::find(["bespoke_testing", "bespoke_codegen"], probe, folder)
}

fn compile(source: &Path, binary: &Path, libraries: &Libraries) -> Result<(), String> {
    let mut command =
        libraries.rustc(source, &["--crate-name", "sources", "-C", "overflow-checks=off", "-o"]);
    let output = command.arg(binary).output().expect("rustc starts");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Compiles and runs a batch; describes what is wrong.
fn run(seed: u64, count: usize) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sources-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder under target");
    let (path, binary) = (folder.join(format!("batch{seed}.rs")), folder.join(format!("batch{seed}")));
    fs::write(&path, source(seed, count)).expect("a folder under target");
    let failed = |what: &str, why: &str| Err(format!("{} {what}:\n{why}", path.display()));
    if let Err(message) = compile(&path, &binary, &libraries(&folder)) {
        return failed("does not compile", &message);
    }
    let output = Command::new(&binary).output().expect("the batch starts");
    if !output.status.success() {
        return failed("has other results on the emulator", &String::from_utf8_lossy(&output.stdout));
    }
    for file in [path, binary] {
        fs::remove_file(file).expect("the batch's own file");
    }
    Ok(())
}

#[test]
fn a_small_batch() {
    run(1, 8).unwrap_or_else(|message| panic!("{message}"));
}

#[test]
#[ignore = "compiles 40 kernels a batch: see the top of this file"]
fn many_batches() {
    let wanted = env::var("BESPOKE_SOURCES").unwrap_or("100,10".into());
    let numbers: Vec<u64> = wanted.split(',').filter_map(|number| number.parse().ok()).collect();
    let &[first, batches] = &numbers[..] else {
        panic!("BESPOKE_SOURCES={wanted} is not FIRST_SEED,BATCHES")
    };
    let mut wrong = Vec::new();
    for seed in first..first + batches {
        wrong.extend(run(seed, 40).err());
        println!("batch {seed}: {} failed so far", wrong.len());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_seed_gives_the_same_source() {
    assert_eq!(source(5, 3), source(5, 3));
    assert_ne!(source(5, 3), source(6, 3));
}
