//! Backward pass of causal attention by Triton (`triton/kernels.py`), for sm_80 and, with `wgmma`, for sm_90a: gradients
//! against float64, and what is found if its synchronisation or its indices are damaged.

use std::sync::LazyLock;

use bespoke_emulator::{Finding, FindingKind, LaunchConfig, Swizzle, TensorMap, TensorType};
use expect_test::expect;

use crate::device::{Device, grid, singles};
use crate::hopper::{doubles, half_values, launch, other_swizzle};
use crate::matrices::halves;
use crate::mutants::{Case, Equivalent, Mutants, Run, a_group_early, equivalent, last_operand, left_out};

const D: usize = 32;
const SCALE: f32 = 0.25;

/// Inputs of the backward pass, and the gradients in float64.
struct Problem {
    heads: usize,
    /// Q, K, V and dO as f16.
    inputs: [Vec<u16>; 4],
    /// Logarithm of each row's sum of exponentials.
    logs: Vec<f32>,
    /// Sum of O · dO of each row.
    delta: Vec<f32>,
    /// dQ, dK and dV.
    gradients: [Vec<f64>; 3],
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Adds `factor · x` to a row.
fn add(row: &mut [f64], factor: f64, x: &[f64]) {
    row.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * x);
}

impl Problem {
    /// Attention over `t` positions in each of `heads` heads.
    fn new(heads: usize, t: usize) -> Problem {
        let inputs = [1, 2, 3, 4].map(|seed| halves(&singles(heads * t * D, seed)));
        let [q, k, v, d_o] = [0, 1, 2, 3].map(|at| half_values(&inputs[at]));
        let row = |x: &'_ [f64], at: usize| x[at * D..][..D].to_vec();
        let mut gradients = [0, 1, 2].map(|_| vec![0.0; heads * t * D]);
        let (mut logs, mut delta) = (Vec::new(), Vec::new());
        for at in 0..heads * t {
            let (query, slope) = (row(&q, at), row(&d_o, at));
            let keys = at / t * t..at + 1;
            let score = |key: usize| SCALE as f64 * dot(&query, &row(&k, key));
            let log = keys.clone().map(|key| score(key).exp()).sum::<f64>().ln();
            let weights: Vec<f64> = keys.clone().map(|key| (score(key) - log).exp()).collect();
            let slopes: Vec<f64> = keys.clone().map(|key| dot(&slope, &row(&v, key))).collect();
            let sum = dot(&weights, &slopes);
            for ((key, weight), of_weight) in keys.zip(&weights).zip(&slopes) {
                let of_score = SCALE as f64 * weight * (of_weight - sum);
                add(&mut gradients[0][at * D..][..D], of_score, &row(&k, key));
                add(&mut gradients[1][key * D..][..D], of_score, &query);
                add(&mut gradients[2][key * D..][..D], *weight, &slope);
            }
            logs.push(log as f32);
            delta.push(sum as f32);
        }
        Problem { heads, inputs, logs, delta, gradients }
    }

    fn run(&self, device: &Device, ([block, threads, shared], inputs): Launch) -> Result<Run, Box<Finding>> {
        let rows = self.logs.len();
        let t = rows / self.heads;
        let outputs = [0, 1, 2].map(|_| device.output::<f32>(rows * D));
        let mut arguments: Vec<Vec<u8>> =
            self.inputs.iter().flat_map(|values| inputs(device.buffer(values), rows)).collect();
        let pointers = [device.buffer(&self.logs), device.buffer(&self.delta)].into_iter().chain(outputs);
        arguments.extend(pointers.map(|pointer| pointer.to_le_bytes().to_vec()));
        arguments.extend([(t as u32).to_le_bytes().to_vec(), SCALE.to_le_bytes().to_vec()]);
        let config = grid([t as u32 / block, self.heads as u32], [threads, 1], shared);
        device.try_run_bytes("attention_backward", config, &arguments)?;
        let got = outputs.iter().flat_map(|&output| doubles(&device.read::<f32>(output, rows * D))).collect();
        Ok(Run { got, expected: self.gradients.concat(), tolerance: 1e-3 })
    }
}

fn pointer(address: u64, _rows: usize) -> Vec<Vec<u8>> {
    vec![address.to_le_bytes().to_vec()]
}

