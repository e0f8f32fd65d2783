//! Typed pointers, loads, stores and atomics.

use std::marker::PhantomData;
use std::panic::Location;

use super::record::{KernelParam, Site, emit, emit1, with};
use super::scalar::{Int, Scalar};
use super::value::{IntoVal, Val};
use crate::ir::{self, Access, Atomic, Binary, Cache, Op, Ordering, Param, Rounding, Type};

/// A memory space.
pub trait Space: Copy + 'static {
    /// The type of pointers into it.
    const POINTER: Type;
}

/// Device memory, seen by every thread of the grid and by later kernels. Addresses have 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Global;

/// A CTA's shared memory. Addresses have 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Shared;

/// The shared memory of the CTAs of a cluster (sm_90). Addresses have 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Cluster;

impl Space for Global {
    const POINTER: Type = Type::Global;
}

impl Space for Shared {
    const POINTER: Type = Type::Shared;
}

impl Space for Cluster {
    const POINTER: Type = Type::Cluster;
}

/// A pointer to elements of type `T` in space `S`.
pub struct Ptr<S, T> {
    pub(crate) id: ir::Value,
    kind: PhantomData<(S, T)>,
}

impl<S, T> Clone for Ptr<S, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, T> Copy for Ptr<S, T> {}

impl<S, T> std::fmt::Debug for Ptr<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id)
    }
}

impl<T: Scalar> KernelParam for Ptr<Global, T> {
    fn declare(name: &str) -> Param {
        Param { name: name.to_owned(), ty: Type::Global, element: Some(T::TYPE) }
    }
    fn from_value(value: ir::Value) -> Self {
        Ptr::from_id(value)
    }
}

impl<T: Scalar> KernelParam for Val<T> {
    fn declare(name: &str) -> Param {
        Param { name: name.to_owned(), ty: T::TYPE, element: None }
    }
    fn from_value(value: ir::Value) -> Self {
        Val::from_id(value)
    }
}

/// An index of an element or a count of bytes: a handle of a 32- or 64-bit integer, or a compile-time number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot index memory",
    label = "expected a `Val` of u32, i32, u64 or i64, or a compile-time u32, usize or u64"
)]
pub trait Index: Copy {
    /// The byte offset of element `self` of elements `size` bytes large, for pointers of the type given.
    fn scaled(self, size: u32, pointer: Type, site: Site) -> Option<ir::Value>;
}

macro_rules! static_index {
    ($($ty:ty)*) => {
        $(impl Index for $ty {
            fn scaled(self, size: u32, pointer: Type, site: Site) -> Option<ir::Value> {
                let bytes = self as i64 * i64::from(size);
                if bytes == 0 {
                    return None;
                }
                let ty = if pointer == Type::Global { Type::I64 } else { Type::I32 };
                let bits = if ty == Type::I64 { bytes as u64 } else { u64::from(bytes as u32) };
                Some(emit1(Op::Const(bits), ty, &[], site))
            }
        })*
    };
}
static_index!(u32 i32 usize u64);

macro_rules! dynamic_index {
    ($($ty:ty: $wide:ident;)*) => {
        $(impl Index for Val<$ty> {
            fn scaled(self, size: u32, pointer: Type, site: Site) -> Option<ir::Value> {
                let narrow = <$ty as Scalar>::TYPE;
                let constant = |ty| emit1(Op::Const(u64::from(size)), ty, &[], site);
                Some(if narrow.bits() == 64 || pointer.bits() == 32 {
                    if size == 1 {
                        return Some(self.id);
                    }
                    let size = constant(narrow);
                    emit1(Op::Binary(Binary::Mul), narrow, &[self.id, size], site)
                } else if size == 1 {
                    let op = Op::Convert { rounding: Rounding::Nearest, saturate: false };
                    emit1(op, Type::$wide, &[self.id], site)
                } else {
                    let size = constant(narrow);
                    emit1(Op::MulWide, narrow, &[self.id, size], site)
                })
            }
        })*
    };
}
dynamic_index! {
    u32: U64;
    i32: I64;
    u64: U64;
    i64: I64;
}

impl<S: Space, T> Ptr<S, T> {
    pub(crate) fn from_id(id: ir::Value) -> Ptr<S, T> {
        Ptr { id, kind: PhantomData }
    }

    /// The same address as a pointer to another element type. The address must be aligned for it.
    pub fn cast<U>(self) -> Ptr<S, U> {
        Ptr::from_id(self.id)
    }

    /// The pointer moved by `bytes`.
    #[track_caller]
    pub fn bytes(self, bytes: impl Index) -> Ptr<S, T> {
        self.moved(bytes, 1, Location::caller())
    }

    fn moved(self, index: impl Index, size: u32, site: Site) -> Ptr<S, T> {
        match index.scaled(size, S::POINTER, site) {
            None => self,
            Some(offset) => Ptr::from_id(emit1(Op::PtrAdd, S::POINTER, &[self.id, offset], site)),
        }
    }
}

impl<S: Space, T: Scalar> Ptr<S, T> {
    /// The pointer to element `index`. 32-bit indices are scaled in 64 bits for global memory.
    #[track_caller]
    pub fn at(self, index: impl Index) -> Ptr<S, T> {
        self.moved(index, T::TYPE.bytes(), Location::caller())
    }

