//! Indices, barriers, and exchanges among the lanes of a warp and the threads of a CTA.

use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;

use crate::device::{Buffer, Launch, bytes, execute, values};
use crate::host::Host;

/// Stores all indices of the thread.
#[kernel]
fn places(out: Ptr<Global, u32>, block: [u32; 3]) {
    let [width, height, depth] = block;
    let thread = thread_index() + thread_index_y() * width + thread_index_z() * (width * height);
    let cta = block_index() + grid_size() * (block_index_y() + grid_size_y() * block_index_z());
    let found = [
        thread_index(),
        thread_index_y(),
        thread_index_z(),
        block_index(),
        block_index_y(),
        block_index_z(),
        block_size(),
        grid_size(),
        grid_size_y(),
        lane(),
    ];
    for (i, value) in found.iter().enumerate() {
        out.at((cta * (width * height * depth) + thread) * 10 + i as u32).store(*value);
    }
}

#[test]
fn indices_in_three_dimensions() {
    let (block, grid) = ([4u32, 3, 5], [2u32, 3, 2]);
    let mut expected = Vec::new();
    for cta in 0..12 {
        for thread in 0..60 {
            let [x, y, z] = [thread % 4, thread / 4 % 3, thread / 12];
            expected.extend([x, y, z, cta % 2, cta / 2 % 3, cta / 6, 4, 2, 3, thread % 32]);
        }
    }
    let buffers = [Buffer::Empty(4 * expected.len())];
    let config = LaunchConfig { grid, block, dynamic_shared: 0, cluster: None, cooperative: false };
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    execute(places(block), &launch, |after, _| assert_eq!(values::<u32>(&after[0]), expected));
}

#[kernel(threads = 32)]
fn clocks(out: Ptr<Global, u32>) {
    let before = clock();
    out.at(thread_index()).store(multiprocessor() + (clock() - before));
    out.at(thread_index() + 32).store(warp_index());
}

#[test]
fn special_registers_are_there() {
    let buffers = [Buffer::Empty(256)];
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    execute(clocks(), &launch, |after, ptx| {
        assert_eq!(values::<u32>(&after[0])[32..], [0; 32]);
        assert_eq!(ptx.matches("%clock").count(), 2, "the counter is read where the source reads it");
    });
}

/// An exchange among the lanes of a warp: its DSL form, and on the host the result in lane i.
struct Exchange<T> {
    name: &'static str,
    gpu: fn(Val<T>, Val<u32>) -> Val<T>,
    host: fn(&[T], usize) -> T,
}

/// Applies every exchange to one value per lane; `three` is 3, as a run-time value.
#[kernel(threads = 32)]
fn exchanged<T: Scalar>(
    from: Ptr<Global, T>,
    out: Ptr<Global, T>,
    three: Val<u32>,
    exchanges: &[Exchange<T>],
) {
    let value = from.at(lane()).load();
    for (i, exchange) in exchanges.iter().enumerate() {
        let gpu = exchange.gpu;
        out.at(i * 32).at(lane()).store(gpu(value, three));
    }
}

fn check_exchanges<T: Host>(input: &[T], exchanges: &[Exchange<T>]) {
    let buffers = [Buffer::Holding(bytes(input)), Buffer::Empty(bytes(input).len() * exchanges.len())];
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[&3u32] };
    execute(exchanged(exchanges), &launch, |after, ptx| {
        let found: Vec<T> = values(&after[1]);
        for (exchange, found) in exchanges.iter().zip(found.chunks_exact(32)) {
            let expected: Vec<T> = (0..32).map(|lane| (exchange.host)(input, lane)).collect();
            assert_eq!(bytes(found), bytes(&expected), "{} of {}:\n{ptx}", exchange.name, T::TYPE);
        }
    });
}

