//! Values of handles, which run-time control flow can carry.

use super::pointer::{Ptr, Space};
use super::scalar::Scalar;
use super::value::Val;
use crate::ir;

/// A Rust value made of handles: a handle, an array, a tuple or a struct of them (`#[derive(Carry)]`).
///
/// A run-time branch or loop turns the handles of every such variable that it may assign into block parameters.
///
/// - Written: `let mut` and an assignment in a branch or a loop
/// - PTX: `mov.b32`, by width, at the end of each path to a join; `selp` where a short branch is if-converted
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 1)]
/// fn sum(x: Ptr<Global, u32>) {
///     let mut sum = val(0);
///     for i in 0..x.load() {
///         sum += x.at(i).load();
///     }
///     x.store(sum);
/// }
/// assert_eq!(run(sum(), "mov.b32", [3u32, 4, 5]), [12, 4, 5]);
/// ```
#[diagnostic::on_unimplemented(
    message = "a compile-time `{Self}` cannot depend on a run-time condition",
    label = "this value is fixed while recording, but the condition is known only on the GPU",
    note = "make the value a run-time value with `val(...)`, or the condition a compile-time one; a struct of handles needs `#[derive(Carry)]`, and its compile-time fields `#[carry(skip)]`"
)]
pub trait Carry {
    /// Appends the SSA values of all handles in `self`, in a fixed order.
    fn leaves(&self, out: &mut Vec<ir::Value>);
    /// Replaces the handles in `self` by `values`, in the order of [`Carry::leaves`]. `values` has at least as many
    /// values as that function appends.
    fn restore(&mut self, values: &mut dyn Iterator<Item = ir::Value>);
}

impl<T: Scalar> Carry for Val<T> {
    fn leaves(&self, out: &mut Vec<ir::Value>) {
        out.push(self.id());
    }
    fn restore(&mut self, values: &mut dyn Iterator<Item = ir::Value>) {
        *self = Self::from_id(values.next().expect("one value per handle"));
    }
}

impl<S: Space, T> Carry for Ptr<S, T> {
    fn leaves(&self, out: &mut Vec<ir::Value>) {
        out.push(self.id());
    }
    fn restore(&mut self, values: &mut dyn Iterator<Item = ir::Value>) {
        *self = Self::from_id(values.next().expect("one value per handle"));
    }
}

macro_rules! carry_each {
    ($([$($generics:tt)*] $ty:ty;)*) => {
        $(impl<$($generics)*> Carry for $ty {
            fn leaves(&self, out: &mut Vec<ir::Value>) {
                self.iter().for_each(|item| item.leaves(out));
            }
            fn restore(&mut self, values: &mut dyn Iterator<Item = ir::Value>) {
                self.iter_mut().for_each(|item| item.restore(values));
            }
        })*
    };
}
carry_each! {
    [C: Carry, const N: usize] [C; N];
    [C: Carry] [C];
    [C: Carry] Vec<C>;
    [C: Carry] Option<C>;
}

macro_rules! carry_tuple {
    ($($name:ident)*) => {
        impl<$($name: Carry),*> Carry for ($($name,)*) {
            #[allow(non_snake_case, unused_variables)]
            fn leaves(&self, out: &mut Vec<ir::Value>) {
                let ($($name,)*) = self;
                $($name.leaves(out);)*
            }
            #[allow(non_snake_case, unused_variables)]
            fn restore(&mut self, values: &mut dyn Iterator<Item = ir::Value>) {
                let ($($name,)*) = self;
                $($name.restore(values);)*
            }
        }
    };
}
carry_tuple!();
carry_tuple!(A);
carry_tuple!(A B);
carry_tuple!(A B C);
carry_tuple!(A B C D);
carry_tuple!(A B C D E);
carry_tuple!(A B C D E F);
