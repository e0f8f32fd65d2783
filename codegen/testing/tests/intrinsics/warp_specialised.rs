//! C = A·Bᵀ of f16 matrices by a warp-specialised kernel for Hopper, with a [`Pipeline`] of tiles and, for comparison, with a
//! ring written by hand. `examples/hopper-gemm` has the same kernel.
//!
//! Machine instructions by ptxas 13.0 (-O3) with 128 columns: 49 in the consumers' loop, 50 by hand; 25 in the producer's loop, 27
//! by hand; 480 in all, 352 by hand, because the first stage is outside of the loop.
//!
//! Mistakes in a ring by hand that cannot be written with a pipeline:
//!
//! | mistake | why |
//! | --- | --- |
//! | a phase or a stage of another round | `Producer` and `Consumer` hold stage and parity, and always advance |
//! | too few or too many bytes expected | `fill` loads all tiles of a stage and expects their bytes |
//! | a wait one group early; sums read early | `sum_products` returns complete sums, and releases a stage after its products |
//! | no fence before the products | `sum_products` contains it |
//! | a stage released by other than all warps | the pipeline knows the consumers of the roles |
//! | mbarriers without the initialisation fence | `init` contains it |
//! | more registers than there are | the roles divide what there is |
//! | an operand with another swizzle than its tile | the swizzle is part of the tile's type |

use bespoke_codegen::prelude::*;
use bespoke_codegen::ptx::Target;
use bespoke_emulator::{
    LaunchConfig, Memory, Module, Options, Swizzle, TensorMap as HostMap, TensorType, run,
};
use expect_test::expect;

use crate::device::remarks;

/// A producer and two consumers.
const ROLES: WarpgroupRoles = WarpgroupRoles { consumers: 2 };
/// Rows of C per CTA, 64 for each consumer.
const ROWS: u32 = 128;
/// Elements along K per stage.
const DEPTH: u32 = 64;
/// Columns and rows of a tile of C that a warp stores.
const C_TILE: [u32; 2] = [64, 16];

/// How the stages are handed over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ring {
    ByHand,
    Pipeline,
    /// A pipeline, of which the consumers read a stage more than the producer loads.
    StageTooMany,
}

type Half = TensorMap<f16, 2, Swizzle128>;

#[kernel(threads = ROLES.threads(), min_blocks = 1)]
fn product(
    ring: Ring,
    columns: u32,
    stages: u32,
    #[tile([DEPTH, ROWS])] a: TensorMap<f16, 2, Swizzle128>,
    #[tile([DEPTH, columns])] b: TensorMap<f16, 2, Swizzle128>,
    #[tile(C_TILE)] c: TensorMap<f16, 2, Swizzle128>,
    k: Val<u32>,
) {
    let maps = [a, b, c];
    if ring == Ring::ByHand {
        by_hand(maps, columns, stages, k);
    } else {
        by_pipeline(maps, columns, stages, k, ring == Ring::StageTooMany);
    }
}

/// First column and row of the CTA's tile of C.
#[device]
fn place(columns: u32) -> [Val<u32>; 2] {
    [block_index() * columns, block_index_y() * ROWS]
}

#[device]
fn by_pipeline([a, b, c]: [Half; 3], columns: u32, stages: u32, k: Val<u32>, stage_too_many: bool) {
    let [first_column, first_row] = place(columns);
    let ring = Pipeline::of_tiles((a, b), stages, ROLES, dynamic_shared());
    let c_tiles = c.tiles_at(dynamic_shared::<f16>().byte_add(ring.shape().bytes()));
    if thread_index() == 0 {
        ring.init();
    }
    barrier();
    let steps = (k + (DEPTH - 1)) / DEPTH;
    if ROLES.is_producer() {
        ROLES.start_producer();
        if thread_index() == 0 {
            let mut producer = ring.producer(0);
            for step in 0..steps {
                producer.fill(((step * DEPTH, first_row), (step * DEPTH, first_column)), None);
            }
        }
    } else {
        let warpgroup = ROLES.start_consumer();
        let mut consumer = ring.consumer();
        let steps = steps + stage_too_many as u32;
        let sums = consumer.sum_products(steps, columns, |(left, right)| {
            let left = left.rows(warpgroup * 64, 64).operand(0, 0);
            let right = right.operand(0, 0);
            [0u32, 1, 2, 3].map(|part| (left.byte_add(part * 32), right.byte_add(part * 32)))
        });
        store(&sums, c, c_tiles, columns);
    }
}

