//! Loads and stores of every element type, vector length and cache operator in both spaces; pointer arithmetic; and
//! kernel parameters.

use bespoke_codegen::launch::Argument;
use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;

use crate::device::{Buffer, Launch, bytes, execute, values};
use crate::host::Host;

/// Cache operators that are valid in a space.
fn hints(shared: bool) -> &'static [Cache] {
    if shared { &[Cache::Default, Cache::Volatile] } else { Cache::ALL }
}

/// Launch of one warp with these buffers.
fn warp(buffers: &[Buffer]) -> Launch<'_> {
    Launch { oldest: Target::Sm80, config: LaunchConfig::linear(1, 32), buffers, scalars: &[] }
}

/// `count` values: the edge cases of the type, repeated.
fn data<T: Host>(count: usize) -> Vec<T> {
    T::edges().into_iter().cycle().take(count).collect()
}

/// Copies 32 elements or vectors once for every cache operator: through global memory, and through shared memory.
#[kernel(threads = 32)]
fn copy_elements<T: Scalar>(from: Ptr<Global, T>, to: Ptr<Global, T>, shared: bool) {
    let i = thread_index();
    let scratch = shared_array::<T>(32);
    for (round, hint) in hints(shared).iter().enumerate() {
        let stored =
            if matches!(hint, Cache::ReadOnly | Cache::ReadOnlyStreaming) { Cache::Default } else { *hint };
        let target = to.at(round * 32).at(i);
        if shared {
            scratch.at(i).store_cached(from.at(i).load_cached(*hint), stored);
            warp_barrier(ALL_LANES);
            // Another lane's element is loaded, so that the value must go through memory.
            target.store(scratch.at(i ^ 1).load_cached(*hint));
            warp_barrier(ALL_LANES);
        } else {
            target.store_cached(from.at(i).load_cached(*hint), stored);
        }
    }
}

#[kernel(threads = 32)]
fn copy_vectors<T: Scalar, const N: usize>(from: Ptr<Global, T>, to: Ptr<Global, T>, shared: bool) {
    let i = thread_index();
    let width = N as u32;
    let scratch = dynamic_shared::<T>();
    for (round, hint) in hints(shared).iter().enumerate() {
        let target = to.at(round * 32 * N).at(i * width);
        let vector: [Val<T>; N] = from.at(i * width).load_vector_cached(*hint);
        if shared {
            scratch.at(i * width).store_vector(vector);
            barrier();
            let other: [Val<T>; N] = scratch.at((i ^ 1) * width).load_vector_cached(*hint);
            target.store_vector(other);
            barrier();
        } else {
            target.store_vector(vector);
        }
    }
}

fn elements<T: Host>() {
    let input: Vec<T> = data(32);
    for shared in [false, true] {
        let buffers =
            [Buffer::Holding(bytes(&input)), Buffer::Empty(bytes(&input).len() * hints(shared).len())];
        execute(copy_elements::<T>(shared), &warp(&buffers), |after, ptx| {
            let copied: Vec<T> = (0..32).map(|i| input[if shared { i ^ 1 } else { i }]).collect();
            assert_eq!(after[1], bytes(&copied).repeat(hints(shared).len()), "{}:\n{ptx}", T::TYPE);
        });
    }
}

fn vectors<T: Host, const N: usize>() {
    let input: Vec<T> = data(32 * N);
    let size = bytes(&input).len();
    for shared in [false, true] {
        let buffers = [Buffer::Holding(bytes(&input)), Buffer::Empty(size * hints(shared).len())];
        let config = LaunchConfig { dynamic_shared: size as u32, ..LaunchConfig::linear(1, 32) };
        execute(copy_vectors::<T, N>(shared), &Launch { config, ..warp(&buffers) }, |after, ptx| {
            let from = |i: usize| if shared { ((i / N) ^ 1) * N + i % N } else { i };
            let copied: Vec<T> = (0..32 * N).map(|i| input[from(i)]).collect();
            assert_eq!(after[1], bytes(&copied).repeat(hints(shared).len()), "{}×{N}:\n{ptx}", T::TYPE);
        });
    }
}