    /// Loads the element (`ld`).
    #[track_caller]
    pub fn load(self) -> Val<T> {
        self.load_cached(Cache::Default)
    }

    /// Loads the element with a cache hint.
    #[track_caller]
    pub fn load_cached(self, cache: Cache) -> Val<T> {
        let access = Access { cache, ..Access::SCALAR };
        Val::from_id(emit1(Op::Load(access), T::TYPE, &[self.id], Location::caller()))
    }

    /// Loads `N` (2 or 4, at most 16 bytes) consecutive elements in one access, aligned to its size (`ld.v2`,
    /// `ld.v4`).
    #[track_caller]
    pub fn load_vector<const N: usize>(self) -> [Val<T>; N] {
        self.load_vector_cached(Cache::Default)
    }

    /// As [`Ptr::load_vector`], with a cache hint.
    #[track_caller]
    pub fn load_vector_cached<const N: usize>(self, cache: Cache) -> [Val<T>; N] {
        let access = Access { vector: N as u8, cache, ..Access::SCALAR };
        let values = emit(Op::Load(access), T::TYPE, &[self.id], Location::caller());
        std::array::from_fn(|i| Val::from_id(values[i]))
    }

    /// Stores an element (`st`).
    #[track_caller]
    pub fn store(self, value: impl IntoVal<T>) {
        self.store_cached(value, Cache::Default)
    }

    /// Stores an element with a cache hint.
    #[track_caller]
    pub fn store_cached(self, value: impl IntoVal<T>, cache: Cache) {
        let access = Access { cache, ..Access::SCALAR };
        emit(Op::Store(access), T::TYPE, &[self.id, value.into_val().id], Location::caller());
    }

    /// Stores `N` (2 or 4, at most 16 bytes) consecutive elements in one access, aligned to its size.
    #[track_caller]
    pub fn store_vector<const N: usize>(self, values: [Val<T>; N]) {
        self.store_vector_cached(values, Cache::Default)
    }

    /// As [`Ptr::store_vector`], with a cache hint.
    #[track_caller]
    pub fn store_vector_cached<const N: usize>(self, values: [Val<T>; N], cache: Cache) {
        let access = Access { vector: N as u8, cache, ..Access::SCALAR };
        let args: Vec<_> = std::iter::once(self.id).chain(values.iter().map(|value| value.id)).collect();
        emit(Op::Store(access), T::TYPE, &args, Location::caller());
    }

    /// Adds to the element atomically and gives the old value (`atom.add`; `red.add` where that is not used). Sums of
    /// floats depend on timing. A scope alone stands for a relaxed order among its threads.
    #[track_caller]
    pub fn atomic_add(self, value: impl IntoVal<T>, ordering: impl Into<Ordering>) -> Val<T> {
        let op = Op::Atomic { op: Atomic::Add, ordering: ordering.into(), offset: 0 };
        Val::from_id(emit1(op, T::TYPE, &[self.id, value.into_val().id], Location::caller()))
    }
}

macro_rules! atomics {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl<S: Space, T: Int> Ptr<S, T> {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(self, value: impl IntoVal<T>, ordering: impl Into<Ordering>) -> Val<T> {
                let op = Op::Atomic { op: Atomic::$op, ordering: ordering.into(), offset: 0 };
                Val::from_id(emit1(op, T::TYPE, &[self.id, value.into_val().id], Location::caller()))
            })*

            /// Writes `new` if the element equals `expected`, atomically; gives the old value (`atom.cas`).
            #[track_caller]
            pub fn atomic_cas(self, expected: impl IntoVal<T>, new: impl IntoVal<T>, ordering: impl Into<Ordering>) -> Val<T> {
                let op = Op::Atomic { op: Atomic::Cas, ordering: ordering.into(), offset: 0 };
                let args = [self.id, expected.into_val().id, new.into_val().id];
                Val::from_id(emit1(op, T::TYPE, &args, Location::caller()))
            }
        }
    };
}
atomics! {
    /// Keeps the smaller, atomically; gives the old value (`atom.min`).
    atomic_min => Min;
    /// Keeps the larger, atomically; gives the old value (`atom.max`).
    atomic_max => Max;
    /// Ands, atomically; gives the old value (`atom.and`).
    atomic_and => And;
    /// Ors, atomically; gives the old value (`atom.or`).
    atomic_or => Or;
    /// Exclusive-ors, atomically; gives the old value (`atom.xor`).
    atomic_xor => Xor;
    /// Writes, atomically; gives the old value (`atom.exch`).
    atomic_exchange => Exch;
}

/// A static shared array of `count` elements, aligned to 16 bytes. Its contents are undefined until written.
#[track_caller]
pub fn shared_array<T: Scalar>(count: u32) -> Ptr<Shared, T> {
    let shared = crate::ir::Shared { element: T::TYPE, count, align: 16 };
    let variable = with(|r| r.func.shared.push(shared));
    Ptr::from_id(emit1(Op::SharedAddress(variable), Type::Shared, &[], Location::caller()))
}

/// The CTA's dynamic shared memory, as large as the launch says, aligned to 128 bytes.
#[track_caller]
pub fn dynamic_shared<T: Scalar>() -> Ptr<Shared, T> {
    Ptr::from_id(emit1(Op::DynamicShared, Type::Shared, &[], Location::caller()))
}
