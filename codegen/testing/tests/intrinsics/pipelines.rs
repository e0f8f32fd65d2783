//! Pipelines: rings of stages with producer and consumer warps.

use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;
use expect_test::expect;

use crate::device::{Buffer, Launch, bytes, execute, listing};

/// Copies tiles of 1 KiB through a ring: warp 0 produces, warps 1 and 2 consume.
#[kernel(threads = 96)]
fn through_a_ring(
    from: Ptr<Global, u8>,
    to: Ptr<Global, u32>,
    tiles: Val<u32>,
    shape: PipelineShape,
    streaming: bool,
) {
    let ring = Pipeline::new(shape, dynamic_shared(), mbarrier_array(shape.barriers()));
    let thread = thread_index();
    if thread == 0 {
        ring.init();
    }
    barrier();
    if thread < shape.producers() {
        let policy = streaming.then(CachePolicy::evict_first);
        let mut producer = ring.producer(thread);
        for tile in 0..tiles {
            producer.acquire(1024);
            producer.copy(0, from.byte_add(tile * 1024), 1024, policy);
            producer.commit();
            producer.advance();
        }
    }
    if thread >= 32 {
        let mut consumer = ring.consumer();
        for tile in 0..tiles {
            consumer.wait();
            let words = consumer.data().cast::<u32>().at((thread - 32) * 4).load_vector::<4>();
            consumer.release();
            consumer.advance();
            to.at(tile * 256 + (thread - 32) * 4).store_vector(words);
        }
    }
}

fn shape(stages: u32, copy: PipelineCopy) -> PipelineShape {
    PipelineShape { stages, stage_bytes: 1024, consumers: Consumers::Warps(2), copy }
}

/// Each consumer gets the tiles that the producer read, with more and with fewer tiles than stages.
#[test]
fn tiles_arrive_in_order() {
    for (copy, oldest) in
        [(PipelineCopy::Bulk, Target::Sm90), (PipelineCopy::Async { threads: 24 }, Target::Sm80)]
    {
        for stages in [1, 2, 3] {
            for tiles in [0u32, 1, 3, 7] {
                let words: Vec<u32> = (0..256 * tiles).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
                let shape = shape(stages, copy);
                let buffers = [Buffer::Holding(bytes(&words)), Buffer::Empty(4 * words.len())];
                let config = LaunchConfig { dynamic_shared: shape.bytes(), ..LaunchConfig::linear(1, 96) };
                let launch = Launch { oldest, config, buffers: &buffers, scalars: &[&tiles] };
                execute(through_a_ring(shape, tiles % 2 == 1), &launch, |after, ptx| {
                    assert_eq!(after[1], after[0], "{tiles} tiles, {shape:?}\n{ptx}");
                });
            }
        }
    }
}

