//! Local arrays and tables of constants of every element type, indexed at run time, and what is no use of them.

use bespoke_codegen::dsl::Recorded;
use bespoke_codegen::launch::Argument;
use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;
use bespoke_testing::Launch as Run;

use crate::device::{Buffer, Launch, bytes, execute};
use crate::host::Host;

/// Reverses each thread's 8 elements in a local array, first one by one and then in pairs.
#[kernel(threads = 32)]
fn reversed<T: Scalar>(from: Ptr<Global, T>, to: Ptr<Global, T>, eight: Val<u32>) {
    let array = local_array::<T>(8);
    let other = local_array::<T>(8);
    let (from, to) = (from.at(lane() * 8), to.at(lane() * 16));
    for i in range(val(0u32), eight) {
        array.at((eight - 1) - i).store(from.at(i).load());
        // Another array, so that the arrays must not overlap.
        other.at(i).store(from.load());
    }
    for i in range(val(0u32), eight) {
        to.at(i).store(array.at(i).load());
    }
    for i in range(val(0u32), eight).step_by(2) {
        let [a, b] = array.at(i).load_vector();
        array.at(i).store_vector([b, a]);
        let [a, b] = array.at(i).load_vector();
        to.at(i + 8).store(a);
        to.at(i + 9).store(b);
    }
}

fn local_arrays<T: Host>() {
    let input: Vec<T> = T::edges().into_iter().cycle().take(32 * 8).collect();
    let expected: Vec<T> = input
        .chunks(8)
        .flat_map(|own| {
            let reversed: Vec<T> = own.iter().rev().copied().collect();
            let exchanged: Vec<T> = reversed.chunks(2).flat_map(|pair| [pair[1], pair[0]]).collect();
            [reversed, exchanged].concat()
        })
        .collect();
    let buffers = [Buffer::Holding(bytes(&input)), Buffer::Empty(bytes(&expected).len())];
    let eight: &dyn Argument = &8u32;
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[eight] };
    execute(reversed::<T>(), &launch, |after, ptx| {
        assert_eq!(after[1], bytes(&expected), "{}:\n{ptx}", T::TYPE);
    });
}

/// Looks up element `i` of the table for lane i, and a pair of elements.
#[kernel(threads = 32)]
fn looked_up<T: Scalar>(to: Ptr<Global, T>, table: &[T]) {
    let at = constant_table(table).at(lane() * 2);
    let [a, b] = at.load_vector();
    to.at(lane() * 3).store(at.at(1).load());
    to.at(lane() * 3 + 1).store(a);
    to.at(lane() * 3 + 2).store(b);
    // An equal table is the same table.
    to.at(lane() * 3).store(constant_table(table).at(lane() * 2 + 1).load());
}

fn tables<T: Host>() {
    let table: Vec<T> = T::edges().into_iter().cycle().take(64).collect();
    let expected: Vec<T> = table.chunks(2).flat_map(|pair| [pair[1], pair[0], pair[1]]).collect();
    let buffers = [Buffer::Empty(bytes(&expected).len())];
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    execute(looked_up(&table), &launch, |after, ptx| {
        assert_eq!(after[0], bytes(&expected), "{}:\n{ptx}", T::TYPE);
        assert_eq!(ptx.matches(".const ").count(), 1, "{ptx}");
    });
}

macro_rules! elements {
    ($($name:ident $ty:ty;)*) => { $(
        #[test]
        fn $name() {
            local_arrays::<$ty>();
            tables::<$ty>();
        }
    )* };
}
elements! {
    arrays_of_u8 u8;
    arrays_of_u16 u16;
    arrays_of_u32 u32;
    arrays_of_u64 u64;
    arrays_of_i8 i8;
    arrays_of_i16 i16;
    arrays_of_i32 i32;
    arrays_of_i64 i64;
    arrays_of_f16 f16;
    arrays_of_bf16 bf16;
    arrays_of_f32 f32;
    arrays_of_f64 f64;
    arrays_of_f16x2 F16x2;
    arrays_of_bf16x2 Bf16x2;
}

