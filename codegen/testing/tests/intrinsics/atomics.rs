//! Atomics: every operation, type, space and scope, with the old value used and unused.

use std::ops::Add;

use bespoke_codegen::dsl::Int;
use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;

use crate::device::{Buffer, Launch, bytes, execute, values};
use crate::host::{Host, same};

/// DSL form of an atomic on one element in space `S`.
type Gpu<S, T> = fn(Ptr<S, T>, Val<T>, Val<T>, Scope) -> Val<T>;

/// An atomic of the DSL with its host counterpart; operands are the element and two numbers.
pub struct Operation<T> {
    name: &'static str,
    global: Gpu<Global, T>,
    shared: Gpu<Shared, T>,
    host: fn(T, T, T) -> T,
}

/// Applies the operation to element i in thread i, once for each scope.
#[kernel(threads = 128)]
fn in_global<T: Scalar>(
    cells: Ptr<Global, T>,
    operands: Ptr<Global, T>,
    old: Ptr<Global, T>,
    rows: u32,
    atomic: &Operation<T>,
    keep_old: bool,
) {
    let i = thread_index();
    if i < rows {
        for (round, scope) in Scope::ALL.iter().enumerate() {
            let cell = cells.at(round * (rows as usize)).at(i);
            let (a, b) = (operands.at(2 * i).load(), operands.at(2 * i + 1).load());
            let operation = atomic.global;
            let found = operation(cell, a, b, *scope);
            if keep_old {
                old.at(round * (rows as usize)).at(i).store(found);
            }
        }
    }
}

/// Applies the operation to a copy of element i in shared memory in thread i, once for each scope.
#[kernel(threads = 128)]
fn in_shared<T: Scalar>(
    cells: Ptr<Global, T>,
    operands: Ptr<Global, T>,
    old: Ptr<Global, T>,
    rows: u32,
    atomic: &Operation<T>,
    keep_old: bool,
) {
    let i = thread_index();
    let copies = shared_array::<T>(128);
    if i < rows {
        for (round, scope) in Scope::ALL.iter().enumerate() {
            let cell = cells.at(round * (rows as usize)).at(i);
            copies.at(i).store(cell.load());
            let operation = atomic.shared;
            let found =
                operation(copies.at(i), operands.at(2 * i).load(), operands.at(2 * i + 1).load(), *scope);
            cell.store(copies.at(i).load());
            if keep_old {
                old.at(round * (rows as usize)).at(i).store(found);
            }
        }
    }
}

fn check<T: Host>(oldest: Target, edges: &[T], operations: &[Operation<T>]) {
    let pairs = edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b)));
    let rows: Vec<(T, T)> = pairs.step_by(3).take(128).collect();
    let before: Vec<T> = rows.iter().map(|row| row.0).collect::<Vec<T>>().repeat(Scope::ALL.len());
    // In every other row, the comparand is the element itself, so that half of the exchanges happen.
    let number = |i: usize| if i.is_multiple_of(2) { rows[i].1 } else { rows[i].0 };
    let operands: Vec<T> = (0..rows.len()).flat_map(|i| [number(i), rows[i].1]).collect();
    for operation in operations {
        let after: Vec<T> = (0..before.len())
            .map(|i| {
                (operation.host)(
                    before[i],
                    operands[2 * (i % rows.len())],
                    operands[2 * (i % rows.len()) + 1],
                )
            })
            .collect();
        let count = rows.len() as u32;
        for keep_old in [true, false] {
            for kernel in [in_global(count, operation, keep_old), in_shared(count, operation, keep_old)] {
                let length = bytes(&before).len();
                let buffers = [
                    Buffer::Holding(bytes(&before)),
                    Buffer::Holding(bytes(&operands)),
                    Buffer::Empty(length),
                ];
                let config = LaunchConfig::linear(1, 128);
                let launch = Launch { oldest, config, buffers: &buffers, scalars: &[] };
                execute(kernel, &launch, |found, ptx| {
                    let cells: Vec<T> = values(&found[0]);
                    let wrong = cells.iter().zip(&after).position(|(&a, &b)| !same(a, b));
                    let place =
                        wrong.map(|i| (before[i], operands[2 * (i % rows.len())], cells[i], after[i]));
                    assert!(place.is_none(), "{} of {}: {place:?}\n{ptx}", operation.name, T::TYPE);
                    assert!(!keep_old || found[2] == bytes(&before), "{}: old values\n{ptx}", operation.name);
                });
            }
        }
    }
}

macro_rules! operation {
    ($name:literal, |$cell:ident, $a:ident, $b:ident, $scope:ident| $gpu:expr, $host:expr) => {
        Operation {
            name: $name,
            global: |$cell, $a, $b, $scope| $gpu,
            shared: |$cell, $a, $b, $scope| $gpu,
            host: $host,
        }
    };
}

