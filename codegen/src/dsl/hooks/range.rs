//! Ranges `a..b` of handles, compile-time integers, or one of each.

use std::ops::{Range, RangeInclusive};
use std::panic::Location;

use crate::dsl::number::Int;
use crate::dsl::recorder::{fail, with};
use crate::dsl::value::{IntoVal, Val};

/// A half-open run-time range: `a..b` of handles in a `for`, or [`range`].
#[derive(Clone, Copy, Debug)]
pub struct DynRange<T> {
    pub(super) start: Val<T>,
    pub(super) end: Val<T>,
    pub(super) step: Option<Val<T>>,
    /// Whether the loop counts down.
    pub(super) reversed: bool,
    pub(super) unroll: Option<u32>,
}

impl<T: Int> DynRange<T> {
    pub(super) fn new(start: Val<T>, end: Val<T>) -> DynRange<T> {
        DynRange { start, end, step: None, reversed: false, unroll: None }
    }

    /// The range of every `step`-th value from the start; of a reversed range, from the last value down. `step` must be
    /// positive, and `end + step` must not wrap. Recording fails if `step` is a constant that is not positive.
    #[track_caller]
    pub fn step_by(self, step: impl IntoVal<T>) -> DynRange<T> {
        let step = step.into_val();
        let is_positive = |bits: u64| {
            let sign = if T::TYPE.is_signed() { T::TYPE.mask() & !(T::TYPE.mask() >> 1) } else { 0 };
            bits != 0 && bits & sign == 0
        };
        if with(|r| r.func.constant(step.id())).is_some_and(|bits| !is_positive(bits)) {
            let what = "the step of a range must be positive: to count down, write `(a..b).rev()`, with `.step_by(n)` after it";
            fail(Location::caller(), what);
        }
        DynRange { step: Some(step), ..self }
    }

    /// The range from the last value down to the first: `b - 1`, …, `a` of `a..b`.
    ///
    /// Recording fails if the range has a step already: write `.rev().step_by(n)`.
    #[must_use]
    #[track_caller]
    pub fn rev(self) -> DynRange<T> {
        if self.step.is_some() {
            let what = "a range with a step is not reversed: write `.rev().step_by(n)`, which counts down from the last value";
            fail(Location::caller(), what);
        }
        DynRange { reversed: !self.reversed, ..self }
    }

    /// The range for a loop whose body is unrolled `factor` times; 1 keeps the loop as it is. One test decides for
    /// `factor` iterations, so their loads need not wait for one another; a second loop has the remaining iterations.
    ///
    /// Recording fails if `factor` is 0, or the unrolled loop has more than 65,536 instructions.
    #[must_use]
    #[track_caller]
    pub fn unroll(self, factor: u32) -> DynRange<T> {
        if factor == 0 {
            let what = "a loop cannot be unrolled 0 times: write `unroll(1)` to keep it as it is";
            fail(Location::caller(), what);
        }
        DynRange { unroll: Some(factor), ..self }
    }
}

/// A run-time range, which can have a hint for unrolling.
#[diagnostic::on_unimplemented(
    message = "only a loop over a run-time range is unrolled by `unroll`",
    label = "this loop has compile-time numbers and is unrolled completely"
)]
pub trait Unrollable {
    /// The range with the hint.
    #[track_caller]
    fn with_unroll(self, factor: u32) -> Self;
}

impl<T: Int> Unrollable for DynRange<T> {
    fn with_unroll(self, factor: u32) -> DynRange<T> {
        self.unroll(factor)
    }
}

/// `range.unroll(factor)`.
#[track_caller]
pub fn unroll<R: Unrollable>(range: R, factor: u32) -> R {
    range.with_unroll(factor)
}

/// The end of an inclusive range: a compile-time integer.
#[diagnostic::on_unimplemented(
    message = "a run-time range is half open",
    label = "write `..end + 1` instead of `..=end`; `end + 1` must not wrap"
)]
pub trait InclusiveRangeEnd<Start> {
    /// The type of the range.
    type Range;
    /// The range from `start` to `self`.
    fn starting_at(self, start: Start) -> Self::Range;
}

/// The end of an inclusive range that starts with an integer literal: a compile-time integer.
#[diagnostic::on_unimplemented(
    message = "a run-time range is half open",
    label = "write `..end + 1` instead of `..=end`; `end + 1` must not wrap"
)]
pub trait LiteralInclusiveRangeEnd: Sized {
    /// The type of the range.
    type Range;
    /// The range from `start` to `self`.
    fn starting_at_literal(self, start: u32) -> Self::Range;
}

