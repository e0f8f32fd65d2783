//! The product on the emulator with all checks: exact results, and mistakes that the checks or the results show.

use bespoke_codegen::prelude::*;
use bespoke_codegen::ptxas::Ptxas;
use bespoke_emulator::{LaunchConfig, Memory, Module, Options, Swizzle, TensorMap, TensorType, run};
use expect_test::expect;
use hopper_gemm::{C_TILE, DEPTH, ROWS, Schedule, Shape, THREADS, scheduled, specialised};

/// The smallest CTA, so that the tests are fast.
const SHAPE: Shape = Shape { columns: 64, stages: 3 };

/// Small integers, the same in every run.
fn numbers(count: usize, seed: u32) -> Vec<f64> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let all = std::iter::successors(Some(seed), next).skip(1);
    all.map(|state| f64::from(state >> 8) % 5.0 - 2.0).take(count).collect()
}

fn halves(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|&value| f16::from_f64(value).to_le_bytes()).collect()
}

/// Which of the kernels.
#[derive(Clone, Copy)]
enum Step {
    Specialised,
    /// With clusters of this many CTAs.
    Scheduled(u32),
}

const ALL: [Step; 3] = [Step::Specialised, Step::Scheduled(1), Step::Scheduled(2)];

impl Step {
    /// Name of the kernel.
    fn name(self) -> &'static str {
        match self {
            Step::Specialised => "specialised",
            Step::Scheduled(_) => "scheduled",
        }
    }
}

/// A product of matrices with `m` and `n` rows of `k` elements.
struct Problem {
    step: Step,
    m: usize,
    n: usize,
    k: usize,
    /// Swizzle of the tensor map of A.
    swizzle: Swizzle,
}

impl Problem {
    fn new(step: Step, m: usize, n: usize, k: usize) -> Problem {
        Problem { step, m, n, k, swizzle: Swizzle::Bytes128 }
    }

    /// Runs PTX of the kernel and compares C with the product in f64: `None` if it is right, or what is wrong.
    fn mistake(&self, ptx: &str, shape: Shape) -> Option<String> {
        let &Problem { step, m, n, k, swizzle } = self;
        let (a, b) = (numbers(m * k, 1), numbers(n * k, 2));
        let memory = Memory::new();
        let buffer = |name: &str, bytes: &[u8]| {
            let address = memory.alloc(name, bytes.len() as u64);
            memory.write(address, bytes).unwrap();
            address
        };
        let (at_a, at_b) = (buffer("a", &halves(&a)), buffer("b", &halves(&b)));
        let at_c = buffer("c", &vec![0; m * n * 2]);
        let map = |address, sizes: [usize; 2], tile: [u32; 2], swizzle| {
            let map = TensorMap::dense(TensorType::F16, address, &sizes.map(|size| size as u64), &tile);
            TensorMap { swizzle, ..map }.encode().unwrap()
        };
        let (numbers, grid, columns) = match step {
            Step::Specialised => {
                let grid = [n.div_ceil(shape.columns as usize) as u32, m.div_ceil(ROWS as usize) as u32, 1];
                (vec![k], grid, shape.columns)
            }
            // Two clusters, whatever the number of tiles.
            Step::Scheduled(cluster) => (vec![m, n, k], [2 * cluster, 1, 1], shape.columns / cluster),
        };
        let mut params = Vec::new();
        params.extend(map(at_a, [k, m], [DEPTH, ROWS], swizzle));
        params.extend(map(at_b, [k, n], [DEPTH, columns], Swizzle::Bytes128));
        params.extend(map(at_c, [n, m], C_TILE, Swizzle::Bytes128));
        params.extend(numbers.into_iter().flat_map(|number| (number as u32).to_le_bytes()));
        let module = Module::parse(ptx).unwrap_or_else(|error| panic!("{error}"));
        let config = LaunchConfig {
            grid,
            block: [THREADS, 1, 1],
            dynamic_shared: shape.dynamic_shared(),
            cluster: None,
            cooperative: false,
        };
        let options = Options { instruction_limit: 1 << 20, ..Options::default() };
        if let Err(finding) = run(module.kernel(step.name()).unwrap(), &memory, &config, &params, &options) {
            return Some(format!("{:?}: {}", finding.kind, finding.detail));
        }
        let mut found = vec![0; m * n * 2];
        memory.read(at_c, &mut found).unwrap();
        let wrong = (0..m * n).find(|i| {
            let (row, column) = (i / n, i % n);
            // Integers up to 2,048 are exact in f16.
            let sum: f64 = (0..k).map(|p| a[row * k + p] * b[column * k + p]).sum();
            f16::from_le_bytes([found[i * 2], found[i * 2 + 1]]).to_f64() != sum
        });
        wrong.map(|i| format!("wrong result in row {}, column {}", i / n, i % n))
    }
}

