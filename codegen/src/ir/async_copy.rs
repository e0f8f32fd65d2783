//! Asynchronous copies and prefetches.

use super::effect::{BASELINE, Requirement, since};
use super::members::{Flag, Format, Number, Variant};
use super::reader::Reader;
use super::rule::{CLUSTER, GLOBAL, I32, OperandType, Rule, SHARED, TENSOR_MAP, U16, U32, untyped};
use super::table::opcodes;
use super::tensor::{MAX_RANK, TensorReduction};
use super::types::Type;
use crate::target::Target::{Sm80, Sm90};

const HINTED: Flag = Flag("hinted");
const BYTES: Number<u8> = Number { what: "a number of bytes", examples: &[4, 8, 16] };
const RANK: Number<u8> = Number { what: "a number of dimensions", examples: &[1, 2, 3, 5] };
const GROUPS: Number<u32> = Number { what: "a number of groups", examples: &[0, 2] };

opcodes! {
    /// Asynchronous copies: bytes move while the thread continues. `hinted` adds an L2 cache policy (u64) as last
    /// operand. Bulk copies have sizes that are multiples of 16 bytes, and addresses aligned to 16 bytes.
    pub enum AsyncCopy at ty from source {
        /// `cp.async`: operands shared destination, global source, and with `sized` the number of bytes to copy (u32),
        /// at most `bytes`; the others become zero. A copy of 16 bytes bypasses L1.
        Async {
            /// Size in bytes: 4, 8 or 16. Both addresses are aligned to the size.
            bytes: u8 as BYTES,
            /// Whether the third operand is the number of bytes to copy.
            sized: bool as Flag("sized"),
            /// Whether the last operand is an L2 cache policy.
            hinted: bool as HINTED,
        } = "async": untyped(if sized { &[SHARED, GLOBAL, U32] } else { &[SHARED, GLOBAL] }, &[])
                .policy(hinted).check(check_bytes(bytes));
            Sync; Independent; hinted_copy(hinted),
        /// Closes the current group: the thread's `cp.async` copies since its last commit.
        Commit = "commit": untyped(&[], &[]); Sync; Independent; BASELINE,
        /// Waits until at most the `pending` newest groups of the thread are incomplete.
        Wait {
            /// Groups that may still be in flight.
            pending: u32 as GROUPS,
        } = "wait": untyped(&[], &[]); Sync; Independent; BASELINE,
        /// `cp.async.bulk` to shared memory: operands shared destination, global source, bytes (u32), and the mbarrier
        /// that counts the bytes.
        Bulk {
            /// Whether the last operand is an L2 cache policy.
            hinted: bool as HINTED,
        } = "bulk": untyped(&[SHARED, GLOBAL, U32, SHARED], &[]).policy(hinted); Sync; Independent; bulk(),
        /// `cp.async.bulk` to several CTAs of the cluster: the operands of `Bulk`, then a mask of CTA ranks (u16). In
        /// each CTA of the mask, the copy writes at the destination's offset in that CTA's shared memory and counts the
        /// bytes at the mbarrier's offset there.
        BulkMulticast {
            /// Whether the last operand is an L2 cache policy.
            hinted: bool as HINTED,
        } = "bulk_multicast": untyped(&[SHARED, GLOBAL, U32, SHARED, U16], &[]).policy(hinted);
            Sync; Independent; bulk(),
        /// `cp.async.bulk` to global memory: operands global destination, shared source, bytes (u32).
        BulkStore {
            /// Whether the last operand is an L2 cache policy.
            hinted: bool as HINTED,
        } = "bulk_store": untyped(&[GLOBAL, SHARED, U32], &[]).policy(hinted); Sync; Independent; bulk(),
        /// Closes the current group of bulk stores: the thread's bulk stores since its last `BulkCommit`.
        BulkCommit = "bulk_commit": untyped(&[], &[]); Sync; Independent; bulk(),
        /// Waits until at most the `pending` newest groups of bulk stores of the thread are incomplete.
        BulkWait {
            /// Groups that may still be in flight.
            pending: u32 as GROUPS,
            /// Whether to wait only until the source in shared memory has been read.
            read: bool as Flag("read"),
        } = "bulk_wait": untyped(&[], &[]); Sync; Independent; bulk(),
        /// `cp.async.bulk` within a cluster: operands cluster destination, shared source, bytes (u32), and the mbarrier
        /// in the destination's CTA (a cluster address) that counts the bytes.
        BulkToCluster = "bulk_to_cluster": untyped(&[CLUSTER, SHARED, U32, CLUSTER], &[]);
            Sync; Independent; bulk(),
        /// Prefetches the cache line of a global address into L2.
        Prefetch = "prefetch": untyped(&[GLOBAL], &[]); Sync; Independent; BASELINE,
        /// Prefetches a number of bytes (second operand, u32) from a global address into L2.
        PrefetchBulk = "prefetch_bulk": untyped(&[GLOBAL, U32], &[]);
            Sync; Independent; since("cp.async.bulk.prefetch", Sm90, (8, 0)),
        /// `cp.async.bulk.tensor` to shared memory: operands shared destination, tensor map, `rank` coordinates of the
        /// tile's first element (i32, dimension 0 first), the mbarrier that counts the bytes, and with `multicast` a mask
        /// of CTA ranks (u16), as in `BulkMulticast`.
        TensorLoad {
            /// Number of dimensions.
            rank: u8 as RANK,
            /// Whether a mask of CTA ranks follows the mbarrier.
            multicast: bool as Flag("multicast"),
            /// Whether the last operand is an L2 cache policy.
            hinted: bool as HINTED,
        } = "tensor_load": tensor_load(rank, multicast).policy(hinted).check(check_rank(rank));
            Sync; Independent; tensor(),
        /// `cp.async.bulk.tensor` to global memory: operands tensor map, `rank` coordinates, shared source. Completion by
        /// groups, as of `BulkStore`.
        TensorStore {
            /// Number of dimensions.
            rank: u8 as RANK,
            /// Whether the last operand is an L2 cache policy.
            hinted: bool as HINTED,
        } = "tensor_store": tensor_store(rank).policy(hinted).check(check_rank(rank)); Sync; Independent; tensor(),
        /// `cp.reduce.async.bulk.tensor`: as `TensorStore`, but combines the tile with the elements in global memory.
        TensorReduce {
            /// The operation.
            op: TensorReduction as Variant,
            /// Number of dimensions.
            rank: u8 as RANK,
            /// Whether the last operand is an L2 cache policy.
            hinted: bool as HINTED,
        } = "tensor_reduce": tensor_store(rank).policy(hinted).check(check_rank(rank)); Sync; Independent; tensor(),
        /// Prefetches a tile into L2: operands tensor map, `rank` coordinates.
        TensorPrefetch {
            /// Number of dimensions.
            rank: u8 as RANK,
            /// Whether the last operand is an L2 cache policy.
            hinted: bool as HINTED,
        } = "tensor_prefetch": untyped(&coordinates(rank), &[]).policy(hinted).check(check_rank(rank));
            Sync; Independent; tensor(),
        /// Prefetches a tensor map: operand tensor map.
        PrefetchTensorMap = "prefetch_tensor_map": untyped(&[TENSOR_MAP], &[]);
            Sync; Independent; since("prefetch.tensormap", Sm90, (8, 0)),
    }
}

