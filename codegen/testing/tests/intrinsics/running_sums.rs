//! Sums of products that control flow carries while the products run. No instruction may move them: the emulator reports a
//! move as a use of sums in flight, and ptxas serialises the products.

use bespoke_codegen::dsl::Recorded;
use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

use crate::device::remarks;

/// Columns of B and C.
const N: u32 = 32;
/// Elements of a tile of B: 16 along K, as core matrices.
const TILE: u32 = 16 * N;
/// Tiles of B in shared memory.
const TILES: u32 = 8;

/// The tiles of B, copied to shared memory.
#[device]
fn tiles(b: Ptr<Global, f16>) -> Ptr<Shared, f16> {
    let tiles = shared_array::<f16>(TILES * TILE);
    for i in range(thread_index(), TILES * TILE).step_by(128) {
        tiles.at(i).store(b.at(i).load());
    }
    fence_async_shared();
    barrier();
    tiles
}

#[track_caller]
fn operand(tiles: Ptr<Shared, f16>, step: impl IntoVal<u32>) -> MatrixDescriptor<f16> {
    MatrixDescriptor::new(tiles.at(step.into_val() * TILE), N * 16, 128)
}

/// A, whose elements are all 1. The registers are computed, and several products read them.
#[track_caller]
fn ones(steps: Val<u32>) -> FragmentA<f16, 4> {
    FragmentA::from_registers([steps.min(1) * 0x3c00_3c00; 4])
}

/// Stores the sums row by row.
#[device]
fn store(c: Ptr<Global, f32>, sums: &WarpgroupSums) {
    for (part, fragment) in (0u32..).zip(sums.fragments()) {
        for i in 0..4 {
            let row = warp_index() * 16 + FragmentC::<f32>::row(i);
            c.at(row * N + part * 8 + FragmentC::<f32>::column(i)).store(fragment.0[i as usize]);
        }
    }
}

/// The first product starts before the loop.
#[kernel(threads = 128)]
fn peeled(b: Ptr<Global, f16>, c: Ptr<Global, f32>, steps: Val<u32>) {
    let (tiles, a) = (tiles(b), ones(steps));
    let mut running = start_products(N, &[(a, operand(tiles, 0))]);
    for step in 1..steps {
        running = running.multiply(&[(a, operand(tiles, step))]);
        wait_for_products(1);
    }
    store(c, &running.wait());
}

/// Two groups start before the loop, which multiplies in every second iteration only.
#[kernel(threads = 128)]
fn branching(b: Ptr<Global, f16>, c: Ptr<Global, f32>, steps: Val<u32>) {
    let (tiles, a) = (tiles(b), ones(steps));
    let running = start_products(N, &[(a, operand(tiles, 0))]);
    let mut running = running.multiply(&[(a, operand(tiles, 1))]);
    for step in 2..steps {
        if step % 2 == 0 {
            running = running.multiply(&[(a, operand(tiles, step))]);
        }
    }
    store(c, &running.wait());
}

/// Two sums run at once: of the even tiles and of the odd ones. The second is added to ones, which are no constants.
#[kernel(threads = 128)]
fn two_sums(b: Ptr<Global, f16>, c: Ptr<Global, f32>, steps: Val<u32>) {
    let (tiles, a) = (tiles(b), ones(steps));
    let one = steps.min(1).cast::<f32>();
    let ones_before = WarpgroupSums::from_fragments(vec![FragmentC([one; 4]); N as usize / 8]);
    let mut even = start_products(N, &[(a, operand(tiles, 0))]);
    let mut odd = ones_before.multiply(&[(a, operand(tiles, 1))]);
    for pair in 1..steps / 2 {
        even = even.multiply(&[(a, operand(tiles, pair * 2))]);
        odd = odd.multiply(&[(a, operand(tiles, pair * 2 + 1))]);
        wait_for_products(1);
    }
    let (even, odd) = (even.wait(), odd.wait());
    let added = even.fragments().iter().zip(odd.fragments());
    let added = added.map(|(even, odd)| FragmentC(std::array::from_fn(|i| even.0[i] + odd.0[i])));
    store(c, &WarpgroupSums::from_fragments(added.collect()));
}

/// The registers of A for the next product are loaded while a product reads the registers of the current one.
#[kernel(threads = 128)]
fn next_operand(b: Ptr<Global, f16>, c: Ptr<Global, f32>, steps: Val<u32>) {
    let tiles = tiles(b);
    let mut a = ones(steps);
    let mut sums = WarpgroupSums::zero(N);
    for step in 0..steps {
        let running = sums.multiply(&[(a, operand(tiles, step))]);
        let next = ones(step + 1);
        sums = running.wait();
        a = next;
    }
    store(c, &sums);
}

/// B[k][n] of a tile: small integers.
fn element(tile: u32, k: u32, column: u32) -> f32 {
    ((tile * 5 + k * 3 + column) % 7) as f32 - 3.0
}

/// Runs a kernel with `steps` on the emulator with all checks, and checks that C has in every row the sums of the `tiles`
/// tiles of B over K, and `more`.
fn check(recorded: Recorded, steps: u32, tiles: &[u32], more: f32) {
    let kernel = recorded.unwrap_or_else(|error| panic!("{error}"));
    // In core matrices: `[tile][half of K][column][8]`.
    let b: Vec<f16> = (0..TILES * TILE)
        .map(|at| element(at / TILE, at % TILE / (N * 8) * 8 + at % 8, at / 8 % N))
        .map(f16::from_f32)
        .collect();
    let launch = Launch::of(&kernel).buffer(&b).uninitialised::<f32>((64 * N) as usize).value(steps);
    let done = launch.run().unwrap_or_else(|error| panic!("{error}"));
    let sum = |column: u32| -> f32 {
        tiles.iter().flat_map(|&tile| (0..16).map(move |k| element(tile, k, column))).sum()
    };
    let expected: Vec<f32> = (0..64 * N).map(|at| sum(at % N) + more).collect();
    assert_eq!(done.buffer::<f32>(1), expected, "{steps} steps");
    if let Some(remarks) = remarks(done.ptx(), Target::Sm90) {
        assert!(!remarks.contains("serialized"), "{remarks}\n{}", done.ptx());
    }
}

#[test]
fn products_before_a_loop_are_continued_in_it() {
    for steps in [1, 2, 7] {
        check(peeled(), steps, &(0..steps).collect::<Vec<_>>(), 0.0);
    }
}

#[test]
fn a_branch_of_a_loop_continues_products() {
    check(branching(), 2, &[0, 1], 0.0);
    check(branching(), 8, &[0, 1, 2, 4, 6], 0.0);
}

#[test]
fn two_sums_are_carried_at_once() {
    check(two_sums(), 2, &[0, 1], 1.0);
    check(two_sums(), 8, &[0, 1, 2, 3, 4, 5, 6, 7], 1.0);
}

#[test]
fn operands_in_flight_keep_their_registers() {
    check(next_operand(), 6, &[0, 1, 2, 3, 4, 5], 0.0);
}
