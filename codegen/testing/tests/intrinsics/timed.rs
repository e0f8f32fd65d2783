//! Kernels that write timestamps.

use bespoke_codegen::CtaTimes;
use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

/// Sums of 64 threads, by warp 0 of each CTA; CTA 2 has none.
#[kernel(threads = 64)]
fn sums(x: Ptr<Global, u32>, y: Ptr<Global, u32>) {
    let partial = shared_array::<u32>(64);
    partial.at(thread_index()).store(x.at(block_index() * 64 + thread_index()).load());
    wait_for_dependencies();
    barrier();
    if (block_index() != 2) & (warp_index() == 0) {
        let mut sum = val(0u32);
        for i in 0..64u32 {
            sum += partial.at(i).load();
        }
        if lane() == 0 {
            y.at(block_index()).store(sum);
        }
    }
}

#[test]
fn times_of_all_ctas_are_in_order_and_results_as_before() {
    let x: Vec<u32> = (0..256).collect();
    let sum = |cta: u32| (64 * cta..64 * cta + 64).sum::<u32>();
    let kernel = sums().unwrap().timed();
    assert_eq!(
        kernel.params().iter().map(|param| param.name.as_str()).collect::<Vec<_>>(),
        ["x", "y", "times"]
    );
    let done = Launch::of(&kernel).grid(4).buffer(&x).buffer(&[0u32; 4]).buffer(&[0u64; 12]).run().unwrap();
    assert_eq!(done.buffer::<u32>(1), [sum(0), sum(1), 0, sum(3)]);
    let bytes: Vec<u8> = done.buffer::<u64>(2).iter().flat_map(|word| word.to_le_bytes()).collect();
    let times: Vec<CtaTimes> = CtaTimes::read(&bytes).collect();
    assert_eq!(times.len(), 4);
    for CtaTimes { start, resumed, end } in times {
        let resumed = resumed.expect("the kernel waits");
        assert!(0 < start && start <= resumed && resumed <= end, "{start} {resumed} {end}");
    }
}

#[test]
fn a_kernel_without_a_wait_has_no_time_of_one() {
    #[kernel(threads = 32)]
    fn nothing() {}

    let kernel = nothing().unwrap().timed();
    let done = Launch::of(&kernel).grid(2).buffer(&[0u64; 6]).run().unwrap();
    let bytes: Vec<u8> = done.buffer::<u64>(0).iter().flat_map(|word| word.to_le_bytes()).collect();
    assert!(CtaTimes::read(&bytes).all(|times| times.resumed.is_none() && times.start <= times.end));
}