macro_rules! accesses {
    ($($name:ident $ty:ty: $($n:literal)*;)*) => { $(
        #[test]
        fn $name() {
            elements::<$ty>();
            $(vectors::<$ty, $n>();)*
        }
    )* };
}
accesses! {
    accesses_u8 u8: 2 4 8 16;
    accesses_u16 u16: 2 4 8;
    accesses_u32 u32: 2 4;
    accesses_u64 u64: 2;
    accesses_i8 i8: 2 4 8 16;
    accesses_i16 i16: 2 4 8;
    accesses_i32 i32: 2 4;
    accesses_i64 i64: 2;
    accesses_f16 f16: 2 4 8;
    accesses_bf16 bf16: 2 4 8;
    accesses_f32 f32: 2 4;
    accesses_f16x2 F16x2: 2 4;
    accesses_bf16x2 Bf16x2: 2 4;
}

#[kernel(threads = 1)]
fn store_constants(to: Ptr<Global, f16>, words: Ptr<Global, i8>, longs: Ptr<Global, u64>) {
    to.store_vector([val(f16::from_f32(1.5)), val(f16::from_f32(-2.0))]);
    words.store_vector([val(-1i8), val(127i8), val(-128i8), val(5i8)]);
    longs.store_vector([val(u64::MAX), val(1u64 << 63)]);
}

#[test]
fn constants_in_vectors() {
    let buffers = [Buffer::Empty(4), Buffer::Empty(4), Buffer::Empty(16)];
    let launch = Launch { config: LaunchConfig::linear(1, 1), ..warp(&buffers) };
    execute(store_constants(), &launch, |after, _| {
        assert_eq!(after[0], bytes(&[f16::from_f32(1.5), f16::from_f32(-2.0)]));
        assert_eq!(after[1], bytes(&[-1i8, 127, -128, 5]));
        assert_eq!(after[2], bytes(&[u64::MAX, 1 << 63]));
    });
}

#[kernel]
fn refuse_wide_vector(from: Ptr<Global, u64>) {
    let vector: [Val<u64>; 4] = from.load_vector();
    from.store(vector[0]);
}

#[kernel]
fn refuse_hint(cache: Cache) {
    let value = shared_array::<u32>(4).load_cached(cache);
    shared_array::<u32>(4).store(value);
}

#[kernel]
fn refuse_misaligned(to: Ptr<Global, u32>) {
    let pair: [Val<u32>; 2] = shared_array::<u32>(4).at(1u32).load_vector();
    to.store(pair[0]);
}

#[kernel]
fn refuse_cast_of_pair(pair: Val<F16x2>, to: Ptr<Global, f32>) {
    to.store(pair.cast::<f32>());
}

#[kernel]
fn refuse_bitcast(wide: Val<u64>, to: Ptr<Global, f32>) {
    to.store(wide.bitcast::<f32>());
}

#[test]
fn misuse_is_an_error_at_its_line() {
    for (recorded, message) in [
        (refuse_hint(Cache::L2), "cg access of"),
        (refuse_hint(Cache::ReadOnlyStreaming), "nc_stream access of"),
        (refuse_misaligned(), "accesses 8 bytes at byte 4"),
        (refuse_cast_of_pair(), "is not a scalar number"),
        (refuse_bitcast(), "has not the width of f32"),
    ] {
        let error = recorded.expect_err(message).to_string();
        assert!(error.contains(message) && error.contains("memory.rs:"), "{error}");
    }
}

#[test]
fn vectors_beyond_16_bytes_are_refused() {
    let error = refuse_wide_vector().expect_err("32 bytes").to_string();
    assert!(error.contains("no access of 4 elements of u64"), "{error}");
    assert!(error.contains("memory.rs:"), "{error}");
}