fn shuffles<T: Host + Word>() {
    let input: Vec<T> = T::edges().into_iter().cycle().take(32).collect();
    check_exchanges::<T>(
        &input,
        &[
            Exchange { name: "xor", gpu: |x, by| shuffle_xor(x, by), host: |all, i| all[i ^ 3] },
            Exchange { name: "xor 16", gpu: |x, _| shuffle_xor(x, 16), host: |all, i| all[i ^ 16] },
            Exchange { name: "lane", gpu: |x, at| shuffle_lane(x, at), host: |all, _| all[3] },
            Exchange {
                name: "reversed",
                gpu: |x, _| shuffle_lane(x, lane() ^ 31),
                host: |all, i| all[31 - i],
            },
            Exchange {
                name: "down",
                gpu: |x, by| shuffle_down(x, by),
                host: |all, i| all[if i + 3 < 32 { i + 3 } else { i }],
            },
            Exchange {
                name: "up",
                gpu: |x, by| shuffle_up(x, by),
                host: |all, i| all[if i >= 3 { i - 3 } else { i }],
            },
            Exchange {
                name: "of a constant",
                gpu: |x, by| shuffle_up(shuffle_down(x, 0), by - 3),
                host: |all, i| all[i],
            },
        ],
    );
}

#[test]
fn shuffled_words() {
    shuffles::<u32>();
    shuffles::<i32>();
    shuffles::<f32>();
    shuffles::<F16x2>();
}

#[device]
fn votes(value: Val<u32>, three: Val<u32>) -> Val<u32> {
    let odd = ballot(value % 2 == 1);
    let all = select(vote_all(value >= three), 1, 0);
    let none = select(vote_all(value < three), 2, 0);
    let any = select(vote_any(value == three), 4, 0);
    let never = select(vote_any(value > 1_000_000), 8, 0);
    let constant = ballot(lane() < 32) ^ ballot(val(false));
    (odd ^ constant) & 0xffff_fff0 | all | none | any | never
}

#[test]
fn votes_and_ballots() {
    let input: Vec<u32> = (0..32).map(|i| i * i + 3).collect();
    let host = |all: &[u32], _: usize| {
        let odd: u32 = (0..32).map(|i| (all[i] % 2) << i).sum();
        !odd & 0xffff_fff0 | 1 | 4
    };
    check_exchanges::<u32>(&input, &[Exchange { name: "votes", gpu: votes, host }]);
}

/// Every exchange among the lanes whose bit of `mask` is set, in a divergent branch; other lanes store nothing.
#[kernel(threads = 32)]
fn exchanged_by_some(from: Ptr<Global, u32>, out: Ptr<Global, u32>, mask: Val<u32>, constant: Option<u32>) {
    let members = match constant {
        Some(mask) => lanes(mask),
        None => lanes(mask),
    };
    if mask >> lane() & 1 == 1 {
        let value = from.at(lane()).load();
        let eights = members.in_groups_of(8);
        let results = [
            members.shuffle_xor(value, 1),
            members.shuffle_lane(value, 9),
            eights.shuffle_lane(value, 1),
            eights.shuffle_down(value, 1),
            eights.shuffle_up(value, 1),
            members.ballot(value % 2 == 1),
            select(members.vote_all(value % 2 == 1), 1, 0) + select(members.vote_any(value % 2 == 1), 2, 0),
            members.match_any(value % 4),
            select(members.match_all(value / 1024), 1, 0) + select(members.match_all(value % 4), 2, 0),
            members.redux_add(value),
            members.redux_max(value),
            members.shuffle_xor(value.cast::<u64>() << 33, 1).cast::<f32>().cast::<u32>(),
            active_lanes(),
        ];
        for (i, result) in results.into_iter().enumerate() {
            out.at(i * 32).at(lane()).store(result);
        }
    }
}

