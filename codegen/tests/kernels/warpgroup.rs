//! A product of f16 matrices by a warpgroup, with B in shared memory that bulk copies fill.

use bespoke_codegen::ptx::{Target, architecture};

use super::*;

/// Columns of B and C.
const N: u32 = 32;

/// Bytes of a stage: 16 rows of B as core matrices.
const STAGE: u32 = 16 * N * 2;

/// C = A·B for 64 rows of A, row by row, and 16·`steps` columns. `b` has B's core matrices: `[step][half of K][column][8]`.
/// C is stored row by row.
#[kernel(threads = 160)]
fn multiply(a: Ptr<Global, f16>, b: Ptr<Global, f16>, c: Ptr<Global, f32>, steps: Val<u32>) {
    let shape = PipelineShape {
        stages: 3,
        stage_bytes: STAGE,
        consumers: Consumers::Warps(4),
        copy: PipelineCopy::Bulk,
    };
    let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
    if thread_index() == 0 {
        ring.init();
    }
    barrier();
    if warp_index() == 4 {
        if lane() == 0 {
            let mut producer = ring.producer(0);
            for step in 0..steps {
                producer.acquire(STAGE);
                producer.copy(0, b.cast().byte_add(step * STAGE), STAGE, None);
                producer.commit();
                producer.advance();
            }
        }
    } else {
        let mut consumer = ring.consumer();
        let row = warp_index() * 16 + lane() / 4;
        let mut sums = WarpgroupSums::zero(N);
        for step in 0..steps {
            let word = |i: u32| {
                let column = step * 16 + lane() % 4 * 2 + i / 2 * 8;
                a.at((row + i % 2 * 8) * steps * 16 + column).cast::<u32>().load()
            };
            let fragment = FragmentA::<f16, 4>::from_registers(std::array::from_fn(|i| word(i as u32)));
            consumer.wait();
            let tile = MatrixDescriptor::new(consumer.data().cast::<f16>(), N * 16, 128);
            sums = sums.multiply(&[(fragment, tile)]).wait();
            consumer.release();
            consumer.advance();
        }
        for (group, fragment) in (0u32..).zip(sums.fragments()) {
            for i in 0..4 {
                let row = warp_index() * 16 + FragmentC::<f32>::row(i);
                c.at(row * N + group * 8 + FragmentC::<f32>::column(i)).store(fragment.0[i as usize]);
            }
        }
    }
}

/// Small integers, whose products f16 and f32 hold.
fn integers(count: usize) -> Vec<f16> {
    numbers(count).map(|number| f16::from_f32((number % 9) as f32 - 4.0)).collect()
}

#[test]
fn a_warpgroup_multiplies_what_bulk_copies_load() {
    for steps in [1usize, 2, 7] {
        let k = 16 * steps;
        let (a, b) = (integers(64 * k), integers(k * N as usize));
        let kernel = multiply().unwrap();
        let launch = Launch::of(&kernel).buffer(&a).buffer(&b).uninitialised::<f32>(64 * N as usize);
        let done = launch.value(steps as u32).run().unwrap();
        // Element (k, column) of B in its core matrix.
        let b = |k: usize, column: usize| b[((k / 8) * N as usize + column) * 8 + k % 8].to_f32();
        let expected: Vec<f32> = (0..64 * N as usize)
            .map(|at| (at / N as usize, at % N as usize))
            .map(|(row, column)| (0..k).map(|i| a[row * k + i].to_f32() * b(i, column)).sum())
            .collect();
        assert_eq!(done.buffer::<f32>(2), expected, "{steps} steps");
    }
}

/// ptxas serialises products whose sums other instructions move: block parameter, operands and results share registers.
#[test]
fn sums_stay_in_their_registers() {
    let ptx = multiply().unwrap().compile(Target::Sm90).unwrap().ptx;
    let product = ptx.find("wgmma.mma_async").unwrap();
    let (start, end) = (ptx[..product].rfind("$L_").unwrap(), ptx[product..].find("bra").unwrap() + product);
    let moves: Vec<&str> =
        ptx[start..end].lines().filter(|line| line.trim().starts_with("mov.f32")).collect();
    assert!(moves.is_empty(), "{moves:?}\n{}", &ptx[start..end]);
}

#[test]
fn products_of_warpgroups_are_for_one_compute_capability() {
    let kernel = multiply().unwrap();
    assert_eq!(architecture(&kernel.compile(Target::Sm90).unwrap().ptx).as_deref(), Some("sm_90a"));
    for target in [Target::Sm100, Target::Sm120] {
        let error = kernel.compile(target).unwrap_err().to_string();
        assert!(error.contains("sm_90a, which later targets do not include"), "{error}");
    }
}

/// A product whose sums have `columns` columns, of a matrix `bytes` behind another.
#[kernel(threads = 128)]
fn misshapen(c: Ptr<Global, f32>, columns: u32, bytes: u32) {
    let tile = shared_array::<f16>(N * 16);
    let b = MatrixDescriptor::new(tile, N * 16, 128).byte_add(bytes);
    let a = FragmentA::<f16, 4>::from_registers([val(0u32); 4]);
    let sums = WarpgroupSums::zero(columns).multiply(&[(a, b)]).wait();
    c.at(thread_index()).store(sums.fragments()[0].0[0]);
}

#[test]
fn shapes_that_no_product_has_are_errors() {
    for (columns, bytes, expected) in [
        (12, 0, "sums of 12 columns: a product has 8, 16, … or 256"),
        (0, 0, "sums of 0 columns: a product has 8, 16, … or 256"),
        (264, 0, "sums of 264 columns: a product has 8, 16, … or 256"),
        (8, 24, "24 bytes behind a matrix: the address of a matrix is a multiple of 16"),
    ] {
        assert_eq!(misshapen(columns, bytes).err().map(|error| error.message).as_deref(), Some(expected));
    }
}
