//! `for`: unrolled over a Rust iterator, a loop over a run-time range.

use std::cell::Cell;
use std::panic::Location;

use super::loops::Unrolled;
use super::range::DynRange;
use super::slot::{Saved, Slot, current_params, leaves, save, set_leaves};
use crate::dsl::number::Int;
use crate::dsl::recorder::{Site, emit1, with};
use crate::dsl::value::Val;
use crate::ir::{Binary, Block, BlockCall, Compare, Op, Value};

/// Requirement that the iterator of a `for` is a run-time range. Handles do not meet it.
#[diagnostic::on_unimplemented(
    message = "a handle is not a range",
    label = "write `0..n` to count to a run-time number"
)]
pub trait Iterated {}

impl<T: Int> Iterated for ForOf<DynRange<T>> {}

/// The iterator of a `for`; the type `I` decides whether the loop is unrolled.
pub struct ForOf<I>(Cell<Option<I>>);

impl<I> ForOf<I> {
    /// Wraps the iterator.
    pub fn new(items: I) -> ForOf<I> {
        ForOf(Cell::new(Some(items)))
    }

    fn take(&self) -> I {
        self.0.take().expect("a loop starts once")
    }
}

/// Loops over run-time ranges; autoref finds this trait before [`ForStatic`].
pub trait ForDyn {
    /// The type of the loop.
    type For;
    /// Starts the loop.
    #[track_caller]
    fn for_loop(&self) -> Self::For
    where
        Self: Iterated;
}

impl<T: Int> ForDyn for ForOf<DynRange<T>> {
    type For = DynFor<T>;
    fn for_loop(&self) -> DynFor<T> {
        DynFor {
            range: self.take(),
            site: Location::caller(),
            open: None,
            followed: None,
            first_plus_last: None,
        }
    }
}

/// Not a loop: this implementation exists for the error message of its bound.
impl<T: Int> ForDyn for ForOf<Val<T>> {
    type For = DynFor<T>;
    fn for_loop(&self) -> DynFor<T>
    where
        Self: Iterated,
    {
        unreachable!("a handle is not `Iterated`")
    }
}

/// Loops over Rust iterators, which are unrolled.
pub trait ForStatic {
    /// The type of the loop.
    type For;
    /// Starts the loop.
    #[track_caller]
    fn for_loop(&self) -> Self::For;
}

impl<I: IntoIterator> ForStatic for &ForOf<I> {
    type For = StaticFor<I::IntoIter>;
    #[track_caller]
    fn for_loop(&self) -> StaticFor<I::IntoIter> {
        StaticFor { items: self.take().into_iter(), jumps: Unrolled::new(Location::caller()) }
    }
}

/// A `for` over a Rust iterator: unrolled.
pub struct StaticFor<I> {
    items: I,
    jumps: Unrolled,
}