#[test]
fn by_bulk_copies() {
    let kernel = through_a_ring(shape(3, PipelineCopy::Bulk), true);
    expect![[r#"
        .version 8.0
        	mov.u32 %r2, dynamic_shared;
        	mov.u32 %r3, shared0;
        	mov.u32 %r4, %tid.x;
        	setp.eq.u32 %p1, %r4, 0;
        	@!%p1 bra $L_block3;
        $L_block1:
        	mbarrier.init.shared.b64 [%r3], 1;
        	add.s32 %r5, %r3, 24;
        	mbarrier.init.shared.b64 [%r5], 2;
        	add.s32 %r6, %r3, 8;
        	mbarrier.init.shared.b64 [%r6], 1;
        	add.s32 %r7, %r3, 32;
        	mbarrier.init.shared.b64 [%r7], 2;
        	add.s32 %r8, %r3, 16;
        	mbarrier.init.shared.b64 [%r8], 1;
        	add.s32 %r9, %r3, 40;
        	mbarrier.init.shared.b64 [%r9], 2;
        	fence.mbarrier_init.release.cluster;
        $L_block3:
        	bar.sync 0;
        	setp.lt.u32 %p2, %r4, 1;
        	@!%p2 bra $L_block21;
        $L_block6:
        	createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;
        	mov.b32 %r10, 0;
        	mov.b32 %r12, 0;
        	mov.b32 %r11, 1;
        $L_block8:
        	setp.lt.u32 %p3, %r12, %r1;
        	@!%p3 bra $L_block21;
        $L_block11:
        	shl.b32 %r13, %r10, 3;
        	add.s32 %r14, %r3, %r13;
        	add.s32 %r15, %r14, 24;
        $L_block12:
        	mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r15], %r11;
        	@!%p4 bra $L_block12;
        $L_block14:
        	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r14], 1024;
        	shl.b32 %r16, %r12, 10;
        	cvt.u64.u32 %rd4, %r16;
        	add.s64 %rd5, %rd1, %rd4;
        	shl.b32 %r17, %r10, 10;
        	add.s32 %r18, %r2, %r17;
        	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r18], [%rd5], 1024, [%r14], %rd3;
        	add.u32 %r19, %r10, 1;
        	setp.eq.u32 %p5, %r10, 2;
        	xor.b32 %r20, %r11, 1;
        	selp.b32 %r21, 0, %r19, %p5;
        	selp.b32 %r22, %r20, %r11, %p5;
        	add.u32 %r23, %r12, 1;
        	mov.b32 %r10, %r21;
        	mov.b32 %r12, %r23;
        	mov.b32 %r11, %r22;
        	bra $L_block8;
        $L_block21:
        	setp.ge.u32 %p6, %r4, 32;
        	@!%p6 bra $L_block44;
        $L_block24:
        	shl.b32 %r24, %r4, 2;
        	shl.b32 %r25, %r4, 4;
        	mov.u32 %r26, %laneid;
        	setp.eq.u32 %p7, %r26, 0;
        	mov.b32 %r27, 0;
        	mov.b32 %r29, 0;
        	mov.b32 %r28, 0;
        $L_block26:
        	setp.lt.u32 %p8, %r29, %r1;
        	@!%p8 bra $L_block44;
        $L_block29:
        	shl.b32 %r30, %r27, 3;
        	add.s32 %r31, %r3, %r30;
        $L_block30:
        	mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r31], %r28;
        	@!%p9 bra $L_block30;
        $L_block32:
        	shl.b32 %r32, %r27, 10;
        	add.s32 %r33, %r2, %r32;
        	add.s32 %r34, %r33, %r25;
        	ld.shared.v4.u32 {%r35, %r36, %r37, %r38}, [%r34+-512];
        	add.s32 %r39, %r31, 24;
        	bar.warp.sync 4294967295;
        	@!%p7 bra $L_block35;
        $L_block33:
        	mbarrier.arrive.shared.b64 _, [%r39];
        $L_block35:
        	add.u32 %r40, %r27, 1;
        	setp.eq.u32 %p10, %r27, 2;
        	xor.b32 %r41, %r28, 1;
        	selp.b32 %r42, 0, %r40, %p10;
        	selp.b32 %r43, %r41, %r28, %p10;
        	shl.b32 %r44, %r29, 8;
        	add.u32 %r45, %r44, %r24;
        	add.u32 %r46, %r45, 4294967168;
        	mul.wide.u32 %rd6, %r46, 4;
        	add.s64 %rd7, %rd2, %rd6;
        	st.global.v4.u32 [%rd7], {%r35, %r36, %r37, %r38};
        	add.u32 %r47, %r29, 1;
        	mov.b32 %r27, %r42;
        	mov.b32 %r29, %r47;
        	mov.b32 %r28, %r43;
        	bra $L_block26;
        $L_block44:
        	ret;
    "#]].assert_eq(&listing(kernel, Target::Sm90));
}

