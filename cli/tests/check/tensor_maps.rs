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

/// A product of f16 matrices by Triton, 120 × 200 by 200 × 72, in tiles of 64 × 64 with a swizzle of 128 bytes.
const TRITON: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../codegen/emulator/tests/foreign/triton/matmul_tma_sm90.ptx");

const TRITON_SIZES: [usize; 3] = [120, 72, 200];

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

/// As in the structure of parameters of a kernel of CUTLASS.
#[test]
fn tensor_maps_are_in_structures() {
    let x = "{ tensor = \"x\", type = \"f32\", sizes = [64, 96], box = [32, 32] }";
    let given = |bytes: usize, at: u32| {
        changed(x, &format!("{{ hex = \"{}\", maps = {{ {at} = {x} }} }}", "00".repeat(bytes)))
    };
    let launches = given(128, 0);
    output(0, &[PTX, "--launches", launches.path()]);
    let saved = std::fs::read(launches.folder().join("y.bin")).unwrap();
    assert_eq!(f32::from_le_bytes(saved[4..8].try_into().unwrap()), 2.0 * 64.0);
    let error = check(&[PTX, "--launches", given(128, 64).path()]).stderr;
    assert!(error.contains("a tensor map at `64` is not inside the bytes"), "{error}");
}

/// The launch file of Triton's product, with the swizzle that its maps have.
fn launch_of_triton(swizzle: u32) -> String {
    let [m, n, k] = TRITON_SIZES;
    // Small integers, whose products and sums are exact.
    let matrix = |count: usize, period: i32| -> Vec<i32> {
        (0..count as i32).map(|at| at % period - period / 2).collect()
    };
    let (a, b) = (matrix(m * k, 7), matrix(k * n, 5));
    let element = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum::<i32>();
    let c: Vec<i32> = (0..m * n).map(element).collect();
    let map = |tensor: &str, [rows, columns]: [usize; 2]| {
        format!(
            "{{ tensor = '{tensor}', type = 'f16', sizes = [{columns}, {rows}], box = [64, 64], swizzle = {swizzle} }}, \
             {rows}, {columns}, {columns}, 1"
        )
    };
    let maps = [map("a", [m, k]), map("b", [k, n]), map("c", [m, n])].join(", ");
    format!(
        "version = 1
[buffers]
a = {{ type = 'f16', values = {a:?} }}
b = {{ type = 'f16', values = {b:?} }}
c = {{ type = 'f16', count = {}, expect = {{ values = {c:?}, tolerance = 0.0 }} }}
[[launch]]
kernel = 'matmul_tma'
grid = [2, 2]
block = 128
shared = 49176
args = [{maps}, {m}, {n}, {k}, 0, 0]
",
        m * n
    )
}

#[test]
fn a_product_of_triton_takes_tensor_maps() {
    // Triton leaves out the fence after the initialisation of its mbarriers, which is a finding of its own.
    let text = std::fs::read_to_string(TRITON).unwrap();
    let (before, after) = text.rsplit_once("mbarrier.init").unwrap();
    let (operands, after) = after.split_once('\n').unwrap();
    let fence = "fence.mbarrier_init.release.cluster;";
    let ptx = Scratch::new("fenced.ptx", &format!("{before}mbarrier.init{operands}\n{fence}\n{after}"));
    let launches = Scratch::new("product.toml", &launch_of_triton(128));
    let report = json(0, &[ptx.path(), "--launches", launches.path()]);
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(0));
    // The kernel expects a swizzle of 128 bytes.
    let other = Scratch::new("product.toml", &launch_of_triton(0));
    let ran = check(&[ptx.path(), "--launches", other.path()]);
    assert!(ran.code == Some(1) && ran.stdout.contains("`c`"), "{:?}: {}", ran.code, ran.stdout);
}

#[test]
fn a_template_has_tensor_maps() {
    let template = output(0, &[PTX]);
    let buffer = "[buffers.\"transpose.param_0\"]\ntype = \"f32\" ";
    let argument = "args = [{ tensor = \"transpose.param_0\", type = \"f32\", sizes = [32, 32], box = [32, 32], swizzle = 0 }, {";
    assert!(template.contains(buffer) && template.contains(argument), "{template}");
    // The kernel `product` expects other boxes: a finding, but the file is valid.
    let launches = Scratch::new("launches.toml", &template);
    let report = json(1, &[PTX, "--launches", launches.path()]);
    assert_eq!(report["launches"], 2);
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
