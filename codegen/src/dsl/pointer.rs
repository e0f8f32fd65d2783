//! Typed pointers and shared memory.

use std::marker::{PhantomData, PhantomPinned};
use std::panic::Location;

use super::kernel_param::{KernelParam, PointerParam};
use super::recorder::{Handle, Site, emit1, fail, with};
use super::scalar::Scalar;
use super::value::Val;
use crate::ir::{self, Binary, Op, Param, Rounding, Type};

/// A state space of memory.
pub trait Space: Copy + 'static {
    /// The IR type of pointers into this space.
    const POINTER: Type;
}

/// Device memory, accessible to all threads of the grid and to later kernels. Addresses have 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Global;

/// A CTA's shared memory. Addresses have 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Shared;

/// The shared memory of the CTAs of a cluster (sm_90). Addresses have 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Cluster;

/// A thread's local memory, which no other thread can access. Addresses have 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Local;

/// Constant memory, which the module initialises and no kernel writes. Addresses have 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Constant;

impl Space for Local {
    const POINTER: Type = Type::Local;
}

impl Space for Constant {
    const POINTER: Type = Type::Constant;
}

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
    handle: Handle,
    // `PhantomPinned` marks types with handles for `hooks::compile_time`.
    kind: PhantomData<(S, T, PhantomPinned)>,
}

impl<S, T> Clone for Ptr<S, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, T> Copy for Ptr<S, T> {}

impl<S, T> std::fmt::Debug for Ptr<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.handle.id())
    }
}

impl<T: Scalar> KernelParam for Ptr<Global, T> {
    fn declare(name: &str) -> Param {
        Param { name: name.to_owned(), ty: Type::Global, element: Some(T::TYPE), align: None, tensor: None }
    }
    fn from_value(value: ir::Value) -> Self {
        Ptr::from_id(value)
    }
}

impl<T: Scalar> PointerParam for Ptr<Global, T> {}

impl<T: Scalar> KernelParam for Val<T> {
    fn declare(name: &str) -> Param {
        Param { name: name.to_owned(), ty: T::TYPE, element: None, align: None, tensor: None }
    }
    fn from_value(value: ir::Value) -> Self {
        Val::from_id(value)
    }
}

/// An index of an element, or an offset in bytes: a handle of a 32- or 64-bit integer, or a compile-time number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot index memory",
    label = "expected a `Val` of u32, i32, u64 or i64, or a compile-time u32, i32, usize or u64"
)]
pub trait Index: Copy {
    /// The byte offset of element `self`, for elements of `size` bytes and pointers of type `pointer`; `None` if the
    /// offset is 0.
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
                let ty = if pointer.bits() == 64 { Type::I64 } else { Type::I32 };
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
                        return Some(self.id());
                    }
                    let size = constant(narrow);
                    emit1(Op::Binary(Binary::Mul), narrow, &[self.id(), size], site)
                } else if size == 1 {
                    let op = Op::Convert { rounding: Rounding::Nearest, saturate: false };
                    emit1(op, Type::$wide, &[self.id()], site)
                } else {
                    let size = constant(narrow);
                    emit1(Op::MulWide, narrow, &[self.id(), size], site)
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
    pub(crate) fn id(self) -> ir::Value {
        self.handle.id()
    }

    pub(crate) fn from_id(id: ir::Value) -> Ptr<S, T> {
        Ptr { handle: Handle::new(id), kind: PhantomData }
    }

    /// Reinterprets the pointer for another element type. The address must be aligned for that type.
    ///
    /// - PTX: none
    pub fn cast<U>(self) -> Ptr<S, U> {
        Ptr::from_id(self.id())
    }

    /// The pointer advanced by `bytes`.
    ///
    /// - PTX: `add.s64`, for shared memory `add.s32`; nothing for a constant offset, which becomes part of the access
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 2)]
    /// fn words(x: Ptr<Global, u32>) {
    ///     x.byte_add(thread_index() * 4).store(7);
    /// }
    /// assert_eq!(run(words(), "add.s64", [0u32, 0, 1]), [7, 7, 1]);
    /// ```
    #[track_caller]
    pub fn byte_add(self, bytes: impl Index) -> Ptr<S, T> {
        self.moved(bytes, 1, Location::caller())
    }

    pub(super) fn moved(self, index: impl Index, size: u32, site: Site) -> Ptr<S, T> {
        match index.scaled(size, S::POINTER, site) {
            None => self,
            Some(offset) => Ptr::from_id(emit1(Op::PtrAdd, S::POINTER, &[self.id(), offset], site)),
        }
    }
}

impl<S: Space, T: Scalar> Ptr<S, T> {
    /// The pointer to element `index`. For global memory, 32-bit indices are scaled in 64 bits and do not wrap.
    ///
    /// - PTX: `mul.wide.u32`, `add.s64`; nothing for a constant offset, which becomes part of the access
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 2)]
    /// fn doubled(x: Ptr<Global, u32>) {
    ///     let own = x.at(thread_index());
    ///     own.at(2).store(own.load() * 2);
    /// }
    /// assert_eq!(run(doubled(), "mul.wide.u32", [3u32, 4, 0, 0]), [3, 4, 6, 8]);
    /// ```
    #[track_caller]
    pub fn at(self, index: impl Index) -> Ptr<S, T> {
        self.moved(index, T::TYPE.bytes(), Location::caller())
    }
}

