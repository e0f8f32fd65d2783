//! Copies from global to shared memory that go on while the thread computes, and prefetches.
//!
//! [`copy_async`] (sm_80) moves up to 16 bytes a thread and is waited for by groups ([`wait_copies`]) or by an mbarrier
//! ([`Mbarrier::arrive_after_copies`]). [`copy_bulk`] (sm_90) moves any multiple of 16 bytes for one thread and counts
//! them at an mbarrier. Neither fills registers on the way.

use std::panic::Location;

use super::cache_policy::CachePolicy;
use super::mbarrier::Mbarrier;
use super::pointer::{Global, Ptr, Shared};
use super::record::emit;
use super::value::IntoVal;
use crate::ir::{self, Op, Transfer, Type};

#[track_caller]
fn transfer(transfer: Transfer, operands: &[ir::Value]) {
    emit(Op::Transfer(transfer), Type::U32, operands, Location::caller());
}

/// The size of an asynchronous copy, as the IR holds it.
const fn size<const BYTES: usize>() -> u8 {
    const { assert!(matches!(BYTES, 4 | 8 | 16), "an asynchronous copy is of 4, 8 or 16 bytes") };
    BYTES as u8
}

/// Starts a copy of `BYTES` (4, 8 or 16) bytes; both addresses are aligned to as many. 16 bytes pass the first-level
/// cache by (`cp.async.cg.shared.global`, else `cp.async.ca`; sm_80).
#[track_caller]
pub fn copy_async<const BYTES: usize>(to: Ptr<Shared, u8>, from: Ptr<Global, u8>) {
    transfer(Transfer::Async { bytes: size::<BYTES>(), hinted: false }, &[to.id, from.id]);
}

/// As [`copy_async`], with a policy of the second-level cache (`.L2::cache_hint`).
#[track_caller]
pub fn copy_async_with<const BYTES: usize>(to: Ptr<Shared, u8>, from: Ptr<Global, u8>, policy: CachePolicy) {
    transfer(Transfer::Async { bytes: size::<BYTES>(), hinted: true }, &[to.id, from.id, policy.id()]);
}

/// Makes a group of the copies that this thread has started since the last group (`cp.async.commit_group`).
#[track_caller]
pub fn commit_copies() {
    transfer(Transfer::Commit, &[]);
}

/// Waits until at most the newest `pending` groups of this thread are under way (`cp.async.wait_group`). What other
/// threads copied is visible only after a barrier.
#[track_caller]
pub fn wait_copies(pending: u32) {
    transfer(Transfer::Wait { pending }, &[]);
}

/// Starts one copy of `bytes` bytes, a multiple of 16, between addresses aligned to 16; `done` counts the bytes
/// (`cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes`, sm_90).
#[track_caller]
pub fn copy_bulk(
    to: Ptr<Shared, u8>,
    from: Ptr<Global, u8>,
    bytes: impl IntoVal<u32>,
    done: Mbarrier,
    policy: Option<CachePolicy>,
) {
    let mut operands = vec![to.id, from.id, bytes.into_val().id, done.address()];
    operands.extend(policy.map(|policy| policy.id()));
    transfer(Transfer::Bulk { hinted: policy.is_some() }, &operands);
}

/// Brings `bytes` bytes, a multiple of 16 from an address aligned to 16, into the second-level cache
/// (`cp.async.bulk.prefetch.L2.global`, sm_90).
#[track_caller]
pub fn prefetch_bulk_l2(from: Ptr<Global, u8>, bytes: impl IntoVal<u32>) {
    transfer(Transfer::PrefetchBulk, &[from.id, bytes.into_val().id]);
}

/// Brings the line of an address into the second-level cache (`prefetch.global.L2`).
#[track_caller]
pub fn prefetch_l2(from: Ptr<Global, u8>) {
    transfer(Transfer::Prefetch, &[from.id]);
}