/// Tensor map of rows of f16, with the sizes and strides that Triton passes, too, and this kernel does not read.
fn tensor_map(address: u64, rows: usize) -> Vec<Vec<u8>> {
    let dense = TensorMap::dense(TensorType::F16, address, &[D as u64, rows as u64], &[D as u32, 64]);
    let map = TensorMap { swizzle: Swizzle::Bytes64, ..dense }.encode().expect("a valid map").to_vec();
    vec![map, vec![0; 4], vec![0; 4], vec![0; 8], vec![0; 8]]
}

/// Launch of a kernel: rows and threads of a CTA, shared memory, and the arguments of Q, K, V and dO.
type Launch = ([u32; 3], fn(u64, usize) -> Vec<Vec<u8>>);

const WARPS: Launch = ([32, 64, 12800], pointer);
const WARPGROUPS: Launch = ([64, 128, 33792], pointer);
const MAPS: Launch = ([64, 128, 33816], tensor_map);

/// Runs a kernel for one head with four CTAs, so that stages are reused.
fn one_head(device: &Device, launch: Launch) -> Result<Run, Box<Finding>> {
    static PROBLEMS: [LazyLock<Problem>; 2] =
        [LazyLock::new(|| Problem::new(1, 128)), LazyLock::new(|| Problem::new(1, 256))];
    PROBLEMS[(launch.0[0] == 64) as usize].run(device, launch)
}

fn delta(device: &Device) -> Result<Run, Box<Finding>> {
    let rows = 96;
    let (o, d_o) = (singles(rows * D, 5), halves(&singles(rows * D, 6)));
    let sums = device.output::<f32>(rows);
    let config = LaunchConfig { dynamic_shared: 128, ..LaunchConfig::linear(rows as u32 / 32, 64) };
    launch(device, "attention_delta", config, &[device.buffer(&o), device.buffer(&d_o), sums])?;
    let pairs = doubles(&o).into_iter().zip(half_values(&d_o)).collect::<Vec<_>>();
    let expected = pairs.chunks(D).map(|row| row.iter().map(|(x, y)| x * y).sum()).collect();
    Ok(Run { got: doubles(&device.read::<f32>(sums, rows)), expected, tolerance: 1e-6 })
}

const FENCE: &str = "fence.mbarrier_init.release.cluster;";

/// The kernel with a fence after each initialisation of mbarriers, which Triton leaves out.
static FENCED: LazyLock<String> = LazyLock::new(|| {
    let lines: Vec<&str> = include_str!("triton/attention_backward_tma_sm90.ptx").lines().collect();
    let mut text = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        text.push(*line);
        let next =
            lines[at + 1..].iter().find(|line| line.contains("mbarrier.init") || line.contains("bar.sync"));
        if line.contains("mbarrier.init") && next.is_some_and(|next| next.contains("bar.sync")) {
            text.push(FENCE);
        }
    }
    text.join("\n")
});

const WARPS_PTX: &str = include_str!("triton/attention_backward.ptx");
const WARPGROUPS_PTX: &str = include_str!("triton/attention_backward_sm90.ptx");

#[test]
fn gradients_match_float64() {
    let texts = [(WARPS_PTX, WARPS, 128), (WARPGROUPS_PTX, WARPGROUPS, 256), (&*FENCED, MAPS, 256)];
    for (text, launch, t) in texts {
        match Problem::new(2, t).run(&Device::load(text), launch) {
            Ok(run) => assert!(run.is_right(), "{launch:?}: off by {:e}", run.difference()),
            Err(finding) => panic!("{launch:?}: {finding}"),
        }
    }
}

#[test]
fn sums_for_the_gradients_match_float64() {
    for text in [include_str!("triton/attention_delta.ptx"), include_str!("triton/attention_delta_sm90.ptx")]
    {
        let run = delta(&Device::load(text)).unwrap_or_else(|finding| panic!("{finding}"));
        assert!(run.is_right(), "off by {:e}", run.difference());
    }
}

#[test]
fn without_the_fences_that_triton_leaves_out_a_copy_may_not_signal_the_mbarrier() {
    let text = include_str!("triton/attention_backward_tma_sm90.ptx");
    let finding = one_head(&Device::load(text), MAPS).err().expect("a finding");
    assert_eq!(finding.kind, FindingKind::ProxyFence, "{finding}");
}

