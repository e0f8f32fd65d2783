//! Methods that only other handles have: errors that say what to write instead, where Rust would only say that there is
//! no such method. A handle's own methods are found before these.

use crate::dsl::pointer::{Cluster, Ptr};
use crate::dsl::value::Val;

/// Has the functions of f32. No handle is this without them.
#[diagnostic::on_unimplemented(
    message = "the GPU has this function of floats, and not of a `{Self}`",
    label = "write `.cast::<f32>()` before it, and `.cast()` for the result's type behind it"
)]
pub trait HasFunctions {}

// The traits are no part of the macros: errors show where they ask for something.

/// Functions of floats, of what is none.
pub trait NoFunctions: Sized {
    /// Never called.
    fn rcp(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn rcp_approx(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn sqrt(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn sqrt_approx(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn rsqrt(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn exp(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn exp2(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn log2(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn sin(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn cos(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn tanh(self) -> Self
    where
        Self: HasFunctions;
    /// Never called.
    fn div_approx<R>(self, divisor: R) -> Self
    where
        Self: HasFunctions;
}

macro_rules! functions {
    ($($name:ident)*) => {
        impl<T> NoFunctions for Val<T> {
            $(fn $name(self) -> Self where Self: HasFunctions {
                unreachable!("nothing meets the bound")
            })*
            fn div_approx<R>(self, _: R) -> Self where Self: HasFunctions {
                unreachable!("nothing meets the bound")
            }
        }
    };
}
functions!(rcp rcp_approx sqrt sqrt_approx rsqrt exp exp2 log2 sin cos tanh);

/// Points to memory that each CTA has. No pointer is this without `of_block`.
#[diagnostic::on_unimplemented(
    message = "`of_block` goes to another CTA's shared memory, and a `{Self}` does not point to a CTA's",
    label = "expected a `Ptr<Shared, …>`, as `shared_array` gives; device memory is every CTA's, at the same address"
)]
pub trait InBlock {}

/// An element that atomics change. Nothing is this without them.
#[diagnostic::on_unimplemented(
    message = "no GPU has this atomic of `{Self}`",
    label = "expected an integer of 32 or 64 bits; of f32, `.cast::<u32>()` before it gives the atomics of the bits, which are in the numbers' order where these are not negative"
)]
pub trait AtomicElement {}

/// Methods of pointers, of those that do not have them.
pub trait NotOfPointer: Sized {
    /// The elements.
    type Element;
    /// Never called.
    fn of_block<R>(self, rank: R) -> Ptr<Cluster, Self::Element>
    where
        Self: InBlock;
    /// Never called.
    fn atomic_cas<E, N, O>(self, expected: E, new: N, ordering: O) -> Val<Self::Element>
    where
        Self::Element: AtomicElement;
    /// Never called.
    fn atomic_min<V, O>(self, value: V, ordering: O) -> Val<Self::Element>
    where
        Self::Element: AtomicElement;
    /// Never called.
    fn atomic_max<V, O>(self, value: V, ordering: O) -> Val<Self::Element>
    where
        Self::Element: AtomicElement;
    /// Never called.
    fn atomic_and<V, O>(self, value: V, ordering: O) -> Val<Self::Element>
    where
        Self::Element: AtomicElement;
    /// Never called.
    fn atomic_or<V, O>(self, value: V, ordering: O) -> Val<Self::Element>
    where
        Self::Element: AtomicElement;
    /// Never called.
    fn atomic_xor<V, O>(self, value: V, ordering: O) -> Val<Self::Element>
    where
        Self::Element: AtomicElement;
    /// Never called.
    fn atomic_exchange<V, O>(self, value: V, ordering: O) -> Val<Self::Element>
    where
        Self::Element: AtomicElement;
}

macro_rules! pointers {
    ($($atomic:ident)*) => {
        impl<S, T> NotOfPointer for Ptr<S, T> {
            type Element = T;
            fn of_block<R>(self, _: R) -> Ptr<Cluster, T> where Self: InBlock {
                unreachable!("nothing meets the bound")
            }
            fn atomic_cas<E, N, O>(self, _: E, _: N, _: O) -> Val<T> where T: AtomicElement {
                unreachable!("nothing meets the bound")
            }
            $(fn $atomic<V, O>(self, _: V, _: O) -> Val<T> where T: AtomicElement {
                unreachable!("nothing meets the bound")
            })*
        }
    };
}
pointers!(atomic_min atomic_max atomic_and atomic_or atomic_xor atomic_exchange);