impl<T: Scalar> Ptr<Global, T> {
    /// The pointer with this address, for example one of a table of addresses in memory: the launch writes
    /// `DevicePointer::address`, a kernel [`Ptr::address`]. The address must be aligned to the element.
    ///
    /// - PTX: `cvta.to.global.u64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// /// Adds 1 to the word at each address of a table.
    /// #[kernel(threads = 2)]
    /// fn increment_all(table: Ptr<Global, u64>, x: Ptr<Global, u32>) {
    ///     table.at(thread_index()).store(x.at(thread_index() * 2).address());
    ///     let word = Ptr::<Global, u32>::from_address(table.at(thread_index()).load());
    ///     word.store(word.load() + 1);
    /// }
    /// let kernel = increment_all().unwrap();
    /// let done = Launch::of(&kernel).uninitialised::<u64>(2).buffer(&[5u32; 4]).run().unwrap();
    /// assert_eq!(done.buffer::<u32>(1), [6, 5, 6, 5]);
    /// assert!(done.has("cvta.to.global.u64"));
    /// ```
    #[track_caller]
    pub fn from_address(address: Val<u64>) -> Ptr<Global, T> {
        Ptr::from_id(emit1(Op::Bitcast, Type::Global, &[address.id()], Location::caller()))
    }

    /// The address, as the launch passes it.
    ///
    /// - PTX: `cvta.global.u64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn distance(x: Ptr<Global, u64>) {
    ///     x.store(x.at(7).address() - x.address());
    /// }
    /// assert_eq!(run(distance(), "cvta.global.u64", [0u64; 8])[0], 56);
    /// ```
    #[track_caller]
    pub fn address(self) -> Val<u64> {
        Val::from_id(emit1(Op::Bitcast, Type::U64, &[self.id()], Location::caller()))
    }
}

/// Limit of static shared memory per CTA, in bytes, on every target (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability"). Dynamic shared memory may be larger.
const STATIC_SHARED: u64 = 48 << 10;

/// A static shared array of `count` elements, aligned to 16 bytes. The array is uninitialised.
///
/// - PTX: `.shared .align 16`, `mov.u32 …, shared0`
/// - Target: sm_80
/// - Requires: at most 48 KiB of static shared memory per kernel
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 32)]
/// fn neighbours(x: Ptr<Global, u32>) {
///     let words = shared_array::<u32>(32);
///     words.at(lane()).store(x.at(lane()).load());
///     barrier();
///     x.at(lane()).store(words.at(lane() ^ 1).load());
/// }
/// assert_eq!(run(neighbours(), "mov.u32 …, shared0", LANES)[..4], [1, 0, 3, 2]);
/// ```
#[track_caller]
pub fn shared_array<T: Scalar>(count: u32) -> Ptr<Shared, T> {
    static_shared(count, 16, Location::caller())
}

/// A static shared array of `count` elements, aligned to `align` bytes.
pub(super) fn static_shared<T: Scalar>(count: u32, align: u32, site: Site) -> Ptr<Shared, T> {
    if count == 0 || T::TYPE == Type::Pred {
        let what = if count == 0 { "no elements: write at least 1" } else { "`bool`: store `u8` instead" };
        fail(site, format!("a shared array cannot be of {what}"));
    }
    let shared = crate::ir::Shared { element: T::TYPE, count, align };
    let (variable, bytes) = with(|r| (r.shared_variable(shared), r.func.static_shared()));
    if bytes > STATIC_SHARED {
        let what = format!(
            "{bytes} bytes of static shared memory exceed the limit of {STATIC_SHARED} bytes per CTA: use \
             `dynamic_shared()`, whose size the launch sets"
        );
        fail(site, what);
    }
    Ptr::from_id(emit1(Op::SharedAddress(variable), Type::Shared, &[], site))
}

/// The CTA's dynamic shared memory, aligned to 128 bytes, or to the swizzle pattern of the kernel's widest tensor map (up to 1024
/// bytes). The launch sets its size.
///
/// - PTX: `mov.u32 …, dynamic_shared`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 32)]
/// fn neighbours(x: Ptr<Global, u32>) {
///     let words = dynamic_shared::<u32>();
///     words.at(lane()).store(x.at(lane()).load());
///     barrier();
///     x.at(lane()).store(words.at(lane() ^ 1).load());
/// }
/// let kernel = neighbours().unwrap();
/// let done = Launch::of(&kernel).buffer(&LANES).dynamic_shared(128).run().unwrap();
/// assert_eq!(done.buffer::<u32>(0)[..4], [1, 0, 3, 2]);
/// assert!(done.has("mov.u32 …, dynamic_shared"));
/// ```
#[track_caller]
pub fn dynamic_shared<T: Scalar>() -> Ptr<Shared, T> {
    Ptr::from_id(emit1(Op::DynamicShared, Type::Shared, &[], Location::caller()))
}
