//! Tensor maps: PTX, results for every rank and swizzle, and errors of recording.

use bespoke_codegen::dsl::Recorded;
use bespoke_codegen::launch::TensorDescription;
use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;
use expect_test::expect;

/// Copies one tile of `x` to the same position of `y`, element by element through the swizzled tile of `x`.
#[kernel(threads = 32)]
fn copied<const RANK: usize, S: TileSwizzle>(
    size: [u32; RANK],
    at: [i32; RANK],
    #[tile(size)] x: TensorMap<u32, RANK, S>,
    #[tile(size)] y: TensorMap<u32, RANK>,
) {
    let (from, to, done) = (x.shared_tile(), y.shared_tile(), mbarrier_array(1).at(0));
    if thread_index() == 0 {
        done.init(1);
        fence_mbarrier_init();
        done.arrive_expect(from.size());
        x.load(from, at, done, None);
    }
    barrier();
    done.wait(0, Wait::Try);
    let count: u32 = size.iter().product();
    let mut next = thread_index();
    while next < count {
        let position: [Val<u32>; RANK] = std::array::from_fn(|dimension| {
            next / size[..dimension].iter().product::<u32>() % size[dimension]
        });
        to.at(position).store(from.at(position).load());
        next += 32;
    }
    fence_async_shared();
    barrier();
    if thread_index() == 0 {
        y.store(at, to, None);
        commit_bulk_stores();
        wait_bulk_stores(0);
    }
}

/// Copies a tile at `at` of a tensor of `sizes` elements; elements outside the tensor stay out.
fn check<const RANK: usize, S: TileSwizzle>(sizes: [u64; RANK], size: [u32; RANK], at: [i32; RANK]) {
    let count: u64 = sizes.iter().product();
    let words: Vec<u32> = (1..=count as u32).collect();
    let kernel = copied::<RANK, S>(size, at).unwrap_or_else(|error| panic!("{error}"));
    let zeros = vec![0u32; count as usize];
    let done = Launch::of(&kernel).tensor(&words, sizes).tensor(&zeros, sizes).run();
    let found = done.unwrap_or_else(|error| panic!("{error}")).buffer::<u32>(1);
    for (number, &word) in found.iter().enumerate() {
        let mut rest = number as i64;
        let inside = (0..RANK).all(|dimension| {
            let index = rest % sizes[dimension] as i64;
            rest /= sizes[dimension] as i64;
            let first = i64::from(at[dimension]);
            (first..first + i64::from(size[dimension])).contains(&index)
        });
        assert_eq!(
            word,
            if inside { number as u32 + 1 } else { 0 },
            "element {number} of {sizes:?} at {at:?}"
        );
    }
}

#[test]
fn tiles_of_every_rank_and_swizzle() {
    check::<1, Unswizzled>([12], [8], [4]);
    check::<2, Swizzle32>([8, 24], [8, 16], [0, 8]);
    check::<2, Swizzle64>([16, 24], [16, 8], [0, 20]);
    check::<2, Swizzle128>([64, 12], [32, 8], [32, 2]);
    check::<2, Unswizzled>([20, 6], [8, 4], [16, 4]);
    check::<3, Swizzle32>([8, 3, 4], [8, 2, 3], [0, 2, 2]);
    check::<4, Unswizzled>([4, 3, 2, 5], [4, 2, 2, 2], [0, 1, 0, 4]);
    check::<5, Unswizzled>([4, 2, 3, 2, 3], [4, 2, 2, 1, 2], [0, 0, 1, 1, 1]);
}

/// Adds and loads with policies.
#[kernel(threads = 1)]
fn hinted(#[tile([4, 2])] x: TensorMap<f32, 2>) {
    let (tile, done) = (x.shared_tile(), mbarrier_array(1).at(0));
    let policy = Some(CachePolicy::evict_last());
    x.prefetch((4u32, 0), policy);
    done.init(1);
    fence_mbarrier_init();
    done.arrive_expect(tile.size());
    x.load(tile, (4, 0), done, policy);
    done.wait(0, Wait::Try);
    x.reduce(TensorReduction::Add, (0, 0), tile, policy);
    x.store((4, 2), tile, policy);
    commit_bulk_stores();
    wait_bulk_stores(0);
}