/// Tensor map and coordinates.
fn coordinates(rank: u8) -> Vec<OperandType> {
    let coordinates = std::iter::repeat_n(I32, rank.into());
    std::iter::once(TENSOR_MAP).chain(coordinates).collect()
}

fn tensor_load(rank: u8, multicast: bool) -> Rule {
    let mask = multicast.then_some(U16);
    let slots = std::iter::once(SHARED).chain(coordinates(rank)).chain([SHARED]).chain(mask);
    untyped(&slots.collect::<Vec<_>>(), &[])
}

fn tensor_store(rank: u8) -> Rule {
    untyped(&[&coordinates(rank)[..], &[SHARED]].concat(), &[])
}

fn tensor() -> Option<Requirement> {
    since("cp.async.bulk.tensor", Sm90, (8, 0))
}

fn check_rank(rank: u8) -> Result<(), String> {
    if (1..=MAX_RANK).contains(&usize::from(rank)) {
        return Ok(());
    }
    Err(format!("a tensor has 1 to {MAX_RANK} dimensions, not {rank}"))
}

fn bulk() -> Option<Requirement> {
    since("cp.async.bulk", Sm90, (8, 0))
}

fn hinted_copy(hinted: bool) -> Option<Requirement> {
    if hinted { since("cp.async.L2::cache_hint", Sm80, (7, 4)) } else { BASELINE }
}

fn check_bytes(bytes: u8) -> Result<(), String> {
    if matches!(bytes, 4 | 8 | 16) {
        return Ok(());
    }
    Err(format!("asynchronous copies are of 4, 8 or 16 bytes, not {bytes}"))
}

/// Format of an asynchronous copy: its name and its own members.
pub(super) struct CopyFormat;

impl Format<AsyncCopy> for CopyFormat {
    fn print(&self, copy: AsyncCopy, ty: Type) -> String {
        let members = copy.members(ty);
        format!("{} {members}", copy.name()).trim_end().into()
    }

    fn read(&self, reader: &mut Reader, ty: Type) -> Result<AsyncCopy, super::lex::ParseError> {
        let name = reader.word("an asynchronous copy")?;
        let copy = AsyncCopy::read(&name, reader, ty)?;
        copy.ok_or_else(|| reader.error_before(format!("`{name}` is not an asynchronous copy")))
    }

    fn examples(&self) -> Vec<AsyncCopy> {
        AsyncCopy::every()
    }
}