#[device]
fn by_hand([a, b, c]: [Half; 3], columns: u32, stages: u32, k: Val<u32>) {
    let [first_column, first_row] = place(columns);
    let memory = dynamic_shared::<f16>();
    let a_tiles = a.tiles_at(memory);
    let b_tiles = b.tiles_at(memory.byte_add(stages * a.tile_distance()));
    let c_tiles = c.tiles_at(memory.byte_add(stages * (a.tile_distance() + b.tile_distance())));
    let (full, empty) = (mbarrier_array(stages), mbarrier_array(stages));
    if thread_index() == 0 {
        for stage in 0..stages {
            full.at(stage).init(1);
            empty.at(stage).init(8);
        }
        fence_mbarrier_init();
    }
    barrier();
    let steps = (k + (DEPTH - 1)) / DEPTH;
    if warp_index() / 4 == 0 {
        decrease_registers(40);
        if thread_index() == 0 {
            let (mut stage, mut parity) = (val(0u32), val(1u32));
            for step in 0..steps {
                let full = full.at(stage);
                empty.at(stage).wait(parity, Wait::Try);
                full.arrive_expect(a_tiles.at(0).size() + b_tiles.at(0).size());
                a.load(a_tiles.at(stage), (step * DEPTH, first_row), full, None);
                b.load(b_tiles.at(stage), (step * DEPTH, first_column), full, None);
                stage += 1;
                if stage == stages {
                    stage = val(0);
                    parity ^= 1;
                }
            }
        }
    } else {
        increase_registers(232);
        let warp = warp_index() - 4;
        let products = |stage: Val<u32>| {
            let left = a_tiles.at(stage).rows(warp / 4 * 64, 64).operand(0, 0);
            let right = b_tiles.at(stage).operand(0, 0);
            [0u32, 1, 2, 3].map(|part| (left.byte_add(part * 32), right.byte_add(part * 32)))
        };
        let mut running = WarpgroupSums::zero(columns).into_running();
        let (mut previous, mut stage, mut parity) = (val(0u32), val(0u32), val(0u32));
        for step in 0..steps {
            full.at(stage).wait(parity, Wait::Try);
            running = running.multiply(&products(stage));
            wait_for_products(1);
            if (step > 0) & (lane() == 0) {
                empty.at(previous).arrive();
            }
            previous = stage;
            stage += 1;
            if stage == stages {
                stage = val(0);
                parity ^= 1;
            }
        }
        store(&running.wait(), c, c_tiles, columns);
    }
}

/// A warp stores its 16 rows, 64 columns at a time.
#[device]
fn store(sums: &WarpgroupSums, c: Half, c_tiles: SharedTiles<f16, 2, Swizzle128>, columns: u32) {
    let [first_column, first_row] = place(columns);
    let warp = warp_index() - 4;
    let parts = columns / C_TILE[0];
    for part in 0..parts {
        let tile = c_tiles.at(warp * parts + part);
        for fragment in 0..8u32 {
            let FragmentC(values) = sums.fragments()[(part * 8 + fragment) as usize];
            for pair in [0, 2u32] {
                let column = FragmentC::<f32>::column(pair) + fragment * 8;
                let [low, high] = [values[pair as usize], values[pair as usize + 1]];
                let place = tile.at((column, FragmentC::<f32>::row(pair)));
                place.cast::<F16x2>().store(pack_rounded(low, high));
            }
        }
    }
    fence_async_shared();
    warp_barrier(u32::MAX);
    if lane() == 0 {
        for part in 0..parts {
            let to = (first_column + part * C_TILE[0], first_row + warp * C_TILE[1]);
            c.store(to, c_tiles.at(warp * parts + part), None);
        }
        commit_bulk_stores();
        wait_bulk_stores_read(0);
    }
}

fn ptx(ring: Ring, columns: u32) -> String {
    let kernel = product(ring, columns, 3).unwrap_or_else(|error| panic!("{error}"));
    kernel.compile(Target::Sm90).unwrap_or_else(|error| panic!("{error}")).ptx
}

