//! Handles where something of a certain type is wanted: an argument, a field, a result, what a variable becomes.
//!
//! Rust would only say that types differ. So the macros give a handle as a type that is still open, and once its place
//! has said what that is, [`ValueGiven::settle`] or [`PointerGiven::settle`] asks whether it is the handle's: what
//! they ask for says what to write instead. Where nothing has said it (`Some(x)`), that makes it the handle's type. All
//! else passes through as it is.

use std::any::Any;
use std::marker::PhantomData;

use crate::dsl::mma::FragmentB;
use crate::dsl::pointer::Ptr;
use crate::dsl::value::Val;

macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident, else $plain:ident: $given:ty;)*) => {
        $($(#[$doc])*
        pub struct $name<P>(PhantomData<P>);

        impl<P> $name<P> {
            /// Looks at the type of `place` alone.
            pub fn new(_place: &P) -> $name<P> {
                $name(PhantomData)
            }
        }

        impl<P> GivenPlain for &$name<P> {
            type Given = $given;
            fn given(&self) -> $given {
                $plain(PhantomData)
            }
        })*
    };
}
sources! {
    /// A place is given.
    GivenPlace, else PlainPlace: PlainPlace<P>;
    /// Something made of a place is given: of a handle, arithmetic and `.at(…)`, which keep its type.
    GivenMade, else Plain: Plain;
    /// What `.load()` of a place gives is given.
    GivenLoaded, else Plain: Plain;
}

/// What gives a handle; found before [`GivenPlain`].
pub trait GivenHandle {
    /// What is given as a `W`.
    type As<W>;
    /// Given as what its place will say.
    fn given<W>(&self) -> Self::As<W>;
}

macro_rules! handles {
    ($([$($generics:tt)*] $source:ident<$handle:ty> => $given:ident<$($kept:ident),*>;)*) => {
        $(impl<$($generics)*> GivenHandle for $source<$handle> {
            type As<W> = $given<$($kept,)* W>;
            fn given<W>(&self) -> $given<$($kept,)* W> {
                $given(PhantomData)
            }
        })*
    };
}
handles! {
    [T] GivenPlace<Val<T>> => ValueGiven<T>;
    [T] GivenMade<Val<T>> => ValueGiven<T>;
    [S, T] GivenLoaded<Ptr<S, T>> => ValueGiven<T>;
    [S, T] GivenPlace<Ptr<S, T>> => PointerGiven<S, T>;
    [S, T] GivenMade<Ptr<S, T>> => PointerGiven<S, T>;
}

/// What gives anything else.
pub trait GivenPlain {
    /// What is given.
    type Given;
    /// Given as what it is.
    fn given(&self) -> Self::Given;
}

/// A place of another type, which is named so that a `&mut` is lent and not moved.
pub struct PlainPlace<P>(PhantomData<P>);

impl<P> PlainPlace<P> {
    /// The value.
    pub fn give(&self, value: P) -> P {
        value
    }
    /// As [`ValueGiven::settle`].
    pub fn settle(&self) {}
}

/// Something else.
pub struct Plain(PhantomData<()>);

impl Plain {
    /// The value.
    pub fn give<A>(&self, value: A) -> A {
        value
    }
    /// As [`ValueGiven::settle`].
    pub fn settle(&self) {}
}

/// A `Val<T>` given as a `W`.
pub struct ValueGiven<T, W>(PhantomData<(T, W)>);

impl<T: 'static, W: 'static> ValueGiven<T, W> {
    /// The handle.
    pub fn give(&self, value: Val<T>) -> W {
        same(value)
    }
}

impl<T, W> ValueGiven<T, W> {
    /// Asks that a `Val<T>` is a `W`.
    pub fn settle(&self)
    where
        Val<T>: ValueFor<W>,
    {
    }
}

/// A `Ptr<S, T>` given as a `W`.
pub struct PointerGiven<S, T, W>(PhantomData<(S, T, W)>);

impl<S: 'static, T: 'static, W: 'static> PointerGiven<S, T, W> {
    /// The handle.
    pub fn give(&self, pointer: Ptr<S, T>) -> W {
        same(pointer)
    }
}

impl<S, T, W> PointerGiven<S, T, W> {
    /// Asks that a `Ptr<S, T>` is a `W`.
    pub fn settle(&self)
    where
        Ptr<S, T>: PointerFor<W>,
    {
    }
}

/// A `FragmentB<T, R>` given as a `W`.
pub struct FragmentGiven<F, W>(PhantomData<(F, W)>);

impl<F: 'static, W: 'static> FragmentGiven<F, W> {
    /// The handles.
    pub fn give(&self, fragment: F) -> W {
        same(fragment)
    }
}

