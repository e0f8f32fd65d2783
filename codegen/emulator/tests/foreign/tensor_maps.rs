//! A product by Triton whose tiles are copied through tensor maps: its result, and what is found if it is damaged.

use std::fmt::Write;

use bespoke_emulator::{LaunchConfig, Swizzle, TENSOR_MAP_BYTES, TensorMap, TensorType};
use expect_test::expect;
use half::f16;

use crate::device::{Device, grid, singles};
use crate::matrices::{halves, product};
use crate::mutants::{damaged, left_out};

const PTX: &str = include_str!("triton/matmul_tma_sm90.ptx");
/// The same product with tensor maps that the kernel makes.
const OWN_MAPS: &str = include_str!("triton/matmul_descriptors_sm90.ptx");
const FENCE: &str = "fence.mbarrier_init.release.cluster;";

/// A kernel with a fence after the initialisation of its mbarriers, which Triton leaves out.
fn fenced(ptx: &str) -> String {
    let (before, after) = ptx.rsplit_once("mbarrier.init").expect("an mbarrier");
    let (operands, after) = after.split_once('\n').expect("a line");
    format!("{before}mbarrier.init{operands}\n\t{FENCE}\n{after}")
}

/// Sizes of the matrices: no multiples of the tiles, which have 64 × 64 elements.
const SIZES: [usize; 3] = [120, 72, 200];

/// Two matrices and space for their product, and a launch of one CTA for each tile of the product.
struct Product {
    device: Device,
    matrices: [Vec<f32>; 2],
    addresses: [u64; 3],
    config: LaunchConfig,
}

impl Product {
    fn new(text: &str) -> Product {
        let ([m, n, k], device) = (SIZES, Device::load(text));
        let matrices = [singles(m * k, 5), singles(k * n, 6)];
        let [a, b] = [0, 1].map(|matrix: usize| device.buffer(&halves(&matrices[matrix])));
        let addresses = [a, b, device.output::<u16>(m * n)];
        let config = grid([m.div_ceil(64) as u32, n.div_ceil(64) as u32], [128, 1], 49176);
        Product { device, matrices, addresses, config }
    }

    /// Runs a kernel: the difference from the right result is a message, and so is a finding.
    fn run(&self, kernel: &str, arguments: &[Vec<u8>]) -> Result<(), String> {
        let [m, n, k] = SIZES;
        let ran = self.device.try_run_bytes(kernel, self.config, arguments);
        ran.map_err(|found| format!("{:?}", found.kind))?;
        let got = self.device.read::<u16>(self.addresses[2], m * n);
        let got: Vec<f32> = got.into_iter().map(|x| f16::from_bits(x).to_f32()).collect();
        let expected = product(&self.matrices[0], &self.matrices[1], k, n);
        let is_near = |(x, y): (&f32, &f32)| (x - y).abs() <= 5e-4 * (1.0 + y.abs());
        if got.iter().zip(&expected).all(is_near) { Ok(()) } else { Err("wrong result".to_string()) }
    }
}

/// Runs the kernel with tensor maps of this swizzle.
fn outcome(text: &str, swizzle: Swizzle) -> Result<(), String> {
    let ([m, n, k], product) = (SIZES, Product::new(text));
    let tensor = |address: u64, rows: usize, columns: usize| {
        let dense = TensorMap::dense(TensorType::F16, address, &[columns as u64, rows as u64], &[64, 64]);
        let map = TensorMap { swizzle, ..dense }.encode().expect("a valid map").to_vec();
        // Triton passes the sizes and strides, too, which this kernel does not read.
        [map, vec![0; 4], vec![0; 4], vec![0; 8], vec![0; 8]]
    };
    let [a, b, c] = product.addresses;
    let maps = [tensor(a, m, k), tensor(b, k, n), tensor(c, m, n)];
    let sizes = SIZES.map(|size| (size as u32).to_le_bytes().to_vec());
    product.run("matmul_tma", &maps.into_iter().flatten().chain(sizes).collect::<Vec<_>>())
}

/// Runs the kernel that makes its tensor maps itself, in scratch memory of three maps for each CTA.
fn outcome_of_own_maps(text: &str) -> Result<(), String> {
    let product = Product::new(text);
    let ctas = product.config.grid.iter().product::<u32>() as usize;
    let sizes = SIZES.map(|size| size as u64);
    let scratch = product.device.output::<u8>(3 * TENSOR_MAP_BYTES * ctas);
    let arguments = [&product.addresses[..], &sizes, &[scratch]].concat();
    let arguments: Vec<Vec<u8>> = arguments.iter().map(|value| value.to_le_bytes().to_vec()).collect();
    product.run("matmul_descriptors", &arguments)
}

#[test]
fn a_product_through_tensor_maps_matches() {
    assert_eq!(outcome(&fenced(PTX), Swizzle::Bytes128), Ok(()));
}

