//! Kernels of `cuda/locks.cu`, compiled by nvcc: threads that wait in loops for others of their warp. On GPUs with independent
//! thread scheduling, each of them goes on.

use bespoke_emulator::{FindingKind, LaunchConfig, Memory, Module, Options, run};
use expect_test::expect;

use crate::device::{Device, words};

const PTX: &str = include_str!("cuda/locks.ptx");

#[test]
fn each_thread_takes_a_lock() {
    let device = Device::load(PTX);
    for [ctas, threads, n] in [[1u32, 32, 32], [1, 64, 50], [2, 96, 192], [3, 40, 99]] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let (lock, sum) = (device.buffer(&[0u32]), device.buffer(&[0.5f32]));
        device.run(
            "locked_sum",
            LaunchConfig::linear(ctas, threads),
            &[lock, sum, device.buffer(&x), n.into()],
        );
        assert_eq!(
            device.read::<f32>(sum, 1),
            [x.iter().sum::<f32>() + 0.5],
            "{ctas} CTAs of {threads} threads"
        );
        assert_eq!(device.read::<u32>(lock, 1), [0]);
    }
}

#[test]
fn a_lock_without_fences_is_a_race() {
    let device = Device::load(&PTX.replace("membar.gl;", ""));
    // Lanes of one warp race, too.
    for threads in [32, 64] {
        let arguments = [device.buffer(&[0u32]), device.buffer(&[0f32]), device.buffer(&[1f32; 64]), 64];
        let finding = device.finding("locked_sum", LaunchConfig::linear(1, threads), &arguments);
        assert_eq!(finding.kind, FindingKind::Race, "{finding}");
    }
}

#[test]
fn entries_are_inserted_under_the_locks_of_their_buckets() {
    let (device, n, buckets) = (Device::load(PTX), 300, 7);
    let keys = words(n, 5);
    let heads = device.buffer(&vec![0u32; buckets]);
    let (entries, counts) = (device.output::<u32>(2 * n), device.output::<u32>(3));
    let arguments = [
        device.buffer(&vec![0u32; buckets]),
        heads,
        entries,
        device.buffer(&keys),
        n as u64,
        buckets as u64,
        counts,
    ];
    device.run("insert", LaunchConfig::linear(3, 128), &arguments);
    let (heads, entries) = (device.read::<u32>(heads, buckets), device.read::<u32>(entries, 2 * n));
    for (bucket, &head) in heads.iter().enumerate() {
        let entry =
            |at: u32| (at as usize).checked_sub(1).map(|index| [entries[2 * index], entries[2 * index + 1]]);
        let list = std::iter::successors(entry(head), |&[_, next]| entry(next));
        let mut list: Vec<u32> = list.take(n + 1).map(|[key, _]| key).collect();
        let mut expected: Vec<u32> =
            keys.iter().copied().filter(|key| *key as usize % buckets == bucket).collect();
        list.sort_unstable();
        expected.sort_unstable();
        assert_eq!(list, expected, "bucket {bucket}");
    }
    // After the locks, all threads of a CTA meet at a barrier.
    assert_eq!(device.read::<u32>(counts, 3), [128, 128, 44]);
}

#[test]
fn lanes_take_turns_and_meet_again() {
    let device = Device::load(PTX);
    let x: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let out = device.output::<f32>(64);
    device.run("in_turns", LaunchConfig::linear(1, 32), &[device.buffer(&[0u32]), out, device.buffer(&x)]);
    let reversed: Vec<f32> = x.iter().rev().copied().collect();
    let shifted: Vec<f32> = (0..32).map(|i| (i + 1).min(31) as f32).collect();
    assert_eq!(device.read::<f32>(out, 64), [reversed, shifted].concat());
}

#[test]
fn a_wait_that_nothing_ends_is_still_reported() {
    let module = Module::parse(PTX).expect("valid PTX");
    let memory = Memory::new();
    let flag = memory.alloc("flag", 4);
    memory.write(flag, &[0; 4]).expect("inside");
    let params: Vec<u8> = [flag, memory.alloc("out", 128)].iter().flat_map(|it| it.to_le_bytes()).collect();
    let options = Options { instruction_limit: 1 << 16, ..Options::default() };
    let kernel = module.kernel("never").expect("the kernel");
    let finding =
        run(kernel, &memory, &LaunchConfig::linear(1, 32), &params, &options).expect_err("it never ends");
    assert_eq!((finding.kind, finding.thread), (FindingKind::Deadlock, [3, 0, 0]), "{finding}");
    expect!["deadlock in kernel `never` (PTX line 220: `atom.global.add.u32 	%r2, [%rd1], 0;`) by thread (3, 0, 0) of CTA (0, 0, 0): the launch's only running CTA waits in a loop that polls or sleeps, and nothing has ended the wait within 65536 warp instructions, the limit"].assert_eq(&finding.to_string());
}
