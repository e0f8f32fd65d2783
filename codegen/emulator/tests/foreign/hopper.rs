//! Kernels of `triton/kernels.py` for Hopper (sm_90a), with `wgmma`: results against float64, and what is found if their
//! synchronisation is damaged.

use bespoke_emulator::{Finding, LaunchConfig};
use expect_test::expect;
use half::f16;

use crate::device::{Device, float, grid, singles, words};
use crate::matrices::halves;
use crate::mutants::{Case, Equivalent, Mutants, Run, a_group_early, equivalent, left_out};
use crate::reductions::{normalised, softmax};

pub fn launch(
    device: &Device,
    kernel: &str,
    config: LaunchConfig,
    arguments: &[u64],
) -> Result<(), Box<Finding>> {
    device.try_run(kernel, config, arguments).map(drop)
}

/// `A · B` of `m` × `k` and `k` × `n` numbers in float64.
pub fn product(a: &[f64], b: &[f64], k: usize, n: usize) -> Vec<f64> {
    let element = |row: &[f64], column: usize| (0..k).map(|i| row[i] * b[i * n + column]).sum();
    a.chunks(k).flat_map(|row| (0..n).map(|column| element(row, column)).collect::<Vec<f64>>()).collect()
}

pub fn transposed(b: &[f64], k: usize) -> Vec<f64> {
    (0..k).flat_map(|i| b.iter().skip(i).step_by(k).copied().collect::<Vec<_>>()).collect()
}

pub fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| x as f64).collect()
}

pub fn half_values(bits: &[u16]) -> Vec<f64> {
    bits.iter().map(|&bits| f16::from_bits(bits).to_f64()).collect()
}

fn matmul(device: &Device) -> Result<Run, Box<Finding>> {
    let (m, n, k) = (128, 64, 192);
    let (a, b) = (halves(&singles(m * k, 5)), halves(&singles(k * n, 6)));
    let c = device.output::<u16>(m * n);
    let arguments = [device.buffer(&a), device.buffer(&b), c, m as u64, n as u64, k as u64];
    launch(device, "matmul", grid([2, 2], [128, 1], 36864), &arguments)?;
    let expected = product(&half_values(&a), &half_values(&b), k, n);
    Ok(Run { got: half_values(&device.read::<u16>(c, m * n)), expected, tolerance: 1e-3 })
}

fn attention(device: &Device) -> Result<Run, Box<Finding>> {
    attention_in(device, 64, 128, 16384)
}

/// Runs attention in CTAs of `rows` rows and `threads` threads.
pub fn attention_in(device: &Device, rows: u32, threads: u32, shared: u32) -> Result<Run, Box<Finding>> {
    let (heads, t, d, scale) = (2, 128, 32, 0.25);
    let [q, k, v] = [1, 2, 3].map(|seed| halves(&singles(heads * t * d, seed)));
    let o = device.output::<f32>(heads * t * d);
    let inputs = [&q, &k, &v].map(|values| device.buffer(values));
    let arguments = [inputs[0], inputs[1], inputs[2], o, t as u64, float(scale)];
    launch(device, "attention", grid([128 / rows, heads as u32], [threads, 1], shared), &arguments)?;
    let [q, k, v] = [&q, &k, &v].map(|bits| half_values(bits));
    let mut expected = Vec::new();
    for (row, query) in q.chunks(d).enumerate() {
        let first = row / t * t;
        let weight = |key: usize| {
            let score: f64 = query.iter().zip(&k[key * d..]).map(|(x, y)| x * y).sum();
            (score * scale as f64).exp()
        };
        let weights: Vec<f64> = (first..=row).map(weight).collect();
        let total: f64 = weights.iter().sum();
        let value =
            |at: usize| -> f64 { weights.iter().enumerate().map(|(i, w)| w * v[(first + i) * d + at]).sum() };
        expected.extend((0..d).map(|at| value(at) / total));
    }
    Ok(Run { got: doubles(&device.read::<f32>(o, heads * t * d)), expected, tolerance: 1e-3 })
}