/// A warp-uniform index into local memory: the values still differ by lane, so the branch diverges.
#[kernel(threads = 32)]
fn own_values(to: Ptr<Global, u32>, index: Val<u32>) {
    let own = local_array::<u32>(4);
    own.at(index).store(lane());
    let found = own.at(index).load();
    if found < 5 {
        to.at(found).store(found + 1);
    }
}

#[test]
fn each_thread_has_its_own_array() {
    let kernel = own_values().unwrap();
    let done = Run::of(&kernel).buffer(&[0u32; 6]).value(2u32).run().unwrap();
    assert_eq!(done.buffer::<u32>(0), [1, 2, 3, 4, 5, 0]);
}

/// Stores element `index` of an array of which the first two elements are written.
#[kernel(threads = 1)]
fn load_of(to: Ptr<Global, u32>, index: Val<u32>) {
    let array = local_array::<u32>(4);
    array.store_vector([val(1u32), val(2u32)]);
    to.store(array.at(index).load());
}

#[test]
fn the_emulator_checks_local_arrays() {
    let kernel = load_of().unwrap();
    let load = |index: u32| Run::of(&kernel).buffer(&[0u32]).value(index).run();
    assert_eq!(load(1).unwrap().buffer::<u32>(0), [2]);
    for (index, expected) in [(2, "uninitialised"), (4, "out of bounds"), (u32::MAX, "out of bounds")] {
        let error = load(index).err().map(|finding| finding.to_string()).unwrap_or_default();
        assert!(error.contains(expected) && error.contains("arrays.rs:"), "{index}: {error}");
    }
}

/// An index past the end of the table.
#[kernel(threads = 1)]
fn past_the_table(to: Ptr<Global, u32>, index: Val<u32>) {
    to.store(constant_table(&[1u32, 2, 3, 4]).at(index).load());
}

#[test]
fn the_emulator_checks_tables() {
    let kernel = past_the_table().unwrap();
    let error = Run::of(&kernel).buffer(&[0u32]).value(4u32).run().err().map(|finding| finding.to_string());
    assert!(error.as_deref().is_some_and(|text| text.contains("out of bounds")), "{error:?}");
}

#[kernel]
fn store_to_table() {
    constant_table(&[1u32, 2]).store(3);
}

#[kernel]
fn atomic_on_local() {
    local_array::<u32>(2).atomic_add(1, Scope::Cta);
}

#[kernel]
fn volatile_local() {
    local_array::<u32>(2).load_cached(Cache::Volatile);
}

#[kernel]
fn empty_table() {
    constant_table::<u32>(&[]);
}

#[kernel]
fn large_table() {
    constant_table(&[0u64; 8193]);
}

#[kernel]
fn empty_array() {
    local_array::<u32>(0);
}

#[kernel]
fn large_array() {
    local_array::<u64>(65_537);
}

#[kernel]
fn array_of_bool() {
    local_array::<bool>(3);
}

#[test]
fn mistakes_say_what_to_write() {
    let cases: [(Recorded, &str); 8] = [
        (store_to_table(), "a table of constants is read-only and has no store: load it"),
        (atomic_on_local(), "local memory is private to its thread and has no atomic: load and store it"),
        (volatile_local(), "local memory is private to its thread and has no volatile or ordered access"),
        (empty_table(), "a table of constants cannot be of no elements: write at least 1"),
        (large_table(), "65552 bytes of tables exceed the limit of 65536 bytes of constant memory"),
        (empty_array(), "a local array cannot be of no elements: write at least 1"),
        (large_array(), "524304 bytes of local memory exceed the limit of 524288 bytes per thread"),
        (array_of_bool(), "a local array cannot be of `bool`: store `u8` instead"),
    ];
    for (kernel, expected) in cases {
        let error = kernel.expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("arrays.rs:"), "{error}");
    }
}
