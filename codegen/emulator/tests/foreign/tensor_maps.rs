//! A product by Triton whose tiles are copied through tensor maps: its result, and what is found if it is damaged.

use std::fmt::Write;

use bespoke_emulator::{Swizzle, TensorMap, TensorType};
use expect_test::expect;
use half::f16;

use crate::device::{Device, grid, singles};
use crate::matrices::{halves, product};
use crate::mutants::{damaged, left_out};

const PTX: &str = include_str!("triton/matmul_tma_sm90.ptx");
const FENCE: &str = "fence.mbarrier_init.release.cluster;";

/// The kernel with a fence after the initialisation of its mbarriers, which Triton leaves out.
fn fenced() -> String {
    let (before, after) = PTX.rsplit_once("mbarrier.init").expect("an mbarrier");
    let (operands, after) = after.split_once('\n').expect("a line");
    format!("{before}mbarrier.init{operands}\n\t{FENCE}\n{after}")
}

/// Runs the kernel with tensor maps of this swizzle: the difference from the right result is a message, and so is a finding.
fn outcome(text: &str, swizzle: Swizzle) -> Result<(), String> {
    // No multiple of the tiles, which have 64 × 64 elements.
    let (m, n, k) = (120, 72, 200);
    let device = Device::load(text);
    let (a, b) = (singles(m * k, 5), singles(k * n, 6));
    let c = device.output::<u16>(m * n);
    let inputs = [device.buffer(&halves(&a)), device.buffer(&halves(&b))];
    let tensor = |address: u64, rows: usize, columns: usize| {
        let dense = TensorMap::dense(TensorType::F16, address, &[columns as u64, rows as u64], &[64, 64]);
        let map = TensorMap { swizzle, ..dense }.encode().expect("a valid map").to_vec();
        // Triton passes the sizes and strides, too, which this kernel does not read.
        [map, vec![0; 4], vec![0; 4], vec![0; 8], vec![0; 8]]
    };
    let maps = [tensor(inputs[0], m, k), tensor(inputs[1], k, n), tensor(c, m, n)];
    let sizes = [m, n, k].map(|size| (size as u32).to_le_bytes().to_vec());
    let arguments: Vec<Vec<u8>> = maps.into_iter().flatten().chain(sizes).collect();
    let config = grid([m.div_ceil(64) as u32, n.div_ceil(64) as u32], [128, 1], 49176);
    device.try_run_bytes("matmul_tma", config, &arguments).map_err(|found| format!("{:?}", found.kind))?;
    let got: Vec<f32> =
        device.read::<u16>(c, m * n).into_iter().map(|x| f16::from_bits(x).to_f32()).collect();
    let expected = product(&a, &b, k, n);
    let is_near = |(x, y): (&f32, &f32)| (x - y).abs() <= 5e-4 * (1.0 + y.abs());
    if got.iter().zip(&expected).all(is_near) { Ok(()) } else { Err("wrong result".to_string()) }
}

#[test]
fn a_product_through_tensor_maps_matches() {
    assert_eq!(outcome(&fenced(), Swizzle::Bytes128), Ok(()));
}

/// Damages one line at a time of those that contain `pattern`; returns what is found.
fn outcomes(pattern: &str, damage: impl Fn(&str) -> String) -> String {
    let outcome = |text: &String| outcome(text, Swizzle::Bytes128).err().unwrap_or("survives".to_string());
    let outcomes: Vec<String> = damaged(&fenced(), pattern, damage).iter().map(outcome).collect();
    assert!(!outcomes.is_empty(), "no line has `{pattern}`");
    outcomes.join(", ")
}

#[test]
fn damaged_copies_through_tensor_maps_are_found() {
    let mut table = String::new();
    for (what, outcomes) in [
        ("as Triton has it", outcome(PTX, Swizzle::Bytes128).err().unwrap_or_default()),
        ("maps without swizzle", outcome(&fenced(), Swizzle::None).err().unwrap_or_default()),
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
            outcome(&fenced().replace("bar.sync", "//"), Swizzle::Bytes128).err().unwrap_or_default(),
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
