//! Barriers in shared memory that count arrivals and bytes, and the fences that they need.

use super::effect::{BASELINE, since};
use super::named::named_enum;
use super::rule::{CLUSTER, PRED, SHARED, U32, untyped};
use super::table::opcode_family;
use crate::target::Target::{Sm80, Sm90};

opcode_family! {
    /// Operations on an mbarrier: 8 bytes of shared memory that count the arrivals, and from sm_90 on the bytes, that
    /// the current phase still expects. The first operand is the mbarrier's address.
    pub enum Mbarrier at ty {
        /// Initialises the mbarrier; a phase completes after as many arrivals as the second operand (u32).
        Init = "init": untyped(&[SHARED, U32], &[]); BASELINE,
        /// Invalidates the mbarrier, so that its memory may be reused.
        Invalidate = "invalidate": untyped(&[SHARED], &[]); BASELINE,
        /// Arrives at the mbarrier. (PTX 7.1: the state is discarded.)
        Arrive = "arrive": untyped(&[SHARED], &[]); since("mbarrier.arrive", Sm80, (7, 1)),
        /// Arrives at an mbarrier in another CTA of the cluster, by its cluster address.
        ArriveCluster = "arrive_cluster": untyped(&[CLUSTER], &[]);
            since("mbarrier.arrive.shared::cluster", Sm90, (8, 0)),
        /// Adds the second operand to the expected bytes of the phase, and arrives.
        ArriveExpect = "arrive_expect": untyped(&[SHARED, U32], &[]);
            since("mbarrier.arrive.expect_tx", Sm90, (8, 0)),
        /// `ArriveExpect` at an mbarrier in another CTA of the cluster.
        ArriveExpectCluster = "arrive_expect_cluster": untyped(&[CLUSTER, U32], &[]);
            since("mbarrier.arrive.expect_tx.shared::cluster", Sm90, (8, 0)),
        /// Adds the second operand to the expected bytes of the phase.
        Expect = "expect": untyped(&[SHARED, U32], &[]); since("mbarrier.expect_tx", Sm90, (8, 0)),
        /// Tests whether the phase of the parity given by the second operand has completed.
        TestWait = "test_wait": untyped(&[SHARED, U32], &[PRED]);
            since("mbarrier.test_wait.parity", Sm80, (7, 1)),
        /// `TestWait` that may suspend the thread for a limited time before the result is false.
        TryWait = "try_wait": untyped(&[SHARED, U32], &[PRED]);
            since("mbarrier.try_wait.parity", Sm90, (7, 8)),
        /// `TryWait` with acquire semantics at cluster scope: writes that other CTAs made before they arrived are
        /// visible.
        TryWaitCluster = "try_wait_cluster": untyped(&[SHARED, U32], &[PRED]);
            since("mbarrier.try_wait.acquire.cluster", Sm90, (8, 0)),
        /// Arrives when all earlier `cp.async` of the thread are complete; counts as one of the expected arrivals.
        ArriveAfterCopies = "arrive_after_copies": untyped(&[SHARED], &[]); BASELINE,
    }
}

opcode_family! {
    /// Fences for special purposes: mbarrier initialisation and the async proxy.
    pub enum FenceFor at ty {
        /// Makes mbarrier initialisations visible to the cluster and to bulk copies.
        MbarrierInit = "mbarrier_init": untyped(&[], &[]); since("fence.mbarrier_init", Sm90, (8, 0)),
        /// Orders ordinary accesses of the CTA's shared memory with those of bulk copies (the async proxy).
        AsyncShared = "async_shared": untyped(&[], &[]); since("fence.proxy.async", Sm90, (8, 0)),
        /// `AsyncShared` for all memory.
        Async = "async": untyped(&[], &[]); since("fence.proxy.async", Sm90, (8, 0)),
    }
}

named_enum! {
    /// L2 eviction priority.
    pub enum Eviction {
        /// Evicted before other lines.
        First = "evict_first",
        /// Evicted after other lines.
        Last = "evict_last",
    }
}