#[test]
fn some_lanes_exchange_values() {
    // Pairs of lanes of the groups 1 and 2, so that all lanes that the shuffles read are members.
    let mask = 0x00ff_ff00u32;
    let members: Vec<usize> = (0..32).filter(|lane| mask >> lane & 1 == 1).collect();
    let input: Vec<u32> = (0..32).map(|i| i * 3 + 1).collect();
    let at = |lane: usize| input[lane];
    let lanes_where = |holds: &dyn Fn(usize) -> bool| -> u32 {
        members.iter().filter(|&&lane| holds(lane)).map(|&lane| 1 << lane).sum()
    };
    let sum = members.iter().map(|&lane| at(lane)).sum();
    let greatest = members.iter().map(|&lane| at(lane)).max().unwrap_or_default();
    let mut expected = vec![0; 13 * 32];
    for &lane in &members {
        let group = lane / 8 * 8;
        let results = [
            at(lane ^ 1),
            at(9),
            at(group + 1),
            at(if lane == group + 7 { lane } else { lane + 1 }),
            at(if lane == group { lane } else { lane - 1 }),
            lanes_where(&|other| at(other) % 2 == 1),
            2,
            lanes_where(&|other| at(other) % 4 == at(lane) % 4),
            1,
            sum,
            greatest,
            u32::MAX,
            mask,
        ];
        for (i, result) in results.into_iter().enumerate() {
            expected[i * 32 + lane] = result;
        }
    }
    let buffers = [Buffer::Holding(bytes(&input)), Buffer::Holding(vec![0; 4 * 13 * 32])];
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[&mask] };
    for constant in [None, Some(mask)] {
        execute(exchanged_by_some(constant), &launch, |after, ptx| {
            assert_eq!(values::<u32>(&after[1]), expected, "{ptx}");
        });
    }
}

#[kernel]
fn in_groups_of_six(out: Ptr<Global, u32>) {
    out.store(lanes(ALL_LANES).in_groups_of(6).shuffle_xor(lane(), 1));
}

#[test]
fn groups_of_lanes_are_powers_of_two() {
    let error = in_groups_of_six().expect_err("no such groups").to_string();
    assert!(error.contains("lanes have no groups of 6: write 1, 2, 4, 8, 16 or 32"), "{error}");
}

#[device]
fn matched(value: Val<u32>, three: Val<u32>) -> Val<u32> {
    let pairs = match_any(value / 2) ^ match_any(value.cast::<u64>() / 2);
    let all = select(match_all(value / 1024), 1, 0) + select(match_all(value % three), 2, 0);
    let leader = redux_add(select(elect(), val(1u32), val(0u32)));
    (match_any(value % three) & 0xffff_fff0) + pairs + all + leader * 4
}

#[kernel(threads = 32)]
fn matches(from: Ptr<Global, u32>, out: Ptr<Global, u32>) {
    out.at(lane()).store(matched(from.at(lane()).load(), val(3)));
}

#[test]
fn lanes_that_hold_one_value() {
    let input: Vec<u32> = (0..32).map(|i| i * 7).collect();
    let same = |lane: usize| (0..32).map(|i| u32::from(input[i] % 3 == input[lane] % 3) << i).sum::<u32>();
    let expected: Vec<u32> = (0..32).map(|lane| (same(lane) & 0xffff_fff0) + 1 + 4).collect();
    let buffers = [Buffer::Holding(bytes(&input)), Buffer::Empty(128)];
    let launch =
        Launch { oldest: Target::Sm90, config: LaunchConfig::linear(1, 32), buffers: &buffers, scalars: &[] };
    execute(matches(), &launch, |after, ptx| assert_eq!(values::<u32>(&after[1]), expected, "{ptx}"));
}

#[test]
fn warps_reduced_at_once() {
    fn reductions<T: Host + ReducedWord + Ord>(add: fn(T, T) -> T) {
        let input: Vec<T> = T::edges().into_iter().cycle().take(32).collect();
        let sum = input.iter().copied().reduce(add).unwrap_or(input[0]);
        let (least, most) = (*input.iter().min().unwrap_or(&sum), *input.iter().max().unwrap_or(&sum));
        let buffers = [Buffer::Holding(bytes(&input)), Buffer::Empty(3 * 128)];
        let config = LaunchConfig::linear(1, 32);
        let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
        execute(reduced_at_once::<T>(), &launch, |after, _| {
            let found: Vec<T> = values(&after[1]);
            assert_eq!(found, [[sum; 32], [least; 32], [most; 32]].concat());
        });
    }
    reductions::<u32>(u32::wrapping_add);
    reductions::<i32>(i32::wrapping_add);

    let input: Vec<u32> = (0..32).map(|i| 0x00ff_0000 | 1 << (i % 9)).collect();
    let fold = |f: fn(u32, u32) -> u32| input.iter().copied().reduce(f).unwrap_or(0);
    let expected = [fold(|a, b| a & b), fold(|a, b| a | b), fold(|a, b| a ^ b)].map(|all| [all; 32]).concat();
    let buffers = [Buffer::Holding(bytes(&input)), Buffer::Empty(3 * 128)];
    let launch =
        Launch { oldest: Target::Sm80, config: LaunchConfig::linear(1, 32), buffers: &buffers, scalars: &[] };
    execute(bits_at_once(), &launch, |after, _| assert_eq!(values::<u32>(&after[1]), expected));
}

