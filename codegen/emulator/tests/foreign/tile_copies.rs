//! Kernels of `cuda/tensor_maps.cu`, compiled by nvcc, which copy tiles through tensor maps: exact results, and what is
//! found if they are damaged.

use bespoke_emulator::{Finding, LaunchConfig, Swizzle, TensorMap, TensorType};
use expect_test::expect;

use crate::device::{Device, grid, singles};
use crate::hopper::{doubles, half_values, other_swizzle, product, transposed};
use crate::matrices::halves;
use crate::mutants::{Case, Mutants, Run, a_group_early, last_operand, left_out};

const PTX: &str = include_str!("cuda/tensor_maps.ptx");

/// Tensor map of a matrix, as the bytes of a parameter.
fn map(
    element: TensorType,
    address: u64,
    [rows, columns]: [usize; 2],
    [tile_rows, tile_columns]: [u32; 2],
    swizzle: Swizzle,
) -> Vec<u8> {
    let sizes = [columns as u64, rows as u64];
    let dense = TensorMap::dense(element, address, &sizes, &[tile_columns, tile_rows]);
    TensorMap { swizzle, ..dense }.encode().expect("a valid map").to_vec()
}

fn transpose(device: &Device) -> Result<Run, Box<Finding>> {
    transpose_with(device, 128)
}

/// Transposes a matrix whose sizes are no multiples of the tiles' sizes.
fn transpose_with(device: &Device, threads: u32) -> Result<Run, Box<Finding>> {
    let (rows, columns, scale) = (100, 40, 0.5f32);
    let x = singles(rows * columns, 1);
    let y = device.output::<f32>(rows * columns);
    let tile = |address, sizes| map(TensorType::F32, address, sizes, [32, 32], Swizzle::None);
    let tiles = rows.div_ceil(32) as u32;
    let arguments = [
        tile(device.buffer(&x), [rows, columns]),
        tile(y, [columns, rows]),
        scale.to_le_bytes().to_vec(),
        tiles.to_le_bytes().to_vec(),
    ];
    let config = LaunchConfig::linear(columns.div_ceil(32) as u32, threads);
    device.try_run_bytes("transpose", config, &arguments)?;
    let expected = transposed(&doubles(&x), columns).iter().map(|x| x * scale as f64).collect();
    Ok(Run { got: doubles(&device.read::<f32>(y, rows * columns)), expected, tolerance: 0.0 })
}

fn multiply(device: &Device) -> Result<Run, Box<Finding>> {
    multiply_with(device, Swizzle::Bytes128)
}

/// Multiplies matrices whose sizes are no multiples of the tiles' sizes. Sums of the products are exact.
fn multiply_with(device: &Device, swizzle: Swizzle) -> Result<Run, Box<Finding>> {
    // Six steps, so that each of the three stages is filled twice.
    let (m, n, k) = (100, 40, 328);
    let (a, b) = (halves(&singles(m * k, 2)), halves(&singles(n * k, 3)));
    let c = device.output::<f32>(m * n);
    let steps = k.div_ceil(64) as u32;
    let arguments = [
        map(TensorType::F16, device.buffer(&a), [m, k], [64, 64], swizzle),
        map(TensorType::F16, device.buffer(&b), [n, k], [32, 64], swizzle),
        map(TensorType::F32, c, [m, n], [64, 32], Swizzle::None),
        steps.to_le_bytes().to_vec(),
    ];
    let config = grid([m.div_ceil(64) as u32, n.div_ceil(32) as u32], [160, 1], 0);
    device.try_run_bytes("product", config, &arguments)?;
    let expected = product(&half_values(&a), &transposed(&half_values(&b), k), k, n);
    Ok(Run { got: doubles(&device.read::<f32>(c, m * n)), expected, tolerance: 0.0 })
}

/// PTX with this kernel alone, so that bugs are seeded into no other.
fn only(kernel: &str) -> &'static str {
    let (header, entries) = PTX.split_once(".visible").expect("entries");
    let entry = entries
        .split(".visible")
        .find(|entry| entry.contains(&format!(".entry {kernel}(")))
        .expect("its name");
    format!("{header}.visible{entry}").leak()
}

fn cases() -> [Case; 2] {
    [
        Case { name: "transpose", ptx: only("transpose"), run: transpose },
        Case { name: "product", ptx: only("product"), run: multiply },
    ]
}

#[test]
fn results_are_exact() {
    for Case { name, ptx, run } in &cases() {
        match run(&Device::load(ptx)) {
            Ok(run) => assert!(run.is_right(), "{name}: off by {:e}", run.difference()),
            Err(finding) => panic!("{name}: {finding}"),
        }
    }
}

#[test]
fn maps_without_the_swizzle_of_the_descriptors_give_another_product() {
    let run = multiply_with(&Device::load(PTX), Swizzle::None).unwrap_or_else(|finding| panic!("{finding}"));
    assert!(!run.is_right());
}

/// Exchanges the two coordinates of a tile.
fn other_coordinates(line: &str) -> String {
    let (before, rest) = line.split_once('{').expect("coordinates");
    let (coordinates, after) = rest.split_once('}').expect("coordinates");
    let (x, y) = coordinates.split_once(", ").expect("two coordinates");
    format!("{before}{{{y}, {x}}}{after}")
}

