//! L2 cache policies, and accesses of global memory with a policy.

use std::panic::Location;

use super::pointer::{Global, Ptr};
use super::recorder::{emit, emit1};
use super::scalar::Scalar;
use super::value::{IntoVal, Val};
use super::vector;
use crate::Carry;
use crate::ir::{self, Access, Cache, Eviction, Op, Type};

/// Order in which L2 evicts the cache lines of accesses that are given this policy.
#[derive(Clone, Copy, Debug, Carry)]
pub struct CachePolicy(Val<u64>);

impl CachePolicy {
    #[track_caller]
    fn of(eviction: Eviction) -> CachePolicy {
        CachePolicy(Val::from_id(emit1(Op::CachePolicy(eviction), Type::U64, &[], Location::caller())))
    }

    /// Policy by which L2 evicts the lines before other lines: for data that is read once.
    ///
    /// - PTX: `createpolicy.fractional.L2::evict_first.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn copied(x: Ptr<Global, u32>) {
    ///     let once = CachePolicy::evict_first();
    ///     x.at(1).store(x.load_with(Cache::Default, once));
    /// }
    /// assert_eq!(run(copied(), "createpolicy.fractional.L2::evict_first.b64", [7u32, 0]), [7, 7]);
    /// ```
    #[track_caller]
    pub fn evict_first() -> CachePolicy {
        CachePolicy::of(Eviction::First)
    }

    /// Policy by which L2 evicts the lines after other lines: for data that is read again.
    ///
    /// - PTX: `createpolicy.fractional.L2::evict_last.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn copied(x: Ptr<Global, u32>) {
    ///     let again = CachePolicy::evict_last();
    ///     x.at(1).store(x.load_with(Cache::Default, again));
    /// }
    /// assert_eq!(run(copied(), "createpolicy.fractional.L2::evict_last.b64", [7u32, 0]), [7, 7]);
    /// ```
    #[track_caller]
    pub fn evict_last() -> CachePolicy {
        CachePolicy::of(Eviction::Last)
    }

    pub(super) fn id(self) -> ir::Value {
        self.0.id()
    }
}

fn hinted(cache: Cache) -> Access {
    Access { cache, hinted: true, ..Access::SCALAR }
}

impl<T: Scalar> Ptr<Global, T> {
    /// Loads the element at the pointer, with a cache hint and an L2 policy.
    ///
    /// - PTX: `ld.global.L2::cache_hint.u32` and the like
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn copied(x: Ptr<Global, u32>) {
    ///     let policy = CachePolicy::evict_first();
    ///     x.at(1).store(x.load_with(Cache::Default, policy));
    /// }
    /// assert_eq!(run(copied(), "ld.global.L2::cache_hint.u32", [7u32, 0]), [7, 7]);
    /// ```
    #[track_caller]
    pub fn load_with(self, cache: Cache, policy: CachePolicy) -> Val<T> {
        let op = Op::Load(hinted(cache));
        Val::from_id(emit1(op, T::TYPE, &[self.id(), policy.id()], Location::caller()))
    }

    /// Loads `N` consecutive elements in one access, as [`Ptr::load_vector`], with a cache hint and an L2 policy.
    ///
    /// - PTX: `ld.global.L2::cache_hint.v2.u32` and the like
    /// - Target: sm_80
    /// - Requires: the address is aligned to the size of the access
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn summed(x: Ptr<Global, u32>) {
    ///     let policy = CachePolicy::evict_first();
    ///     let [a, b] = x.load_vector_with::<2>(Cache::Default, policy);
    ///     x.store(a + b);
    /// }
    /// assert_eq!(run(summed(), "ld.global.L2::cache_hint.v2.u32", [1u32, 2]), [3, 2]);
    /// ```
    #[track_caller]
    pub fn load_vector_with<const N: usize>(self, cache: Cache, policy: CachePolicy) -> [Val<T>; N] {
        let operands = [self.id(), policy.id()];
        let values = vector::load::<T>(hinted(cache), &operands, N, Location::caller());
        std::array::from_fn(|i| Val::from_id(values[i]))
    }

    /// Stores the element at the pointer, with a cache hint and an L2 policy.
    ///
    /// - PTX: `st.global.L2::cache_hint.u32` and the like
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn set(x: Ptr<Global, u32>) {
    ///     x.store_with(7, Cache::Default, CachePolicy::evict_last());
    /// }
    /// assert_eq!(run(set(), "st.global.L2::cache_hint.u32", [0u32]), [7]);
    /// ```
    #[track_caller]
    pub fn store_with(self, value: impl IntoVal<T>, cache: Cache, policy: CachePolicy) {
        let args = [self.id(), value.into_val().id(), policy.id()];
        emit(Op::Store(hinted(cache)), T::TYPE, &args, Location::caller());
    }

    /// Stores `N` consecutive elements in one access, as [`Ptr::store_vector`], with a cache hint and an L2 policy.
    ///
    /// - PTX: `st.global.L2::cache_hint.v2.u32` and the like
    /// - Target: sm_80
    /// - Requires: the address is aligned to the size of the access
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn exchanged(x: Ptr<Global, u32>) {
    ///     let [a, b] = x.load_vector::<2>();
    ///     x.store_vector_with([b, a], Cache::Default, CachePolicy::evict_last());
    /// }
    /// assert_eq!(run(exchanged(), "st.global.L2::cache_hint.v2.u32", [1u32, 2]), [2, 1]);
    /// ```
    #[track_caller]
    pub fn store_vector_with<const N: usize>(self, values: [Val<T>; N], cache: Cache, policy: CachePolicy) {
        let values = values.map(|value| value.id());
        vector::store::<T>(hinted(cache), self.id(), &values, Some(policy.id()), Location::caller());
    }
}