fn quantised(device: &Device) -> Result<Run, Box<Finding>> {
    quantised_in(device, 64, 128, 20480)
}

/// Runs the product with quantised weights in CTAs of `columns` columns and `threads` threads.
pub fn quantised_in(device: &Device, columns: u32, threads: u32, shared: u32) -> Result<Run, Box<Finding>> {
    let (m, n, k) = (64, 64, 192);
    let a = halves(&singles(m * k, 7));
    let b: Vec<i8> = words(n * k, 8).into_iter().map(|word| (word >> 24) as i8).collect();
    let scales: Vec<f32> = singles(n, 9).iter().map(|x| x / 64.0).collect();
    let c = device.output::<f32>(m * n);
    let inputs = [device.buffer(&a), device.buffer(&b), device.buffer(&scales)];
    let arguments = [inputs[0], inputs[1], inputs[2], c, m as u64, n as u64, k as u64];
    launch(device, "quantised", grid([2, 64 / columns], [threads, 1], shared), &arguments)?;
    let weights: Vec<f64> = (0..n * k).map(|i| b[i] as f64 * scales[i / k] as f64).collect();
    let expected = product(&half_values(&a), &transposed(&weights, k), k, n);
    Ok(Run { got: doubles(&device.read::<f32>(c, m * n)), expected, tolerance: 1e-5 })
}

