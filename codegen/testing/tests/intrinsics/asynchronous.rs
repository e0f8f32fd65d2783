//! Asynchronous copies and mbarriers: PTX, targets and results.

use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;
use expect_test::expect;

use crate::device::{Buffer, Launch, bytes, execute, listing, values};

/// Copies 28 bytes per thread through shared memory by `cp.async`, waiting at an mbarrier.
#[kernel(threads = 32)]
fn by_async_copies(from: Ptr<Global, u8>, to: Ptr<Global, u32>, parity: Val<u32>) {
    let tile = shared_array::<u32>(224);
    let barriers = mbarrier_array(2);
    let full = barriers.at(1);
    let i = thread_index();
    if i == 0 {
        full.init(32);
    }
    barrier();
    copy_async::<16>(tile.cast().byte_add(i * 16), from.byte_add(i * 16));
    copy_async::<8>(tile.cast().byte_add(i * 8 + 512), from.byte_add(i * 8 + 512));
    copy_async::<4>(tile.cast().byte_add(i * 4 + 768), from.byte_add(i * 4 + 768));
    full.arrive_after_copies();
    full.wait(parity, Wait::Test);
    for part in 0..7u32 {
        to.at(part * 32 + i).store(tile.at(part * 32 + (i ^ 1)).load());
    }
    barrier();
    if i == 0 {
        full.invalidate();
    }
}

