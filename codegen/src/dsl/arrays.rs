//! Arrays indexed at run time that need no buffer: a thread's local memory, and tables of constants.

use std::panic::Location;

use super::pointer::{Constant, Local, Ptr};
use super::recorder::{emit1, fail, with};
use super::scalar::Scalar;
use crate::ir::{self, CONSTANT_MEMORY, Op, Type};

/// Limit of a thread's local memory, in bytes (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability").
const LOCAL_MEMORY: u64 = 512 << 10;

/// An array of `count` elements in the thread's local memory, aligned to 16 bytes. The array is uninitialised.
///
/// Local memory is device memory behind the L1 cache, so an access costs far more than a register. Where all indices are
/// known while recording, as in unrolled loops, use a Rust array of handles, which stays in registers.
///
/// - PTX: `.local .align 16`, `mov.u32 …, local0`; accesses are `ld.local.u32`, `st.local.u32` and so on
/// - Target: sm_80
/// - Requires: at most 512 KiB per thread
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// /// Sorts the digits of a number.
/// #[device]
/// fn sorted(number: Val<u32>) -> Val<u32> {
///     let counts = local_array::<u32>(10);
///     for digit in 0..10 {
///         counts.at(digit).store(0);
///     }
///     let mut rest = number;
///     while rest != 0 {
///         let count = counts.at(rest % 10);
///         count.store(count.load() + 1);
///         rest /= 10;
///     }
///     let mut result = val(0);
///     for digit in range(val(0u32), 10) {
///         for _ in 0..counts.at(digit).load() {
///             result = result * 10 + digit;
///         }
///     }
///     result
/// }
/// assert_eq!(map(sorted, "ld.local.u32", [52_914, 331, 9]), [12_459, 133, 9]);
/// assert_eq!(map(sorted, "mov.u32 …, local0", [10]), [1]);
/// ```
#[track_caller]
pub fn local_array<T: Scalar>(count: u32) -> Ptr<Local, T> {
    let site = Location::caller();
    if count == 0 || T::TYPE == Type::Pred {
        let what = if count == 0 { "no elements: write at least 1" } else { "`bool`: store `u8` instead" };
        fail(site, format!("a local array cannot be of {what}"));
    }
    let local = ir::Local { element: T::TYPE, count };
    let (variable, bytes) = with(|r| (r.local_variable(local), r.func.local_bytes()));
    if bytes > LOCAL_MEMORY {
        let message = format!(
            "{bytes} bytes of local memory exceed the limit of {LOCAL_MEMORY} bytes per thread: pass a buffer, and \
             give each thread a part of it"
        );
        fail(site, message);
    }
    Ptr::from_id(emit1(Op::LocalAddress(variable), Type::Local, &[], site))
}

/// A table of compile-time values in constant memory, indexed at run time, aligned to 16 bytes. Equal tables of a kernel
/// are one.
///
/// A load takes one access if all lanes of the warp have the same index, and one for each different index otherwise. If
/// lanes have different indices often, copy the table to a [`shared_array`](fn@super::shared_array).
///
/// - PTX: `.const .align 16`, `mov.u64 …, NAME_table0` of the kernel's name; accesses are `ld.const.u32` and so on
/// - Target: sm_80
/// - Requires: at most 64 KiB per kernel
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// fn digit(x: Val<u32>) -> Val<u32> {
///     constant_table(b"0123456789abcdef").at(x).load().cast::<u32>()
/// }
/// assert_eq!(map(digit, "ld.const.u8", [3, 11, 15]), [0x33, 0x62, 0x66]);
///
/// #[kernel(threads = 1)]
/// fn powers(x: Ptr<Global, f32>, n: Val<u32>) {
///     x.store(constant_table(&[1.0f32, 10.0, 100.0]).at(n).load());
/// }
/// assert!(powers().unwrap().compile(Target::Sm80).unwrap().ptx.contains(".const .align 16 .b8 powers_table0[12]"));
/// ```
#[track_caller]
pub fn constant_table<T: Scalar>(values: &[T]) -> Ptr<Constant, T> {
    let site = Location::caller();
    if values.is_empty() || T::TYPE == Type::Pred {
        let what =
            if values.is_empty() { "no elements: write at least 1" } else { "`bool`: write `u8` instead" };
        fail(site, format!("a table of constants cannot be of {what}"));
    }
    let table = ir::Table { element: T::TYPE, values: values.iter().map(|value| value.bits()).collect() };
    let (table, bytes) = with(|r| (r.table(table), r.func.table_bytes()));
    if bytes > CONSTANT_MEMORY {
        let message = format!(
            "{bytes} bytes of tables exceed the limit of {CONSTANT_MEMORY} bytes of constant memory per kernel: pass \
             the table as a buffer"
        );
        fail(site, message);
    }
    Ptr::from_id(emit1(Op::TableAddress(table), Type::Constant, &[], site))
}