/// Mutants that behave as the kernel does.
const EQUIVALENT: [Equivalent; 15] = [
    equivalent("warps", "without cp.async.commit_group", &[1, 2, 3, 13], ONE_GROUP),
    equivalent("warps", "cp.async.wait_group a group early", &[2], ZEROS),
    equivalent("warpgroups", "without bar.sync", &[9], WAITED),
    equivalent("warpgroups", "without wgmma.fence", &[3, 5, 6], FENCED_BEFORE),
    equivalent("warpgroups", "without wgmma.commit_group", &[2], ONE_WAIT),
    equivalent("warpgroups", "without fence.proxy.async", &[2, 3, 4, 6, 7], NO_STORE),
    equivalent("warpgroups", "cp.async.wait_group a group early", &[2], ZEROS),
    equivalent("maps", "without bar.sync", &[1, 2, 4, 5, 7, 8, 10, 11, 14, 15], TWICE),
    equivalent("maps", "without bar.sync", &[22, 23, 25, 26, 28, 29, 31, 32, 35, 36], TWICE),
    equivalent("maps", "without bar.sync", &[9, 12, 16, 30, 33, 37], BETWEEN_LOADS),
    equivalent("maps", "without bar.sync", &[17, 38, 39], ORDERED_WAITS),
    equivalent("maps", "without bar.sync", &[21], OWN_BYTES),
    equivalent("maps", "without bar.sync", &[34], OWN_WAITS),
    equivalent("maps", "without fence.mbarrier_init", &[3, 6], PROXY_FENCE),
    equivalent("maps", "without mbarrier.inval", &[3, 4, 5, 8, 9, 10], NOT_REUSED),
];
const ONE_GROUP: &str = "the copies join the next group, which the same wait covers";
const ONE_WAIT: &str = "the products join the next group, and both are waited for at once";
const ZEROS: &str =
    "the last group has no row of the tensor to copy: it writes zeros where nothing is read or written later";
const WAITED: &str = "the barrier only keeps the copies of the next stage behind `wgmma` that the warp has waited for, and \
                      which are complete in all warps then";
const FENCED_BEFORE: &str =
    "no access of the registers of this `wgmma` is between this fence and the one before";
const NO_STORE: &str = "no store is between this fence and the one before";
const TWICE: &str = "two barriers with only `expect_tx` between them; either is enough";
const BETWEEN_LOADS: &str = "the barrier is between two copies by one thread";
const ORDERED_WAITS: &str =
    "other barriers are between the last waits for the mbarriers and their invalidation";
const OWN_BYTES: &str =
    "the bytes of the mbarrier were read by the thread that initialises it, and by no other";
const OWN_WAITS: &str = "every warp has waited for the copies itself";
const PROXY_FENCE: &str = "`fence.proxy.async` follows, before the copies";
const NOT_REUSED: &str = "the memory of the mbarrier is not used again";

