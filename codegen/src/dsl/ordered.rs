//! Loads and stores with a memory order: flags, and publication of data without a barrier.
//!
//! A thread writes data and then stores a flag with [`Ptr::store_release`]. A thread that reads the flag with
//! [`Ptr::load_acquire`] then sees the data.

use std::panic::Location;

use super::pointer::{Ptr, Space};
use super::recorder::{emit, emit1};
use super::scalar::Scalar;
use super::value::{IntoVal, Val};
use crate::ir::{Access, Op, Order, Scope};

fn ordered(order: Order, scope: Scope) -> Access {
    Access { ordering: Some(order.among(scope)), ..Access::SCALAR }
}

impl<S: Space, T: Scalar> Ptr<S, T> {
    /// Loads the element at the pointer, which other threads of the scope may write concurrently (relaxed order).
    ///
    /// - PTX: `ld.relaxed.gpu.global.u32`, by scope, space and type
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn copied(x: Ptr<Global, u32>) {
    ///     x.at(1).store(x.load_relaxed(Scope::Gpu));
    /// }
    /// assert_eq!(run(copied(), "ld.relaxed.gpu.global.u32", [7u32, 0]), [7, 7]);
    /// ```
    #[track_caller]
    pub fn load_relaxed(self, scope: Scope) -> Val<T> {
        let op = Op::Load(ordered(Order::Relaxed, scope));
        Val::from_id(emit1(op, T::TYPE, &[self.id()], Location::caller()))
    }

    /// As [`Ptr::load_relaxed`], with acquire semantics: later accesses see the writes before the release of the loaded
    /// value.
    ///
    /// - PTX: `ld.acquire.gpu.global.u32`, by scope, space and type
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // Warp 0 passes a number to warp 1.
    /// #[kernel(threads = 64)]
    /// fn handed_over(x: Ptr<Global, u32>) {
    ///     if thread_index() == 0 {
    ///         x.at(1).store(7);
    ///         x.store_release(1, Scope::Gpu);
    ///     }
    ///     if thread_index() == 32 {
    ///         while x.load_acquire(Scope::Gpu) == 0 {}
    ///         x.at(2).store(x.at(1).load());
    ///     }
    /// }
    /// assert_eq!(run(handed_over(), "ld.acquire.gpu.global.u32", [0u32; 3]), [1, 7, 7]);
    /// ```
    #[track_caller]
    pub fn load_acquire(self, scope: Scope) -> Val<T> {
        let op = Op::Load(ordered(Order::Acquire, scope));
        Val::from_id(emit1(op, T::TYPE, &[self.id()], Location::caller()))
    }

    /// Stores the element at the pointer, which other threads of the scope may access concurrently (relaxed order).
    ///
    /// - PTX: `st.relaxed.gpu.global.u32`, by scope, space and type
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn raised(x: Ptr<Global, u32>) {
    ///     x.store_relaxed(1, Scope::Gpu);
    /// }
    /// assert_eq!(run(raised(), "st.relaxed.gpu.global.u32", [0u32]), [1]);
    /// ```
    #[track_caller]
    pub fn store_relaxed(self, value: impl IntoVal<T>, scope: Scope) {
        let op = Op::Store(ordered(Order::Relaxed, scope));
        emit(op, T::TYPE, &[self.id(), value.into_val().id()], Location::caller());
    }

    /// As [`Ptr::store_relaxed`], with release semantics: a thread that acquires the value sees all writes that happen
    /// before the store.
    ///
    /// - PTX: `st.release.gpu.global.u32`, by scope, space and type
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // Warp 0 passes a number to warp 1.
    /// #[kernel(threads = 64)]
    /// fn handed_over(x: Ptr<Global, u32>) {
    ///     if thread_index() == 0 {
    ///         x.at(1).store(7);
    ///         x.store_release(1, Scope::Gpu);
    ///     }
    ///     if thread_index() == 32 {
    ///         while x.load_acquire(Scope::Gpu) == 0 {}
    ///         x.at(2).store(x.at(1).load());
    ///     }
    /// }
    /// assert_eq!(run(handed_over(), "st.release.gpu.global.u32", [0u32; 3]), [1, 7, 7]);
    /// ```
    #[track_caller]
    pub fn store_release(self, value: impl IntoVal<T>, scope: Scope) {
        let op = Op::Store(ordered(Order::Release, scope));
        emit(op, T::TYPE, &[self.id(), value.into_val().id()], Location::caller());
    }
}
