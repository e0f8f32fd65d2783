//! Loops over the lanes of a warp.
//!
//! A register of a warp is 32 consecutive values, so each operation is a loop that the compiler vectorises. On x86-64
//! every loop is compiled twice: for the baseline, and for AVX2 with FMA. The decoder chooses the version that the CPU
//! supports.

use crate::code::operands::{A, B, C, D};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::lanes::{LANES, Pod};

/// Defines a function that returns an instruction's [`Exec`], in the version for this CPU.
///
/// `lane_loop!(fn name[T: Pod][T](cx, i) { … })`: the first list declares the generics, the second
/// names them.
macro_rules! lane_loop {
    ($(#[$meta:meta])* fn $name:ident[$($generics:tt)*][$($args:tt)*]($m:ident, $i:ident) $body:block) => {
        $(#[$meta])*
        pub(crate) fn $name<$($generics)*>() -> $crate::context::Exec {
            use $crate::context::{ExecutionContext, Flow, Inst};
            #[inline(always)]
            fn body<$($generics)*>($m: &mut ExecutionContext<'_>, $i: &Inst) -> Flow $body
            fn portable<$($generics)*>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
                body::<$($args)*>(cx, i)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            fn wide<$($generics)*>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
                body::<$($args)*>(cx, i)
            }
            #[cfg(target_arch = "x86_64")]
            if $crate::lanes::wide() {
                return wide::<$($args)*>;
            }
            portable::<$($args)*>
        }
    };
}
pub(crate) use lane_loop;

/// Operation with one operand, applied to each lane. `imm` is the instruction's immediate.
pub(crate) trait Op1: 'static {
    type A: Pod;
    type D: Pod;
    fn apply(a: Self::A, imm: u64) -> Self::D;
}

/// Operation with two operands, applied to each lane, as [`Op1`].
pub(crate) trait Op2: 'static {
    type A: Pod;
    type B: Pod;
    type D: Pod;
    fn apply(a: Self::A, b: Self::B, imm: u64) -> Self::D;
}

/// Operation with three operands, applied to each lane, as [`Op1`].
pub(crate) trait Op3: 'static {
    type A: Pod;
    type B: Pod;
    type C: Pod;
    type D: Pod;
    fn apply(a: Self::A, b: Self::B, c: Self::C, imm: u64) -> Self::D;
}

