//! Barriers in shared memory that count arrivals and bytes, and the fences that they need.

use super::effect::{BASELINE, since};
use super::rule::{CLUSTER, PRED, SHARED, U32, untyped};
use super::table::{named_enum, opcode_family};
use crate::target::Target::{Sm80, Sm90};

opcode_family! {
    /// Operations on an mbarrier: 8 bytes of shared memory that count the arrivals, and from sm_90 on the bytes,
    /// that the current phase still waits for. The first operand is its address.
    pub enum Mbarrier at ty {
        /// Initialises it; a phase completes after as many arrivals as the second operand says.
        Init = "init": untyped(&[SHARED, U32], &[]); BASELINE,
        /// Invalidates it, so that the memory may hold something else.
        Invalidate = "invalidate": untyped(&[SHARED], &[]); BASELINE,
        /// Arrives. (PTX 7.1: the state is discarded.)
        Arrive = "arrive": untyped(&[SHARED], &[]); since("mbarrier.arrive", Sm80, (7, 1)),
        /// Arrives at an mbarrier in another CTA of the cluster, by its cluster address.
        ArriveCluster = "arrive_cluster": untyped(&[CLUSTER], &[]);
            since("mbarrier.arrive.shared::cluster", Sm90, (8, 0)),
        /// Adds the second operand to the bytes that the phase expects, and arrives.
        ArriveExpect = "arrive_expect": untyped(&[SHARED, U32], &[]);
            since("mbarrier.arrive.expect_tx", Sm90, (8, 0)),
        /// `ArriveExpect` at an mbarrier in another CTA of the cluster.
        ArriveExpectCluster = "arrive_expect_cluster": untyped(&[CLUSTER, U32], &[]);
            since("mbarrier.arrive.expect_tx.shared::cluster", Sm90, (8, 0)),
        /// Adds the second operand to the bytes that the phase expects.
        Expect = "expect": untyped(&[SHARED, U32], &[]); since("mbarrier.expect_tx", Sm90, (8, 0)),
        /// Tests whether the phase of the parity given by the second operand has completed.
        TestWait = "test_wait": untyped(&[SHARED, U32], &[PRED]);
            since("mbarrier.test_wait.parity", Sm80, (7, 1)),
        /// `TestWait`; the thread may sleep for a while before the result is false.
        TryWait = "try_wait": untyped(&[SHARED, U32], &[PRED]);
            since("mbarrier.try_wait.parity", Sm90, (7, 8)),
        /// `TryWait` with acquire semantics in the cluster: sees what other CTAs wrote before they arrived.
        TryWaitCluster = "try_wait_cluster": untyped(&[SHARED, U32], &[PRED]);
            since("mbarrier.try_wait.acquire.cluster", Sm90, (8, 0)),
        /// Arrives when all earlier `cp.async` of the thread are complete; counts as one of the expected arrivals.
        ArriveAfterCopies = "arrive_after_copies": untyped(&[SHARED], &[]); BASELINE,
    }
}

opcode_family! {
    /// Fences for one purpose.
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
        /// Before other lines.
        First = "evict_first",
        /// After other lines.
        Last = "evict_last",
    }
}
