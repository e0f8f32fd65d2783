//! `while`, `loop` and `for`.

use std::marker::PhantomData;
use std::ops::{Range, RangeInclusive};
use std::panic::Location;

use super::branch::Condition;
use super::exit::Exit;
use super::slot::{Saved, Slot, leaves, save, set_leaves};
use crate::dsl::record::{Site, emit1, with};
use crate::dsl::scalar::Int;
use crate::dsl::value::{IntoVal, Val};
use crate::ir::{Binary, Block, BlockCall, Compare, Op, Value};

/// The type of a condition that was asked to be one.
pub struct AskedType<C>(PhantomData<C>);

/// Asks that `_condition` gives a condition, without evaluating it: its borrows end here, before slots are taken.
pub fn condition_type<C: Condition>(_condition: impl FnOnce() -> C) -> AskedType<C> {
    AskedType(PhantomData)
}

/// The `while` over a condition; found before [`AnyWhile`].
pub trait ConditionWhile {
    /// The `while`.
    type While;
    /// Starts it.
    #[track_caller]
    fn begin_while(&self, slots: &mut [Slot<'_>]) -> Self::While;
}

impl<C: Condition> ConditionWhile for AskedType<C> {
    type While = C::While;
    fn begin_while(&self, slots: &mut [Slot<'_>]) -> C::While {
        C::begin_while(slots, Location::caller())
    }
}

/// The `while` over something else, so that there is one error only.
pub trait AnyWhile {
    /// Never called.
    fn begin_while(&self, slots: &mut [Slot<'_>]) -> NoWhile;
}

impl<C> AnyWhile for &AskedType<C> {
    fn begin_while(&self, _: &mut [Slot<'_>]) -> NoWhile {
        unreachable!("only conditions are asked for")
    }
}

/// No loop: nothing makes one.
pub enum NoWhile {}

impl NoWhile {
    /// As [`DynLoop::test`].
    pub fn test<C>(&mut self, _: C, _: &mut [Slot<'_>]) -> bool {
        match *self {}
    }
    /// As [`DynLoop::next`].
    pub fn next(&mut self, _: &mut [Slot<'_>]) -> bool {
        match *self {}
    }
    /// As [`DynLoop::break_`].
    pub fn break_(&mut self, _: &mut [Slot<'_>]) -> bool {
        match *self {}
    }
    /// As [`DynLoop::continue_`].
    pub fn continue_(&mut self, _: &mut [Slot<'_>]) -> bool {
        match *self {}
    }
    /// As [`DynLoop::finish`].
    pub fn finish(self, _: &mut [Slot<'_>]) {
        match self {}
    }
}

/// Starts a `loop`, which always is a run-time loop.
#[track_caller]
pub fn begin_loop(slots: &mut [Slot<'_>]) -> DynLoop {
    DynLoop::new(slots, Location::caller())
}

/// The jumps of a loop that is being unrolled.
///
/// A jump that the present point surely makes is taken while recording. One under a run-time condition is
/// recorded; until its target is reached, code that a jump taken while recording would skip may run after all, so
/// an open target counts as one more run-time construct around the present point.
struct Unrolled {
    depth: u32,
    live: bool,
    after: Exit,
    next: Exit,
}

impl Unrolled {
    fn new() -> Unrolled {
        let (depth, live) = with(|r| (r.depth, r.is_live()));
        Unrolled { depth, live, after: Exit::default(), next: Exit::default() }
    }

    /// Whether the loop has been left for good, so that no further iteration is reached.
    fn is_over(&self) -> bool {
        self.live && !with(|r| r.is_live())
    }

    /// Whether nothing but the loop's own open targets stands between the present point and the loop's begin.
    fn is_sure(&self) -> bool {
        let open = u32::from(self.after.is_open()) + u32::from(self.next.is_open());
        with(|r| r.depth) == self.depth + open
    }

    fn break_(&mut self, slots: &mut [Slot<'_>], site: Site) -> bool {
        let taken = self.is_sure() && !self.next.is_open();
        if !taken {
            record(&mut self.after, slots, site);
        }
        taken
    }

    fn continue_(&mut self, slots: &mut [Slot<'_>], site: Site) -> bool {
        let taken = self.is_sure();
        if !taken {
            record(&mut self.next, slots, site);
        }
        taken
    }

    /// Ends an iteration.
    fn end_item(&mut self, slots: &mut [Slot<'_>], site: Site) {
        land(&mut self.next, slots, site);
    }

    /// Ends the loop.
    fn finish(&mut self, slots: &mut [Slot<'_>], site: Site) {
        land(&mut self.after, slots, site);
    }
}

fn record(exit: &mut Exit, slots: &[Slot<'_>], site: Site) {
    let was_open = exit.is_open();
    exit.jump(slots, site);
    if exit.is_open() && !was_open {
        with(|r| r.depth += 1);
    }
}

fn land(exit: &mut Exit, slots: &mut [Slot<'_>], site: Site) {
    if exit.is_open() {
        exit.arrive(slots, site);
        with(|r| r.depth -= 1);
    }
}

/// A `while` over a compile-time condition: unrolled.
pub struct StaticWhile(Unrolled);

impl StaticWhile {
    pub(super) fn new() -> StaticWhile {
        StaticWhile(Unrolled::new())
    }
    /// Whether to record another iteration.
    #[track_caller]
    pub fn test(&mut self, condition: bool, slots: &mut [Slot<'_>]) -> bool {
        self.0.end_item(slots, Location::caller());
        condition && !self.0.is_over()
    }
    /// Ends an iteration; false, since the condition decides.
    #[track_caller]
    pub fn next(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.0.end_item(slots, Location::caller());
        false
    }
    /// Leaves the loop: true if at recording time.
    #[track_caller]
    pub fn break_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.0.break_(slots, Location::caller())
    }
    /// Goes on with the next iteration: true if at recording time.
    #[track_caller]
    pub fn continue_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.0.continue_(slots, Location::caller())
    }
    /// Ends the loop.
    #[track_caller]
    pub fn finish(mut self, slots: &mut [Slot<'_>]) {
        self.0.finish(slots, Location::caller());
    }
}

/// A run-time loop: a header block with the variables as parameters, and an exit block likewise.
pub struct DynLoop {
    site: Site,
    header: Block,
    exit: Block,
    exit_params: Vec<Value>,
    before: Vec<Saved>,
}

impl DynLoop {
    pub(super) fn new(slots: &mut [Slot<'_>], site: Site) -> DynLoop {
        let before = save(slots);
        let values = leaves(slots);
        let (header, params, exit, exit_params) = with(|r| {
            let (header, params) = r.block_like(&values);
            let (exit, exit_params) = r.block_like(&values);
            r.jump(header, values, site);
            r.switch_to(header);
            r.depth += 1;
            (header, params, exit, exit_params)
        });
        set_leaves(slots, &params);
        DynLoop { site, header, exit, exit_params, before }
    }

    fn check(&self, slots: &[Slot<'_>]) {
        for (slot, saved) in slots.iter().zip(&self.before) {
            slot.require_unchanged(saved, "loop", self.site);
        }
    }

    /// Branches to the body or out of the loop.
    #[track_caller]
    pub fn test(&mut self, condition: Val<bool>, slots: &mut [Slot<'_>]) -> bool {
        let site = Location::caller();
        let values = leaves(slots);
        with(|r| {
            let body = r.func.create_block();
            let exit = BlockCall { block: self.exit, args: values };
            r.branch(condition.id, BlockCall { block: body, args: Vec::new() }, exit, site);
            r.switch_to(body);
        });
        true
    }

    /// Jumps back to the header; true, since the body is recorded once.
    #[track_caller]
    pub fn next(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.continue_(slots);
        true
    }

    /// Records a jump out of the loop.
    #[track_caller]
    pub fn break_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.check(slots);
        let (values, site) = (leaves(slots), Location::caller());
        with(|r| r.jump(self.exit, values, site));
        false
    }

    /// Records a jump to the header.
    #[track_caller]
    pub fn continue_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.check(slots);
        let (values, site) = (leaves(slots), Location::caller());
        with(|r| r.jump(self.header, values, site));
        false
    }

    /// Goes on after the loop.
    pub fn finish(self, slots: &mut [Slot<'_>]) {
        with(|r| {
            r.depth -= 1;
            r.switch_to(self.exit);
        });
        set_leaves(slots, &self.exit_params);
    }
}

/// A run-time range, half open: `a..b` of handles in a `for`, or [`range`].
#[derive(Clone, Copy, Debug)]
pub struct DynRange<T> {
    start: Val<T>,
    end: Val<T>,
    step: Option<Val<T>>,
}

impl<T: Int> DynRange<T> {
    /// Every `step`-th value from the start. `step` must be positive, and the end plus a step must not wrap.
    #[track_caller]
    pub fn step_by(self, step: impl IntoVal<T>) -> DynRange<T> {
        DynRange { step: Some(step.into_val()), ..self }
    }
}

/// A range of the GPU; nothing else is.
#[diagnostic::on_unimplemented(
    message = "a handle is no range",
    label = "write `0..n` to count to a number that is known only on the GPU"
)]
pub trait Iterated {}

impl<T: Int> Iterated for ForOf<DynRange<T>> {}

/// What may end a range that includes its end: compile-time integers.
#[diagnostic::on_unimplemented(
    message = "a range of the GPU is half open",
    label = "write `..end + 1`, which must not wrap, instead of `..=end`"
)]
pub trait InclusiveRangeEnd<Start> {
    /// The range.
    type Range;
    /// The range from `start` to `self`.
    fn starting_at(self, start: Start) -> Self::Range;
}

/// What may end a range that starts with an integer literal and includes its end.
#[diagnostic::on_unimplemented(
    message = "a range of the GPU is half open",
    label = "write `..end + 1`, which must not wrap, instead of `..=end`"
)]
pub trait LiteralInclusiveRangeEnd: Sized {
    /// The range.
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

/// `start..=end` from a literal, which takes the type of `end`.
pub fn range_inclusive_from_literal<E: LiteralInclusiveRangeEnd>(start: u32, end: E) -> E::Range {
    end.starting_at_literal(start)
}

/// What may end a range: compile-time integers give a Rust range, handles a run-time one.
#[diagnostic::on_unimplemented(
    message = "no range goes from a `{Start}` to a `{Self}`",
    label = "both ends are integers of one type: convert a handle with `.cast()`, a compile-time number with `as`"
)]
pub trait RangeEnd<Start> {
    /// The range.
    type Range;
    /// The range from `start` to `self`.
    #[track_caller]
    fn starting_at(self, start: Start) -> Self::Range;
}

impl<T: Int, S: IntoVal<T>> RangeEnd<S> for Val<T> {
    type Range = DynRange<T>;
    fn starting_at(self, start: S) -> DynRange<T> {
        DynRange { start: start.into_val(), end: self, step: None }
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
                DynRange { start, end: self.into_val(), step: None }
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
                DynRange { start: start.into_val(), end: self, step: None }
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

/// What may end a range that starts with an integer literal, whose type then is the end's.
#[diagnostic::on_unimplemented(
    message = "no range ends at a `{Self}`",
    label = "expected an integer, or a `Val` of one"
)]
pub trait LiteralRangeEnd {
    /// The range.
    type Range;
    /// The range from `start` to `self`.
    #[track_caller]
    fn starting_at_literal(self, start: u32) -> Self::Range;
}

/// `start..end`: run-time if either is a handle.
#[track_caller]
pub fn range<S, E: RangeEnd<S>>(start: S, end: E) -> E::Range {
    end.starting_at(start)
}

/// `start..end` from a literal, which takes the type of `end`.
#[track_caller]
pub fn range_from_literal<E: LiteralRangeEnd>(start: u32, end: E) -> E::Range {
    end.starting_at_literal(start)
}

/// What a `for` iterates over; its type decides how.
pub struct ForOf<I>(std::cell::Cell<Option<I>>);

impl<I> ForOf<I> {
    /// Iterate over `items`.
    pub fn new(items: I) -> ForOf<I> {
        ForOf(std::cell::Cell::new(Some(items)))
    }

    fn take(&self) -> I {
        self.0.take().expect("a loop is begun once")
    }
}

/// Loops over run-time ranges; found before [`ForStatic`].
pub trait ForDyn {
    /// The loop.
    type For;
    /// Begins it.
    #[track_caller]
    fn for_loop(&self) -> Self::For
    where
        Self: Iterated;
}

impl<T: Int> ForDyn for ForOf<DynRange<T>> {
    type For = DynFor<T>;
    fn for_loop(&self) -> DynFor<T> {
        DynFor { range: self.take(), site: Location::caller(), open: None }
    }
}

/// No loop: it is here for its error.
impl<T: Int> ForDyn for ForOf<Val<T>> {
    type For = DynFor<T>;
    fn for_loop(&self) -> DynFor<T>
    where
        Self: Iterated,
    {
        unreachable!("a handle is not `Iterated`")
    }
}

/// Loops over Rust iterators: unrolled.
pub trait ForStatic {
    /// The loop.
    type For;
    /// Begins it.
    fn for_loop(&self) -> Self::For;
}

impl<I: IntoIterator> ForStatic for &ForOf<I> {
    type For = StaticFor<I::IntoIter>;
    fn for_loop(&self) -> StaticFor<I::IntoIter> {
        StaticFor { items: self.take().into_iter(), jumps: Unrolled::new() }
    }
}

/// A `for` over a Rust iterator: unrolled.
pub struct StaticFor<I> {
    items: I,
    jumps: Unrolled,
}

impl<I: Iterator> StaticFor<I> {
    /// The next item, if any.
    pub fn next_item(&mut self, _: &mut [Slot<'_>]) -> Option<I::Item> {
        if self.jumps.is_over() {
            return None;
        }
        self.items.next()
    }
    /// Ends an iteration.
    #[track_caller]
    pub fn end_item(&mut self, slots: &mut [Slot<'_>]) {
        self.jumps.end_item(slots, Location::caller());
    }
    /// Leaves the loop: true if at recording time.
    #[track_caller]
    pub fn break_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.jumps.break_(slots, Location::caller())
    }
    /// Goes on with the next item: true if at recording time.
    #[track_caller]
    pub fn continue_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.jumps.continue_(slots, Location::caller())
    }
    /// Ends the loop.
    #[track_caller]
    pub fn finish(mut self, slots: &mut [Slot<'_>]) {
        self.jumps.finish(slots, Location::caller());
    }
}

/// A `for` over a run-time range.
pub struct DynFor<T> {
    range: DynRange<T>,
    site: Site,
    open: Option<OpenFor<T>>,
}

struct OpenFor<T> {
    header: Block,
    index: Val<T>,
    exit: Block,
    exit_params: Vec<Value>,
    before: Vec<Saved>,
}

impl<T: Int> DynFor<T> {
    /// The index, the first time; then none, since the body is recorded once.
    pub fn next_item(&mut self, slots: &mut [Slot<'_>]) -> Option<Val<T>> {
        if self.open.is_some() {
            return None;
        }
        let (site, range) = (self.site, self.range);
        let before = save(slots);
        let values = leaves(slots);
        let (header, params, exit, exit_params) = with(|r| {
            let mut initial = values.clone();
            initial.push(range.start.id);
            let (header, params) = r.block_like(&initial);
            let (exit, exit_params) = r.block_like(&values);
            r.jump(header, initial, site);
            r.switch_to(header);
            r.depth += 1;
            (header, params, exit, exit_params)
        });
        let (index, carried) = params.split_last().expect("the index is a parameter");
        set_leaves(slots, carried);
        let go_on = emit1(Op::Compare(Compare::Lt), T::TYPE, &[*index, range.end.id], site);
        with(|r| {
            let body = r.func.create_block();
            let leave = BlockCall { block: exit, args: carried.to_vec() };
            r.branch(go_on, BlockCall { block: body, args: Vec::new() }, leave, site);
            r.switch_to(body);
        });
        let index = Val::from_id(*index);
        self.open = Some(OpenFor { header, index, exit, exit_params, before });
        Some(index)
    }

    fn open(&mut self, slots: &[Slot<'_>]) -> &mut OpenFor<T> {
        let open = self.open.as_mut().expect("the loop has begun");
        for (slot, saved) in slots.iter().zip(&open.before) {
            slot.require_unchanged(saved, "loop", self.site);
        }
        open
    }

    /// Advances the index and jumps back to the header.
    pub fn end_item(&mut self, slots: &mut [Slot<'_>]) {
        self.continue_(slots);
    }

    /// Records a jump out of the loop.
    #[track_caller]
    pub fn break_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        let (values, site) = (leaves(slots), Location::caller());
        let exit = self.open(slots).exit;
        with(|r| r.jump(exit, values, site));
        false
    }

    /// Records the advance of the index and a jump to the header.
    pub fn continue_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        let (site, step) = (self.site, self.range.step);
        let mut values = leaves(slots);
        let open = self.open(slots);
        let step = match step {
            Some(step) => step.id,
            None => emit1(Op::Const(1), T::TYPE, &[], site),
        };
        values.push(emit1(Op::Binary(Binary::Add), T::TYPE, &[open.index.id, step], site));
        let header = open.header;
        with(|r| r.jump(header, values, site));
        false
    }

    /// Goes on after the loop.
    pub fn finish(self, slots: &mut [Slot<'_>]) {
        let open = self.open.expect("the loop has begun");
        with(|r| {
            r.depth -= 1;
            r.switch_to(open.exit);
        });
        set_leaves(slots, &open.exit_params);
    }
}