/// Defines lane functions: `ops! { Add(a: f32, b: f32) -> f32 { a + b } }`. A trailing `; imm` names
/// the immediate; generics come in two lists as for [`lane_loop`].
macro_rules! ops {
    () => {};
    ($(#[$meta:meta])* $name:ident $([$($g:tt)*][$($u:tt)*])? ($a:ident: $A:ty) -> $D:ty $body:block $($rest:tt)*) => {
        ops! { $(#[$meta])* $name $([$($g)*][$($u)*])? ($a: $A; _imm) -> $D $body $($rest)* }
    };
    ($(#[$meta:meta])* $name:ident $([$($g:tt)*][$($u:tt)*])? ($a:ident: $A:ty; $imm:ident) -> $D:ty $body:block $($rest:tt)*) => {
        $(#[$meta])*
        pub(crate) struct $name $(<$($g)*>(std::marker::PhantomData<($($u)*,)>))?;
        impl $(<$($g)*>)? $crate::exec::lane_loop::Op1 for $name $(<$($u)*>)? {
            type A = $A;
            type D = $D;
            #[inline(always)]
            fn apply($a: $A, $imm: u64) -> $D $body
        }
        ops! { $($rest)* }
    };
    ($(#[$meta:meta])* $name:ident $([$($g:tt)*][$($u:tt)*])? ($a:ident: $A:ty, $b:ident: $B:ty) -> $D:ty $body:block $($rest:tt)*) => {
        ops! { $(#[$meta])* $name $([$($g)*][$($u)*])? ($a: $A, $b: $B; _imm) -> $D $body $($rest)* }
    };
    ($(#[$meta:meta])* $name:ident $([$($g:tt)*][$($u:tt)*])? ($a:ident: $A:ty, $b:ident: $B:ty; $imm:ident) -> $D:ty $body:block $($rest:tt)*) => {
        $(#[$meta])*
        pub(crate) struct $name $(<$($g)*>(std::marker::PhantomData<($($u)*,)>))?;
        impl $(<$($g)*>)? $crate::exec::lane_loop::Op2 for $name $(<$($u)*>)? {
            type A = $A;
            type B = $B;
            type D = $D;
            #[inline(always)]
            fn apply($a: $A, $b: $B, $imm: u64) -> $D $body
        }
        ops! { $($rest)* }
    };
    ($(#[$meta:meta])* $name:ident $([$($g:tt)*][$($u:tt)*])? ($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty) -> $D:ty $body:block $($rest:tt)*) => {
        ops! { $(#[$meta])* $name $([$($g)*][$($u)*])? ($a: $A, $b: $B, $c: $C; _imm) -> $D $body $($rest)* }
    };
    ($(#[$meta:meta])* $name:ident $([$($g:tt)*][$($u:tt)*])? ($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty; $imm:ident) -> $D:ty $body:block $($rest:tt)*) => {
        $(#[$meta])*
        pub(crate) struct $name $(<$($g)*>(std::marker::PhantomData<($($u)*,)>))?;
        impl $(<$($g)*>)? $crate::exec::lane_loop::Op3 for $name $(<$($u)*>)? {
            type A = $A;
            type B = $B;
            type C = $C;
            type D = $D;
            #[inline(always)]
            fn apply($a: $A, $b: $B, $c: $C, $imm: u64) -> $D $body
        }
        ops! { $($rest)* }
    };
}
pub(crate) use ops;

lane_loop! {
    /// Instruction `d = f(a)` for the lane operation `O`.
    fn op1[O: Op1][O](cx, i) {
        let a = cx.warp.regs.lanes::<O::A>(i.slots[A]);
        let mut d = [O::D::default(); LANES];
        for lane in 0..LANES {
            d[lane] = O::apply(a[lane], i.imm);
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

lane_loop! {
    /// Instruction `d = f(a, b)` for the lane operation `O`.
    fn op2[O: Op2][O](cx, i) {
        let a = cx.warp.regs.lanes::<O::A>(i.slots[A]);
        let b = cx.warp.regs.lanes::<O::B>(i.slots[B]);
        let mut d = [O::D::default(); LANES];
        for lane in 0..LANES {
            d[lane] = O::apply(a[lane], b[lane], i.imm);
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

lane_loop! {
    /// Instruction `d = f(a, b, c)` for the lane operation `O`.
    fn op3[O: Op3][O](cx, i) {
        let a = cx.warp.regs.lanes::<O::A>(i.slots[A]);
        let b = cx.warp.regs.lanes::<O::B>(i.slots[B]);
        let c = cx.warp.regs.lanes::<O::C>(i.slots[C]);
        let mut d = [O::D::default(); LANES];
        for lane in 0..LANES {
            d[lane] = O::apply(a[lane], b[lane], c[lane], i.imm);
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

/// Instantiates a lane operation for the operand type that is chosen at decode time:
/// `by_type!(ty, op2, Add, [U32 => u32, S32 => i32])` is an `Option<Exec>`.
macro_rules! by_type {
    ($ty:expr, $driver:ident, $op:ident, [$($variant:ident => $rust:ty),* $(,)?]) => {
        match $ty {
            $($crate::load::types::Ty::$variant => Some($crate::exec::lane_loop::$driver::<$op<$rust>>()),)*
            _ => None,
        }
    };
}
pub(crate) use by_type;

/// No operation; executes instructions that are only hints.
pub(crate) fn nop(_: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    Flow::Next
}

/// [`nop`] as an [`Exec`].
pub(crate) const NOP: Exec = nop;
