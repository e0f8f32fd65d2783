//! Tensor maps as arguments of launch files.

use crate::{Scratch, check, json, output};

/// A transposition by nvcc, whose tiles of 32 × 32 elements are copied through two tensor maps.
const PTX: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../codegen/emulator/tests/foreign/cuda/tensor_maps.ptx");

const LAUNCH: &str = r#"
version = 1

[buffers.x]
type = "f32"
count = 6144
init = "iota"

[buffers.y]
type = "f32"
count = 6144
save = "y.bin"

[[launch]]
kernel = "transpose"
grid = 2
block = 128
args = [
    { tensor = "x", type = "f32", sizes = [64, 96], box = [32, 32] },
    { tensor = "y", type = "f32", sizes = [96, 64], strides = [384], box = [32, 32], steps = [1, 1], swizzle = 0 },
    2.0,
    3,
]
"#;

/// The launch file with a change, in a temporary folder.
fn changed(from: &str, to: &str) -> Scratch {
    assert!(LAUNCH.contains(from), "{from}");
    Scratch::new("transpose.toml", &LAUNCH.replacen(from, to, 1))
}

#[test]
fn tensor_maps_are_arguments() {
    let launches = changed("", "");
    let report = output(0, &[PTX, "--launches", launches.path()]);
    assert!(report.contains("no findings and 1 note in 1 launch"), "{report}");
    let saved = std::fs::read(launches.folder().join("y.bin")).unwrap();
    let y: Vec<f32> = saved.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let expected: Vec<f32> = (0..64 * 96).map(|at| 2.0 * (at % 96 * 64 + at / 96) as f32).collect();
    assert_eq!(y, expected);
}

#[test]
fn a_tensor_beyond_its_buffer_is_found() {
    let launches = changed("sizes = [64, 96]", "offset = 16, sizes = [64, 96]");
    let report = json(1, &[PTX, "--launches", launches.path()]);
    assert_eq!(report["findings"][0]["kind"], "out-of-bounds");
}

#[test]
fn maps_that_no_device_encodes_are_refused() {
    let whole = "{ tensor = \"x\", type = \"f32\", sizes = [64, 96], box = [32, 32] }";
    let with = |more: &str| whole.replace(" }", &format!(", {more} }}"));
    for (argument, message) in [
        (with("offset = 8"), "the address must be a multiple of 16"),
        (with("strides = [260]"), "a stride of 260 bytes: it must be a multiple of 16 below 2^40"),
        (with("swizzle = 16"), "`swizzle` is 16, not 0, 32, 64 or 128"),
        (with("swizzle = 64"), "rows of a box of 128 bytes, which is more than the 64 bytes of the swizzle"),
        (with("interleave = 8"), "`interleave` is 8, not 0, 16 or 32"),
        (with("interleave = 16"), "an interleaved tensor of 2 dimensions: it must have at least 3"),
        (with("steps = [1]"), "1 steps of a tensor of 2 dimensions, which needs 2"),
        (whole.replace("f32", "i16"), "tensor maps have no i8 and i16: write u8 or u16"),
        (whole.replace("f32", "u32").replace(" }", ", fill = \"nan\" }"), "cannot be filled with NaN"),
        (whole.replace("\"x\"", "\"z\""), "there is no buffer `z`; the buffers: x, y"),
        (whole.replace("box", "tile"), "{ tensor = \"…\", type = \"…\", sizes = […], box = […] }"),
    ] {
        let launches = changed(whole, &argument);
        let ran = check(&[PTX, "--launches", launches.path()]);
        assert!(ran.code == Some(2) && ran.stderr.contains(message), "{argument}: {}", ran.stderr);
    }
}
