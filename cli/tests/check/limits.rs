//! Launches that do not end, and numbers that make no sense.

use std::time::{Duration, Instant};

use crate::{Scratch, check, json, output};

/// A launch file that launches `kernel` of `wait.ptx` in `grid` CTAs of 32 threads.
fn launches(kernel: &str, grid: u32, args: &str) -> Scratch {
    let text = std::fs::read_to_string(crate::fixture("wait.toml")).unwrap();
    let text = text.replace("\"wait\"", &format!("\"{kernel}\"")).replace("8000", &grid.to_string());
    Scratch::new("launches.toml", &text.replace("[\"flag\"]", args))
}

#[test]
fn a_launch_must_fit_the_device() {
    let finding =
        |args: &[&str]| json(1, &[&["wait.ptx", "--launches"], args].concat())["findings"][0].clone();
    let hopper = finding(&["wait.toml"]);
    assert_eq!(hopper["kind"], "residency");
    let message = hopper["message"].as_str().unwrap();
    for part in ["launch 1: 4224 CTAs wait", "the other 3776 of the launch's 8000", "132 multiprocessors"] {
        assert!(message.contains(part), "{message}");
    }
    let small = finding(&["wait.toml", "--multiprocessors", "2"]);
    assert!(small["message"].as_str().unwrap().contains("64 CTAs wait"), "{small}");
    // Enough multiprocessors, by the option or by the file.
    output(0, &["wait.ptx", "--launches", "wait.toml", "--multiprocessors", "250"]);
    let text = std::fs::read_to_string(crate::fixture("wait.toml")).unwrap();
    let file = Scratch::new("launches.toml", &format!("multiprocessors = 250\n{text}"));
    output(0, &["wait.ptx", "--launches", file.path()]);
}

#[test]
fn an_endless_loop_in_a_large_grid_ends_soon() {
    let start = Instant::now();
    let file = launches("forever", 100_000, "[]");
    let report = json(1, &["wait.ptx", "--launches", file.path(), "--limit", "4194304"]);
    assert_eq!(report["findings"][0]["kind"], "deadlock");
    assert_eq!(report["findings"][0]["sites"][0]["ptx"]["text"], "bra LOOP;");
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let text = std::fs::read_to_string(crate::fixture("wait.toml")).unwrap();
    for (from, to, part) in [
        ("count = 1", "count = 4611686018427387905", "buffer `flag`: 18446744073709551620 bytes"),
        ("count = 1", "count = 1152921504606846976", "buffer `flag`: 4611686018427387904 bytes"),
        ("count = 1", "count = -1", "count"),
        (
            "init = \"zeros\"",
            "init = \"zeros\"\nexpect = { values = [6], tolerance = nan }",
            "`expect` of buffer `flag`: `tolerance` is NaN",
        ),
        ("version = 1", "version = 1\nmultiprocessors = 0", "multiprocessors = 0"),
        ("grid = 8000", "grid = -1", "expected a number from 0 to 4294967295"),
        (
            "[\"flag\"]",
            "[{ buffer = \"flag\", offset = 5 }]",
            "argument 1 (.u64 flag): `offset` is 5, but buffer `flag` has 4 bytes",
        ),
    ] {
        let file = Scratch::new("launches.toml", &text.replace(from, to));
        let ran = check(&["wait.ptx", "--launches", file.path()]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{to}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{to}: {}", ran.stderr);
    }
    for (option, value) in [("--steps", "0"), ("--multiprocessors", "0")] {
        let ran = check(&["demo", option, value]);
        assert_eq!(ran.code, Some(2), "{option} {value}: {}", ran.stderr);
    }
}
