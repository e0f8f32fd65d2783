//! Accesses that threads may make at the same time without a barrier between them: flags and what they guard.
//!
//! A thread that writes data and then stores a flag with [`Ptr::store_release`], and another that reads the flag with
//! [`Ptr::load_acquire`] before it reads the data, agree on what the data is.

use std::panic::Location;

use super::pointer::{Ptr, Space};
use super::record::{emit, emit1};
use super::scalar::Scalar;
use super::value::{IntoVal, Val};
use crate::ir::{Access, Op, Order, Scope, Type};

fn ordered(order: Order, scope: Scope) -> Access {
    Access { ordering: Some(order.among(scope)), ..Access::SCALAR }
}

impl<S: Space, T: Scalar> Ptr<S, T> {
    /// Loads an element that other threads of the scope may write meanwhile (`ld.relaxed`).
    #[track_caller]
    pub fn load_relaxed(self, scope: Scope) -> Val<T> {
        let op = Op::Load(ordered(Order::Relaxed, scope));
        Val::from_id(emit1(op, T::TYPE, &[self.id], Location::caller()))
    }

    /// The same; accesses that follow see what was written before the release of the value read (`ld.acquire`).
    #[track_caller]
    pub fn load_acquire(self, scope: Scope) -> Val<T> {
        let op = Op::Load(ordered(Order::Acquire, scope));
        Val::from_id(emit1(op, T::TYPE, &[self.id], Location::caller()))
    }

    /// Stores an element that other threads of the scope may access meanwhile (`st.relaxed`).
    #[track_caller]
    pub fn store_relaxed(self, value: impl IntoVal<T>, scope: Scope) {
        let op = Op::Store(ordered(Order::Relaxed, scope));
        emit(op, T::TYPE, &[self.id, value.into_val().id], Location::caller());
    }

    /// The same; who acquires the value sees what this thread wrote before, or has seen (`st.release`).
    #[track_caller]
    pub fn store_release(self, value: impl IntoVal<T>, scope: Scope) {
        let op = Op::Store(ordered(Order::Release, scope));
        emit(op, T::TYPE, &[self.id, value.into_val().id], Location::caller());
    }
}

/// As [`super::fence`], and all such fences are in one order that all threads agree on (`fence.sc`).
#[track_caller]
pub fn sequential_fence(scope: Scope) {
    emit(Op::SequentialFence(scope), Type::U32, &[], Location::caller());
}
