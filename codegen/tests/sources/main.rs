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

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs};

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

/// Libraries of a crate beside this test, the newest first.
fn libraries(name: &str) -> Vec<PathBuf> {
    let this = env::current_exe().expect("a test is a file");
    let folder = this.parent().expect("a file is in a folder");
    let prefix = format!("lib{name}-");
    let files = fs::read_dir(folder).expect("the folder of this test").flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.starts_with(&prefix) && file.ends_with(".rlib")
    };
    let mut found: Vec<PathBuf> = files.filter(is_library).collect();
    let age = |path: &PathBuf| {
        fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    found.sort_by_key(|path| std::cmp::Reverse(age(path)));
    found
}

/// The libraries of the language and of `bespoke-testing` that belong together. There may be others, of other features.
fn pair_of_libraries(folder: &Path) -> [PathBuf; 2] {
    let probe = folder.join("probe.rs");
    fs::write(
        &probe,
        "fn main() {}\nfn launch(kernel: &bespoke_codegen::Kernel) { bespoke_testing::Launch::of(kernel); }",
    )
    .expect("a folder under target");
    for testing in libraries("bespoke_testing") {
        for codegen in libraries("bespoke_codegen") {
            let pair = [codegen, testing.clone()];
            if compile(&probe, &folder.join("probe"), &pair).is_ok() {
                return pair;
            }
        }
    }
    panic!(
        "no libraries of `bespoke_codegen` and `bespoke_testing` belong together: run this by `cargo test`"
    );
}

fn compile(source: &Path, binary: &Path, [codegen, testing]: &[PathBuf; 2]) -> Result<(), String> {
    let dependencies = codegen.parent().expect("a library is in a folder");
    let output = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition", "2024", "--crate-name", "sources", "-C", "overflow-checks=off", "-o"])
        .arg(binary)
        .arg("-L")
        .arg(format!("dependency={}", dependencies.display()))
        .arg("--extern")
        .arg(format!("bespoke_codegen={}", codegen.display()))
        .arg("--extern")
        .arg(format!("bespoke_testing={}", testing.display()))
        .arg(source)
        .output()
        .expect("rustc starts");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Compiles and runs a batch; describes what is wrong.
fn run(seed: u64, count: usize) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sources-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder under target");
    let (path, binary) = (folder.join(format!("batch{seed}.rs")), folder.join(format!("batch{seed}")));
    fs::write(&path, source(seed, count)).expect("a folder under target");
    let failed = |what: &str, why: &str| Err(format!("{} {what}:\n{why}", path.display()));
    if let Err(message) = compile(&path, &binary, &pair_of_libraries(&folder)) {
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
