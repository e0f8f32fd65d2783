//! Kernels of `triton/kernels.py` for sm_80: results against float64, and what is found if they are damaged.

use bespoke_emulator::{Finding, LaunchConfig};
use expect_test::expect;

use crate::device::{Device, float, grid, singles};
use crate::hopper::{attention_in, doubles, half_values, launch, product, quantised_in};
use crate::matrices::halves;
use crate::mutants::{Case, Equivalent, Mutants, Run, a_group_early, equivalent, left_out};
use crate::reductions;

fn rows(rows: usize) -> LaunchConfig {
    LaunchConfig { dynamic_shared: 64, ..LaunchConfig::linear(rows as u32, 128) }
}

fn softmax(device: &Device) -> Result<Run, Box<Finding>> {
    let (count, columns) = (5, 200);
    let x: Vec<f32> = singles(count * columns, 1).iter().map(|x| 5.0 * x).collect();
    let y = device.output::<f32>(count * columns);
    launch(device, "softmax", rows(count), &[device.buffer(&x), y, columns as u64])?;
    let expected: Vec<f32> = x.chunks(columns).flat_map(reductions::softmax).collect();
    let got = doubles(&device.read::<f32>(y, count * columns));
    Ok(Run { got, expected: doubles(&expected), tolerance: 1e-6 })
}

fn layernorm(device: &Device) -> Result<Run, Box<Finding>> {
    let (count, columns) = (3, 300);
    let (x, gain, bias) = (singles(count * columns, 2), singles(columns, 3), singles(columns, 4));
    let y = device.output::<f32>(count * columns);
    let inputs = [&x, &gain, &bias].map(|values| device.buffer(values));
    let arguments = [inputs[0], inputs[1], inputs[2], y, columns as u64, float(1e-5)];
    launch(device, "layernorm", rows(count), &arguments)?;
    let normalised = |row: &[f32]| reductions::normalised(row, &gain, &bias);
    let expected: Vec<f32> = x.chunks(columns).flat_map(normalised).collect();
    let got = doubles(&device.read::<f32>(y, count * columns));
    Ok(Run { got, expected: doubles(&expected), tolerance: 1e-5 })
}

fn matmul(device: &Device) -> Result<Run, Box<Finding>> {
    let (m, n, k) = (64, 96, 80);
    let (a, b) = (halves(&singles(m * k, 5)), halves(&singles(k * n, 6)));
    let c = device.output::<u16>(m * n);
    let arguments = [device.buffer(&a), device.buffer(&b), c, m as u64, n as u64, k as u64];
    launch(device, "matmul", grid([m as u32 / 32, n as u32 / 32], [64, 1], 16 << 10), &arguments)?;
    let expected = product(&half_values(&a), &half_values(&b), k, n);
    Ok(Run { got: half_values(&device.read::<u16>(c, m * n)), expected, tolerance: 5e-4 })
}

fn attention(device: &Device) -> Result<Run, Box<Finding>> {
    attention_in(device, 32, 64, 10240)
}

fn quantised(device: &Device) -> Result<Run, Box<Finding>> {
    quantised_in(device, 32, 64, 6144)
}

const CASES: [Case; 5] = [
    Case { name: "softmax", ptx: include_str!("triton/softmax.ptx"), run: softmax },
    Case { name: "layernorm", ptx: include_str!("triton/layernorm.ptx"), run: layernorm },
    Case { name: "matmul", ptx: include_str!("triton/matmul.ptx"), run: matmul },
    Case { name: "attention", ptx: include_str!("triton/attention.ptx"), run: attention },
    Case { name: "quantised", ptx: include_str!("triton/quantised.ptx"), run: quantised },
];

#[test]
fn results_match_float64() {
    for Case { name, ptx, run } in &CASES {
        match run(&Device::load(ptx)) {
            Ok(run) => assert!(run.is_right(), "{name}: off by {:e}", run.difference()),
            Err(finding) => panic!("{name}: {finding}"),
        }
    }
}

/// Mutants that behave as the kernel does.
const EQUIVALENT: [Equivalent; 8] = [
    equivalent("matmul", "without bar.sync", &[2], NO_STORE),
    equivalent("matmul", "without cp.async", &[12], EMPTY),
    equivalent("matmul", "cp.async of the next 16 bytes", &[12], EMPTY),
    equivalent("matmul", "without cp.async.commit_group", &[1], ONE_GROUP),
    equivalent("attention", "without cp.async.commit_group", &[1], ONE_GROUP),
    equivalent("quantised", "without cp.async.commit_group", &[1], ONE_GROUP),
    equivalent("matmul", "without cp.async.wait_group", &[2, 3, 4], REPEATED),
    equivalent("matmul", "cp.async.wait_group a group early", &[2, 3, 4], REPEATED),
];
const NO_STORE: &str = "no write of shared memory is between this barrier and the one before";
const EMPTY: &str =
    "with 80 rows of B, the rows of this copy are past the end: it reads nothing, and A is zero there";