#[kernel(threads = 32)]
fn reduced_at_once<T: ReducedWord>(from: Ptr<Global, T>, out: Ptr<Global, T>) {
    let value = from.at(lane()).load();
    for (i, all) in [redux_add(value), redux_min(value), redux_max(value)].into_iter().enumerate() {
        out.at(i * 32).at(lane()).store(all);
    }
}

#[kernel(threads = 32)]
fn bits_at_once(from: Ptr<Global, u32>, out: Ptr<Global, u32>) {
    let value = from.at(lane()).load();
    for (i, all) in [redux_and(value), redux_or(value), redux_xor(value)].into_iter().enumerate() {
        out.at(i * 32).at(lane()).store(all);
    }
}

#[test]
fn warp_reductions() {
    let input: Vec<u32> = (0..32).map(|i| i * 0x0801_0003 + 5).collect();
    check_exchanges::<u32>(
        &input,
        &[
            Exchange {
                name: "warp_sum",
                gpu: |x, _| warp_sum(x),
                host: |all, _| all.iter().fold(0, |s, x| s.wrapping_add(*x)),
            },
            Exchange {
                name: "warp_max",
                gpu: |x, _| warp_max(x),
                host: |all, _| *all.iter().max().unwrap_or(&0),
            },
            Exchange {
                name: "warp_inclusive_sum",
                gpu: |x, _| warp_inclusive_sum(x),
                host: |all, lane| all[..=lane].iter().fold(0, |s, x| s.wrapping_add(*x)),
            },
            Exchange {
                name: "warp_arg_max",
                gpu: |x, _| warp_arg_max(x & 0x0100_0003, lane() * 3).1,
                host: |all, _| {
                    let masked: Vec<u32> = all.iter().map(|x| x & 0x0100_0003).collect();
                    let largest = masked.iter().max();
                    masked.iter().position(|x| Some(x) == largest).unwrap_or(0) as u32 * 3
                },
            },
        ],
    );
    let input: Vec<i32> = (0..32).map(|i| 7 - i * 3).collect();
    check_exchanges::<i32>(
        &input,
        &[
            Exchange { name: "warp_sum", gpu: |x, _| warp_sum(x), host: |all, _| all.iter().sum() },
            Exchange {
                name: "warp_max",
                gpu: |x, _| warp_max(x),
                host: |all, _| *all.iter().max().unwrap_or(&0),
            },
            Exchange {
                name: "warp_min",
                gpu: |x, _| warp_min(x),
                host: |all, _| *all.iter().min().unwrap_or(&0),
            },
        ],
    );
    let input: Vec<f32> = (0..32).map(|i| 0.25 * i as f32 - 3.0).collect();
    check_exchanges::<f32>(
        &input,
        &[
            Exchange { name: "warp_sum", gpu: |x, _| warp_sum(x), host: |all, _| all.iter().sum() },
            Exchange {
                name: "warp_max",
                gpu: |x, _| warp_max(x),
                host: |all, _| all.iter().copied().fold(f32::MIN, f32::max),
            },
            Exchange {
                name: "warp_inclusive_sum",
                gpu: |x, _| warp_inclusive_sum(x),
                host: |all, lane| all[..=lane].iter().sum(),
            },
            Exchange {
                name: "warp_arg_min",
                gpu: |x, _| {
                    warp_arg_min((x - 0.5).abs(), lane()).0
                        + warp_arg_min((x - 0.5).abs(), lane()).1.cast::<f32>()
                },
                // |x - 0.5| is 0 for x = 0.25 · 14 - 3.
                host: |_, _| 14.0,
            },
        ],
    );
    let input = vec![F16x2(f16::from_f32(0.5), f16::from_f32(-2.0)); 32];
    let sum = |_: &[F16x2], _: usize| F16x2(f16::from_f32(16.0), f16::from_f32(-64.0));
    check_exchanges::<F16x2>(&input, &[Exchange { name: "warp_sum", gpu: |x, _| warp_sum(x), host: sum }]);
}