#[test]
fn a_product_through_maps_that_the_kernel_makes_matches() {
    assert_eq!(outcome_of_own_maps(&fenced(OWN_MAPS)), Ok(()));
}

#[test]
fn damaged_changes_of_tensor_maps_are_found() {
    let mut table = String::new();
    for (what, pattern) in [
        ("without the copy to global memory", "tensormap.cp_fenceproxy"),
        ("without the acquire fence", "fence.proxy.tensormap"),
        ("without zeros", "st.shared::cta.b32"),
        ("without the address", "global_address"),
        ("without the number of dimensions", "tile.rank"),
        ("without a size", "global_dim"),
        ("without a stride", "global_stride"),
        ("without a size of a box", "box_dim"),
        ("without a step", "element_stride"),
        ("without the type", "elemtype"),
        ("without the swizzle", "swizzle_mode"),
    ] {
        let outcome = |text: &String| outcome_of_own_maps(text).err().unwrap_or("survives".to_string());
        let outcomes: Vec<String> =
            damaged(&fenced(OWN_MAPS), pattern, left_out).iter().map(outcome).collect();
        let _ = writeln!(table, "{what}: {}", outcomes.join(", "));
    }
    expect![[r#"
        without the copy to global memory: Uninitialised, Uninitialised, Uninitialised
        without the acquire fence: ProxyFence, ProxyFence, ProxyFence
        without zeros: Uninitialised, survives, survives
        without the address: OutOfBounds, OutOfBounds, OutOfBounds
        without the number of dimensions: TensorMap, TensorMap, TensorMap
        without a size: wrong result, wrong result, wrong result, wrong result, wrong result, wrong result
        without a stride: wrong result, wrong result, Race
        without a size of a box: TensorMap, TensorMap, TensorMap, TensorMap, TensorMap, TensorMap
        without a step: TensorMap, TensorMap, TensorMap, TensorMap, TensorMap, TensorMap
        without the type: Deadlock, Deadlock, wrong result
        without the swizzle: wrong result, wrong result, wrong result
    "#]]
    .assert_eq(&table);
}

/// Damages one line at a time of those that contain `pattern`; returns what is found.
fn outcomes(pattern: &str, damage: impl Fn(&str) -> String) -> String {
    let outcome = |text: &String| outcome(text, Swizzle::Bytes128).err().unwrap_or("survives".to_string());
    let outcomes: Vec<String> = damaged(&fenced(PTX), pattern, damage).iter().map(outcome).collect();
    assert!(!outcomes.is_empty(), "no line has `{pattern}`");
    outcomes.join(", ")
}

#[test]
fn damaged_copies_through_tensor_maps_are_found() {
    let mut table = String::new();
    for (what, outcomes) in [
        ("as Triton has it", outcome(PTX, Swizzle::Bytes128).err().unwrap_or_default()),
        ("maps without swizzle", outcome(&fenced(PTX), Swizzle::None).err().unwrap_or_default()),
        ("without fence.mbarrier_init", outcomes(FENCE, left_out)),
        ("without fence.proxy.async", outcomes("fence.proxy.async", left_out)),
        ("without wait_group", outcomes("cp.async.bulk.wait_group", left_out)),
        ("without commit_group", outcomes("cp.async.bulk.commit_group", left_out)),
        ("another phase", outcomes("mbarrier.try_wait", |line| line.replace("%r94", "1"))),
        ("16 bytes more expected", outcomes("expect_tx", |line| line.replace("16384", "16400"))),
        ("16 bytes less expected", outcomes("expect_tx", |line| line.replace("16384", "16368"))),
        ("without expect_tx", outcomes("expect_tx", left_out)),
        ("without a load", outcomes("complete_tx", left_out)),
        ("without the store", outcomes("bulk_group [", left_out)),
        (
            "other coordinates",
            outcomes("cp.async.bulk.tensor", |line| {
                line.replace("%r56}", "%r55}").replace("{%r55,", "{%r56,")
            }),
        ),
        (
            "without any bar.sync",
            outcome(&fenced(PTX).replace("bar.sync", "//"), Swizzle::Bytes128).err().unwrap_or_default(),
        ),
    ] {
        let _ = writeln!(table, "{what}: {outcomes}");
    }
    expect![[r#"
        as Triton has it: ProxyFence
        maps without swizzle: wrong result
        without fence.mbarrier_init: ProxyFence
        without fence.proxy.async: ProxyFence
        without wait_group: AsyncCopy
        without commit_group: AsyncCopy
        another phase: AsyncCopy
        16 bytes more expected: Deadlock, Deadlock, Deadlock
        16 bytes less expected: Deadlock, Deadlock, Deadlock
        without expect_tx: Deadlock, Deadlock, Deadlock
        without a load: Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock
        without the store: wrong result
        other coordinates: wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result
        without any bar.sync: Race
    "#]].assert_eq(&table);
}
