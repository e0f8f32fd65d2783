//! Constructs of Rust that take compile-time values only: errors for handles.
//!
//! Each `…Operand` wraps an operand. For a handle, autoref finds the `static_value` of the `…OfHandle` trait first; it
//! requires a bound that nothing meets, and the bound's error says what to write instead. For any other type autoref
//! finds [`StaticValue::static_value`], which unwraps the operand.

use std::cell::Cell;

use crate::dsl::pointer::Ptr;
use crate::dsl::value::Val;

/// Operands that are known while recording; autoref finds the traits of handles before this trait.
pub trait StaticValue {
    /// The type of the operand.
    type Value;
    /// Returns the operand.
    fn static_value(&self) -> Self::Value;
}

/// Declares the trait of an operand that is a handle, and the bound with its error message. `$value` is the type in
/// place of the operand, so that a handle causes one error only.
macro_rules! handle_operand {
    ($trait:ident for [$($generic:tt)*] $operand:ty => $value:ty, $bound:ident: $message:literal, $label:literal) => {
        /// Never implemented: a handle cannot be the operand.
        #[diagnostic::on_unimplemented(message = $message, label = $label)]
        pub trait $bound {}

        /// A handle as the operand.
        pub trait $trait {
            /// The type in place of the operand.
            type Value;
            /// Never called.
            fn static_value(&self) -> Self::Value
            where
                Self: $bound;
        }

        impl<$($generic)*> $trait for $operand {
            type Value = $value;
            fn static_value(&self) -> $value
            where
                Self: $bound,
            {
                unreachable!("nothing meets the bound")
            }
        }
    };
}

/// Declares the wrappers of operands that are moved.
macro_rules! operands {
    ($($(#[$doc:meta])* $operand:ident,
        $trait:ident for [$($generic:tt)*] $handle:ty => $value:ty, $bound:ident: $message:literal, $label:literal;
    )*) => {
        $($(#[$doc])*
        pub struct $operand<T>(Cell<Option<T>>);

        impl<T> $operand<T> {
            /// Wraps the operand.
            pub fn new(operand: T) -> $operand<T> {
                $operand(Cell::new(Some(operand)))
            }
        }

        impl<T> StaticValue for &$operand<T> {
            type Value = T;
            fn static_value(&self) -> T {
                self.0.take().expect("an operand is unwrapped once")
            }
        }

        handle_operand!($trait for [$($generic)*] $operand<$handle> => $value, $bound: $message, $label);)*
    };
}
operands! {
    /// The operand of `as`.
    CastOperand, CastOfHandle for [T] Val<T> => u8, Castable:
        "`as` does not convert handles",
        "write `.cast::<…>()`, which converts on the GPU; to reinterpret the bits, `.bitcast::<…>()`";
    /// The index of an array or slice.
    IndexOperand, IndexOfHandle for [T] Val<T> => usize, ArrayIndex:
        "a handle cannot index a Rust array: its value is known only on the GPU",
        "put the elements in memory, for example `shared_array`, and write `.at(i)`; or `select` among them";
    /// A condition in a let chain.
    LetChainOperand, LetChainOfHandle for [T] Val<T> => bool, LetChainCondition:
        "a condition beside `let` is decided while recording, and this one is known only on the GPU",
        "write it as an `if` of its own inside of the `if let`: that becomes a branch";
    /// The value that a `match` or `if let` compares with numbers.
    MatchedValue, MatchedHandle for [T] Val<T> => T, MatchableValue:
        "`match` is decided while recording, and this value is known only on the GPU",
        "compare it with each number: `if x == 0`, `else if x == 1` and so on become branches";
    /// The value of a call under `*`.
    DereferenceOperand, DereferenceOfHandle for [S, T] Ptr<S, T> => Box<Val<T>>, Dereferenceable:
        "`*` does not access GPU memory",
        "write `x.load()` for the value, `x.store(value)` to assign it; `x.at(i)` is another element";
}

/// Declares the wrappers of operands that are borrowed.
macro_rules! borrowed_operands {
    ($($(#[$doc:meta])* $operand:ident,
        $trait:ident, $bound:ident: $message:literal, $label:literal;
    )*) => {
        $($(#[$doc])*
        pub struct $operand<'a, T: ?Sized>(&'a T);

        impl<'a, T: ?Sized> $operand<'a, T> {
            /// Wraps the operand.
            pub fn new(operand: &'a T) -> $operand<'a, T> {
                $operand(operand)
            }
        }

        impl<'a, T: ?Sized> StaticValue for &$operand<'a, T> {
            type Value = &'a T;
            fn static_value(&self) -> &'a T {
                self.0
            }
        }

        handle_operand!($trait for ['a, T] $operand<'a, Val<T>> => &'a T, $bound: $message, $label);)*
    };
}
borrowed_operands! {
    /// The place that a `match` compares with numbers.
    MatchOperand, MatchOfHandle, Matchable:
        "`match` is decided while recording, and this value is known only on the GPU",
        "compare it with each number: `if x == 0`, `else if x == 1` and so on become branches";
    /// An operand of an assertion.
    AssertionOperand, AssertionOfHandle, Assertable:
        "assertions are checked while recording, and this value is known only on the GPU",
        "assert compile-time values only; for a run-time value write `trap()` in an `if`, or store it through a pointer and check it on the host";
}

/// The result of `as` for a handle; autoref finds this trait before [`CastResult`].
pub trait CastResultOfHandle {
    /// A value of any type, so that a handle causes one error only.
    fn result<U, E>(&self, value: U) -> E;
}

impl<T> CastResultOfHandle for CastOperand<Val<T>> {
    fn result<U, E>(&self, _: U) -> E {
        unreachable!("nothing is `Castable`")
    }
}

/// The result of `as` for a value other than a handle.
pub trait CastResult {
    /// Returns `value`, the result of the conversion.
    fn result<U>(&self, value: U) -> U;
}

impl<T> CastResult for &CastOperand<T> {
    fn result<U>(&self, value: U) -> U {
        value
    }
}