#[test]
fn a_policy_follows_the_other_operands() {
    let values: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let done = Launch::of(&hinted().unwrap()).tensor(&values, [8, 4]).run().unwrap();
    let found = done.buffer::<f32>(0);
    assert_eq!(found[..8], [4.0, 6.0, 8.0, 10.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(found[24..], [24.0, 25.0, 26.0, 27.0, 12.0, 13.0, 14.0, 15.0]);
    let lines: Vec<&str> = done.ptx().lines().filter(|line| !line.trim().starts_with('.')).collect();
    expect![[r#"

        )
        {
        	mov.b64 %rd1, hinted_param_x;
        	cvta.param.u64 %rd1, %rd1;
        	mov.u32 %r1, shared0;
        	mov.u32 %r2, shared1;
        	createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0;
        	cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint [%rd1, {4, 0}], %rd2;
        	mbarrier.init.shared.b64 [%r2], 1;
        	fence.mbarrier_init.release.cluster;
        	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 32;
        	cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%rd1, {4, 0}], [%r2], %rd2;
        $L_block1:
        	mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
        	@!%p1 bra $L_block1;
        $L_block3:
        	cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group.L2::cache_hint [%rd1, {0, 0}], [%r1], %rd2;
        	cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%rd1, {4, 2}], [%r1], %rd2;
        	cp.async.bulk.commit_group;
        	cp.async.bulk.wait_group 0;
        	ret;
        }

    "#]]
    .assert_eq(&(lines.join("\n") + "\n"));
    assert!(done.ptx().contains(".param .align 64 .b8 hinted_param_x[128]"));
}

/// The error of a kernel that cannot be recorded.
fn error(recorded: Recorded) -> String {
    recorded.err().map(|error| error.message).unwrap_or_default()
}

#[kernel]
fn layout(size: [u32; 2], #[tile(size)] x: TensorMap<f16, 2, Swizzle64>) {
    x.prefetch_map();
}

#[kernel]
fn two_sizes(#[tile([8, 4])] x: TensorMap<f32, 2>, #[tile([4, 8])] y: TensorMap<f32, 2>) {
    x.store((0, 0), y.shared_tile(), None);
}

#[kernel]
fn products(#[tile([4])] x: TensorMap<f32, 1>) {
    x.reduce(TensorReduction::Xor, (0,), x.shared_tile(), None);
}

#[test]
fn wrong_tiles_and_reductions_cannot_be_recorded() {
    assert_eq!(error(layout([32, 256])), "");
    assert_eq!(
        error(layout([64, 8])),
        "`x`: rows of a tile of 128 bytes with a swizzle of 64 bytes: write 32 elements along dimension 0"
    );
    assert_eq!(
        error(two_sizes()),
        "the tile in shared memory has 4 × 8 elements, and the tiles of the tensor map have 8 × 4: make it by \
         `shared_tile` or `tile_at` of the tensor map"
    );
    assert_eq!(error(products()), "a bulk tensor copy has no reduction `xor` of f32");
}

#[test]
fn tensor_maps_need_sm_90() {
    let kernel = products_of_sums().unwrap();
    let message = kernel.compile(Target::Sm89).unwrap_err().to_string();
    assert!(message.contains("a tensor map") && message.contains("sm_90"), "{message}");
    assert!(kernel.compile(Target::Sm120).unwrap().ptx.contains(".target sm_120\n"));
}

#[kernel]
fn products_of_sums(#[tile([4])] x: TensorMap<f32, 1>) {
    x.prefetch((0,), None);
}

/// Loads the whole of a matrix whose rows are padded, every second row, and NaN outside.
#[kernel(threads = 32)]
fn strided(#[tile([4, 4])] x: TensorMap<f32, 2>, out: Ptr<Global, f32>) {
    let (tile, done) = (x.shared_tile(), mbarrier_array(1).at(0));
    if thread_index() == 0 {
        done.init(1);
        fence_mbarrier_init();
        done.arrive_expect(32);
        x.load(tile, (0, 2), done, None);
    }
    barrier();
    done.wait(0, Wait::Try);
    if thread_index() < 8 {
        out.at(thread_index()).store(tile.pointer().at(thread_index()).load());
    }
}

#[test]
fn a_description_has_strides_steps_and_a_fill() {
    let values: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let kernel = strided().unwrap();
    let launch = Launch::of(&kernel).tensor_with(&values, |address, layout| {
        // Three of eight columns, and four rows.
        let tile = layout.tile[..].try_into().unwrap();
        TensorDescription::<f32, 2>::dense(address, [3, 4], tile).stride(1, 32).steps([1, 2]).fill_with_nan()
    });
    let found = launch.uninitialised::<f32>(8).run().unwrap().buffer::<f32>(1);
    assert_eq!(found[..3], [16.0, 17.0, 18.0]);
    assert!(found[3..].iter().all(|value| value.is_nan()));
}