#[test]
fn seeded_bugs_are_found() {
    let mut mutants = Mutants::new(&[]);
    let [transpose, product] = &cases();
    for (case, bytes) in [(transpose, 4096), (product, 12288)] {
        for (what, pattern) in [
            ("without bar.sync", "bar.sync"),
            ("without fence.mbarrier_init", "fence.mbarrier_init"),
            ("without fence.proxy.async", "fence.proxy.async"),
            ("without mbarrier.init", "mbarrier.init"),
            ("without expect_tx", "expect_tx"),
            ("without a load", "complete_tx"),
            ("without the store", "bulk_group ["),
            ("without commit_group", "cp.async.bulk.commit_group"),
            ("without wait_group", "cp.async.bulk.wait_group"),
        ] {
            mutants.add(case, what, pattern, left_out);
        }
        mutants.add(case, "wait_group a group early", "cp.async.bulk.wait_group", a_group_early);
        mutants.add(case, "16 bytes more expected", "expect_tx", last_operand(&(bytes + 16).to_string()));
        mutants.add(case, "16 bytes less expected", "expect_tx", last_operand(&(bytes - 16).to_string()));
        mutants.add(case, "an arrival more expected", "mbarrier.init", last_operand("129"));
        mutants.add(case, "always the phase of parity 0", "try_wait", last_operand("0"));
        mutants.add(case, "always the phase of parity 1", "try_wait", last_operand("1"));
        mutants.add(case, "other coordinates", "cp.async.bulk.tensor", other_coordinates);
    }
    let one_more = |line: &str| line.replace("setp.lt.s32", "setp.le.s32");
    mutants.add(transpose, "one element more", "%r83, 1024", one_more);
    mutants.add(transpose, "one tile more", "%r82, %r21", one_more);
    mutants.add(transpose, "one load more", "%r19, %r21", |line| line.replace("setp.ge.s32", "setp.gt.s32"));
    mutants.add(product, "one step more", "setp.lt.s32 \t%p11", one_more);
    mutants.add(product, "one step more multiplied", "setp.lt.s32 \t%p5", one_more);
    // With several warps, a barrier passes the completion on from those whose first test finds it.
    let one_warp =
        Case { name: "transpose by one warp", ptx: transpose.ptx, run: |device| transpose_with(device, 32) };
    mutants.add(&one_warp, "with a single test of the phase", "@%p5 bra", left_out);
    mutants.add(product, "with a single test of an empty stage", "@%p10 bra", left_out);
    mutants.add(product, "with a single test of a full stage", "@%p4 bra", left_out);
    for (what, pattern) in [
        ("without the arrival", "mbarrier.arrive.shared"),
        ("without wgmma.fence", "wgmma.fence"),
        ("without wgmma.commit_group", "wgmma.commit_group"),
        ("without wgmma.wait_group", "wgmma.wait_group"),
    ] {
        mutants.add(product, what, pattern, left_out);
    }
    mutants.add(product, "wgmma.wait_group a group early", "wgmma.wait_group", a_group_early);
    mutants.add(product, "with another swizzle", "or.b64", other_swizzle);
    mutants.add(product, "other columns", "add.s64", last_operand("1"));
    expect![[r#"
        transpose without bar.sync: Race, AsyncCopy, Race
        transpose without fence.mbarrier_init: ProxyFence
        transpose without fence.proxy.async: ProxyFence
        transpose without mbarrier.init: Mbarrier, Mbarrier
        transpose without expect_tx: Deadlock, Deadlock
        transpose without a load: Deadlock, Deadlock
        transpose without the store: wrong result
        transpose without commit_group: AsyncCopy
        transpose without wait_group: AsyncCopy, AsyncCopy
        transpose wait_group a group early: AsyncCopy, AsyncCopy
        transpose 16 bytes more expected: Deadlock, Deadlock
        transpose 16 bytes less expected: Deadlock, Deadlock
        transpose an arrival more expected: Deadlock, Deadlock
        transpose always the phase of parity 0: AsyncCopy
        transpose always the phase of parity 1: AsyncCopy
        transpose other coordinates: wrong result, wrong result, wrong result
        product without bar.sync: Race, Race
        product without fence.mbarrier_init: ProxyFence
        product without fence.proxy.async: ProxyFence
        product without mbarrier.init: Mbarrier, Mbarrier, Mbarrier, Mbarrier, Mbarrier, Mbarrier
        product without expect_tx: Deadlock
        product without a load: Deadlock, Deadlock
        product without the store: wrong result
        product without commit_group: AsyncCopy
        product without wait_group: AsyncCopy
        product wait_group a group early: AsyncCopy
        product 16 bytes more expected: Deadlock
        product 16 bytes less expected: Deadlock
        product an arrival more expected: Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock
        product always the phase of parity 0: Deadlock, AsyncCopy
        product always the phase of parity 1: Mbarrier, Uninitialised
        product other coordinates: wrong result, wrong result, Race
        transpose one element more: AsyncCopy
        transpose one tile more: Deadlock
        transpose one load more: AsyncCopy
        product one step more: AsyncCopy
        product one step more multiplied: Deadlock
        transpose by one warp with a single test of the phase: AsyncCopy
        product with a single test of an empty stage: Wgmma
        product with a single test of a full stage: AsyncCopy
        product without the arrival: Deadlock
        product without wgmma.fence: Wgmma
        product without wgmma.commit_group: Wgmma
        product without wgmma.wait_group: Wgmma
        product wgmma.wait_group a group early: Race
        product with another swizzle: wrong result, wrong result
        product other columns: wrong result, wrong result, wrong result, wrong result, wrong result, wrong result
        none survives
    "#]].assert_eq(&mutants.finish());
}
