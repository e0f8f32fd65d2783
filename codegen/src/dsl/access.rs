//! Loads and stores.

use std::panic::Location;

use super::pointer::{Ptr, Space};
use super::recorder::{emit, emit1};
use super::scalar::Scalar;
use super::value::{IntoVal, Val};
use super::vector;
use crate::ir::{Access, Cache, Op};

impl<S: Space, T: Scalar> Ptr<S, T> {
    /// Loads the element at the pointer.
    ///
    /// - PTX: `ld.global.u32`, by space and type `ld.shared.b16`, `ld.shared::cluster.f32`, …
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn copied(x: Ptr<Global, u32>) {
    ///     x.at(1).store(x.load());
    /// }
    /// assert_eq!(run(copied(), "ld.global.u32", [7u32, 0]), [7, 7]);
    /// ```
    #[track_caller]
    pub fn load(self) -> Val<T> {
        self.load_cached(Cache::Default)
    }

    /// Loads the element at the pointer, with a cache hint.
    ///
    /// - PTX: `ld.global.cg.u32`, also `.cs`, `.nc`, `.nc.L1::no_allocate`; `ld.volatile.global.u32`
    /// - Target: sm_80
    /// - Requires: hints other than `Volatile` need global memory; `ReadOnly` needs memory that is not written while
    ///   the kernel runs
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn copied(x: Ptr<Global, u32>) {
    ///     x.at(1).store(x.load_cached(Cache::L2));
    /// }
    /// assert_eq!(run(copied(), "ld.global.cg.u32", [7u32, 0]), [7, 7]);
    /// ```
    #[track_caller]
    pub fn load_cached(self, cache: Cache) -> Val<T> {
        let access = Access { cache, ..Access::SCALAR };
        Val::from_id(emit1(Op::Load(access), T::TYPE, &[self.id()], Location::caller()))
    }

    /// Loads `N` consecutive elements in one access of at most 16 bytes: 2 or 4, also 8 of 16 bits, 8 or 16 of 8 bits.
    ///
    /// - PTX: `ld.global.v4.u32`, also `.v2`; by space and type. 8 or 16 elements are loaded as words and unpacked
    /// - Target: sm_80
    /// - Requires: the address is aligned to the size of the access
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn summed(x: Ptr<Global, u32>) {
    ///     let [a, b, c, d] = x.load_vector::<4>();
    ///     x.store(a + b + c + d);
    /// }
    /// assert_eq!(run(summed(), "ld.global.v4.u32", [1u32, 2, 3, 4]), [10, 2, 3, 4]);
    ///
    /// /// Eight halves: 16 bytes.
    /// #[kernel(threads = 1)]
    /// fn reversed(x: Ptr<Global, f16>) {
    ///     let mut halves: [_; 8] = x.load_vector();
    ///     halves.reverse();
    ///     x.store_vector(halves);
    /// }
    /// let [first, .., last] = run(reversed(), "ld.global.v4.u32", [f16::ONE, f16::ONE, f16::ZERO, f16::ZERO,
    ///     f16::ZERO, f16::ZERO, f16::ZERO, f16::ZERO]);
    /// assert_eq!((first, last), (f16::ZERO, f16::ONE));
    /// ```
    #[track_caller]
    pub fn load_vector<const N: usize>(self) -> [Val<T>; N] {
        self.load_vector_cached(Cache::Default)
    }

    /// Loads `N` consecutive elements in one access, as [`Ptr::load_vector`], with a cache hint.
    ///
    /// - PTX: `ld.global.cg.v2.u32` and the like
    /// - Target: sm_80
    /// - Requires: as [`Ptr::load_vector`] and [`Ptr::load_cached`]
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn summed(x: Ptr<Global, u32>) {
    ///     let [a, b] = x.load_vector_cached::<2>(Cache::L2);
    ///     x.store(a + b);
    /// }
    /// assert_eq!(run(summed(), "ld.global.cg.v2.u32", [1u32, 2]), [3, 2]);
    /// ```
    #[track_caller]
    pub fn load_vector_cached<const N: usize>(self, cache: Cache) -> [Val<T>; N] {
        let access = Access { cache, ..Access::SCALAR };
        let values = vector::load::<T>(access, &[self.id()], N, Location::caller());
        std::array::from_fn(|i| Val::from_id(values[i]))
    }

    /// Stores the element at the pointer.
    ///
    /// - PTX: `st.global.u32`, by space and type `st.shared.b16`, `st.shared::cluster.f32`, …
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn set(x: Ptr<Global, u32>) {
    ///     x.store(7);
    /// }
    /// assert_eq!(run(set(), "st.global.u32", [0u32]), [7]);
    /// ```
    #[track_caller]
    pub fn store(self, value: impl IntoVal<T>) {
        self.store_cached(value, Cache::Default)
    }

    /// Stores the element at the pointer, with a cache hint.
    ///
    /// - PTX: `st.global.cs.u32`, also `.cg`; `st.volatile.global.u32`
    /// - Target: sm_80
    /// - Requires: hints other than `Volatile` need global memory
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn set(x: Ptr<Global, u32>) {
    ///     x.store_cached(7, Cache::Streaming);
    /// }
    /// assert_eq!(run(set(), "st.global.cs.u32", [0u32]), [7]);
    /// ```
    #[track_caller]
    pub fn store_cached(self, value: impl IntoVal<T>, cache: Cache) {
        let access = Access { cache, ..Access::SCALAR };
        emit(Op::Store(access), T::TYPE, &[self.id(), value.into_val().id()], Location::caller());
    }

    /// Stores `N` consecutive elements in one access, as many as [`Ptr::load_vector`] loads.
    ///
    /// - PTX: `st.global.v2.u32`, also `.v4`; by space and type
    /// - Target: sm_80
    /// - Requires: the address is aligned to the size of the access
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn exchanged(x: Ptr<Global, u32>) {
    ///     let [a, b] = x.load_vector::<2>();
    ///     x.store_vector([b, a]);
    /// }
    /// assert_eq!(run(exchanged(), "st.global.v2.u32", [1u32, 2]), [2, 1]);
    /// ```
    #[track_caller]
    pub fn store_vector<const N: usize>(self, values: [Val<T>; N]) {
        self.store_vector_cached(values, Cache::Default)
    }

    /// Stores `N` consecutive elements in one access, as [`Ptr::store_vector`], with a cache hint.
    ///
    /// - PTX: `st.global.cs.v2.u32` and the like
    /// - Target: sm_80
    /// - Requires: as [`Ptr::store_vector`] and [`Ptr::store_cached`]
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn exchanged(x: Ptr<Global, u32>) {
    ///     let [a, b] = x.load_vector::<2>();
    ///     x.store_vector_cached([b, a], Cache::Streaming);
    /// }
    /// assert_eq!(run(exchanged(), "st.global.cs.v2.u32", [1u32, 2]), [2, 1]);
    /// ```
    #[track_caller]
    pub fn store_vector_cached<const N: usize>(self, values: [Val<T>; N], cache: Cache) {
        let access = Access { cache, ..Access::SCALAR };
        let values = values.map(|value| value.id());
        vector::store::<T>(access, self.id(), &values, None, Location::caller());
    }
}