fn ptx(step: Step, shape: Shape) -> String {
    let kernel = match step {
        Step::Specialised => specialised::<Swizzle128>(shape),
        Step::Scheduled(cluster) => scheduled(shape, Schedule { cluster, group: 2 }),
    };
    let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
    kernel.compile(Target::Sm90).unwrap_or_else(|error| panic!("{error}")).ptx
}

#[test]
fn products_are_exact() {
    for step in ALL {
        let small = ptx(step, SHAPE);
        for (m, n, k) in [(128, 64, 64), (128, 64, 448), (256, 128, 128), (200, 72, 200), (8, 8, 8)] {
            assert_eq!(Problem::new(step, m, n, k).mistake(&small, SHAPE), None, "{m} × {n} × {k}");
        }
        let wide = Shape { columns: 256, stages: 3 };
        assert_eq!(Problem::new(step, 128, 256, 320).mistake(&ptx(step, wide), wide), None);
    }
    // Several tiles a cluster, the last group with fewer rows.
    for step in [Step::Scheduled(1), Step::Scheduled(2)] {
        assert_eq!(Problem::new(step, 1280, 136, 72).mistake(&ptx(step, SHAPE), SHAPE), None);
    }
}

/// PTX with the text `from` replaced everywhere.
fn replaced(ptx: &str, from: &str, to: &str) -> String {
    assert!(ptx.contains(from), "the kernel has no `{from}`");
    ptx.replace(from, to)
}

/// PTX in which line number `number` of the lines that contain `with` is changed.
fn changed(ptx: &str, with: &str, number: usize, change: impl Fn(&str) -> String) -> String {
    let mut seen = 0;
    let mut lines = Vec::new();
    for line in ptx.lines() {
        let here = line.contains(with) && seen == number;
        seen += usize::from(line.contains(with));
        lines.push(if here { change(line) } else { line.to_owned() });
    }
    assert!(seen > number, "the kernel has {seen} lines with `{with}`");
    lines.join("\n") + "\n"
}

/// What is found of each of the mistakes: the kind of the finding, or the result that is wrong.
fn found(problem: &Problem, mutants: &[(&str, String)]) -> String {
    let line = |(what, ptx): &(&str, String)| {
        let found = problem.mistake(ptx, SHAPE).unwrap_or_else(|| "not found".to_owned());
        // What a deadlock is about follows from the mistake.
        format!("{what}: {}\n", found.split_once(": ").map_or(found.as_str(), |(kind, _)| kind))
    };
    mutants.iter().map(line).collect()
}

