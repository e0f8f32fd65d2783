//! Positions in tensors and tiles.

use crate::dsl::recorder::{Site, emit1};
use crate::dsl::value::Val;
use crate::ir::{Op, Type};

/// An index along one dimension: a handle or a compile-time number of type i32 or u32.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an index along a dimension of a tensor",
    label = "expected a `Val` of i32 or u32, or a compile-time i32 or u32"
)]
pub trait Coordinate: Copy {
    /// The index as a handle, recorded at `site`.
    fn coordinate(self, site: Site) -> Val<i32>;
}

impl Coordinate for Val<i32> {
    fn coordinate(self, _: Site) -> Val<i32> {
        self
    }
}

impl Coordinate for Val<u32> {
    fn coordinate(self, site: Site) -> Val<i32> {
        Val::from_id(emit1(Op::Bitcast, Type::I32, &[self.id()], site))
    }
}

impl Coordinate for i32 {
    fn coordinate(self, site: Site) -> Val<i32> {
        Val::constant(self, site)
    }
}

impl Coordinate for u32 {
    fn coordinate(self, site: Site) -> Val<i32> {
        Val::constant(self as i32, site)
    }
}

/// Position in a tensor or a tile of `RANK` dimensions, dimension 0 first: an array of indices, or a tuple where the
/// indices are of different types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a position in {RANK} dimensions",
    label = "expected a tuple or an array of {RANK} indices, dimension 0 first"
)]
pub trait Coordinates<const RANK: usize>: Copy {
    /// The indices as handles, recorded at `site`.
    fn coordinates(self, site: Site) -> [Val<i32>; RANK];
}

impl<C: Coordinate, const RANK: usize> Coordinates<RANK> for [C; RANK] {
    fn coordinates(self, site: Site) -> [Val<i32>; RANK] {
        self.map(|index| index.coordinate(site))
    }
}

macro_rules! tuples {
    ($($rank:literal: $($name:ident)*;)*) => { $(
        impl<$($name: Coordinate),*> Coordinates<$rank> for ($($name,)*) {
            #[allow(non_snake_case)]
            fn coordinates(self, site: Site) -> [Val<i32>; $rank] {
                let ($($name,)*) = self;
                [$($name.coordinate(site)),*]
            }
        }
    )* };
}
tuples! {
    1: A;
    2: A B;
    3: A B C;
    4: A B C D;
    5: A B C D E;
}
