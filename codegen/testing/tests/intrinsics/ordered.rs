//! Ordered accesses and atomics, fences, cache policies and clocks: PTX and results.

use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;
use expect_test::expect;

use crate::device::{Buffer, Launch, execute, listing, values};

/// One kernel with a ticket counter, data guarded by a flag, and a counter.
#[kernel(threads = 32)]
fn flags(flag: Ptr<Global, u32>, data: Ptr<Global, u64>) {
    let local = shared_array::<u32>(1);
    data.store_relaxed(1, Scope::Sys);
    flag.store_release(1, Scope::Gpu);
    local.store_release(1, Scope::Cta);
    let seen = flag.load_acquire(Scope::Gpu) + local.load_acquire(Scope::Cta) + flag.load_relaxed(Scope::Sys);
    let _ = flag.load_relaxed(Scope::Gpu);
    let _ = flag.atomic_add(1, Scope::Gpu);
    let _ = flag.atomic_add(2, Order::Release.among(Scope::Gpu));
    let _ = flag.atomic_add(3, Order::Acquire.among(Scope::Gpu));
    let ticket = flag.atomic_add(4, Order::AcqRel.among(Scope::Gpu));
    let old = local.atomic_cas(ticket, seen, Order::Acquire.among(Scope::Cta));
    let _ = flag.atomic_exchange(0, Order::Release.among(Scope::Gpu));
    fence(Scope::Gpu);
    sequential_fence(Scope::Sys);
    data.store(old.cast());
}

/// Each CTA adds its number to the previous CTA's sum once that CTA has released it.
#[kernel(threads = 32)]
fn passed_on(flag: Ptr<Global, u32>, sums: Ptr<Global, u32>) {
    if thread_index() == 0 {
        let mut before = val(0);
        if block_index() > 0 {
            while flag.at(block_index() - 1).load_acquire(Scope::Gpu) == 0 {}
            before = sums.at(block_index() - 1).load_relaxed(Scope::Gpu);
        }
        sums.at(block_index()).store(before + block_index());
        flag.at(block_index()).store_release(1, Scope::Gpu);
    }
}