#[test]
fn async_copies_and_a_barrier() {
    expect![[r#"
        .version 7.1
        	mov.u32 %r2, shared0;
        	mov.u32 %r3, shared1;
        	add.s32 %r4, %r3, 8;
        	mov.u32 %r5, %tid.x;
        	setp.eq.u32 %p1, %r5, 0;
        	@!%p1 bra $L_block3;
        $L_block1:
        	mbarrier.init.shared.b64 [%r4], 32;
        $L_block3:
        	bar.sync 0;
        	shl.b32 %r6, %r5, 4;
        	add.s32 %r7, %r2, %r6;
        	mul.wide.u32 %rd3, %r5, 16;
        	add.s64 %rd4, %rd1, %rd3;
        	cp.async.cg.shared.global [%r7], [%rd4], 16;
        	shl.b32 %r8, %r5, 3;
        	add.s32 %r9, %r2, %r8;
        	add.s32 %r10, %r9, 512;
        	mul.wide.u32 %rd5, %r5, 8;
        	add.s64 %rd6, %rd1, %rd5;
        	add.s64 %rd7, %rd6, 512;
        	cp.async.ca.shared.global [%r10], [%rd7], 8;
        	shl.b32 %r11, %r5, 2;
        	add.s32 %r12, %r2, %r11;
        	add.s32 %r13, %r12, 768;
        	mul.wide.u32 %rd8, %r5, 4;
        	add.s64 %rd9, %rd1, %rd8;
        	add.s64 %rd10, %rd9, 768;
        	cp.async.ca.shared.global [%r13], [%rd10], 4;
        	cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];
        $L_block6:
        	mbarrier.test_wait.parity.shared.b64 %p2, [%r4], %r1;
        	@!%p2 bra $L_block6;
        $L_block8:
        	add.s64 %rd11, %rd2, %rd8;
        	xor.b32 %r14, %r5, 1;
        	shl.b32 %r15, %r14, 2;
        	add.s32 %r16, %r2, %r15;
        	ld.shared.u32 %r17, [%r16];
        	st.global.u32 [%rd11], %r17;
        	ld.shared.u32 %r18, [%r16+128];
        	st.global.u32 [%rd11+128], %r18;
        	ld.shared.u32 %r19, [%r16+256];
        	st.global.u32 [%rd11+256], %r19;
        	ld.shared.u32 %r20, [%r16+384];
        	st.global.u32 [%rd11+384], %r20;
        	ld.shared.u32 %r21, [%r16+512];
        	st.global.u32 [%rd11+512], %r21;
        	ld.shared.u32 %r22, [%r16+640];
        	st.global.u32 [%rd11+640], %r22;
        	ld.shared.u32 %r23, [%r16+768];
        	st.global.u32 [%rd11+768], %r23;
        	bar.sync 0;
        	@!%p1 bra $L_block11;
        $L_block9:
        	mbarrier.inval.shared.b64 [%r4];
        $L_block11:
        	ret;
    "#]]
    .assert_eq(&listing(by_async_copies(), Target::Sm80));
    copies(by_async_copies(), Target::Sm80, 0, 224);
}

/// Checks that the kernel copies `words` words from its first buffer to its second, with adjacent words exchanged.
fn copies(kernel: Recorded, oldest: Target, scalar: u32, words: usize) {
    let from: Vec<u32> = (0..words as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let buffers = [Buffer::Holding(bytes(&from)), Buffer::Empty(4 * words)];
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest, config, buffers: &buffers, scalars: &[&scalar] };
    execute(kernel, &launch, |after, ptx| {
        let expected: Vec<u32> = (0..words).map(|i| from[i ^ 1]).collect();
        assert_eq!(values::<u32>(&after[1]), expected, "{ptx}");
    });
}

#[kernel(threads = 64)]
fn by_groups(from: Ptr<Global, u8>, to: Ptr<Global, u32>) {
    let tile = shared_array::<u32>(64);
    let policy = CachePolicy::evict_first();
    prefetch_l2(from.byte_add(4096));
    copy_async_with::<4>(tile.cast().byte_add(thread_index() * 4), from, policy);
    commit_copies();
    copy_async_with::<16>(tile.cast(), from, CachePolicy::evict_last());
    commit_copies();
    wait_copies(1);
    arrive_at_barrier(3, 64);
    to.store(tile.load());
}

#[test]
fn groups_and_policies() {
    expect![[r#"
        .version 7.4
        	mov.u32 %r1, shared0;
        	createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;
        	add.s64 %rd4, %rd1, 4096;
        	prefetch.global.L2 [%rd4];
        	mov.u32 %r2, %tid.x;
        	shl.b32 %r3, %r2, 2;
        	add.s32 %r4, %r1, %r3;
        	cp.async.ca.shared.global.L2::cache_hint [%r4], [%rd1], 4, %rd3;
        	cp.async.commit_group;
        	createpolicy.fractional.L2::evict_last.b64 %rd5, 1.0;
        	cp.async.cg.shared.global.L2::cache_hint [%r1], [%rd1], 16, %rd5;
        	cp.async.commit_group;
        	cp.async.wait_group 1;
        	bar.arrive 3, 64;
        	ld.shared.u32 %r5, [%r1];
        	st.global.u32 [%rd2], %r5;
        	ret;
    "#]]
    .assert_eq(&listing(by_groups(), Target::Sm80));
}

/// Copies tiles through shared memory, by one bulk copy per mbarrier phase.
#[kernel(threads = 32)]
fn by_bulk_copies(from: Ptr<Global, u8>, to: Ptr<Global, u32>, tiles: Val<u32>) {
    let tile = shared_array::<u32>(32);
    let full = mbarrier_array(1).at(0);
    if thread_index() == 0 {
        full.init(1);
        fence_mbarrier_init();
    }
    barrier();
    let mut i = val(0);
    while i < tiles {
        if thread_index() == 0 {
            full.arrive_expect(128);
            copy_bulk(tile.cast(), from.byte_add(i * 128), 128, full, None);
        }
        full.wait(i & 1, Wait::Try);
        to.at(i * 32 + thread_index()).store(tile.at(thread_index() ^ 1).load());
        barrier();
        i += 1;
    }
}

#[test]
fn bulk_copies_and_a_barrier() {
    expect![[r#"
        .version 8.0
        	mov.u32 %r2, shared0;
        	mov.u32 %r3, shared1;
        	mov.u32 %r4, %tid.x;
        	setp.eq.u32 %p1, %r4, 0;
        	@!%p1 bra $L_block3;
        $L_block1:
        	mbarrier.init.shared.b64 [%r3], 1;
        	fence.mbarrier_init.release.cluster;
        $L_block3:
        	bar.sync 0;
        	xor.b32 %r5, %r4, 1;
        	shl.b32 %r6, %r5, 2;
        	add.s32 %r7, %r2, %r6;
        	mov.b32 %r8, 0;
        $L_block6:
        	setp.lt.u32 %p2, %r8, %r1;
        	@!%p2 bra $L_block7;
        $L_block9:
        	@!%p1 bra $L_block12;
        $L_block10:
        	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
        	shl.b32 %r9, %r8, 7;
        	cvt.u64.u32 %rd3, %r9;
        	add.s64 %rd4, %rd1, %rd3;
        	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd4], 128, [%r3];
        $L_block12:
        	and.b32 %r10, %r8, 1;
        $L_block15:
        	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], %r10;
        	@!%p3 bra $L_block15;
        $L_block17:
        	shl.b32 %r11, %r8, 5;
        	add.u32 %r12, %r11, %r4;
        	mul.wide.u32 %rd5, %r12, 4;
        	add.s64 %rd6, %rd2, %rd5;
        	ld.shared.u32 %r13, [%r7];
        	st.global.u32 [%rd6], %r13;
        	bar.sync 0;
        	add.u32 %r14, %r8, 1;
        	mov.b32 %r8, %r14;
        	bra $L_block6;
        $L_block7:
        	ret;
    "#]]
    .assert_eq(&listing(by_bulk_copies(), Target::Sm90));
    copies(by_bulk_copies(), Target::Sm90, 5, 160);
}

#[kernel(threads = 32)]
fn pieces(from: Ptr<Global, u8>, to: Ptr<Global, u32>, bytes: Val<u32>) {
    let tile = shared_array::<u32>(32);
    let full = mbarrier_array(1).at(0);
    full.init(2);
    full.expect(bytes);
    prefetch_bulk_l2(from, 4096);
    prefetch_bulk_l2(from, bytes);
    copy_bulk(tile.cast(), from, bytes, full, Some(CachePolicy::evict_first()));
    full.arrive();
    if full.test_wait(0) && full.try_wait(bytes) {
        to.store(tile.load());
    }
}

#[test]
fn everything_else_of_sm_90() {
    expect![[r#"
        .version 8.0
        	mov.u32 %r2, shared0;
        	mov.u32 %r3, shared1;
        	mbarrier.init.shared.b64 [%r3], 2;
        	mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r3], %r1;
        	cp.async.bulk.prefetch.L2.global [%rd1], 4096;
        	cp.async.bulk.prefetch.L2.global [%rd1], %r1;
        	createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;
        	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r2], [%rd1], %r1, [%r3], %rd3;
        	mbarrier.arrive.shared.b64 _, [%r3];
        	mbarrier.test_wait.parity.shared.b64 %p1, [%r3], 0;
        	@!%p1 bra $L_block2_edge1;
        	bra $L_block1;
        $L_block2_edge1:
        	setp.ne.u32 %p2, 0, 0;
        	bra $L_block2;
        $L_block1:
        	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], %r1;
        	mov.pred %p2, %p3;
        $L_block2:
        	@!%p2 bra $L_block6;
        $L_block4:
        	ld.shared.u32 %r4, [%r2];
        	st.global.u32 [%rd2], %r4;
        $L_block6:
        	ret;
    "#]].assert_eq(&listing(pieces(), Target::Sm90));
}

/// Memory may change at each wait, so loads and tests of the condition must not be merged across one.
#[kernel(threads = 32)]
fn reads_around_a_wait(from: Ptr<Global, u32>, to: Ptr<Global, u32>) {
    let full = mbarrier_array(1).at(0);
    let before = from.load_cached(Cache::ReadOnly);
    full.wait(0, Wait::Test);
    let middle = from.load_cached(Cache::ReadOnly);
    full.arrive();
    if full.test_wait(1) || full.test_wait(1) {
        to.store(before + middle);
    }
}

#[test]
fn loads_and_tests_are_not_merged_across_waits() {
    let text = listing(reads_around_a_wait(), Target::Sm80);
    assert_eq!(text.matches("ld.global.nc").count(), 2, "{text}");
    assert_eq!(text.matches("mbarrier.test_wait").count(), 3, "{text}");
}

/// Stores tiles to global memory by bulk copies, with two groups in flight.
#[kernel(threads = 32)]
fn by_bulk_stores(out: Ptr<Global, u32>, tiles: u32) {
    let stages = shared_array::<u32>(2 * 32);
    let policy = CachePolicy::evict_first();
    for tile in 0..tiles {
        let stage = stages.at(tile % 2 * 32);
        if lane() == 0 {
            wait_bulk_stores_read(1);
        }
        warp_barrier(ALL_LANES);
        stage.at(lane()).store(lane() + tile * 100);
        fence_async_shared();
        warp_barrier(ALL_LANES);
        if lane() == 0 {
            let hint = if tile == 0 { Some(policy) } else { None };
            store_bulk(out.at(tile * 32).cast(), stage.cast(), 128, hint);
            commit_bulk_stores();
        }
    }
    if lane() == 0 {
        wait_bulk_stores(0);
    }
}

#[test]
fn tiles_written_back() {
    let expected: Vec<u32> = (0..5).flat_map(|tile| (0..32).map(move |lane| lane + tile * 100)).collect();
    let buffers = [Buffer::Empty(4 * expected.len())];
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm90, config, buffers: &buffers, scalars: &[] };
    execute(by_bulk_stores(5), &launch, |after, ptx| {
        assert_eq!(values::<u32>(&after[0]), expected);
        assert!(ptx.contains("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint ["), "{ptx}");
        assert!(ptx.contains("cp.async.bulk.wait_group.read 1;"), "{ptx}");
    });
}

#[kernel]
fn misplaced(from: Ptr<Global, u8>, to: u32, bytes: u32, barrier: u32) {
    let memory = shared_array::<u8>(256);
    let done = MbarrierArray::from_pointer(memory.byte_add(barrier).cast()).at(0);
    done.init(1);
    copy_bulk(memory.byte_add(to), from, bytes, done, None);
}

#[test]
fn alignment_is_checked_while_recording() {
    assert!(misplaced(16, 32, 8).is_ok());
    for (kernel, message) in [
        (misplaced(8, 32, 0), "accesses 16 bytes at byte 8"),
        (misplaced(0, 24, 0), "moves 24 bytes, not a multiple of 16"),
        (misplaced(0, 32, 4), "accesses 8 bytes at byte 4"),
    ] {
        let error = kernel.expect_err(message).to_string();
        assert!(error.contains(message), "no {message:?} in: {error}");
    }
}

/// The finding of a launch on one buffer of 32 words.
fn finding(recorded: Recorded) -> Box<bespoke_emulator::Finding> {
    let kernel = recorded.unwrap_or_else(|error| panic!("{error}"));
    match bespoke_testing::Launch::of(&kernel).buffer(&[7u32; 64]).run() {
        Err(bespoke_testing::Failure::Finding(finding)) => finding,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a finding"),
    }
}

#[test]
fn a_copy_that_was_not_waited_for_is_named_with_both_lines() {
    const HERE: u32 = line!();
    #[kernel(threads = 32)]
    fn early(x: Ptr<Global, u32>) {
        let words = shared_array::<u32>(32);
        copy_async::<4>(words.at(lane()).cast(), x.at(lane()).cast());
        commit_copies();
        x.at(lane()).store(words.at(lane()).load());
    }
    let finding = finding(early());
    let other = finding.other.as_ref().expect("the copy");
    let line = |source: &Option<bespoke_emulator::SourceLine>| source.as_ref().map(|source| source.line);
    assert_eq!((line(&finding.source), line(&other.source)), (Some(HERE + 6), Some(HERE + 4)), "{finding}");
    assert!(other.writes && other.thread.is_none());
    assert!(finding.to_string().contains("asynchronous.rs"), "{finding}");
}

#[test]
fn an_index_past_the_end_does_not_reach_the_next_shared_array() {
    #[kernel(threads = 32)]
    fn next(x: Ptr<Global, u32>, reads: bool) {
        let (first, second) = (shared_array::<u32>(32), shared_array::<u32>(32));
        second.at(lane()).store(lane());
        barrier();
        if reads {
            first.at(lane()).store(lane());
            x.at(lane()).store(first.at(lane() + 1).load());
        } else {
            first.at(lane() + 1).store(x.at(lane()).load());
        }
        barrier();
        x.at(lane()).store(second.at(lane()).load());
    }
    for reads in [true, false] {
        let finding = finding(next(reads));
        assert_eq!(finding.kind, bespoke_emulator::FindingKind::OutOfBounds, "{finding}");
        assert!(finding.to_string().contains("just past the end of `shared0`"), "{finding}");
    }
}
