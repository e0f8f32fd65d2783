//! A range that a method is called on, as in `(0..n).rev()`: of handles it has none, which the method's name is told.

use std::cell::Cell;
use std::ops::Range;

use super::staged::KnownNow;
use crate::dsl::value::Val;

/// The ends of a range that a method is called on. Of three borrows of it, the method is looked for with three, four
/// and two: [`EndDyn`] is found first, then [`StartDyn`], then [`KnownNow`].
pub struct EndsOf<A, B>(Cell<Option<(A, B)>>);

impl<A, B> EndsOf<A, B> {
    /// Of `start..end`.
    pub fn new(start: A, end: B) -> EndsOf<A, B> {
        EndsOf(Cell::new(Some((start, end))))
    }
}

impl<A> KnownNow for &EndsOf<A, A> {
    type Value = Range<A>;
    fn known_now(&self) -> Range<A> {
        let (start, end) = self.0.take().expect("a value is asked for once");
        start..end
    }
}

/// Nothing is this: it stands for what methods of a range would need.
#[diagnostic::on_unimplemented(
    message = "a range of the GPU has no methods of iterators",
    label = "a `for` goes through `a..b` itself, or `(a..b).step_by(…)`; to go backwards, count up and take `b - 1 - i`"
)]
pub trait IteratedRange {}

/// A range that ends with a handle.
pub trait EndDyn {
    /// What stands for the range, so that there is one error only.
    type Value;
    /// Never called.
    fn known_now(&self) -> Self::Value
    where
        Self: IteratedRange;
}

impl<A, T> EndDyn for &&EndsOf<A, Val<T>> {
    type Value = std::vec::IntoIter<Val<T>>;
    fn known_now(&self) -> Self::Value
    where
        Self: IteratedRange,
    {
        unreachable!("nothing meets the bound")
    }
}

/// A range that only starts with a handle.
pub trait StartDyn {
    /// What stands for the range, so that there is one error only.
    type Value;
    /// Never called.
    fn known_now(&self) -> Self::Value
    where
        Self: IteratedRange;
}

impl<T, B> StartDyn for &&&EndsOf<Val<T>, B> {
    type Value = std::vec::IntoIter<Val<T>>;
    fn known_now(&self) -> Self::Value
    where
        Self: IteratedRange,
    {
        unreachable!("nothing meets the bound")
    }
}