const ONE_GROUP: &str = "the first two groups are one then, and all waits are for both";
const REPEATED: &str = "no copy is issued between two of these waits";

#[test]
fn seeded_bugs_are_found() {
    let mut mutants = Mutants::new(&EQUIVALENT);
    for case in &CASES {
        mutants.add(case, "without bar.sync", "bar.sync", left_out);
        mutants.add(case, "without st.shared", "st.shared", left_out);
    }
    let [softmax, layernorm, tiled @ ..] = &CASES;
    let one_more = |line: &str| line.replace("setp.lt.s32", "setp.le.s32");
    // The masks of the loads and stores.
    for (case, masks) in
        [(softmax, &["%p2, %r10"][..]), (layernorm, &["%p2, %r14", "%p4, %r37", "%p6, %r63"])]
    {
        for mask in masks {
            mutants.add(case, &format!("one element more ({mask})"), mask, one_more);
        }
        mutants.add(case, "the next element loaded", "ld.global", |line| line.replace(" + 0 ]", " + 4 ]"));
        mutants.add(case, "the next element stored", "st.global", |line| line.replace(" + 0 ]", " + 4 ]"));
    }
    mutants.add(softmax, "without the value outside of the row", "mov.b32 \t%r2,", left_out);
    mutants.add(layernorm, "without the value outside of the row", "mov.b32 \t%r12,", left_out);
    for case in tiled {
        mutants.add(case, "without cp.async", "cp.async.cg", left_out);
        mutants.add(case, "cp.async of the next 16 bytes", "cp.async.cg", |line| {
            let (target, source) = line.split_once("],").expect("two operands");
            format!("{target}],{}", source.replace(" + 0 ]", " + 16 ]"))
        });
        mutants.add(case, "without cp.async.commit_group", "cp.async.commit_group", left_out);
        mutants.add(case, "without cp.async.wait_group", "cp.async.wait_group", left_out);
        mutants.add(case, "cp.async.wait_group a group early", "cp.async.wait_group", a_group_early);
        mutants.add(case, "the next 16 bytes stored", "st.global", |line| line.replace(" + 0 ]", " + 16 ]"));
    }
    expect![[r#"
        softmax without bar.sync: Race, Race, Race
        softmax without st.shared: Uninitialised, wrong result
        layernorm without bar.sync: Race, Race, Race
        layernorm without st.shared: Uninitialised, wrong result
        matmul without bar.sync: Race, equivalent, Race, AsyncCopy, AsyncCopy, Race
        matmul without st.shared: wrong result, wrong result, wrong result, wrong result
        attention without bar.sync: Race, Race, Race, Race
        attention without st.shared: Uninitialised, Uninitialised, wrong result, wrong result, wrong result, wrong result
        quantised without bar.sync: Race, Race, AsyncCopy, Race
        quantised without st.shared: wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result
        softmax one element more (%p2, %r10): Race
        softmax the next element loaded: wrong result, OutOfBounds
        softmax the next element stored: Race, Race
        layernorm one element more (%p2, %r14): OutOfBounds
        layernorm one element more (%p4, %r37): OutOfBounds
        layernorm one element more (%p6, %r63): OutOfBounds
        layernorm the next element loaded: OutOfBounds, OutOfBounds, OutOfBounds, OutOfBounds, OutOfBounds
        layernorm the next element stored: OutOfBounds
        softmax without the value outside of the row: Uninitialised
        layernorm without the value outside of the row: Uninitialised
        matmul without cp.async: Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, wrong result, wrong result, wrong result, equivalent
        matmul cp.async of the next 16 bytes: wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, OutOfBounds, OutOfBounds, equivalent
        matmul without cp.async.commit_group: equivalent, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy
        matmul without cp.async.wait_group: AsyncCopy, equivalent, equivalent, equivalent, AsyncCopy
        matmul cp.async.wait_group a group early: AsyncCopy, equivalent, equivalent, equivalent, AsyncCopy
        matmul the next 16 bytes stored: Race, Race
        attention without cp.async: Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, wrong result, wrong result, wrong result, wrong result
        attention cp.async of the next 16 bytes: wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, OutOfBounds, wrong result, OutOfBounds
        attention without cp.async.commit_group: equivalent, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy
        attention without cp.async.wait_group: AsyncCopy, AsyncCopy
        attention cp.async.wait_group a group early: AsyncCopy, AsyncCopy
        attention the next 16 bytes stored: Race, Race, Race, Race
        quantised without cp.async: Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, Uninitialised, wrong result, wrong result, wrong result
        quantised cp.async of the next 16 bytes: wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, OutOfBounds, wrong result, OutOfBounds
        quantised without cp.async.commit_group: equivalent, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy
        quantised without cp.async.wait_group: AsyncCopy, AsyncCopy
        quantised cp.async.wait_group a group early: AsyncCopy, AsyncCopy
        quantised the next 16 bytes stored: Race, Race, Race, Race
        none survives
    "#]]
    .assert_eq(&mutants.finish());
}