impl<I: Iterator> StaticFor<I> {
    /// The next item, or `None` after the last iteration.
    pub fn next_item(&mut self, _: &mut [Slot<'_>]) -> Option<I::Item> {
        if self.jumps.is_over() {
            return None;
        }
        self.items.next()
    }
    /// Ends an iteration of the unrolled loop.
    #[track_caller]
    pub fn end_item(&mut self, slots: &mut [Slot<'_>]) {
        self.jumps.end_item(slots, Location::caller());
    }
    /// Executes a `break`. Returns true if recording takes the jump, false if it records one.
    #[track_caller]
    pub fn break_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.jumps.break_(slots, Location::caller())
    }
    /// Executes a `continue`. Returns true if recording takes the jump, false if it records one.
    #[track_caller]
    pub fn continue_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.jumps.continue_(slots, Location::caller())
    }
    /// Ends the unrolled loop.
    #[track_caller]
    pub fn finish(mut self, slots: &mut [Slot<'_>]) {
        self.jumps.finish(slots, Location::caller());
    }
}

/// A `for` over a run-time range.
pub struct DynFor<T> {
    range: DynRange<T>,
    site: Site,
    open: Option<OpenFor>,
    /// In a replay: the parameters of the header, once the path has reached it.
    followed: Option<Vec<Value>>,
    /// Of a reversed range: its first plus its last value.
    first_plus_last: Option<Value>,
}

struct OpenFor {
    header: Block,
    index: Value,
    exit: Block,
    exit_params: Vec<Value>,
    before: Vec<Saved>,
}

impl<T: Int> DynFor<T> {
    /// While recording: the index at the first call, then `None`, since the body is recorded once. In a replay: the
    /// index as often as the path enters the body.
    pub fn next_item(&mut self, slots: &mut [Slot<'_>]) -> Option<Val<T>> {
        if self.open.is_some() {
            return None;
        }
        let (site, range) = (self.site, self.range);
        if range.reversed && self.first_plus_last.is_none() {
            let one = emit1(Op::Const(1), T::TYPE, &[], site);
            let last = emit1(Op::Binary(Binary::Sub), T::TYPE, &[range.end.id(), one], site);
            self.first_plus_last =
                Some(emit1(Op::Binary(Binary::Add), T::TYPE, &[range.start.id(), last], site));
        }
        let mut initial = leaves(slots);
        initial.push(range.start.id());
        let header = match self.followed.take() {
            Some(params) => Some(params),
            None => with(|r| r.follow_jump(&initial, site)),
        };
        if let Some(params) = header {
            let index = self.enter(slots, &params);
            let enters = emit1(Op::Compare(Compare::Lt), T::TYPE, &[index, range.end.id()], site);
            let carried = &params[..params.len() - 1];
            let inside = with(|r| r.follow_branch(enters, &[], carried, site)).expect("this is a replay");
            self.followed = Some(params);
            return inside.then(|| self.item(index));
        }
        let before = save(slots);
        let values = initial[..initial.len() - 1].to_vec();
        let (header, params, exit, exit_params) = with(|r| {
            let (header, params) = r.block_like(&initial, site);
            let (exit, exit_params) = r.block_like(&values, site);
            r.func.block_mut(header).unroll = range.unroll;
            r.jump(header, initial, site);
            r.switch_to(header);
            r.depth += 1;
            (header, params, exit, exit_params)
        });
        let index = self.enter(slots, &params);
        let enters = emit1(Op::Compare(Compare::Lt), T::TYPE, &[index, range.end.id()], site);
        with(|r| {
            let body = r.func.create_block();
            let leave = BlockCall { block: exit, args: params[..params.len() - 1].to_vec() };
            r.branch(enters, BlockCall { block: body, args: Vec::new() }, leave, site);
            r.switch_to(body);
        });
        self.open = Some(OpenFor { header, index, exit, exit_params, before });
        Some(self.item(index))
    }

    /// The loop variable of an iteration. The index always counts up; a reversed range has `first + last - index`.
    fn item(&self, index: Value) -> Val<T> {
        Val::from_id(match self.first_plus_last {
            Some(sum) => emit1(Op::Binary(Binary::Sub), T::TYPE, &[sum, index], self.site),
            None => index,
        })
    }

    /// Gives the variables their values in the header, whose parameters are `params`. Returns the index.
    fn enter(&self, slots: &mut [Slot<'_>], params: &[Value]) -> Value {
        let (index, carried) = params.split_last().expect("the index is a parameter");
        set_leaves(slots, carried);
        *index
    }

    fn open(&mut self, slots: &[Slot<'_>]) -> &mut OpenFor {
        let open = self.open.as_mut().expect("the loop has started");
        for (slot, saved) in slots.iter().zip(&open.before) {
            slot.require_unchanged(saved, "loop", self.site);
        }
        open
    }

    /// Advances the index and jumps back to the header.
    pub fn end_item(&mut self, slots: &mut [Slot<'_>]) {
        let site = self.site;
        let mut values = leaves(slots);
        let index = match &self.followed {
            Some(params) => *params.last().expect("the index is a parameter"),
            None => self.open(slots).index,
        };
        let step = match self.range.step {
            Some(step) => step.id(),
            None => emit1(Op::Const(1), T::TYPE, &[], site),
        };
        values.push(emit1(Op::Binary(Binary::Add), T::TYPE, &[index, step], site));
        if self.followed.is_some() {
            self.followed = with(|r| r.follow_jump(&values, site));
            return;
        }
        let header = self.open(slots).header;
        with(|r| r.jump(header, values, site));
    }

    /// While recording: records a `break`, a jump to the block after the loop. In a replay: returns true, and Rust
    /// takes the jump.
    #[track_caller]
    pub fn break_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        let (values, site) = (leaves(slots), Location::caller());
        if with(|r| r.follow_jump(&values, site)).is_some() {
            return true;
        }
        let exit = self.open(slots).exit;
        with(|r| r.jump(exit, values, site));
        false
    }

    /// While recording: records a `continue`, the advance of the index and a jump to the header. In a replay: returns
    /// true, and Rust ends the iteration.
    pub fn continue_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        if self.followed.is_some() {
            return true;
        }
        self.end_item(slots);
        false
    }

    /// Continues in the block after the loop.
    pub fn finish(self, slots: &mut [Slot<'_>]) {
        let Some(open) = self.open else { return set_leaves(slots, &current_params()) };
        with(|r| {
            if let Some(factor) = self.range.unroll {
                r.check_unrolled(open.header, factor, self.site);
            }
            r.depth -= 1;
            r.switch_to(open.exit);
        });
        set_leaves(slots, &open.exit_params);
    }
}