#[test]
fn mistakes_are_found() {
    let right = ptx(Step::Specialised, SHAPE);
    let none = |_: &str| String::new();
    let last_operand = |to: &'static str| {
        move |line: &str| {
            let (rest, _) = line.rsplit_once(", ").expect("several operands");
            format!("{rest}, {to};")
        }
    };
    let bytes = 2 * (ROWS + SHAPE.columns) * DEPTH;
    let wait = "mbarrier.try_wait.parity";
    let mutants = [
        ("the producer waits for the other phase", changed(&right, wait, 0, last_operand("0"))),
        ("the consumers wait for the other phase", changed(&right, wait, 1, last_operand("1"))),
        ("the consumers wait for the first phase only", changed(&right, wait, 1, last_operand("0"))),
        ("too few bytes expected", replaced(&right, &format!(", {bytes};"), &format!(", {};", bytes - 16))),
        ("too many bytes expected", replaced(&right, &format!(", {bytes};"), &format!(", {};", bytes + 16))),
        ("the operands' swizzle is 64 bytes", replaced(&right, "1073741888", "2147483712")),
        (
            "a wait one group early",
            replaced(&right, "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
        ),
        (
            "the sums are read early",
            replaced(&right, "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;"),
        ),
        ("no fence before the products", changed(&right, "wgmma.fence", 0, none)),
        ("a fence missing before the stores", replaced(&right, "fence.proxy.async.shared::cta;", "")),
        ("a stage released by half of the warps", replaced(&right, "], 8;", "], 4;")),
        ("a stage waits for a ninth warp", replaced(&right, "], 8;", "], 9;")),
        ("no initialisation fence", replaced(&right, "fence.mbarrier_init.release.cluster;", "")),
        ("the stores are not waited for", replaced(&right, "cp.async.bulk.wait_group.read 0;", "")),
        (
            "more registers than there are",
            replaced(&right, "setmaxnreg.inc.sync.aligned.u32 232", "setmaxnreg.inc.sync.aligned.u32 240"),
        ),
    ];
    let problem = Problem::new(Step::Specialised, 128, 64, 448);
    let mut report = found(&problem, &mutants);
    let other = Problem { swizzle: Swizzle::None, ..Problem::new(Step::Specialised, 128, 64, 448) };
    report += &found(&other, &[("the tensor map of A has no swizzle", right)]);
    expect![[r#"
        the producer waits for the other phase: Deadlock
        the consumers wait for the other phase: AsyncCopy
        the consumers wait for the first phase only: Wgmma
        too few bytes expected: Deadlock
        too many bytes expected: Deadlock
        the operands' swizzle is 64 bytes: wrong result in row 0, column 1
        a wait one group early: Race
        the sums are read early: Wgmma
        no fence before the products: Wgmma
        a fence missing before the stores: ProxyFence
        a stage released by half of the warps: Deadlock
        a stage waits for a ninth warp: Deadlock
        no initialisation fence: ProxyFence
        the stores are not waited for: AsyncCopy
        more registers than there are: Deadlock
        the tensor map of A has no swizzle: wrong result in row 1, column 0
    "#]]
    .assert_eq(&report);
}

#[test]
fn mistakes_in_clusters_are_found() {
    let right = ptx(Step::Scheduled(2), SHAPE);
    let none = |_: &str| String::new();
    let mutants = [
        ("a stage released by one CTA", replaced(&right, "], 16;", "], 8;")),
        (
            "no cluster barrier at the start",
            changed(&changed(&right, "barrier.cluster.arrive", 0, none), "barrier.cluster.wait", 0, none),
        ),
        (
            "no cluster barrier at the end",
            changed(&changed(&right, "barrier.cluster.arrive", 1, none), "barrier.cluster.wait", 1, none),
        ),
        ("a part of B for one CTA only", replaced(&right, ", 3;", ", 1;")),
        (
            "releases for the own CTA alone",
            replaced(&right, ".release.cluster.shared::cluster", ".shared::cluster"),
        ),
        ("the next tile is stored too early", changed(&right, "cp.async.bulk.wait_group.read 0;", 0, none)),
    ];
    expect![[r#"
        a stage released by one CTA: Wgmma
        no cluster barrier at the start: PeerNotRunning
        no cluster barrier at the end: PeerNotRunning
        a part of B for one CTA only: Mbarrier
        releases for the own CTA alone: Race
        the next tile is stored too early: AsyncCopy
    "#]]
    .assert_eq(&found(&Problem::new(Step::Scheduled(2), 512, 128, 256), &mutants));
}

#[test]
fn the_assembler_spills_nothing() {
    let Some(ptxas) = Ptxas::find().unwrap_or_else(|error| panic!("{error}")) else {
        eprintln!("skipped: no ptxas in BESPOKE_PTXAS or on PATH");
        return;
    };
    for step in ALL {
        for columns in [64, 128, 256] {
            let ptx = ptx(step, Shape { columns, stages: 3 });
            assert!(ptx.contains(".target sm_90a"));
            let usage =
                ptxas.assemble(step.name(), &ptx, Target::Sm90).unwrap_or_else(|error| panic!("{error}"));
            println!("{columns} columns: {usage:?}");
            assert_eq!((usage.spill_stores, usage.spill_loads), (0, 0));
        }
    }
}
