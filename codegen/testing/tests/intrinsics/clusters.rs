//! Clusters of CTAs: PTX and results.

use bespoke_codegen::dsl::Recorded;
use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;
use expect_test::expect;

use crate::device::{Buffer, Launch, bytes, execute, listing, values};

/// Runs a cluster kernel on the buffer `words`, in `ctas` CTAs of `threads` threads; `check` gets the words afterwards.
fn changed(recorded: Recorded, ctas: u32, threads: u32, words: &[u32], check: impl Fn(&[u32])) {
    let buffers = [Buffer::Holding(bytes(words))];
    let config = LaunchConfig::linear(ctas, threads);
    let launch = Launch { oldest: Target::Sm90, config, buffers: &buffers, scalars: &[] };
    execute(recorded, &launch, |after, _| check(&values::<u32>(&after[0])));
}

/// Each CTA of a cluster sums over all CTAs of the cluster.
#[kernel(threads = 32, cluster = blocks)]
fn sums(data: Ptr<Global, u32>, blocks: u32) {
    let own = shared_array::<u32>(96);
    let place = own.at(thread_index() + 32);
    own.at(thread_index()).store(0);
    place.store(data.at(block_index() * 32 + thread_index()).load());
    cluster_barrier();
    let mut sum = val(0);
    for rank in 0..blocks {
        sum += place.of_block(rank).load();
    }
    let next = own.at(thread_index()).of_block((cluster_rank() + 1) % cluster_size());
    let _ = next.atomic_add(sum, Scope::Gpu);
    next.at(64u32).store(sum);
    arrive_at_cluster_barrier();
    wait_at_cluster_barrier();
    data.at(block_index() * 32 + thread_index()).store(sum + own.at(thread_index()).load());
}

#[test]
fn sums_over_a_cluster() {
    let kernel = sums(2).unwrap_or_else(|error| panic!("{error}"));
    let compiled = kernel.compile(Target::Sm90).unwrap_or_else(|error| panic!("{error}"));
    assert!(compiled.ptx.contains("\n.reqnctapercluster 2, 1, 1\n"), "{}", compiled.ptx);
    expect![[r#"
        .version 8.0
        	mov.u32 %r1, shared0;
        	mov.u32 %r2, %tid.x;
        	shl.b32 %r3, %r2, 2;
        	add.s32 %r4, %r1, %r3;
        	add.s32 %r5, %r4, 128;
        	st.shared.u32 [%r4], 0;
        	mov.u32 %r6, %ctaid.x;
        	shl.b32 %r7, %r6, 5;
        	add.u32 %r8, %r7, %r2;
        	mul.wide.u32 %rd2, %r8, 4;
        	add.s64 %rd3, %rd1, %rd2;
        	ld.global.u32 %r9, [%rd3];
        	st.shared.u32 [%r4+128], %r9;
        	barrier.cluster.arrive.release;
        	barrier.cluster.wait.acquire;
        	mapa.shared::cluster.u32 %r10, %r5, 0;
        	ld.shared::cluster.u32 %r11, [%r10];
        	mapa.shared::cluster.u32 %r12, %r5, 1;
        	ld.shared::cluster.u32 %r13, [%r12];
        	add.u32 %r14, %r11, %r13;
        	mov.u32 %r15, %cluster_ctarank;
        	add.u32 %r16, %r15, 1;
        	mov.u32 %r17, %cluster_nctarank;
        	rem.u32 %r18, %r16, %r17;
        	mapa.shared::cluster.u32 %r19, %r4, %r18;
        	red.relaxed.gpu.shared::cluster.add.u32 [%r19], %r14;
        	st.shared::cluster.u32 [%r19+256], %r14;
        	barrier.cluster.arrive.release;
        	barrier.cluster.wait.acquire;
        	ld.shared.u32 %r20, [%r4];
        	add.u32 %r21, %r14, %r20;
        	st.global.u32 [%rd3], %r21;
        	ret;
    "#]]
    .assert_eq(&listing(Ok(kernel), Target::Sm90));
}

#[test]
fn each_cta_gets_all_sums() {
    for blocks in [1, 2, 4, 8] {
        let words: Vec<u32> = (0..2 * 32 * blocks).map(|i| i * i).collect();
        // Twice the sum over the cluster: each CTA computes the sum and adds it to the sum in the previous CTA.
        let expected = words.chunks(32 * blocks as usize).flat_map(|cluster| {
            let sum = move |i: usize| 2 * cluster.iter().skip(i % 32).step_by(32).sum::<u32>();
            (0..cluster.len()).map(sum)
        });
        let expected: Vec<u32> = expected.collect();
        changed(sums(blocks), 2 * blocks, 32, &words, |after| assert_eq!(after, expected, "{blocks} CTAs"));
    }
}

/// CTA 0 of the cluster sends 16 bytes to CTA 1 and waits until they have been read.
#[kernel(threads = 1, cluster = 2)]
fn sent(data: Ptr<Global, u32>) {
    let words = shared_array::<u32>(4);
    let barriers = mbarrier_array(2);
    let (arrived, read) = (barriers.at(0), barriers.at(1));
    arrived.init(1);
    read.init(1);
    fence_mbarrier_init();
    cluster_barrier();
    if cluster_rank() == 0 {
        words.store_vector(data.load_vector::<4>());
        fence_async_shared();
        let there = arrived.of_block(1);
        there.arrive_expect(16);
        copy_bulk_to_block(words.of_block(1).cast(), words.cast(), 16, there);
        read.wait_for_cluster(0);
    } else {
        arrived.wait_for_cluster(0);
        data.at(4).store_vector(words.load_vector::<4>());
        read.of_block(0).arrive();
    }
}

#[test]
fn bytes_sent_within_a_cluster() {
    expect![[r#"
        .version 8.0
        	mov.u32 %r1, shared0;
        	mov.u32 %r2, shared1;
        	add.s32 %r3, %r2, 8;
        	mbarrier.init.shared.b64 [%r2], 1;
        	mbarrier.init.shared.b64 [%r3], 1;
        	fence.mbarrier_init.release.cluster;
        	barrier.cluster.arrive.release;
        	barrier.cluster.wait.acquire;
        	mov.u32 %r4, %cluster_ctarank;
        	setp.eq.u32 %p1, %r4, 0;
        	@!%p1 bra $L_block6;
        $L_block1:
        	ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd1];
        	st.shared.v4.u32 [%r1], {%r5, %r6, %r7, %r8};
        	fence.proxy.async.shared::cta;
        	mapa.shared::cluster.u32 %r9, %r2, 1;
        	mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r9], 16;
        	mapa.shared::cluster.u32 %r10, %r1, 1;
        	cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r1], 16, [%r9];
        $L_block3:
        	mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r3], 0;
        	@%p2 bra $L_block9;
        	bra $L_block3;
        $L_block6:
        	mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r2], 0;
        	@!%p3 bra $L_block6;
        $L_block8:
        	ld.shared.v4.u32 {%r11, %r12, %r13, %r14}, [%r1];
        	st.global.v4.u32 [%rd1+16], {%r11, %r12, %r13, %r14};
        	mapa.shared::cluster.u32 %r15, %r3, 0;
        	mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15];
        $L_block9:
        	ret;
    "#]]
    .assert_eq(&listing(sent(), Target::Sm90));
}

