//! Buffers in structures and in other buffers, kernels with unsupported instructions beside others, and saved buffers.

use crate::{Scratch, check, fixture, json, output};

/// The launch file of grouped.ptx, with changes, in a temporary folder.
fn grouped(changes: &[(&str, &str)]) -> Scratch {
    let mut text = std::fs::read_to_string(fixture("grouped.toml")).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    Scratch::new("grouped.toml", &text)
}

#[test]
fn structures_and_buffers_hold_addresses() {
    let launches = grouped(&[]);
    let report = output(0, &["grouped.ptx", "--launches", launches.path()]);
    assert!(report.starts_with("grouped.ptx: no findings in 2 launches"), "{report}");
    let saved = std::fs::read(launches.folder().join("y.bin")).unwrap();
    let y: Vec<f32> = saved.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(y, (0..100).map(|x| 2.0 * x as f32).collect::<Vec<_>>());
    // The address in the structure is that of a buffer: accesses beyond it are found.
    let launches = grouped(&[("\"64000000", "\"65000000")]);
    let report = json(1, &["grouped.ptx", "--launches", launches.path()]);
    assert_eq!(report["findings"][0]["kind"], "out-of-bounds");
    assert!(!launches.folder().join("y.bin").exists(), "nothing is saved after a finding");
}

#[test]
fn a_null_pointer_is_an_address() {
    let launches = grouped(&[("[\"first\",", "[0,")]);
    let report = json(1, &["grouped.ptx", "--launches", launches.path()]);
    assert_eq!(report["findings"][0]["kind"], "out-of-bounds");
    let message = report["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("global memory at 0x0;"), "{message}");
}

#[test]
fn expected_values_must_have_been_written() {
    let expected = ("save = \"y.bin\"", "expect = { fn = \"add\", of = [\"x\", \"x\"] }");
    let launches = grouped(&[expected]);
    output(0, &["grouped.ptx", "--launches", launches.path()]);
    // The kernel writes 99 of the 100 numbers.
    let launches = grouped(&[expected, ("\"64000000", "\"63000000")]);
    let report = json(1, &["grouped.ptx", "--launches", launches.path()]);
    let message = "buffer `y`: element 99 is uninitialised, but has an expected value";
    assert_eq!(report["findings"][0]["message"], message);
}

#[test]
fn wrong_addresses_are_refused() {
    for (from, to, message) in [
        ("16 = \"y\"", "17 = \"y\"", "`pointers` has a pointer at byte 17 of 24 bytes"),
        ("16 = \"y\"", "end = \"y\"", "`pointers`: `end` is no offset in bytes"),
        (
            "16 = \"y\"",
            "16 = \"z\"",
            "there is no buffer `z`; the buffers: both, first, lengths, vectors, x, y",
        ),
        ("offset = 8", "offset = 17", "buffer `vectors`: `offset` is 17, but buffer `both` has 16 bytes"),
        (
            "pointers = [",
            "count = 8\npointers = [",
            "buffer `vectors`: `pointers` has a pointer at byte 8 of 8 bytes",
        ),
        ("16 = \"y\"", "12 = \"y\"", "`pointers` has pointers at bytes 8 and 12, which overlap"),
        ("16 = \"y\"", "08 = \"y\"", "`pointers` has pointers at bytes 8 and 8, which overlap"),
        (
            "of = [\"x\"]",
            "of = [\"vectors\"]",
            "`of`: `vectors` has `pointers`, which differ from run to run",
        ),
        ("save = \"y.bin\"", "save = \"no/y.bin\"", "cannot write"),
        (
            "pointers = [",
            "save = \"./y.bin\"\npointers = [",
            "`save`: ./y.bin is also the `save` file of buffer `y`",
        ),
    ] {
        let launches = grouped(&[(from, to)]);
        let ran = check(&["grouped.ptx", "--launches", launches.path()]);
        assert!(ran.code == Some(2) && ran.stderr.contains(message), "{to}: {}", ran.stderr);
    }
}

#[test]
fn only_launched_kernels_must_be_supported() {
    let launches = grouped(&[("\"increment\"", "\"sample\"")]);
    let report = json(2, &["grouped.ptx", "--launches", launches.path()]);
    let problems = report["error"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{report:#}");
    let message = "grouped.ptx: launch 2 (`sample`): 1 unsupported feature";
    assert_eq!(report["error"]["message"], message);
    assert_eq!(problems[0]["message"], "the emulator does not support `tex.1d.v4.f32.f32`");
    // Without launches, all problems are shown.
    assert!(output(2, &["grouped.ptx"]).ends_with("grouped.ptx: 1 unsupported feature\n"));
}