/// Value of an 8-bit float in the format E4M3.
fn e4m3(bits: u8) -> f64 {
    let (exponent, fraction) = ((bits >> 3 & 15) as i32, (bits & 7) as f64);
    let magnitude =
        if exponent == 0 { fraction / 512.0 } else { (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7) };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

fn fp8(device: &Device) -> Result<Run, Box<Finding>> {
    let (m, n, k) = (64, 64, 192);
    // Magnitudes up to 15: no NaN.
    let bytes =
        |count, seed| -> Vec<u8> { words(count, seed).into_iter().map(|w| (w >> 24) as u8 & 0xd7).collect() };
    let (a, b) = (bytes(m * k, 10), bytes(n * k, 11));
    let c = device.output::<f32>(m * n);
    let arguments = [device.buffer(&a), device.buffer(&b), c, m as u64, n as u64, k as u64];
    launch(device, "matmul_t", grid([1, 2], [128, 1], 18432), &arguments)?;
    let [a, b] = [&a, &b].map(|bytes| bytes.iter().map(|&bits| e4m3(bits)).collect::<Vec<f64>>());
    let expected = product(&a, &transposed(&b, k), k, n);
    // Hopper cuts the terms of a sum 13 bits below the largest, six times along K.
    Ok(Run { got: doubles(&device.read::<f32>(c, m * n)), expected, tolerance: 2e-3 })
}

fn int8(device: &Device) -> Result<Run, Box<Finding>> {
    let (m, n, k) = (64, 64, 192);
    let bytes =
        |count, seed| -> Vec<i8> { words(count, seed).into_iter().map(|w| (w >> 24) as i8).collect() };
    let (a, b) = (bytes(m * k, 12), bytes(n * k, 13));
    let c = device.output::<i32>(m * n);
    let arguments = [device.buffer(&a), device.buffer(&b), c, m as u64, n as u64, k as u64];
    launch(device, "matmul_t", grid([1, 2], [128, 1], 18432), &arguments)?;
    let [a, b] = [&a, &b].map(|bytes| bytes.iter().map(|&x| x as f64).collect::<Vec<f64>>());
    let got = device.read::<i32>(c, m * n).into_iter().map(f64::from).collect();
    Ok(Run { got, expected: product(&a, &transposed(&b, k), k, n), tolerance: 0.0 })
}

fn tf32(device: &Device) -> Result<Run, Box<Finding>> {
    let (m, n, k) = (64, 64, 96);
    // Few significant bits, which tf32 holds.
    let (a, b) = (singles(m * k, 14), singles(n * k, 15));
    let c = device.output::<f32>(m * n);
    let arguments = [device.buffer(&a), device.buffer(&b), c, m as u64, n as u64, k as u64];
    launch(device, "matmul_t", grid([1, 2], [128, 1], 36864), &arguments)?;
    let expected = product(&doubles(&a), &transposed(&doubles(&b), k), k, n);
    Ok(Run { got: doubles(&device.read::<f32>(c, m * n)), expected, tolerance: 1e-6 })
}

const CASES: [Case; 6] = [
    Case { name: "matmul", ptx: include_str!("triton/matmul_sm90.ptx"), run: matmul },
    Case { name: "attention", ptx: include_str!("triton/attention_sm90.ptx"), run: attention },
    Case { name: "quantised", ptx: include_str!("triton/quantised_sm90.ptx"), run: quantised },
    Case { name: "fp8", ptx: include_str!("triton/fp8_sm90.ptx"), run: fp8 },
    Case { name: "int8", ptx: include_str!("triton/int8_sm90.ptx"), run: int8 },
    Case { name: "tf32", ptx: include_str!("triton/tf32_sm90.ptx"), run: tf32 },
];

#[test]
fn products_of_warpgroups_match_float64() {
    for Case { name, ptx, run } in &CASES {
        match run(&Device::load(ptx)) {
            Ok(run) => assert!(run.is_right(), "{name}: off by {:e}", run.difference()),
            Err(finding) => panic!("{name}: {finding}"),
        }
    }
}

/// Changes the swizzle in the constant that completes a matrix descriptor: 128 bytes to 64, 64 to 128, 32 to none.
pub fn other_swizzle(line: &str) -> String {
    let (rest, number) = line.trim_end_matches(';').rsplit_once(char::is_whitespace).expect("an operand");
    match number.parse::<i64>().map(|bits| bits as u64) {
        Ok(bits) if bits >> 62 != 0 => format!("{rest} {};", (bits ^ 3 << 62) as i64),
        _ => line.to_string(),
    }
}

/// Mutants that behave as the kernel does.
const EQUIVALENT: [Equivalent; 7] = [
    equivalent("matmul", "without bar.sync", &[2], WAITED),
    equivalent("attention", "without bar.sync", &[2], WAITED),
    equivalent("fp8", "without bar.sync", &[2], WAITED),
    equivalent("int8", "without bar.sync", &[2], WAITED),
    equivalent("tf32", "without bar.sync", &[2], WAITED),
    equivalent("attention", "without fence.proxy.async", &[2], NO_STORE),
    equivalent("quantised", "without fence.proxy.async", &[2], NO_STORE),
];
const WAITED: &str = "the barrier only keeps the copies of the next stage behind `wgmma` that the warp has waited for, and \
                      which are complete in all warps then";
const NO_STORE: &str = "no store is between this fence and the one before";

#[test]
fn damaged_synchronisation_is_found() {
    let mut mutants = Mutants::new(&EQUIVALENT);
    for case in &CASES {
        for (what, pattern) in [
            ("without wgmma.fence", "wgmma.fence"),
            ("without wgmma.commit_group", "wgmma.commit_group"),
            ("without wgmma.wait_group", "wgmma.wait_group"),
        ] {
            mutants.add(case, what, pattern, left_out);
        }
        mutants.add(case, "wgmma.wait_group a group early", "wgmma.wait_group", a_group_early);
        mutants.add(case, "without fence.proxy.async", "fence.proxy.async", left_out);
        mutants.add(case, "without bar.sync", "bar.sync", left_out);
        mutants.add(case, "cp.async.wait_group a group early", "cp.async.wait_group", a_group_early);
        mutants.add(case, "with another swizzle", "or.b64", other_swizzle);
    }
    expect![[r#"
        matmul without wgmma.fence: Wgmma
        matmul without wgmma.commit_group: Wgmma
        matmul without wgmma.wait_group: Wgmma, Wgmma
        matmul wgmma.wait_group a group early: Wgmma, Wgmma
        matmul without fence.proxy.async: ProxyFence
        matmul without bar.sync: Race, equivalent, AsyncCopy, Race
        matmul cp.async.wait_group a group early: AsyncCopy, AsyncCopy
        matmul with another swizzle: wrong result, wrong result, wrong result, wrong result, wrong result, AsyncCopy, wrong result, wrong result
        attention without wgmma.fence: Wgmma, Wgmma
        attention without wgmma.commit_group: Wgmma, Wgmma
        attention without wgmma.wait_group: Wgmma, Wgmma
        attention wgmma.wait_group a group early: Wgmma, Wgmma
        attention without fence.proxy.async: ProxyFence, equivalent
        attention without bar.sync: Race, equivalent, Race, Race
        attention cp.async.wait_group a group early: AsyncCopy, AsyncCopy
        attention with another swizzle: OutOfBounds, OutOfBounds, AsyncCopy, AsyncCopy, wrong result, AsyncCopy
        quantised without wgmma.fence: Wgmma, Wgmma
        quantised without wgmma.commit_group: Wgmma, Wgmma
        quantised without wgmma.wait_group: Wgmma, Wgmma, Wgmma
        quantised wgmma.wait_group a group early: Wgmma, Wgmma, Wgmma
        quantised without fence.proxy.async: ProxyFence, equivalent
        quantised without bar.sync: Race, Race, AsyncCopy, Race
        quantised cp.async.wait_group a group early: AsyncCopy, AsyncCopy
        quantised with another swizzle: wrong result, wrong result, wrong result, wrong result
        fp8 without wgmma.fence: Wgmma
        fp8 without wgmma.commit_group: Wgmma
        fp8 without wgmma.wait_group: Wgmma, Wgmma
        fp8 wgmma.wait_group a group early: Wgmma, Wgmma
        fp8 without fence.proxy.async: ProxyFence
        fp8 without bar.sync: Race, equivalent, Race, Race
        fp8 cp.async.wait_group a group early: AsyncCopy, AsyncCopy
        fp8 with another swizzle: AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy
        int8 without wgmma.fence: Wgmma
        int8 without wgmma.commit_group: Wgmma
        int8 without wgmma.wait_group: Wgmma
        int8 wgmma.wait_group a group early: Wgmma
        int8 without fence.proxy.async: ProxyFence
        int8 without bar.sync: Race, equivalent, Race, Race
        int8 cp.async.wait_group a group early: AsyncCopy, AsyncCopy
        int8 with another swizzle: AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy
        tf32 without wgmma.fence: Wgmma
        tf32 without wgmma.commit_group: Wgmma
        tf32 without wgmma.wait_group: Wgmma, Wgmma
        tf32 wgmma.wait_group a group early: Wgmma, Wgmma
        tf32 without fence.proxy.async: ProxyFence
        tf32 without bar.sync: Race, equivalent, Race, Race
        tf32 cp.async.wait_group a group early: AsyncCopy, AsyncCopy
        tf32 with another swizzle: wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result, wrong result
        none survives
    "#]]
    .assert_eq(&mutants.finish());
}

#[test]
fn other_kernels_run_for_this_target() {
    let device = Device::load(include_str!("triton/softmax_sm90.ptx"));
    let (rows, columns) = (3, 200);
    let x = singles(rows * columns, 1);
    let y = device.output::<f32>(rows * columns);
    let config = LaunchConfig { dynamic_shared: 16, ..LaunchConfig::linear(rows as u32, 128) };
    device.run("softmax", config, &[device.buffer(&x), y, columns as u64]);
    let expected: Vec<f32> = x.chunks(columns).flat_map(softmax).collect();
    crate::device::close(&device.read::<f32>(y, rows * columns), &expected, 1e-6);
    let device = Device::load(include_str!("triton/layernorm_sm90.ptx"));
    let (gain, bias) = (singles(columns, 3), singles(columns, 4));
    let y = device.output::<f32>(rows * columns);
    let inputs = [&x, &gain, &bias].map(|values| device.buffer(values));
    device.run("layernorm", config, &[inputs[0], inputs[1], inputs[2], y, columns as u64, float(1e-5)]);
    let expected: Vec<f32> = x.chunks(columns).flat_map(|row| normalised(row, &gain, &bias)).collect();
    crate::device::close(&device.read::<f32>(y, rows * columns), &expected, 1e-5);
}
