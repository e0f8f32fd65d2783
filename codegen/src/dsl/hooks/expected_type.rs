//! Handles where another type is expected: an argument, a field, a result or an assigned value.
//!
//! For these rustc only says "mismatched types". The expansion passes a handle as an inference variable `W`, which the
//! place of use unifies with the type that it expects. Then [`ValueExpectation::check_type`] or
//! [`PointerExpectation::check_type`] requires that `W` is the handle's type; the error of the missing implementation
//! says how to convert. If the place of use leaves `W` open (`Some(x)`), the requirement makes it the handle's type.
//! Values that are not handles pass through unchanged.

use std::any::Any;
use std::marker::PhantomData;

use crate::dsl::pointer::Ptr;
use crate::dsl::value::Val;

/// The type of a place (variable, field) that is about to be used as a value.
pub struct TypedPlace<P>(PhantomData<P>);

impl<P> TypedPlace<P> {
    /// The type of `place`, which is not read.
    pub fn new(_place: &P) -> TypedPlace<P> {
        TypedPlace(PhantomData)
    }
}

/// A place that holds a handle; autoref finds this trait before [`OtherIn`].
pub trait HandleIn {
    /// The handle, where type `W` is expected.
    type Expectation<W>;
    /// Expects the handle to have type `W`, which is still to be inferred.
    fn expectation<W>(&self) -> Self::Expectation<W>;
}

impl<T> HandleIn for TypedPlace<Val<T>> {
    type Expectation<W> = ValueExpectation<T, W>;
    fn expectation<W>(&self) -> ValueExpectation<T, W> {
        ValueExpectation(PhantomData)
    }
}

impl<S, T> HandleIn for TypedPlace<Ptr<S, T>> {
    type Expectation<W> = PointerExpectation<S, T, W>;
    fn expectation<W>(&self) -> PointerExpectation<S, T, W> {
        PointerExpectation(PhantomData)
    }
}

/// A place that holds a value other than a handle.
pub trait OtherIn {
    /// The type of the place.
    type Place;
    /// The absence of an expectation: rustc checks the type of a value that is not a handle.
    fn expectation(&self) -> NoExpectation<Self::Place>;
}

impl<P> OtherIn for &TypedPlace<P> {
    type Place = P;
    fn expectation(&self) -> NoExpectation<P> {
        NoExpectation(PhantomData)
    }
}

/// A value that is not a handle. The type `P` is named, so that a `&mut` is reborrowed and not moved.
pub struct NoExpectation<P>(PhantomData<P>);

impl<P> NoExpectation<P> {
    /// Returns `value` unchanged.
    pub fn pass(&self, value: P) -> P {
        value
    }
    /// Does nothing: rustc checks the type of a value that is not a handle.
    pub fn check_type(&self) {}
}

/// A handle `Val<T>` where type `W` is expected.
pub struct ValueExpectation<T, W>(PhantomData<(T, W)>);

impl<T: 'static, W: 'static> ValueExpectation<T, W> {
    /// Returns the handle as a `W`.
    pub fn pass(&self, value: Val<T>) -> W {
        same_type(value)
    }
}

impl<T, W> ValueExpectation<T, W> {
    /// Requires that `W` is `Val<T>`.
    pub fn check_type(&self)
    where
        Val<T>: ValueIs<W>,
    {
    }
}

/// A handle `Ptr<S, T>` where type `W` is expected.
pub struct PointerExpectation<S, T, W>(PhantomData<(S, T, W)>);

impl<S: 'static, T: 'static, W: 'static> PointerExpectation<S, T, W> {
    /// Returns the handle as a `W`.
    pub fn pass(&self, pointer: Ptr<S, T>) -> W {
        same_type(pointer)
    }
}

impl<S, T, W> PointerExpectation<S, T, W> {
    /// Requires that `W` is `Ptr<S, T>`.
    pub fn check_type(&self)
    where
        Ptr<S, T>: PointerIs<W>,
    {
    }
}

fn same_type<H: 'static, W: 'static>(handle: H) -> W {
    let mut handle = Some(handle);
    let expected = (&mut handle as &mut dyn Any).downcast_mut::<Option<W>>();
    expected.and_then(Option::take).expect("`check_type` compiles only for the same type")
}

/// Requirement that a `Val` has the expected type.
#[diagnostic::on_unimplemented(
    message = "expected `{Expected}`, found `{Self}`",
    label = "a `Val` is known only on the GPU; a compile-time value is a constant or a kernel parameter that is not a `Val`. A variable for this value starts as `val(…)`"
)]
pub trait ValueIs<Expected> {}
impl<T, U> ValueIs<Val<U>> for Val<T> where TypesOf<T>: SameScalar<T, U> {}

/// Requirement that a `Ptr` has the expected space and element type.
#[diagnostic::on_unimplemented(
    message = "expected `{Expected}`, found `{Self}`",
    label = "a pointer is not a value: `.load()` gives the element"
)]
pub trait PointerIs<Expected> {}
impl<S, T, R, U> PointerIs<Ptr<R, U>> for Ptr<S, T>
where
    TypesOf<S>: SameSpace<S, R>,
    TypesOf<T>: SameElement<T, U>,
{
}

/// Type that implements each of the following traits once, so that rustc infers either type from the other.
pub struct TypesOf<T>(PhantomData<T>);

/// Requirement that the expected scalar type is that of the handle.
#[diagnostic::on_unimplemented(
    message = "expected `Val<{Expected}>`, found `Val<{Found}>`",
    label = "convert with `.cast::<{Expected}>()`; to reinterpret the bits, `.bitcast::<{Expected}>()`"
)]
pub trait SameScalar<Found, Expected> {}
impl<T> SameScalar<T, T> for TypesOf<T> {}

/// Requirement that the expected element type is that of the pointer.
#[diagnostic::on_unimplemented(
    message = "expected a pointer to `{Expected}`, found a pointer to `{Found}`",
    label = "`.cast::<{Expected}>()` reinterprets the memory; to convert an element, write `.load().cast::<{Expected}>()`"
)]
pub trait SameElement<Found, Expected> {}
impl<T> SameElement<T, T> for TypesOf<T> {}

/// Requirement that the expected state space is that of the pointer.
#[diagnostic::on_unimplemented(
    message = "expected a pointer to `{Expected}` memory, found a pointer to `{Found}` memory",
    label = "copy the elements to that memory first; a `#[device]` function for both spaces is `fn f<S: Space>(x: Ptr<S, f32>)`"
)]
pub trait SameSpace<Found, Expected> {}
impl<S> SameSpace<S, S> for TypesOf<S> {}

/// Returns `value`, which has the type that `_expected` names.
pub fn of_type<T>(_expected: PhantomData<T>, value: T) -> T {
    value
}

/// The values of the two branches of an `if` before either branch is recorded; they have the type that `_expected`
/// names.
pub fn no_values<T>(_expected: PhantomData<T>) -> [Option<T>; 2] {
    [None, None]
}