#[kernel(threads = 32 * warps)]
fn reduced(from: Ptr<Global, f32>, out: Ptr<Global, f32>, warps: u32) {
    let scratch = shared_array::<f32>(warps);
    let i = thread_index();
    let value = from.at(i).load();
    let sum = block_sum(value, scratch, warps);
    barrier();
    let largest = block_max(value, scratch, warps);
    barrier();
    let smallest = block_min(value, scratch, warps);
    barrier();
    let prefix = block_inclusive_sum(value, scratch, warps);
    for (part, result) in [sum, largest, smallest, prefix].into_iter().enumerate() {
        out.at(i + 32 * warps * part as u32).store(result);
    }
}

#[test]
fn block_reductions() {
    for warps in [1, 2, 7, 32] {
        let threads = 32 * warps as usize;
        let input: Vec<f32> = (0..threads).map(|i| (i * 37 % 101) as f32 - 60.0).collect();
        let sum: f32 = input.iter().sum();
        let largest = input.iter().copied().fold(f32::MIN, f32::max);
        let smallest = input.iter().copied().fold(f32::MAX, f32::min);
        let prefixes: Vec<f32> = (0..threads).map(|i| input[..=i].iter().sum()).collect();
        let buffers = [Buffer::Holding(bytes(&input)), Buffer::Empty(16 * threads)];
        let config = LaunchConfig::linear(1, 32 * warps);
        let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
        execute(reduced(warps), &launch, |after, _| {
            let found: Vec<f32> = values(&after[1]);
            assert_eq!(found[..threads], vec![sum; threads], "sum of {warps} warps");
            assert_eq!(found[threads..2 * threads], vec![largest; threads], "maximum of {warps} warps");
            assert_eq!(found[2 * threads..3 * threads], vec![smallest; threads], "minimum of {warps} warps");
            assert_eq!(found[3 * threads..], prefixes, "prefix sums of {warps} warps");
        });
    }
}

/// Two pairs of a producer warp and a consumer warp, with one barrier per pair; lanes exchange through shared memory.
#[kernel(threads = 128)]
fn handed_over(out: Ptr<Global, u32>) {
    let slots = shared_array::<u32>(64);
    let total = shared_array::<u32>(1);
    let (warp, i) = (warp_index(), thread_index() & 63);
    if warp < 2 {
        slots.at(i).store(i * 5);
        fence(Scope::Cta);
        if warp == 0 {
            named_barrier(1, 64);
        } else {
            named_barrier(2, 64);
        }
    } else {
        if warp == 2 {
            named_barrier(1, 64);
        } else {
            named_barrier(2, 64);
        }
        out.at(i).store(slots.at(i).load());
    }
    let pairs = shared_array::<u32>(128);
    let own = pairs.at(thread_index());
    own.store(i + 1);
    if thread_index() == 0 {
        total.store(0);
    }
    barrier();
    if lane() < 16 {
        let theirs = pairs.at(thread_index() ^ 1).load();
        warp_barrier(0xffff);
        if warp < 2 {
            own.store(theirs);
        }
        total.atomic_add(theirs, Scope::Cta);
    }
    fence(Scope::Gpu);
    fence(Scope::Sys);
    barrier();
    if thread_index() == 0 {
        out.at(64u32).store(total.load());
    }
}

#[test]
fn barriers() {
    let buffers = [Buffer::Empty(4 * 65)];
    let config = LaunchConfig::linear(1, 128);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    // Lanes 0 to 15 of two warps, counted twice.
    let total = 2 * (1..=16u32).chain(33..=48).sum::<u32>();
    let expected: Vec<u32> = (0..64).map(|i| i * 5).chain([total]).collect();
    execute(handed_over(), &launch, |after, _| assert_eq!(values::<u32>(&after[0]), expected));
}
