//! Copies that go on beside the thread that starts them, and the barriers that say when they are done.

use std::fmt;

use super::names::named_enum;
use super::signature::Expect;
use super::types::Type;

named_enum! {
    /// Operations on an mbarrier: 8 bytes of shared memory that count the arrivals, and from sm_90 on the bytes,
    /// that a phase still waits for. The first operand is its address.
    pub enum Mbarrier {
        /// Makes it: its phases end after as many arrivals as the second operand says.
        Init = "init",
        /// Ends its life, so that the memory may hold something else.
        Invalidate = "invalidate",
        /// Arrives.
        Arrive = "arrive",
        /// Arrives at an mbarrier of a CTA of the cluster, whose address is one in the cluster.
        ArriveCluster = "arrive_cluster",
        /// Arrives, after making the phase wait for as many bytes more as the second operand says.
        ArriveExpect = "arrive_expect",
        /// The same at an mbarrier of a CTA of the cluster.
        ArriveExpectCluster = "arrive_expect_cluster",
        /// Makes the phase wait for as many bytes more as the second operand says.
        Expect = "expect",
        /// Whether the phase of the parity given by the second operand has ended.
        TestWait = "test_wait",
        /// The same; the thread may sleep for a while before it is told no.
        TryWait = "try_wait",
        /// The same; what other CTAs of the cluster wrote before they arrived is visible if it has.
        TryWaitCluster = "try_wait_cluster",
        /// Arrives when all of the thread's `cp.async` so far are done; the arrival is one of those expected.
        ArriveAfterCopies = "arrive_after_copies",
    }
}

impl Mbarrier {
    /// Operands and results.
    pub(super) fn signature(self) -> (Vec<Expect>, Vec<Type>) {
        let barrier = Expect::Is(Type::Shared);
        match self {
            Mbarrier::ArriveCluster => (vec![Expect::Is(Type::Cluster)], vec![]),
            Mbarrier::ArriveExpectCluster => (vec![Expect::Is(Type::Cluster), Expect::Is(Type::U32)], vec![]),
            Mbarrier::Arrive | Mbarrier::ArriveAfterCopies | Mbarrier::Invalidate => (vec![barrier], vec![]),
            Mbarrier::Init | Mbarrier::ArriveExpect | Mbarrier::Expect => {
                (vec![barrier, Expect::Is(Type::U32)], vec![])
            }
            Mbarrier::TestWait | Mbarrier::TryWait | Mbarrier::TryWaitCluster => {
                (vec![barrier, Expect::Is(Type::U32)], vec![Type::Pred])
            }
        }
    }
}

named_enum! {
    /// Fences for one purpose.
    pub enum FenceFor {
        /// Makes mbarriers that were initialised visible to the cluster and to the engine of bulk copies.
        MbarrierInit = "mbarrier_init",
        /// Orders accesses of the CTA's shared memory by instructions with those by bulk copies, which go another way.
        AsyncShared = "async_shared",
        /// The same for all memory.
        Async = "async",
    }
}