macro_rules! integers {
    ($($ty:ident)*) => { $(
        #[test]
        fn $ty() {
            check::<$ty>(Target::Sm80, &$ty::edges(), &[
                operation!("add", |cell, a, _b, scope| cell.atomic_add(a, scope), |x, a, _| x.wrapping_add(a)),
                operation!("min", |cell, a, _b, scope| cell.atomic_min(a, scope), |x, a, _| x.min(a)),
                operation!("max", |cell, a, _b, scope| cell.atomic_max(a, scope), |x, a, _| x.max(a)),
                operation!("and", |cell, a, _b, scope| cell.atomic_and(a, scope), |x, a, _| x & a),
                operation!("or", |cell, a, _b, scope| cell.atomic_or(a, scope), |x, a, _| x | a),
                operation!("xor", |cell, a, _b, scope| cell.atomic_xor(a, scope), |x, a, _| x ^ a),
                operation!("exchange", |cell, a, _b, scope| cell.atomic_exchange(a, scope), |_, a, _| a),
                operation!("cas", |cell, a, b, scope| cell.atomic_cas(a, b, scope), |x, a, b| if x == a { b } else { x }),
            ]);
        }
    )* };
}
integers!(u32 u64 i32 i64);

#[test]
fn f32() {
    // Atomic sums in global memory flush subnormal numbers; in shared memory they do not (PTX ISA, `atom`).
    let edges: Vec<f32> = f32::edges().into_iter().filter(|x| !x.is_subnormal()).collect();
    let add = operation!("add", |cell, a, _b, scope| cell.atomic_add(a, scope), |x, a, _| x + a);
    let exchange = operation!("exchange", |cell, a, _b, scope| cell.atomic_exchange(a, scope), |_, a, _| a);
    check::<f32>(Target::Sm80, &edges, &[add, exchange]);
}

#[test]
fn wrapping_counters() {
    let numbers = [0, 1, 6, 7, 8, u32::MAX - 1, u32::MAX];
    let inc = operation!("inc", |cell, a, _b, scope| cell.atomic_inc(a, scope), |x, a, _| if x >= a {
        0
    } else {
        x + 1
    });
    let dec =
        operation!("dec", |cell, a, _b, scope| cell.atomic_dec(a, scope), |x, a, _| if x == 0 || x > a {
            a
        } else {
            x - 1
        });
    check::<u32>(Target::Sm80, &numbers, &[inc, dec]);
}

macro_rules! sums {
    ($($name:ident $ty:ty, $oldest:ident, $sum:expr;)*) => { $(
        #[test]
        fn $name() {
            let add = operation!("add", |cell, a, _b, scope| cell.atomic_add(a, scope), |x, a, _| ($sum)(x, a));
            check::<$ty>(Target::$oldest, &<$ty>::edges(), &[add]);
        }
    )* };
}
sums! {
    sums_of_f64 f64, Sm80, f64::add;
    sums_of_f16 f16, Sm80, f16::add;
    sums_of_f16x2 F16x2, Sm80, |x: F16x2, a: F16x2| F16x2(x.0 + a.0, x.1 + a.1);
    sums_of_bf16 bf16, Sm90, bf16::add;
    sums_of_bf16x2 Bf16x2, Sm90, |x: Bf16x2, a: Bf16x2| Bf16x2(x.0 + a.0, x.1 + a.1);
}

macro_rules! exchanges_of_16_bits {
    ($($name:ident $ty:ty;)*) => { $(
        #[test]
        fn $name() {
            let cas = operation!(
                "cas",
                |cell, a, b, scope| cell.atomic_cas(a, b, scope),
                |x, a, b| if x == a { b } else { x }
            );
            check::<$ty>(Target::Sm80, &<$ty>::edges(), &[cas]);
        }
    )* };
}
exchanges_of_16_bits! {
    compare_and_swap_u16 u16;
    compare_and_swap_i16 i16;
}

/// All threads increment the same counters; each thread gets a different number.
#[kernel(threads = 64)]
fn counted(counter: Ptr<Global, u32>, total: Ptr<Global, f32>, seen: Ptr<Global, u32>) {
    let ticket = counter.atomic_add(1, Scope::Gpu);
    total.atomic_add(0.5, Scope::Gpu);
    seen.at(ticket).store(block_index() * 64 + thread_index());
}

#[test]
fn contention() {
    let buffers = [Buffer::Holding(vec![0; 4]), Buffer::Holding(vec![0; 4]), Buffer::Empty(4 * 512)];
    let config = LaunchConfig::linear(8, 64);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    execute(counted(), &launch, |after, _| {
        assert_eq!(values::<u32>(&after[0]), [512]);
        assert_eq!(values::<f32>(&after[1]), [256.0]);
        let mut seen: Vec<u32> = values(&after[2]);
        seen.sort_unstable();
        assert_eq!(seen, (0..512).collect::<Vec<u32>>());
    });
}

#[kernel]
fn refuse<T: Int>(cell: Ptr<Global, T>, one: T) {
    cell.atomic_max(val(one), Scope::Gpu);
}

#[test]
fn narrow_atomics_are_refused() {
    for error in
        [refuse::<u8>(1), refuse::<i16>(1)].map(|kernel| kernel.expect_err("no such atomic").to_string())
    {
        assert!(error.contains("a 32- or 64-bit integer"), "{error}");
        assert!(error.contains("atomics.rs:"), "{error}");
    }
}
