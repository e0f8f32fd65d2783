//! Constants as values of an `if` whose other sides are handles.

use std::panic::Location;

use crate::dsl::recorder::Site;
use crate::dsl::scalar::Scalar;
use crate::dsl::value::Val;

/// A constant that can be the value of an `if` of type `Value`: of its own type, or of the handle's.
#[diagnostic::on_unimplemented(
    message = "the sides of this `if` have the types `{Value}` and `{Self}`",
    label = "expected a constant that can be a `{Value}`",
    note = "convert a handle with `.cast()`; a `bool`, an integer and a float are not converted into each other"
)]
pub trait SideOf<Value> {
    /// The constant as a value of the `if`; a handle is recorded at `site`.
    fn convert(self, site: Site) -> Value;
}

impl<T> SideOf<T> for T {
    fn convert(self, _: Site) -> T {
        self
    }
}

impl<T: Scalar> SideOf<Val<T>> for T {
    fn convert(self, site: Site) -> Val<T> {
        Val::constant(self, site)
    }
}

/// The constant at the end of a side of an `if`, with the type of the other sides.
#[track_caller]
pub fn side<Value>(constant: impl SideOf<Value>) -> Value {
    constant.convert(Location::caller())
}