#[test]
fn bytes_arrive_in_the_other_cta() {
    changed(sent(), 2, 1, &[1, 2, 3, 4, 0, 0, 0, 0], |after| assert_eq!(after, [1, 2, 3, 4, 1, 2, 3, 4]));
}

/// The last CTA of a cluster loads 512 bytes by multicast into the CTAs with even ranks, which store them.
#[kernel(threads = 32, cluster = 4)]
fn shared_out(data: Ptr<Global, u32>, hinted: bool) {
    let tile = shared_array::<u32>(128);
    let done = mbarrier_array(1).at(0);
    if thread_index() == 0 {
        done.init(1);
        fence_mbarrier_init();
        done.arrive_expect(512);
    }
    cluster_barrier();
    if thread_index() == 0 {
        if cluster_rank() == 3 {
            let policy = hinted.then(CachePolicy::evict_first);
            copy_bulk_multicast(tile.cast(), data.cast(), 512, done, 0b0101u16, policy);
        }
    }
    if (cluster_rank() & 1) == 0 {
        done.wait(0, Wait::Try);
        let words = tile.at(lane() * 4).load_vector::<4>();
        data.at((block_index() + 1) * 128 + lane() * 4).store_vector(words);
    }
    cluster_barrier();
}

#[test]
fn one_copy_for_several_ctas() {
    expect![[r#"
        .version 8.0
        	mov.u32 %r1, shared0;
        	mov.u32 %r2, shared1;
        	mov.u32 %r3, %tid.x;
        	setp.eq.u32 %p1, %r3, 0;
        	@!%p1 bra $L_block3;
        $L_block1:
        	mbarrier.init.shared.b64 [%r2], 1;
        	fence.mbarrier_init.release.cluster;
        	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
        $L_block3:
        	barrier.cluster.arrive.release;
        	barrier.cluster.wait.acquire;
        	@!%p1 bra $L_block13;
        $L_block6:
        	mov.u32 %r4, %cluster_ctarank;
        	setp.eq.u32 %p2, %r4, 3;
        	@!%p2 bra $L_block13;
        $L_block8:
        	createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0;
        	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%r1], [%rd1], 512, [%r2], 5, %rd2;
        $L_block13:
        	mov.u32 %r5, %cluster_ctarank;
        	and.b32 %r6, %r5, 1;
        	setp.eq.u32 %p3, %r6, 0;
        	@!%p3 bra $L_block21;
        $L_block18:
        	mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0;
        	@!%p4 bra $L_block18;
        $L_block20:
        	mov.u32 %r7, %laneid;
        	shl.b32 %r8, %r7, 2;
        	shl.b32 %r9, %r7, 4;
        	add.s32 %r10, %r1, %r9;
        	ld.shared.v4.u32 {%r11, %r12, %r13, %r14}, [%r10];
        	mov.u32 %r15, %ctaid.x;
        	shl.b32 %r16, %r15, 7;
        	add.u32 %r17, %r16, %r8;
        	add.u32 %r18, %r17, 128;
        	mul.wide.u32 %rd3, %r18, 4;
        	add.s64 %rd4, %rd1, %rd3;
        	st.global.v4.u32 [%rd4], {%r11, %r12, %r13, %r14};
        $L_block21:
        	barrier.cluster.arrive.release;
        	barrier.cluster.wait.acquire;
        	ret;
    "#]].assert_eq(&listing(shared_out(true), Target::Sm90));
    for hinted in [false, true] {
        let words: Vec<u32> = (0..5 * 128).collect();
        changed(shared_out(hinted), 4, 32, &words, |after| {
            let (before, first) = (&words[..], &words[..128]);
            let parts = [first, first, &before[256..384], first, &before[512..]];
            assert_eq!(after, parts.concat());
        });
    }
}

/// CTA `b` of each cluster adds b to the words of each tile that it gets from a ring, and stores them.
#[kernel(threads = 64, cluster = blocks)]
fn through_a_ring(
    from: Ptr<Global, u32>,
    to: Ptr<Global, u32>,
    tiles: Val<u32>,
    ring: (u32, Consumers),
    blocks: u32,
) {
    let (stages, consumers) = ring;
    let copy = PipelineCopy::Multicast { blocks };
    let shape = PipelineShape { stages, stage_bytes: 512, consumers, copy };
    let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
    if thread_index() == 0 {
        ring.init();
    }
    cluster_barrier();
    if thread_index() == 0 {
        let mut producer = ring.producer(0);
        for tile in 0..tiles {
            producer.acquire(512);
            producer.copy(0, from.at(tile * 128).cast(), 512, None);
            producer.commit();
            producer.advance();
        }
    }
    if warp_index() == 1 {
        let mut consumer = ring.consumer();
        for tile in 0..tiles {
            consumer.wait();
            let words = consumer.data().cast::<u32>().at(lane() * 4).load_vector::<4>();
            consumer.release();
            consumer.advance();
            let place = to.at((tile * blocks + cluster_rank()) * 128 + lane() * 4);
            place.store_vector(words.map(|word| word + cluster_rank()));
        }
    }
    cluster_barrier();
}

#[test]
fn tiles_come_once_for_a_cluster() {
    let (warp, threads) = (Consumers::Warps(1), Consumers::Threads(32));
    for (blocks, stages, consumers) in [(1, 2, warp), (2, 1, threads), (4, 3, warp), (8, 2, threads)] {
        for tiles in [0u32, 1, 5] {
            let words: Vec<u32> = (0..128 * tiles).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
            let expected: Vec<u32> = words
                .chunks(128)
                .flat_map(|tile| {
                    (0..blocks).flat_map(move |rank| tile.iter().map(move |word| word.wrapping_add(rank)))
                })
                .collect();
            let buffers = [Buffer::Holding(bytes(&words)), Buffer::Empty(4 * expected.len())];
            let config = LaunchConfig::linear(blocks, 64);
            let launch = Launch { oldest: Target::Sm90, config, buffers: &buffers, scalars: &[&tiles] };
            execute(through_a_ring((stages, consumers), blocks), &launch, |after, ptx| {
                let got = values::<u32>(&after[1]);
                assert_eq!(got, expected, "{tiles} tiles, {blocks} CTAs\n{ptx}");
            });
        }
    }
}

#[kernel(threads = 32, cluster = 2)]
fn nothing() {}

#[test]
fn clusters_need_a_target_that_has_them() {
    let kernel = nothing().unwrap_or_else(|error| panic!("{error}"));
    let error = kernel.compile(Target::Sm89).expect_err("no clusters").to_string();
    assert!(error.contains("a cluster of CTAs needs sm_90 or later"), "{error}");
}