/// Runs PTX of the kernel and compares C with the product in f64: `None` if it is right, or what is wrong.
fn mistake(ptx: &str, columns: u32, [m, n, k]: [usize; 3]) -> Option<String> {
    let numbers = |count: usize, seed: u32| -> Vec<f64> {
        let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let states = std::iter::successors(Some(seed), next).skip(1);
        states.map(|state| f64::from((state >> 8) % 5) - 2.0).take(count).collect()
    };
    let (a, b) = (numbers(m * k, 1), numbers(n * k, 2));
    let memory = Memory::new();
    let buffer = |name: &str, values: &[f64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|&value| f16::from_f64(value).to_le_bytes()).collect();
        let address = memory.alloc(name, bytes.len() as u64);
        memory.write(address, &bytes).unwrap();
        address
    };
    let (at_a, at_b, at_c) = (buffer("a", &a), buffer("b", &b), buffer("c", &vec![0.0; m * n]));
    let map = |address, sizes: [usize; 2], tile: [u32; 2]| {
        let map = HostMap::dense(TensorType::F16, address, &sizes.map(|size| size as u64), &tile);
        HostMap { swizzle: Swizzle::Bytes128, ..map }.encode().unwrap()
    };
    let mut params = Vec::new();
    params.extend(map(at_a, [k, m], [DEPTH, ROWS]));
    params.extend(map(at_b, [k, n], [DEPTH, columns]));
    params.extend(map(at_c, [n, m], C_TILE));
    params.extend((k as u32).to_le_bytes());
    let module = Module::parse(ptx).unwrap_or_else(|error| panic!("{error}"));
    let config = LaunchConfig {
        grid: [n.div_ceil(columns as usize) as u32, m.div_ceil(ROWS as usize) as u32, 1],
        block: [ROLES.threads(), 1, 1],
        dynamic_shared: 2 * (3 * (ROWS + columns) * DEPTH + ROWS * columns),
        cluster: None,
        cooperative: false,
    };
    let options = Options { instruction_limit: 1 << 20, ..Options::default() };
    if let Err(finding) = run(module.kernel("product").unwrap(), &memory, &config, &params, &options) {
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

#[test]
fn products_are_exact() {
    for ring in [Ring::ByHand, Ring::Pipeline] {
        let small = ptx(ring, 64);
        for size in [[128, 64, 64], [128, 64, 448], [256, 128, 128], [200, 72, 200], [8, 8, 8]] {
            assert_eq!(mistake(&small, 64, size), None, "{ring:?}, {size:?}");
        }
    }
    assert_eq!(mistake(&ptx(Ring::Pipeline, 256), 256, [128, 256, 320]), None);
}

/// The instructions of the innermost loop with products, by their PTX without operands.
fn main_loop(ptx: &str) -> Vec<String> {
    let lines: Vec<&str> = ptx.lines().collect();
    let label = |name: &str| lines.iter().position(|line| line.strip_suffix(':') == Some(name));
    let mut loops: Vec<&[&str]> = Vec::new();
    for (end, line) in lines.iter().enumerate() {
        let target = line.trim_end_matches(';').rsplit_once("bra ").and_then(|(_, name)| label(name));
        if let Some(start) = target.filter(|&start| start < end) {
            loops.push(&lines[start..=end]);
        }
    }
    loops.retain(|lines| lines.iter().any(|line| line.contains("wgmma.mma_async")));
    let innermost = loops.into_iter().min_by_key(|lines| lines.len()).expect("a loop with products");
    let code = innermost.iter().filter(|line| line.starts_with('\t') && !line.trim_start().starts_with('.'));
    code.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn other_numbers_of_stages_are_a_deadlock() {
    let found = mistake(&ptx(Ring::StageTooMany, 64), 64, [128, 64, 448]).unwrap_or_default();
    assert!(found.starts_with("Deadlock"), "{found}");
}

#[test]
fn the_pipeline_costs_no_instructions() {
    let count = |ring| main_loop(&ptx(ring, 128)).len();
    let (by_hand, pipeline) = (count(Ring::ByHand), count(Ring::Pipeline));
    assert!(pipeline <= by_hand, "{pipeline} instructions in the loop, {by_hand} by hand");
    let moves = |ring| main_loop(&ptx(ring, 128)).iter().filter(|line| line.starts_with("mov.f32")).count();
    assert_eq!([moves(Ring::ByHand), moves(Ring::Pipeline)], [0, 0]);
    expect!["by hand 64, pipeline 63"].assert_eq(&format!("by hand {by_hand}, pipeline {pipeline}"));
    if let Some(remarks) = remarks(&ptx(Ring::Pipeline, 256), Target::Sm90) {
        assert!(!remarks.contains("serialized"), "{remarks}");
    }
}
