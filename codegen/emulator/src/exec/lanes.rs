//! The register file and the loops over its lanes.
//!
//! A register of a warp is 32 consecutive values, so each operation is a loop that the compiler
//! vectorises. The loops are compiled twice on x86-64, for the baseline and for AVX2 with FMA, and the
//! decoder takes the version that the CPU has.

use super::{A, B, C, D, Exec, Flow, Inst, Machine};

pub(crate) const LANES: usize = 32;

/// A type whose values may be any bits.
///
/// # Safety
/// Every bit pattern of the type's size must be a value, and it must have no padding.
pub(crate) unsafe trait Pod: Copy + Default + Send + 'static {
    /// `a` if `take`, else `b`: by masks where that can be, because a choice between two values in memory is
    /// compiled to a branch a lane.
    #[inline(always)]
    fn choose(take: bool, a: Self, b: Self) -> Self {
        if take { a } else { b }
    }
}

macro_rules! pods {
    ($($ty:ty: $a:ident => $bits:expr, $from:path;)*) => { $(
        // SAFETY: a primitive number.
        unsafe impl Pod for $ty {
            #[inline(always)]
            fn choose(take: bool, a: $ty, b: $ty) -> $ty {
                let bits = |$a: $ty| $bits;
                let mask = if take { !bits(Default::default()) } else { bits(Default::default()) };
                $from(bits(a) & mask | bits(b) & !mask)
            }
        }
    )* };
}
pods! {
    u8: a => a, u8::from;
    i8: a => a, i8::from;
    u16: a => a, u16::from;
    i16: a => a, i16::from;
    u32: a => a, u32::from;
    i32: a => a, i32::from;
    u64: a => a, u64::from;
    i64: a => a, i64::from;
    f32: a => a.to_bits(), f32::from_bits;
    f64: a => a.to_bits(), f64::from_bits;
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The registers of one warp: predicates as 32-bit masks, others as 32 lanes each, found by byte
/// offset ("slot").
pub(crate) struct RegisterFile {
    lines: Box<[Line]>,
}

impl RegisterFile {
    pub(crate) fn new(bytes: u32) -> RegisterFile {
        let lines = vec![Line([0; 64]); (bytes as usize).div_ceil(64)];
        RegisterFile { lines: lines.into_boxed_slice() }
    }

    #[inline(always)]
    fn at<T>(&self, slot: u32, count: usize) -> *const T {
        debug_assert!(slot as usize + count * size_of::<T>() <= self.lines.len() * 64);
        debug_assert_eq!(slot as usize % align_of::<T>(), 0);
        self.lines.as_ptr().cast::<u8>().wrapping_add(slot as usize).cast()
    }

    /// The 32 lanes at a slot.
    #[inline(always)]
    pub(crate) fn lanes<T: Pod>(&self, slot: u32) -> &[T; LANES] {
        // SAFETY: the decoder lays slots out inside the file and aligned to their size (asserted in
        // debug builds), and any bits are a `T`.
        unsafe { &*self.at::<[T; LANES]>(slot, 1) }
    }

    #[inline(always)]
    pub(crate) fn lanes_mut<T: Pod>(&mut self, slot: u32) -> &mut [T; LANES] {
        // SAFETY: as for `lanes`; `&mut self` makes the reference unique.
        unsafe { &mut *self.at::<[T; LANES]>(slot, 1).cast_mut() }
    }

    #[inline(always)]
    pub(crate) fn mask(&self, slot: u32) -> u32 {
        // SAFETY: as for `lanes`.
        unsafe { *self.at::<u32>(slot, 1) }
    }

    #[inline(always)]
    pub(crate) fn set_mask(&mut self, slot: u32, mask: u32) {
        // SAFETY: as for `lanes_mut`.
        unsafe { *self.at::<u32>(slot, 1).cast_mut() = mask }
    }

    /// Writes the lanes of `active`.
    #[inline(always)]
    pub(crate) fn write<T: Pod>(&mut self, slot: u32, values: &[T; LANES], active: u32) {
        let target = self.lanes_mut::<T>(slot);
        if active == u32::MAX {
            *target = *values;
        } else {
            for lane in 0..LANES {
                target[lane] = T::choose(active >> lane & 1 != 0, values[lane], target[lane]);
            }
        }
    }

    /// Copies the constants and fixed special registers into place.
    pub(crate) fn load_image(&mut self, start: u32, image: &[u8]) {
        let bytes = self.lines.as_mut_ptr().cast::<u8>();
        assert!(start as usize + image.len() <= self.lines.len() * 64);
        // SAFETY: in bounds by the line above.
        unsafe { bytes.add(start as usize).copy_from_nonoverlapping(image.as_ptr(), image.len()) };
    }
}

/// Whether the wide versions of the lane loops may run.
#[cfg(target_arch = "x86_64")]
pub(crate) fn wide() -> bool {
    macro_rules! all {
        ($($feature:tt)*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
    }
    all!("avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt")
}

/// Defines a function that returns an [`Exec`] in the version that the CPU has.
///
/// `lane_loop!(fn name[T: Pod][T](m, i) { … })`: the first list declares the generics, the second
/// names them.
macro_rules! lane_loop {
    ($(#[$meta:meta])* fn $name:ident[$($generics:tt)*][$($args:tt)*]($m:ident, $i:ident) $body:block) => {
        $(#[$meta])*
        pub(crate) fn $name<$($generics)*>() -> $crate::exec::Exec {
            use $crate::exec::{Flow, Inst, Machine};
            #[inline(always)]
            fn body<$($generics)*>($m: &mut Machine<'_>, $i: &Inst) -> Flow $body
            fn portable<$($generics)*>(m: &mut Machine<'_>, i: &Inst) -> Flow {
                body::<$($args)*>(m, i)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            fn wide<$($generics)*>(m: &mut Machine<'_>, i: &Inst) -> Flow {
                body::<$($args)*>(m, i)
            }
            #[cfg(target_arch = "x86_64")]
            if $crate::exec::lanes::wide() {
                return wide::<$($args)*>;
            }
            portable::<$($args)*>
        }
    };
}
pub(crate) use lane_loop;

/// A function of one lane's operands. `imm` is the instruction's immediate.
pub(crate) trait Op1: 'static {
    type A: Pod;
    type D: Pod;
    fn apply(a: Self::A, imm: u64) -> Self::D;
}

/// See [`Op1`].
pub(crate) trait Op2: 'static {
    type A: Pod;
    type B: Pod;
    type D: Pod;
    fn apply(a: Self::A, b: Self::B, imm: u64) -> Self::D;
}

/// See [`Op1`].
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
        impl $(<$($g)*>)? $crate::exec::lanes::Op1 for $name $(<$($u)*>)? {
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
        impl $(<$($g)*>)? $crate::exec::lanes::Op2 for $name $(<$($u)*>)? {
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
        impl $(<$($g)*>)? $crate::exec::lanes::Op3 for $name $(<$($u)*>)? {
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
    /// `d = f(a)`.
    fn op1[O: Op1][O](m, i) {
        let a = m.warp.regs.lanes::<O::A>(i.slots[A]);
        let mut d = [O::D::default(); LANES];
        for lane in 0..LANES {
            d[lane] = O::apply(a[lane], i.imm);
        }
        m.warp.regs.write(i.slots[D], &d, m.active);
        Flow::Next
    }
}

lane_loop! {
    /// `d = f(a, b)`.
    fn op2[O: Op2][O](m, i) {
        let a = m.warp.regs.lanes::<O::A>(i.slots[A]);
        let b = m.warp.regs.lanes::<O::B>(i.slots[B]);
        let mut d = [O::D::default(); LANES];
        for lane in 0..LANES {
            d[lane] = O::apply(a[lane], b[lane], i.imm);
        }
        m.warp.regs.write(i.slots[D], &d, m.active);
        Flow::Next
    }
}

lane_loop! {
    /// `d = f(a, b, c)`.
    fn op3[O: Op3][O](m, i) {
        let a = m.warp.regs.lanes::<O::A>(i.slots[A]);
        let b = m.warp.regs.lanes::<O::B>(i.slots[B]);
        let c = m.warp.regs.lanes::<O::C>(i.slots[C]);
        let mut d = [O::D::default(); LANES];
        for lane in 0..LANES {
            d[lane] = O::apply(a[lane], b[lane], c[lane], i.imm);
        }
        m.warp.regs.write(i.slots[D], &d, m.active);
        Flow::Next
    }
}

/// The [`Exec`] of a lane function of a type chosen at decode time:
/// `by_type!(ty, op2, Add, [U32 => u32, S32 => i32])` is an `Option<Exec>`.
macro_rules! by_type {
    ($ty:expr, $driver:ident, $op:ident, [$($variant:ident => $rust:ty),* $(,)?]) => {
        match $ty {
            $($crate::load::types::Ty::$variant => Some($crate::exec::lanes::$driver::<$op<$rust>>()),)*
            _ => None,
        }
    };
}
pub(crate) use by_type;

/// A no-operation, for hints.
pub(crate) fn nop(_: &mut Machine<'_>, _: &Inst) -> Flow {
    Flow::Next
}

/// [`nop`] as an [`Exec`].
pub(crate) const NOP: Exec = nop;