#[test]
fn seeded_bugs_are_found() {
    let mut mutants = Mutants::new(&EQUIVALENT);
    let warps = Case { name: "warps", ptx: WARPS_PTX, run: |device| one_head(device, WARPS) };
    let warpgroups =
        Case { name: "warpgroups", ptx: WARPGROUPS_PTX, run: |device| one_head(device, WARPGROUPS) };
    let maps = Case { name: "maps", ptx: &FENCED, run: |device| one_head(device, MAPS) };
    mutants.add(&warps, "without bar.sync", "bar.sync", left_out);
    mutants.add(&warps, "without cp.async.commit_group", "cp.async.commit_group", left_out);
    mutants.add(&warps, "without cp.async.wait_group", "cp.async.wait_group", left_out);
    mutants.add(&warps, "cp.async.wait_group a group early", "cp.async.wait_group", a_group_early);
    for (what, pattern) in [
        ("without bar.sync", "bar.sync"),
        ("without wgmma.fence", "wgmma.fence"),
        ("without wgmma.commit_group", "wgmma.commit_group"),
        ("without wgmma.wait_group", "wgmma.wait_group"),
        ("without fence.proxy.async", "fence.proxy.async"),
        ("without cp.async.wait_group", "cp.async.wait_group"),
    ] {
        mutants.add(&warpgroups, what, pattern, left_out);
    }
    mutants.add(&warpgroups, "wgmma.wait_group a group early", "wgmma.wait_group", a_group_early);
    mutants.add(&warpgroups, "cp.async.wait_group a group early", "cp.async.wait_group", a_group_early);
    mutants.add(&maps, "without bar.sync", "bar.sync", left_out);
    mutants.add(&maps, "without fence.proxy.async", "fence.proxy.async", left_out);
    mutants.add(&maps, "without fence.mbarrier_init", FENCE, left_out);
    mutants.add(&maps, "without expect_tx", "expect_tx", left_out);
    mutants.add(&maps, "without a load", "complete_tx", left_out);
    mutants.add(&maps, "without mbarrier.inval", "mbarrier.inval", left_out);
    mutants.add(&maps, "16 bytes more expected (K)", "_, [%r44], 4096", last_operand("4112"));
    mutants.add(&maps, "16 bytes less expected (Q and dO)", "_, [%r48], 8192", last_operand("8176"));
    mutants.add(&maps, "always the phase of parity 0", "[%r91], %r1037", last_operand("0"));
    mutants.add(&maps, "always the phase of parity 1", "try_wait", last_operand("1"));
    // Comparisons of the causal mask, first for dK and dV, then for dQ, and the end of the loop over rows.
    let one_less = |line: &str| line.replace("setp.gt", "setp.ge");
    mutants.add(&warps, "the diagonal masked", "%p6, %r20, %r318", one_less);
    mutants.add(&warps, "the diagonal masked", "%p29, %rd111, %rd15", one_less);
    mutants.add(&warps, "a block of rows more copied", "%p3, %r92, %r48", |line| {
        line.replace("setp.lt", "setp.le")
    });
    mutants.add(&warps, "the next 16 bytes stored", "st.global", |line| line.replace(" + 0 ]", " + 16 ]"));
    mutants.add(&warpgroups, "with another swizzle", "%rd100, -9", other_swizzle);
    expect![[r#"
        warps without bar.sync: Race, Race, Race, Race, Race, Race, Race, Race, Race, Race, Race
        warps without cp.async.commit_group: equivalent, equivalent, equivalent, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, equivalent, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy
        warps without cp.async.wait_group: AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy
        warps cp.async.wait_group a group early: AsyncCopy, equivalent, AsyncCopy, AsyncCopy
        warpgroups without bar.sync: Race, Race, Race, Race, Race, Race, Race, Race, equivalent, Race, Race
        warpgroups without wgmma.fence: Wgmma, Wgmma, equivalent, Wgmma, equivalent, equivalent, Wgmma
        warpgroups without wgmma.commit_group: Wgmma, equivalent, Wgmma, Wgmma, Wgmma, Wgmma, Wgmma
        warpgroups without wgmma.wait_group: Wgmma, Wgmma, Wgmma, Wgmma, Wgmma, Wgmma
        warpgroups without fence.proxy.async: ProxyFence, equivalent, equivalent, equivalent, ProxyFence, equivalent, equivalent
        warpgroups without cp.async.wait_group: AsyncCopy, AsyncCopy, AsyncCopy, AsyncCopy
        warpgroups wgmma.wait_group a group early: Wgmma, Wgmma, Wgmma, Wgmma, Wgmma, Wgmma
        warpgroups cp.async.wait_group a group early: AsyncCopy, equivalent, AsyncCopy, AsyncCopy
        maps without bar.sync: equivalent, equivalent, Race, equivalent, equivalent, Race, equivalent, equivalent, equivalent, equivalent, equivalent, equivalent, AsyncCopy, equivalent, equivalent, equivalent, equivalent, Race, Race, Race, equivalent, equivalent, equivalent, Race, equivalent, equivalent, Race, equivalent, equivalent, equivalent, equivalent, equivalent, equivalent, equivalent, equivalent, equivalent, equivalent, equivalent, equivalent, Race
        maps without fence.proxy.async: ProxyFence, ProxyFence
        maps without fence.mbarrier_init: ProxyFence, ProxyFence, equivalent, ProxyFence, ProxyFence, equivalent
        maps without expect_tx: Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock
        maps without a load: Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock, Deadlock
        maps without mbarrier.inval: Mbarrier, Mbarrier, equivalent, equivalent, equivalent, Mbarrier, Mbarrier, equivalent, equivalent, equivalent
        maps 16 bytes more expected (K): Deadlock, Deadlock, Deadlock, Deadlock
        maps 16 bytes less expected (Q and dO): Deadlock
        maps always the phase of parity 0: AsyncCopy
        maps always the phase of parity 1: Mbarrier, Mbarrier, AsyncCopy, Mbarrier, Mbarrier, AsyncCopy
        warps the diagonal masked: wrong result
        warps the diagonal masked: wrong result
        warps a block of rows more copied: OutOfBounds
        warps the next 16 bytes stored: Race, Race, Race, Race, Race, Race, Race, Race, Race, Race, Race, Race
        warpgroups with another swizzle: AsyncCopy
        none survives
    "#]].assert_eq(&mutants.finish());
}