impl<F, W> FragmentGiven<F, W> {
    /// Asks that an `F` is a `W`.
    pub fn settle(&self)
    where
        F: FragmentFor<W>,
    {
    }
}

impl<T, const R: usize> GivenHandle for GivenPlace<FragmentB<T, R>> {
    type As<W> = FragmentGiven<FragmentB<T, R>, W>;
    fn given<W>(&self) -> FragmentGiven<FragmentB<T, R>, W> {
        FragmentGiven(PhantomData)
    }
}

fn same<H: 'static, W: 'static>(handle: H) -> W {
    let mut handle = Some(handle);
    let wanted = (&mut handle as &mut dyn Any).downcast_mut::<Option<W>>();
    wanted.and_then(Option::take).expect("`settle` compiles where the types are the same")
}

/// What a `Val` may be given as: a `Val` of the same type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` where `{Wanted}` is wanted",
    label = "a `Val` is known only on the GPU; where a compile-time value is wanted, give one: a constant, or a parameter of the kernel that is no `Val`. A variable that is to hold this starts as `val(…)`"
)]
pub trait ValueFor<Wanted> {}
impl<T, U> ValueFor<Val<U>> for Val<T> where Of<T>: SameScalar<T, U> {}

/// What a `Ptr` may be given as: a `Ptr` of the same space and type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` where `{Wanted}` is wanted",
    label = "a pointer is no value: `.load()` gives the element that it points to"
)]
pub trait PointerFor<Wanted> {}
impl<S, T, R, U> PointerFor<Ptr<R, U>> for Ptr<S, T>
where
    Of<S>: SameSpace<S, R>,
    Of<T>: SameElement<T, U>,
{
}

/// What a `FragmentB` may be given as: one of the same elements and size.
#[diagnostic::on_unimplemented(
    message = "`{Self}` where `{Wanted}` is wanted",
    label = "a product takes a `FragmentB<_, 2>` with a `FragmentA<_, 4>`, and a `FragmentB<_, 1>` with a `FragmentA<_, 2>`"
)]
pub trait FragmentFor<Wanted> {}
impl<T, U, const R: usize> FragmentFor<FragmentB<U, R>> for FragmentB<T, R> where Of<T>: SameKind<T, U> {}

/// Has one implementation of each of the traits below, so that either type follows from the other.
pub struct Of<T>(PhantomData<T>);

/// The scalar given is the one wanted.
#[diagnostic::on_unimplemented(
    message = "`Val<{Given}>` where `Val<{Wanted}>` is wanted",
    label = "convert it with `.cast::<{Wanted}>()`; for the same bits as another type, `.bitcast::<{Wanted}>()`"
)]
pub trait SameScalar<Given, Wanted> {}
impl<T> SameScalar<T, T> for Of<T> {}

/// The element given is the one wanted.
#[diagnostic::on_unimplemented(
    message = "a pointer to `{Given}`, where one to `{Wanted}` is wanted",
    label = "`.cast::<{Wanted}>()` takes the memory for elements of that type; to convert an element, `.load().cast::<{Wanted}>()`"
)]
pub trait SameElement<Given, Wanted> {}
impl<T> SameElement<T, T> for Of<T> {}

/// The elements of the matrix given are those wanted.
#[diagnostic::on_unimplemented(
    message = "a matrix of `{Given}`, where one of `{Wanted}` is wanted",
    label = "convert its elements to `{Wanted}` before they become a fragment, or the other matrix's to `{Given}`; only u8 and i8 go together"
)]
pub trait SameKind<Given, Wanted> {}
impl<T> SameKind<T, T> for Of<T> {}

/// The space given is the one wanted.
#[diagnostic::on_unimplemented(
    message = "a pointer to `{Given}` memory, where one to `{Wanted}` memory is wanted",
    label = "copy the elements to that memory first; a `#[device]` function of your own takes a pointer to either as `fn f<S: Space>(x: Ptr<S, f32>)`"
)]
pub trait SameSpace<Given, Wanted> {}
impl<S> SameSpace<S, S> for Of<S> {}

/// `value`, of the type that `_wanted` names.
pub fn as_wanted<T>(_wanted: PhantomData<T>, value: T) -> T {
    value
}

/// The type of an `if`'s first value.
pub fn wanted_after<T>(_first: &Option<T>) -> PhantomData<T> {
    PhantomData
}

/// No value of an `if`'s branches yet, of the type that `_wanted` names.
pub fn no_values<T>(_wanted: PhantomData<T>) -> [Option<T>; 2] {
    [None, None]
}