/// Loads element 16 of 32 by every kind of index; `back` is -3.
#[device]
fn index_everywhere<S: Space>(base: Ptr<S, u16>, out: Ptr<Global, u16>, back: Val<i32>) {
    let middle = base.at(16u32);
    let forward = (-back).cast::<u32>();
    let found = [
        middle.load(),
        middle.at(forward).load(),
        middle.at(back).load(),
        middle.at(forward.cast::<u64>()).load(),
        middle.at(back.cast::<i64>()).load(),
        middle.at(3u32).load(),
        middle.at(3usize).load(),
        middle.at(3u64).load(),
        middle.at(-3i32).load(),
        middle.at(-16i32).load(),
        middle.byte_add(6u32).load(),
        middle.byte_add(-6i32).load(),
        middle.byte_add(forward * 2).load(),
        middle.byte_add(back * 2).load(),
        middle.byte_add(back.cast::<i64>() * 2i64).load(),
        middle.at(back).at(forward).load(),
        middle.at(back + 1).load(),
        middle.byte_add(2 * (back + 2)).load(),
        middle.cast::<u32>().at(1u32).load().cast::<u16>(),
        middle.cast::<u8>().at(back * 2).cast::<u16>().load(),
    ];
    for (i, value) in found.iter().enumerate() {
        out.at(i).store(*value);
    }
}

#[kernel(threads = 1)]
fn indexed_in_global(from: Ptr<Global, u16>, out: Ptr<Global, u16>, back: Val<i32>) {
    index_everywhere(from, out, back);
}

#[kernel(threads = 1)]
fn indexed_in_shared(from: Ptr<Global, u16>, out: Ptr<Global, u16>, back: Val<i32>) {
    let before = shared_array::<u32>(3);
    let copy = shared_array::<u16>(32);
    before.store(0);
    for i in range(0u32, 32u32) {
        copy.at(i).store(from.at(i).load());
    }
    index_everywhere(copy, out, back);
}

#[test]
fn indices() {
    // Offset of each of the kernel's accesses from the middle element.
    let places = [0, 3, -3, 3, -3, 3, 3, 3, -3, -16, 3, -3, 3, -3, -3, 0, -2, -1, 2, -3]
        .map(|offset: i32| (16 + offset) as u16);
    let input: Vec<u16> = (0..32).collect();
    for kernel in [indexed_in_global(), indexed_in_shared()] {
        let buffers = [Buffer::Holding(bytes(&input)), Buffer::Empty(2 * places.len())];
        let launch = Launch { config: LaunchConfig::linear(1, 1), scalars: &[&-3i32], ..warp(&buffers) };
        execute(kernel, &launch, |after, ptx| assert_eq!(values::<u16>(&after[1]), places, "{ptx}"));
    }
}

#[kernel(threads = 1)]
fn parameter<T: Scalar>(out: Ptr<Global, T>, padding: Val<u8>, value: Val<T>, last: Val<u16>) {
    out.store(value);
    if padding.cast::<u16>() != last {
        out.store(value);
    }
}

fn passes<T: Host + Argument>() {
    for value in T::edges() {
        let buffers = [Buffer::Empty(T::TYPE.bytes() as usize)];
        let scalars: [&dyn Argument; 3] = [&7u8, &value, &9u16];
        let launch = Launch { config: LaunchConfig::linear(1, 1), scalars: &scalars, ..warp(&buffers) };
        execute(parameter::<T>(), &launch, |after, ptx| assert_eq!(after[0], bytes(&[value]), "{ptx}"));
    }
}

macro_rules! parameters {
    ($($name:ident $ty:ident;)*) => { $(
        #[test]
        fn $name() {
            passes::<$ty>();
        }
    )* };
}
parameters! {
    parameter_u8 u8;
    parameter_u16 u16;
    parameter_u32 u32;
    parameter_u64 u64;
    parameter_i8 i8;
    parameter_i16 i16;
    parameter_i32 i32;
    parameter_i64 i64;
    parameter_f16 f16;
    parameter_bf16 bf16;
    parameter_f32 f32;
}