/// A movement of bytes that the thread does not wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// `cp.async`: operands shared destination, global source, and the L2 policy (u64) if `hinted`. Past the first
    /// level for 16 bytes.
    Async {
        /// 4, 8 or 16; both addresses are aligned to it.
        bytes: u8,
        /// There is a policy.
        hinted: bool,
    },
    /// Makes a group of the thread's copies since the last one.
    Commit,
    /// Waits until all groups of the thread are done but the newest `pending`.
    Wait {
        /// Groups that may be under way still.
        pending: u32,
    },
    /// `cp.async.bulk`: operands shared destination, global source, bytes (u32, a multiple of 16), the mbarrier that
    /// the bytes are counted at, and the L2 policy (u64) if `hinted`. Both addresses are aligned to 16 bytes.
    Bulk {
        /// There is a policy.
        hinted: bool,
    },
    /// `cp.async.bulk` for several CTAs of the cluster: the operands of [`Transfer::Bulk`], with a mask of the CTAs' ranks
    /// (u16) before the policy. Each of them gets the bytes at the destination's place in its own shared memory, and
    /// counts them at the mbarrier's place there.
    BulkMulticast {
        /// There is a policy.
        hinted: bool,
    },
    /// `cp.async.bulk` back: operands global destination, shared source, bytes (u32, a multiple of 16), and the L2
    /// policy (u64) if `hinted`. Both addresses are aligned to 16 bytes.
    BulkStore {
        /// There is a policy.
        hinted: bool,
    },
    /// Makes a group of the thread's bulk stores since the last one.
    BulkCommit,
    /// Waits until all groups of bulk stores of the thread are done but the newest `pending`.
    BulkWait {
        /// Groups that may be under way still.
        pending: u32,
        /// Waits only until shared memory has been read.
        read: bool,
    },
    /// `cp.async.bulk` within a cluster: operands destination in the cluster, shared source, bytes (u32, a multiple of
    /// 16), and the mbarrier in the cluster, of the destination's CTA, that the bytes are counted at.
    BulkToCluster,
    /// Brings the line of a global address into the second level.
    Prefetch,
    /// Brings bytes (u32, a multiple of 16) from a global address, aligned to 16 bytes, into the second level.
    PrefetchBulk,
}

impl Transfer {
    /// Operands, or why there is no such transfer.
    pub(super) fn signature(self) -> Result<Vec<Expect>, String> {
        let [shared, global, bytes, policy] =
            [Type::Shared, Type::Global, Type::U32, Type::U64].map(Expect::Is);
        let mut operands = match self {
            Transfer::Async { bytes: 4 | 8 | 16, .. } => vec![shared, global],
            Transfer::Async { bytes, .. } => {
                return Err(format!("asynchronous copies are of 4, 8 or 16 bytes, not {bytes}"));
            }
            Transfer::Commit | Transfer::Wait { .. } => vec![],
            Transfer::Bulk { .. } => vec![shared, global, bytes, shared],
            Transfer::BulkMulticast { .. } => vec![shared, global, bytes, shared, Expect::Is(Type::U16)],
            Transfer::BulkStore { .. } => vec![global, shared, bytes],
            Transfer::BulkToCluster => {
                let cluster = Expect::Is(Type::Cluster);
                vec![cluster, shared, bytes, cluster]
            }
            Transfer::BulkCommit | Transfer::BulkWait { .. } => vec![],
            Transfer::Prefetch => vec![global],
            Transfer::PrefetchBulk => vec![global, bytes],
        };
        if let Transfer::Async { hinted: true, .. }
        | Transfer::Bulk { hinted: true }
        | Transfer::BulkMulticast { hinted: true }
        | Transfer::BulkStore { hinted: true } = self
        {
            operands.push(policy);
        }
        Ok(operands)
    }
}

/// As in the IR's text form, after `transfer`.
impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = |hinted: bool| if hinted { " hinted" } else { "" };
        match *self {
            Transfer::Async { bytes, hinted } => write!(f, "async {bytes}{}", hint(hinted)),
            Transfer::Commit => f.write_str("commit"),
            Transfer::Wait { pending } => write!(f, "wait {pending}"),
            Transfer::Bulk { hinted } => write!(f, "bulk{}", hint(hinted)),
            Transfer::BulkMulticast { hinted } => write!(f, "bulk_multicast{}", hint(hinted)),
            Transfer::BulkStore { hinted } => write!(f, "bulk_store{}", hint(hinted)),
            Transfer::BulkToCluster => f.write_str("bulk_to_cluster"),
            Transfer::BulkCommit => f.write_str("bulk_commit"),
            Transfer::BulkWait { pending, read } => {
                write!(f, "bulk_wait {pending}{}", if read { " read" } else { "" })
            }
            Transfer::Prefetch => f.write_str("prefetch"),
            Transfer::PrefetchBulk => f.write_str("prefetch_bulk"),
        }
    }
}

named_enum! {
    /// Which lines the second level evicts first.
    pub enum Eviction {
        /// These before others.
        First = "evict_first",
        /// These after others.
        Last = "evict_last",
    }
}
