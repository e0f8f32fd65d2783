//! Handles of run-time scalars.

use std::marker::{PhantomData, PhantomPinned};
use std::panic::Location;

use super::recorder::{Handle, Site, emit1};
use super::scalar::Scalar;
use crate::ir::{self, Op};

/// Handle of a run-time value: an SSA value of type `T` in the kernel being recorded.
pub struct Val<T> {
    handle: Handle,
    // `PhantomPinned` marks types with handles for `hooks::compile_time`.
    kind: PhantomData<(T, PhantomPinned)>,
}

impl<T> Clone for Val<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Val<T> {}

impl<T> std::fmt::Debug for Val<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.handle.id())
    }
}

impl<T> Val<T> {
    pub(crate) fn id(self) -> ir::Value {
        self.handle.id()
    }
}

impl<T: Scalar> Val<T> {
    pub(crate) fn from_id(id: ir::Value) -> Val<T> {
        Val { handle: Handle::new(id), kind: PhantomData }
    }

    /// Handle of the constant `value`, recorded at `site`.
    pub(crate) fn constant(value: T, site: Site) -> Val<T> {
        Val::from_id(emit1(Op::Const(value.bits()), T::TYPE, &[], site))
    }
}

/// Handle of a constant, from a compile-time value.
///
/// - PTX: none: an immediate operand, or `mov` where an instruction takes no immediate
#[track_caller]
pub fn val<T: Scalar>(value: T) -> Val<T> {
    Val::constant(value, Location::caller())
}

/// A value that can be used as a run-time `T`: a handle, or a compile-time value, which becomes a constant.
///
/// - Written: `a + 1`, `p.store(n)` of a literal or a compile-time value
/// - PTX: `add.u32 …, 1`: an immediate operand; `mov` where an instruction takes no immediate
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| x + 1, "add.u32 …, 1", [4u32]), [5]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a run-time `{T}`",
    label = "expected `Val<{T}>` or `{T}`",
    note = "convert a handle with `.cast::<{T}>()`, a compile-time number with `as {T}`; a constant of f16 or bf16 is `f16::from_f32(…)`"
)]
pub trait IntoVal<T: Scalar>: Copy {
    /// The handle of the value; constants are recorded at the caller's source line.
    #[track_caller]
    fn into_val(self) -> Val<T>;
}

impl<T: Scalar> IntoVal<T> for Val<T> {
    fn into_val(self) -> Val<T> {
        self
    }
}

macro_rules! into_val {
    ($($ty:ty)*) => {
        $(impl IntoVal<$ty> for $ty {
            #[track_caller]
            fn into_val(self) -> Val<$ty> { val(self) }
        })*
    };
}
into_val!(bool u8 u16 u32 u64 i8 i16 i32 i64 half::f16 half::bf16 f32 f64 super::scalar::F16x2 super::scalar::Bf16x2);