#[test]
fn a_chain_of_releases() {
    let buffers = [Buffer::Holding(vec![0; 64]), Buffer::Empty(64)];
    let config = LaunchConfig::linear(16, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    execute(passed_on(), &launch, |after, _| {
        assert_eq!(values::<u32>(&after[1]), (0..16).map(|i| i * (i + 1) / 2).collect::<Vec<u32>>());
    });
}

#[test]
fn orders() {
    expect![[r#"
        .version 7.0
        	mov.u32 %r1, shared0;
        	st.relaxed.sys.global.u64 [%rd2], 1;
        	st.release.gpu.global.u32 [%rd1], 1;
        	st.release.cta.shared.u32 [%r1], 1;
        	ld.acquire.gpu.global.u32 %r2, [%rd1];
        	ld.acquire.cta.shared.u32 %r3, [%r1];
        	add.u32 %r4, %r2, %r3;
        	ld.relaxed.sys.global.u32 %r5, [%rd1];
        	add.u32 %r6, %r4, %r5;
        	ld.relaxed.gpu.global.u32 %r7, [%rd1];
        	red.relaxed.gpu.global.add.u32 [%rd1], 1;
        	red.release.gpu.global.add.u32 [%rd1], 2;
        	atom.acquire.gpu.global.add.u32 %r8, [%rd1], 3;
        	atom.acq_rel.gpu.global.add.u32 %r9, [%rd1], 4;
        	atom.acquire.cta.shared.cas.b32 %r10, [%r1], %r9, %r6;
        	atom.release.gpu.global.exch.b32 %r11, [%rd1], 0;
        	fence.acq_rel.gpu;
        	fence.sc.sys;
        	cvt.u64.u32 %rd3, %r10;
        	st.global.u64 [%rd2], %rd3;
        	ret;
    "#]]
    .assert_eq(&listing(flags(), Target::Sm80));
}

#[kernel(threads = 32)]
fn of_every_width<T: Scalar>(flag: Ptr<Global, T>) {
    flag.at(1u32).store_release(flag.load_acquire(Scope::Gpu), Scope::Gpu);
    flag.at(1u32).store_relaxed(flag.load_relaxed(Scope::Gpu), Scope::Sys);
}

#[test]
fn every_width_can_be_ordered() {
    for kernel in [of_every_width::<u8>(), of_every_width::<i16>(), of_every_width::<f16>()] {
        listing(kernel, Target::Sm80);
    }
    for kernel in [of_every_width::<f32>(), of_every_width::<F16x2>(), of_every_width::<i64>()] {
        listing(kernel, Target::Sm80);
    }
}

#[kernel(threads = 32)]
fn hinted(from: Ptr<Global, u32>, to: Ptr<Global, u32>) {
    let (first, last) = (CachePolicy::evict_first(), CachePolicy::evict_last());
    let mut sum = from.load_with(Cache::Default, first);
    for cache in [Cache::L2, Cache::Streaming, Cache::ReadOnly, Cache::ReadOnlyStreaming] {
        sum ^= from.load_with(cache, last);
    }
    let vector: [Val<u32>; 4] = from.at(4u32).load_vector_with(Cache::ReadOnlyStreaming, first);
    for cache in [Cache::Default, Cache::L2, Cache::Streaming] {
        to.store_with(sum, cache, first);
    }
    to.at(4u32).store_vector_with(vector, Cache::Default, last);
    to.at(8u32).store_vector_cached(vector, Cache::Streaming);
}

#[test]
fn cache_policies() {
    expect![[r#"
        .version 7.4
        	createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;
        	createpolicy.fractional.L2::evict_last.b64 %rd4, 1.0;
        	ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd3;
        	ld.global.cg.L2::cache_hint.u32 %r2, [%rd1], %rd4;
        	xor.b32 %r3, %r1, %r2;
        	ld.global.cs.L2::cache_hint.u32 %r4, [%rd1], %rd4;
        	xor.b32 %r5, %r3, %r4;
        	ld.global.nc.L2::cache_hint.u32 %r6, [%rd1], %rd4;
        	xor.b32 %r7, %r5, %r6;
        	ld.global.nc.L1::no_allocate.L2::cache_hint.u32 %r8, [%rd1], %rd4;
        	xor.b32 %r9, %r7, %r8;
        	ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1+16], %rd3;
        	st.global.L2::cache_hint.u32 [%rd2], %r9, %rd3;
        	st.global.cg.L2::cache_hint.u32 [%rd2], %r9, %rd3;
        	st.global.cs.L2::cache_hint.u32 [%rd2], %r9, %rd3;
        	st.global.L2::cache_hint.v4.u32 [%rd2+16], {%r10, %r11, %r12, %r13}, %rd4;
        	st.global.cs.v4.u32 [%rd2+32], {%r10, %r11, %r12, %r13};
        	ret;
    "#]]
    .assert_eq(&listing(hinted(), Target::Sm80));
}

#[kernel(threads = 32)]
fn clocks(out: Ptr<Global, u64>) {
    let begin = clock64();
    let time = global_timer();
    out.store(clock64() - begin + (global_timer() - time));
}

#[test]
fn wide_clocks() {
    let text = listing(clocks(), Target::Sm80);
    for name in ["%clock64", "%globaltimer"] {
        assert_eq!(text.matches(name).count(), 2, "{text}");
    }
}

#[kernel(threads = 32)]
fn proxies(from: Ptr<Global, u8>) {
    let tile = shared_array::<u32>(32);
    let full = mbarrier_array(1).at(0);
    tile.at(lane()).store(0);
    fence_async_shared();
    fence_async();
    copy_bulk(tile.cast(), from, 128, full, None);
}

#[test]
fn fences_between_instructions_and_bulk_copies() {
    expect![[r#"
        .version 8.0
        	mov.u32 %r1, shared0;
        	mov.u32 %r2, shared1;
        	mov.u32 %r3, %laneid;
        	shl.b32 %r4, %r3, 2;
        	add.s32 %r5, %r1, %r4;
        	st.shared.u32 [%r5], 0;
        	fence.proxy.async.shared::cta;
        	fence.proxy.async;
        	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 128, [%r2];
        	ret;
    "#]]
    .assert_eq(&listing(proxies(), Target::Sm90));
}
