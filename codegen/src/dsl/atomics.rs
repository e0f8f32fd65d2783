//! Atomic read-modify-write operations.

use std::panic::Location;

use super::number::{AtomicNumber, Int};
use super::pointer::{Ptr, Space};
use super::recorder::emit1;
use super::scalar::{RawWord, Scalar};
use super::value::{IntoVal, Val};
use crate::ir::{Atomic, Op, Ordering};

impl<S: Space, T: Scalar> Ptr<S, T> {
    /// Adds to the element atomically; returns the old value. Sums of floats depend on the order of the threads. A
    /// scope without an order means relaxed order.
    ///
    /// - PTX: `red.relaxed.gpu.global.add.u32` where the old value is not used, else
    ///   `atom.relaxed.gpu.global.add.u32`; by order, scope, space and type, `red.relaxed.gpu.global.add.noftz.f16x2`
    /// - Target: sm_80; sm_90 for bf16 and Bf16x2
    /// - Requires: an integer of 32 or 64 bits, or a float; `F16x2` and `Bf16x2` add each half atomically
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 32)]
    /// fn counted(x: Ptr<Global, u32>) {
    ///     x.atomic_add(1, Scope::Gpu);
    /// }
    /// assert_eq!(run(counted(), "red.relaxed.gpu.global.add.u32", [5u32]), [37]);
    ///
    /// #[kernel(threads = 32)]
    /// fn numbered(x: Ptr<Global, u32>) {
    ///     let own = x.atomic_add(1, Order::AcqRel.among(Scope::Cta));
    ///     x.at(own).store(9);
    /// }
    /// assert_eq!(run(numbered(), "atom.acq_rel.cta.global.add.u32", [1u32; 33])[1..], [9; 32]);
    /// ```
    #[track_caller]
    pub fn atomic_add(self, value: impl IntoVal<T>, ordering: impl Into<Ordering>) -> Val<T>
    where
        T: AtomicNumber,
    {
        self.atomic(Atomic::Add, &[value.into_val()], ordering.into())
    }

    #[track_caller]
    fn atomic(self, op: Atomic, values: &[Val<T>], ordering: Ordering) -> Val<T> {
        let op = Op::Atomic { op, ordering, offset: 0 };
        let args: Vec<_> = std::iter::once(self.id()).chain(values.iter().map(|value| value.id())).collect();
        Val::from_id(emit1(op, T::TYPE, &args, Location::caller()))
    }
}

impl<S: Space, T: Scalar> Ptr<S, T> {
    /// Stores the value atomically; returns the old value.
    ///
    /// - PTX: `atom.relaxed.gpu.global.exch.b32`
    /// - Target: sm_80
    /// - Requires: a type of 32 or 64 bits
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn exchanged(x: Ptr<Global, u32>) {
    ///     x.at(1).store(x.atomic_exchange(7, Scope::Gpu));
    /// }
    /// assert_eq!(run(exchanged(), "atom.relaxed.gpu.global.exch.b32", [3u32, 0]), [7, 3]);
    /// ```
    #[track_caller]
    pub fn atomic_exchange(self, value: impl IntoVal<T>, ordering: impl Into<Ordering>) -> Val<T>
    where
        T: RawWord,
    {
        self.atomic(Atomic::Exch, &[value.into_val()], ordering.into())
    }
}

impl<S: Space> Ptr<S, u32> {
    /// Counts up atomically, from 0 to `limit` and then from 0 again; returns the old value.
    ///
    /// - PTX: `red.relaxed.gpu.global.inc.u32` where the old value is not used, else
    ///   `atom.relaxed.gpu.global.inc.u32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // Slots of a ring of 8.
    /// #[kernel(threads = 32)]
    /// fn counted(x: Ptr<Global, u32>) {
    ///     x.at(1 + lane()).store(x.atomic_inc(7, Scope::Gpu));
    /// }
    /// let found = run(counted(), "atom.relaxed.gpu.global.inc.u32", [6u32; 33]);
    /// assert_eq!(found[..5], [6, 6, 7, 0, 1]);
    /// ```
    #[track_caller]
    pub fn atomic_inc(self, limit: impl IntoVal<u32>, ordering: impl Into<Ordering>) -> Val<u32> {
        self.atomic(Atomic::Inc, &[limit.into_val()], ordering.into())
    }

