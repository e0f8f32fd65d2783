//! Kernels of `cuda/control.cu`, compiled by nvcc.

use bespoke_emulator::LaunchConfig;

use crate::device::{Device, singles, words};

const PTX: &str = include_str!("cuda/control.ptx");

#[derive(Clone, Copy)]
struct Pair {
    low: i32,
    high: i64,
    tag: [i8; 5],
}

fn combine(a: Pair, b: i32) -> Pair {
    let tag = std::array::from_fn(|i| a.tag[4 - i].wrapping_add(1));
    Pair { low: a.low.wrapping_add(b), high: a.high.wrapping_mul(b as i64), tag }
}

fn weigh(x: i32) -> i32 {
    if x < 0 { x.wrapping_mul(-3) } else { x.wrapping_add(5) }
}

#[test]
fn functions_are_called_and_call_others() {
    let (device, n) = (Device::load(PTX), 60);
    let x: Vec<i32> = words(n, 1).into_iter().map(|word| word as i32 >> 20).collect();
    let out = device.output::<i64>(n);
    device.run("calls", LaunchConfig::linear(2, 32), &[device.buffer(&x), out, n as u64]);
    let expected = x.iter().map(|&x| {
        let start = Pair { low: x, high: x as i64 * 3, tag: [1, 2, 3, 4, 5] };
        let mut p = combine(start, weigh(x) + weigh(x - 7));
        if x & 1 != 0 {
            p = combine(p, weigh(-x));
        }
        p.low as i64 + p.high + p.tag[0] as i64 * 1000 + p.tag[4] as i64
    });
    assert_eq!(device.read::<i64>(out, n), expected.collect::<Vec<_>>());
}

#[test]
fn arrays_on_the_stack_are_indexed() {
    let (device, n) = (Device::load(PTX), 90);
    let x: Vec<i32> = words(n, 2).into_iter().map(|word| word as i32).collect();
    let out = device.output::<i32>(n);
    device.run("stack_array", LaunchConfig::linear(3, 32), &[device.buffer(&x), out, n as u64]);
    let expected = x.iter().map(|&x| {
        let mut local = [0i32; 16];
        (0..16).for_each(|k| local[(k * 5) & 15] = x.wrapping_add(k as i32));
        let (mut at, mut sum) = ((x & 15) as usize, 0i32);
        for k in 1..=8 {
            sum = sum.wrapping_add(local[at].wrapping_mul(k));
            local[(at + 1) & 15] ^= sum;
            at = (at as i32).wrapping_add(local[at]) as usize & 15;
        }
        sum
    });
    assert_eq!(device.read::<i32>(out, n), expected.collect::<Vec<_>>());
}

#[test]
fn a_switch_of_many_cases() {
    let (device, n) = (Device::load(PTX), 64);
    let cases: Vec<i32> = words(n, 3).into_iter().map(|word| (word % 11) as i32 - 1).collect();
    let trips: Vec<i32> = words(n, 4).into_iter().map(|word| (word % 9) as i32).collect();
    let (f, before) = (singles(n, 5), singles(n, 6));
    let out = device.buffer(&before);
    let arguments = [device.buffer(&[&cases[..], &trips].concat()), device.buffer(&f), out, n as u64];
    device.run("jump_table", LaunchConfig::linear(1, 64), &arguments);
    let expected = (0..n).map(|i| {
        let v = f[i];
        match cases[i] {
            0 => v * v,
            1 => v.abs().sqrt(),
            2 => -(v + before[i]),
            3 => -v,
            4 => 9.0,
            5 => (0..trips[i]).fold(v, |v, _| v * 0.5 + 1.0),
            6 => v.floor(),
            7 if v > 0.0 => 1.0 / v,
            7 => v - 3.0,
            8 => v.min(2.0) * 8.0,
            _ => 100.0,
        }
    });
    assert_eq!(device.read::<f32>(out, n), expected.collect::<Vec<_>>());
}

#[test]
fn constants_and_module_variables_have_their_values() {
    let (device, n) = (Device::load(PTX), 64);
    let x: Vec<i32> = words(n, 7).into_iter().map(|word| word as i32).collect();
    let out = device.output::<f32>(n);
    let arguments = [device.buffer(&x), out, n as u64];
    device.run("constants", LaunchConfig::linear(2, 32), &arguments);
    let table = [1.0f32, -2.0, 4.5, 8.0, 0.5, -0.25, 3.0, 7.0];
    let offsets = [3.0f32, -1.0, 2.0, -4.0];
    let seeds = [0x9e37_79b9_7f4a_7c15u64, 3];
    let expected = x.iter().map(|&x| {
        let x = x as usize;
        table[x & 7] * offsets[x & 3] + (seeds[x & 1] >> 60) as f32
    });
    assert_eq!(device.read::<f32>(out, n), expected.collect::<Vec<_>>());
    // `constants` adds 10 to the module's counter that `weigh` reads; the counter keeps its value between launches.
    let (x, out) = (device.buffer(&[4i32]), device.output::<i64>(1));
    device.run("calls", LaunchConfig::linear(1, 32), &[x, out, 1]);
    let weighed = (4 + 15) + 9;
    assert_eq!(device.read::<i64>(out, 1), [4 + weighed + 12 * weighed + 6000 + 2]);
}

#[test]
fn generic_pointers_reach_every_space() {
    let device = Device::load(PTX);
    let x: Vec<i32> = words(96, 8).into_iter().map(|word| (word >> 8) as i32).collect();
    let out = device.output::<i32>(64);
    device.run("generic_pointers", LaunchConfig::linear(1, 32), &[device.buffer(&x), out, 3]);
    let got = device.read::<i32>(out, 64);
    for i in 0..32 {
        let local = [x[i], i as i32, x[i] ^ i as i32];
        let (p, space) = match i % 3 {
            0 => ([x[3 * i], x[3 * i + 1], x[3 * i + 2]], 1000),
            1 => ([0, 1, 2].map(|k| x[3 * i + k] + 1), 100),
            _ => (local, 0),
        };
        assert_eq!(got[i], p[0] + p[1] * 2 + p[2] * 3, "thread {i}");
        assert_eq!(got[i + 32], x[3 * i] + 1 + space, "thread {i}");
    }
}

#[test]
fn loops_of_different_lengths_end_where_they_should() {
    let (device, n) = (Device::load(PTX), 200);
    let mut x: Vec<u32> = words(n, 9).into_iter().map(|word| word >> (word & 31)).collect();
    x[..3].copy_from_slice(&[0, 1, 27]);
    let steps = device.output::<u32>(n);
    device.run("collatz", LaunchConfig::linear(2, 128), &[device.buffer(&x), steps, n as u64]);
    let expected = x.iter().map(|&x| {
        let (mut v, mut count) = (x as u64, 0);
        if v == 0 {
            return u32::MAX;
        }
        while v != 1 && count < 500 {
            v = if v & 1 != 0 { 3 * v + 1 } else { v / 2 };
            count += 1;
        }
        count
    });
    assert_eq!(device.read::<u32>(steps, n), expected.collect::<Vec<_>>());
}