macro_rules! inclusive_range {
    ($($ty:ty)*) => {
        $(impl InclusiveRangeEnd<$ty> for $ty {
            type Range = RangeInclusive<$ty>;
            fn starting_at(self, start: $ty) -> RangeInclusive<$ty> { start..=self }
        }
        impl LiteralInclusiveRangeEnd for $ty {
            type Range = RangeInclusive<$ty>;
            fn starting_at_literal(self, start: u32) -> RangeInclusive<$ty> {
                <$ty>::try_from(start).expect("a range's literal start fits its end's type")..=self
            }
        })*
    };
}
inclusive_range!(u8 u16 u32 u64 i8 i16 i32 i64 usize);

/// `start..=end`.
pub fn range_inclusive<S, E: InclusiveRangeEnd<S>>(start: S, end: E) -> E::Range {
    end.starting_at(start)
}

/// `start..=end` with a literal `start`, which takes the type of `end`.
pub fn range_inclusive_from_literal<E: LiteralInclusiveRangeEnd>(start: u32, end: E) -> E::Range {
    end.starting_at_literal(start)
}

/// The end of a range. Two compile-time integers give a Rust range; a handle gives a run-time range.
#[diagnostic::on_unimplemented(
    message = "no range from `{Start}` to `{Self}`",
    label = "both ends must be integers of one type: convert a handle with `.cast()`, a compile-time number with `as`"
)]
pub trait RangeEnd<Start> {
    /// The type of the range.
    type Range;
    /// The range from `start` to `self`.
    #[track_caller]
    fn starting_at(self, start: Start) -> Self::Range;
}

impl<T: Int, S: IntoVal<T>> RangeEnd<S> for Val<T> {
    type Range = DynRange<T>;
    fn starting_at(self, start: S) -> DynRange<T> {
        DynRange::new(start.into_val(), self)
    }
}

macro_rules! static_range {
    ($($ty:ty)*) => {
        $(impl RangeEnd<$ty> for $ty {
            type Range = Range<$ty>;
            fn starting_at(self, start: $ty) -> Range<$ty> { start..self }
        }
        impl RangeEnd<Val<$ty>> for $ty {
            type Range = DynRange<$ty>;
            fn starting_at(self, start: Val<$ty>) -> DynRange<$ty> {
                DynRange::new(start, self.into_val())
            }
        }
        impl LiteralRangeEnd for $ty {
            type Range = Range<$ty>;
            fn starting_at_literal(self, start: u32) -> Range<$ty> {
                <$ty>::try_from(start).expect("a range's literal start fits its end's type")..self
            }
        }
        impl LiteralRangeEnd for Val<$ty> {
            type Range = DynRange<$ty>;
            fn starting_at_literal(self, start: u32) -> DynRange<$ty> {
                let start = <$ty>::try_from(start).expect("a range's literal start fits its end's type");
                DynRange::new(start.into_val(), self)
            }
        })*
    };
}
static_range!(u8 u16 u32 u64 i8 i16 i32 i64);

impl RangeEnd<usize> for usize {
    type Range = Range<usize>;
    fn starting_at(self, start: usize) -> Range<usize> {
        start..self
    }
}

impl LiteralRangeEnd for usize {
    type Range = Range<usize>;
    fn starting_at_literal(self, start: u32) -> Range<usize> {
        start as usize..self
    }
}

/// The end of a range that starts with an integer literal; the literal takes the type of the end.
#[diagnostic::on_unimplemented(
    message = "no range ends at `{Self}`",
    label = "expected an integer, or a `Val` of one"
)]
pub trait LiteralRangeEnd {
    /// The type of the range.
    type Range;
    /// The range from `start` to `self`.
    #[track_caller]
    fn starting_at_literal(self, start: u32) -> Self::Range;
}

/// `start..end`: a run-time range if `start` or `end` is a handle.
#[track_caller]
pub fn range<S, E: RangeEnd<S>>(start: S, end: E) -> E::Range {
    end.starting_at(start)
}

/// `start..end` with a literal `start`, which takes the type of `end`.
#[track_caller]
pub fn range_from_literal<E: LiteralRangeEnd>(start: u32, end: E) -> E::Range {
    end.starting_at_literal(start)
}
