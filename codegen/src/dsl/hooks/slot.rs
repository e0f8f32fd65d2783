//! Slots: mutable variables that a region of control flow may assign.

use std::any::Any;
use std::cell::RefCell;

use crate::dsl::carry::Carry;
use crate::dsl::recorder::{Site, fail, with};
use crate::ir::Value;

/// The content of a slot's variable at one point of recording.
pub(super) enum Saved {
    Leaves(Vec<Value>),
    Static(Box<dyn Any>),
}

/// A variable that a slot refers to.
trait Variable {
    fn save(&self) -> Saved;
    fn load(&mut self, saved: &Saved);
    /// Whether the content is unchanged: the value of a compile-time variable, or the number of handles of a variable
    /// of handles.
    fn unchanged(&self, saved: &Saved) -> bool;
}

/// A mutable variable that a region of control flow may assign, by reference.
pub struct Slot<'a> {
    name: &'static str,
    variable: Box<dyn Variable + 'a>,
}

impl Slot<'_> {
    pub(super) fn save(&self) -> Saved {
        self.variable.save()
    }

    pub(super) fn load(&mut self, saved: &Saved) {
        self.variable.load(saved);
    }

    /// Fails if the run-time `region` changed this slot's compile-time variable.
    pub(super) fn require_unchanged(&self, saved: &Saved, region: &str, site: Site) {
        if !self.variable.unchanged(saved) {
            self.fail(site, &format!("this run-time {region} changes it"));
        }
    }

    /// Fails if this slot's compile-time variable differs from its value on another path to the same point.
    pub(super) fn require_same(&self, saved: &Saved, site: Site) {
        if !self.variable.unchanged(saved) {
            self.fail(site, "it differs between run-time paths that join here");
        }
    }

    fn fail(&self, site: Site, what: &str) -> ! {
        let name = self.name;
        match self.variable.save() {
            Saved::Static(_) => fail(
                site,
                format!(
                    "`{name}` is a compile-time variable, and {what}: make it a run-time value with `val(…)`, or the \
                     condition a compile-time one"
                ),
            ),
            Saved::Leaves(_) => {
                fail(site, format!("the number of handles in `{name}` is a compile-time value, and {what}"))
            }
        }
    }
}

/// The SSA values of all handles in the slots' variables, in order.
pub(super) fn leaves(slots: &[Slot<'_>]) -> Vec<Value> {
    let mut all = Vec::new();
    for slot in slots {
        if let Saved::Leaves(values) = slot.save() {
            all.extend(values);
        }
    }
    all
}

/// Sets the handles of all slots' variables to `values`, in the order of [`leaves`].
pub(super) fn set_leaves(slots: &mut [Slot<'_>], values: &[Value]) {
    let mut rest = values;
    for slot in slots {
        if let Saved::Leaves(own) = slot.save() {
            let (head, tail) = rest.split_at(own.len());
            slot.load(&Saved::Leaves(head.to_vec()));
            rest = tail;
        }
    }
}

/// The current content of every slot's variable.
pub(super) fn save(slots: &[Slot<'_>]) -> Vec<Saved> {
    slots.iter().map(Slot::save).collect()
}

struct HandleVariable<'a, T: ?Sized>(&'a mut T);

impl<T: Carry + ?Sized> Variable for HandleVariable<'_, T> {
    fn save(&self) -> Saved {
        let mut out = Vec::new();
        self.0.leaves(&mut out);
        Saved::Leaves(out)
    }
    fn load(&mut self, saved: &Saved) {
        if let Saved::Leaves(values) = saved {
            self.0.restore(&mut values.iter().copied());
        }
    }
    fn unchanged(&self, saved: &Saved) -> bool {
        let mut now = Vec::new();
        self.0.leaves(&mut now);
        matches!(saved, Saved::Leaves(then) if then.len() == now.len())
    }
}

struct StaticVariable<'a, T>(&'a mut T);

impl<T: Clone + PartialEq + 'static> Variable for StaticVariable<'_, T> {
    fn save(&self) -> Saved {
        Saved::Static(Box::new(self.0.clone()))
    }
    fn load(&mut self, saved: &Saved) {
        if let Saved::Static(value) = saved
            && let Some(value) = value.downcast_ref::<T>()
        {
            *self.0 = value.clone();
        }
    }
    fn unchanged(&self, saved: &Saved) -> bool {
        match saved {
            Saved::Static(value) => value.downcast_ref::<T>() == Some(self.0),
            Saved::Leaves(_) => true,
        }
    }
}

/// A variable about to become a [`Slot`]; the type `T` decides the kind of slot.
pub struct SlotOf<'a, T: ?Sized> {
    name: &'static str,
    variable: RefCell<Option<&'a mut T>>,
}

impl<'a, T: ?Sized> SlotOf<'a, T> {
    /// Wraps the variable called `name`.
    pub fn new(name: &'static str, variable: &'a mut T) -> SlotOf<'a, T> {
        SlotOf { name, variable: RefCell::new(Some(variable)) }
    }

    fn take(&self) -> &'a mut T {
        self.variable.take().expect("a variable becomes a slot once")
    }
}

/// Slots of variables that hold handles; autoref finds this trait before [`StaticSlot`].
pub trait SlotOfHandles<'a> {
    /// The variable as a slot.
    fn slot(&self) -> Slot<'a>;
}

impl<'a, T: Carry + ?Sized> SlotOfHandles<'a> for SlotOf<'a, T> {
    fn slot(&self) -> Slot<'a> {
        Slot { name: self.name, variable: Box::new(HandleVariable(self.take())) }
    }
}

/// Slots of compile-time variables.
pub trait StaticSlot<'a> {
    /// The variable as a slot.
    fn slot(&self) -> Slot<'a>;
}

impl<'a, T: Clone + PartialEq + 'static> StaticSlot<'a> for &SlotOf<'a, T> {
    fn slot(&self) -> Slot<'a> {
        Slot { name: self.name, variable: Box::new(StaticVariable(self.take())) }
    }
}

/// Never implemented: a variable that is neither `Carry` nor `Clone` and `PartialEq` cannot be a slot.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` cannot be carried through recorded control flow",
    label = "this region may assign it: derive `Carry` if it holds handles, else `Clone` and `PartialEq`"
)]
pub trait Carriable {}

/// Slots of variables of any other type; autoref finds this trait last.
pub trait NoSlot<'a> {
    /// The type of the variable.
    type Variable: ?Sized;
    /// Never called.
    fn slot(self) -> Slot<'a>
    where
        Self::Variable: Carriable;
}

impl<'a, T: ?Sized> NoSlot<'a> for SlotOf<'a, T> {
    type Variable = T;
    fn slot(self) -> Slot<'a>
    where
        T: Carriable,
    {
        unreachable!("nothing is `Carriable`")
    }
}

/// In a replay: the parameters of the block that the path has just reached.
pub(super) fn current_params() -> Vec<Value> {
    with(|r| r.func.block(r.block).params.clone())
}