    /// Counts down atomically, from `limit` to 0 and then from `limit` again; returns the old value.
    ///
    /// - PTX: `red.relaxed.gpu.global.dec.u32` where the old value is not used, else
    ///   `atom.relaxed.gpu.global.dec.u32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 32)]
    /// fn counted(x: Ptr<Global, u32>) {
    ///     x.atomic_dec(7, Scope::Gpu);
    /// }
    /// assert_eq!(run(counted(), "red.relaxed.gpu.global.dec.u32", [3u32]), [3]);
    /// ```
    #[track_caller]
    pub fn atomic_dec(self, limit: impl IntoVal<u32>, ordering: impl Into<Ordering>) -> Val<u32> {
        self.atomic(Atomic::Dec, &[limit.into_val()], ordering.into())
    }
}

macro_rules! atomics {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        // The bound is on each method, so that an error about it names alternatives.
        impl<S: Space, T: Scalar> Ptr<S, T> {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(self, value: impl IntoVal<T>, ordering: impl Into<Ordering>) -> Val<T>
            where
                T: Int,
            {
                self.atomic(Atomic::$op, &[value.into_val()], ordering.into())
            })*

            /// Stores `new` atomically if the element equals `expected`; returns the old value.
            ///
            /// - PTX: `atom.relaxed.gpu.global.cas.b32`, by order, scope, space and width
            /// - Target: sm_80
            /// - Requires: integers of 16, 32 or 64 bits
            ///
            /// ```
            /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
            /// // One lane of all succeeds.
            /// #[kernel(threads = 32)]
            /// fn claimed(x: Ptr<Global, u32>) {
            ///     if x.atomic_cas(0, lane() + 1, Scope::Gpu) == 0 {
            ///         x.at(1).store(7);
            ///     }
            /// }
            /// let [owner, seven] = run(claimed(), "atom.relaxed.gpu.global.cas.b32", [0u32, 0]);
            /// assert!((1..=32).contains(&owner) && seven == 7);
            /// ```
            #[track_caller]
            pub fn atomic_cas(
                self,
                expected: impl IntoVal<T>,
                new: impl IntoVal<T>,
                ordering: impl Into<Ordering>,
            ) -> Val<T>
            where
                T: Int,
            {
                self.atomic(Atomic::Cas, &[expected.into_val(), new.into_val()], ordering.into())
            }
        }
    };
}
atomics! {
    /// Stores the minimum of the element and the value atomically; returns the old value.
    ///
    /// - PTX: `red.relaxed.gpu.global.min.u32` where the old value is not used, else
    ///   `atom.relaxed.gpu.global.min.u32`
    /// - Target: sm_80
    /// - Requires: 32- or 64-bit integers
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 32)]
    /// fn joined(x: Ptr<Global, u32>) {
    ///     x.atomic_min(lane() + 3, Scope::Gpu);
    /// }
    /// assert_eq!(run(joined(), "red.relaxed.gpu.global.min.u32", [9u32]), [3]);
    /// ```
    atomic_min => Min;
    /// Stores the maximum of the element and the value atomically; returns the old value.
    ///
    /// - PTX: `red.relaxed.gpu.global.max.u32` where the old value is not used, else
    ///   `atom.relaxed.gpu.global.max.u32`
    /// - Target: sm_80
    /// - Requires: 32- or 64-bit integers
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 32)]
    /// fn joined(x: Ptr<Global, u32>) {
    ///     x.atomic_max(lane(), Scope::Gpu);
    /// }
    /// assert_eq!(run(joined(), "red.relaxed.gpu.global.max.u32", [9u32]), [31]);
    /// ```
    atomic_max => Max;
    /// Stores the bitwise AND of the element and the value atomically; returns the old value.
    ///
    /// - PTX: `red.relaxed.gpu.global.and.b32` where the old value is not used, else
    ///   `atom.relaxed.gpu.global.and.b32`
    /// - Target: sm_80
    /// - Requires: 32- or 64-bit integers
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 32)]
    /// fn joined(x: Ptr<Global, u32>) {
    ///     x.atomic_and(lane() | 64, Scope::Gpu);
    /// }
    /// assert_eq!(run(joined(), "red.relaxed.gpu.global.and.b32", [127u32]), [64]);
    /// ```
    atomic_and => And;
    /// Stores the bitwise OR of the element and the value atomically; returns the old value.
    ///
    /// - PTX: `red.relaxed.gpu.global.or.b32` where the old value is not used, else `atom.relaxed.gpu.global.or.b32`
    /// - Target: sm_80
    /// - Requires: 32- or 64-bit integers
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 32)]
    /// fn joined(x: Ptr<Global, u32>) {
    ///     x.atomic_or(lane(), Scope::Gpu);
    /// }
    /// assert_eq!(run(joined(), "red.relaxed.gpu.global.or.b32", [0u32]), [31]);
    /// ```
    atomic_or => Or;
    /// Stores the bitwise XOR of the element and the value atomically; returns the old value.
    ///
    /// - PTX: `red.relaxed.gpu.global.xor.b32` where the old value is not used, else
    ///   `atom.relaxed.gpu.global.xor.b32`
    /// - Target: sm_80
    /// - Requires: 32- or 64-bit integers
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 32)]
    /// fn joined(x: Ptr<Global, u32>) {
    ///     x.atomic_xor(lane(), Scope::Gpu);
    /// }
    /// assert_eq!(run(joined(), "red.relaxed.gpu.global.xor.b32", [5u32]), [5]);
    /// ```
    atomic_xor => Xor;
}