#[test]
fn by_async_copies() {
    let kernel = through_a_ring(shape(2, PipelineCopy::Async { threads: 24 }), false);
    expect![[r#"
        .version 7.2
        	mov.u32 %r2, dynamic_shared;
        	mov.u32 %r3, shared0;
        	mov.u32 %r4, %tid.x;
        	setp.eq.u32 %p1, %r4, 0;
        	@!%p1 bra $L_block3;
        $L_block1:
        	mbarrier.init.shared.b64 [%r3], 24;
        	add.s32 %r5, %r3, 16;
        	mbarrier.init.shared.b64 [%r5], 2;
        	add.s32 %r6, %r3, 8;
        	mbarrier.init.shared.b64 [%r6], 24;
        	add.s32 %r7, %r3, 24;
        	mbarrier.init.shared.b64 [%r7], 2;
        $L_block3:
        	bar.sync 0;
        	setp.lt.u32 %p2, %r4, 24;
        	@!%p2 bra $L_block26;
        $L_block6:
        	shl.b32 %r8, %r4, 4;
        	mul.wide.u32 %rd3, %r4, 16;
        	setp.lt.u32 %p3, %r8, 256;
        	mov.b32 %r9, 0;
        	mov.b32 %r11, 0;
        	mov.b32 %r10, 1;
        $L_block8:
        	setp.lt.u32 %p4, %r11, %r1;
        	@!%p4 bra $L_block26;
        $L_block11:
        	shl.b32 %r12, %r9, 3;
        	add.s32 %r13, %r3, %r12;
        	add.s32 %r14, %r13, 16;
        $L_block12:
        	mbarrier.test_wait.parity.shared.b64 %p5, [%r14], %r10;
        	@!%p5 bra $L_block12;
        $L_block14:
        	shl.b32 %r15, %r11, 10;
        	cvt.u64.u32 %rd4, %r15;
        	add.s64 %rd5, %rd1, %rd4;
        	shl.b32 %r16, %r9, 10;
        	add.s32 %r17, %r2, %r16;
        	add.s32 %r18, %r17, %r8;
        	add.s64 %rd6, %rd5, %rd3;
        	cp.async.cg.shared.global [%r18], [%rd6], 16;
        	add.s32 %r19, %r18, 384;
        	add.s64 %rd7, %rd6, 384;
        	cp.async.cg.shared.global [%r19], [%rd7], 16;
        	@!%p3 bra $L_block17;
        $L_block15:
        	add.s32 %r20, %r18, 768;
        	add.s64 %rd8, %rd6, 768;
        	cp.async.cg.shared.global [%r20], [%rd8], 16;
        $L_block17:
        	cp.async.mbarrier.arrive.noinc.shared.b64 [%r13];
        	add.u32 %r21, %r9, 1;
        	setp.eq.u32 %p6, %r9, 1;
        	xor.b32 %r22, %r10, 1;
        	selp.b32 %r23, 0, %r21, %p6;
        	selp.b32 %r24, %r22, %r10, %p6;
        	add.u32 %r25, %r11, 1;
        	mov.b32 %r9, %r23;
        	mov.b32 %r11, %r25;
        	mov.b32 %r10, %r24;
        	bra $L_block8;
        $L_block26:
        	setp.ge.u32 %p7, %r4, 32;
        	@!%p7 bra $L_block49;
        $L_block29:
        	shl.b32 %r26, %r4, 2;
        	shl.b32 %r27, %r4, 4;
        	mov.u32 %r28, %laneid;
        	setp.eq.u32 %p8, %r28, 0;
        	mov.b32 %r29, 0;
        	mov.b32 %r31, 0;
        	mov.b32 %r30, 0;
        $L_block31:
        	setp.lt.u32 %p9, %r31, %r1;
        	@!%p9 bra $L_block49;
        $L_block34:
        	shl.b32 %r32, %r29, 3;
        	add.s32 %r33, %r3, %r32;
        $L_block35:
        	mbarrier.test_wait.parity.shared.b64 %p10, [%r33], %r30;
        	@!%p10 bra $L_block35;
        $L_block37:
        	shl.b32 %r34, %r29, 10;
        	add.s32 %r35, %r2, %r34;
        	add.s32 %r36, %r35, %r27;
        	ld.shared.v4.u32 {%r37, %r38, %r39, %r40}, [%r36+-512];
        	add.s32 %r41, %r33, 16;
        	bar.warp.sync 4294967295;
        	@!%p8 bra $L_block40;
        $L_block38:
        	mbarrier.arrive.shared.b64 _, [%r41];
        $L_block40:
        	add.u32 %r42, %r29, 1;
        	setp.eq.u32 %p11, %r29, 1;
        	xor.b32 %r43, %r30, 1;
        	selp.b32 %r44, 0, %r42, %p11;
        	selp.b32 %r45, %r43, %r30, %p11;
        	shl.b32 %r46, %r31, 8;
        	add.u32 %r47, %r46, %r26;
        	add.u32 %r48, %r47, 4294967168;
        	mul.wide.u32 %rd9, %r48, 4;
        	add.s64 %rd10, %rd2, %rd9;
        	st.global.v4.u32 [%rd10], {%r37, %r38, %r39, %r40};
        	add.u32 %r49, %r31, 1;
        	mov.b32 %r29, %r44;
        	mov.b32 %r31, %r49;
        	mov.b32 %r30, %r45;
        	bra $L_block31;
        $L_block49:
        	ret;
    "#]]
    .assert_eq(&listing(kernel, Target::Sm80));
}

/// Copies tiles whose size, and so the stage size, is only known at the launch.
#[kernel(threads = 32)]
fn of_any_size(from: Ptr<Global, u8>, to: Ptr<Global, u32>, bytes: Val<u32>, copy: PipelineCopy) {
    let shape = PipelineShape { stages: 1, stage_bytes: 4096, consumers: Consumers::Threads(32), copy };
    let ring = Pipeline::new(shape, shared_array::<u8>(4096), mbarrier_array(shape.barriers()));
    let producer = ring.producer(lane());
    let mut consumer = ring.consumer();
    if lane() == 0 {
        ring.init();
    }
    barrier();
    if lane() < shape.producers() {
        producer.acquire(bytes);
        producer.copy(0, from, bytes, Some(CachePolicy::evict_last()));
        producer.commit();
    }
    consumer.wait();
    to.at(lane()).store(consumer.data().cast::<u32>().at(lane()).load());
    consumer.release();
    consumer.advance();
}

#[test]
fn sizes_may_be_run_time_values() {
    let bulk = listing(of_any_size(PipelineCopy::Bulk), Target::Sm90);
    assert_eq!(bulk.matches("cp.async.bulk").count(), 1, "{bulk}");
    let several = listing(of_any_size(PipelineCopy::Async { threads: 32 }), Target::Sm80);
    assert_eq!(several.matches("cp.async.cg").count(), 1, "{several}");
    let words: Vec<u32> = (0..1024).map(|i| i * i).collect();
    for (copy, oldest) in
        [(PipelineCopy::Bulk, Target::Sm90), (PipelineCopy::Async { threads: 32 }, Target::Sm80)]
    {
        for size in [128u32, 1040, 4096] {
            let buffers = [Buffer::Holding(bytes(&words)), Buffer::Empty(128)];
            let config = LaunchConfig::linear(1, 32);
            let launch = Launch { oldest, config, buffers: &buffers, scalars: &[&size] };
            execute(of_any_size(copy), &launch, |after, _| assert_eq!(after[1], after[0][..128]));
        }
    }
}

#[test]
fn shapes_are_checked() {
    for (shape, message) in [
        // The array of mbarriers is made first.
        (shape(0, PipelineCopy::Bulk), "a shared array cannot be of no elements"),
        (PipelineShape { stage_bytes: 1000, ..shape(2, PipelineCopy::Bulk) }, "a pipeline cannot have"),
    ] {
        let error = through_a_ring(shape, false).expect_err("a wrong shape").to_string();
        assert!(error.contains(message) && error.contains("pipelines.rs"), "{error}");
    }
}

#[test]
fn rows_that_do_not_fit_a_stage_are_an_error() {
    #[kernel(threads = 32)]
    fn copies(x: Ptr<Global, u8>, to: u32, tile: RowsShape) {
        let copy = PipelineCopy::Async { threads: 32 };
        let shape = PipelineShape { stages: 2, stage_bytes: 256, consumers: Consumers::Warps(1), copy };
        let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
        ring.producer(lane()).copy_rows(to, x, 64, tile);
    }
    let tile = |rows, row_bytes, stage_stride| RowsShape { rows, row_bytes, stage_stride };
    let message = |to, tile| copies(to, tile).expect_err("an error").message;
    let found = message(16, tile(8, 32, 32));
    assert!(found.contains("end at byte 272 of a stage of 256 bytes"), "{found}");
    let found = message(0, tile(2, 32, 16));
    assert!(found.contains("overwrite each other: write a `stage_stride` of at least 32"), "{found}");
    for (to, fits) in
        [(0, tile(8, 32, 32)), (128, tile(4, 32, 32)), (0, tile(1, 32, 0)), (0, tile(2, 16, 240))]
    {
        assert!(copies(to, fits).is_ok());
    }
}

#[test]
fn rows_are_not_confused_by_offsets_beyond_32_bits() {
    #[kernel(threads = 32)]
    fn copies(x: Ptr<Global, u8>, stride: Val<u32>) {
        let copy = PipelineCopy::Async { threads: 32 };
        let shape = PipelineShape { stages: 1, stage_bytes: 512, consumers: Consumers::Warps(1), copy };
        let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
        let tile = RowsShape { rows: 32, row_bytes: 16, stage_stride: 16 };
        ring.producer(lane()).copy_rows(0, x, stride, tile);
    }
    let ptx = copies().unwrap().compile(Target::Sm80).unwrap().ptx;
    assert!(ptx.contains("mul.wide.u32") && !ptx.contains("mul.lo.u32"), "{ptx}");
}
