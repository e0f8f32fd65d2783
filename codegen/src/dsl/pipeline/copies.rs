//! Copies into a stage by `cp.async`, divided among threads.

use crate::device;
use crate::dsl::async_copy::{copy_async, copy_async_with};
use crate::dsl::cache_policy::CachePolicy;
use crate::dsl::hooks::range;
use crate::dsl::pointer::{Global, Index, Ptr, Shared};
use crate::dsl::value::Val;

/// The part of a `cp.async` copy that thread `worker` of `threads` makes: every `threads`-th 16 bytes.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) to: Ptr<Shared, u8>,
    pub(super) from: Ptr<Global, u8>,
    pub(super) worker: Val<u32>,
    pub(super) threads: u32,
    pub(super) policy: Option<CachePolicy>,
}

impl Share {
    #[track_caller]
    fn copy(self, at: impl Index) {
        let (to, from) = (self.to.byte_add(at), self.from.byte_add(at));
        match self.policy {
            Some(policy) => copy_async_with::<16>(to, from, policy),
            None => copy_async::<16>(to, from),
        }
    }
}

/// Copies `bytes` bytes, of which the thread copies its part.
#[device]
pub(super) fn copy_share(share: Share, bytes: u32) {
    let round = share.threads * 16;
    let first = share.worker * 16;
    let own = Share { to: share.to.byte_add(first), from: share.from.byte_add(first), ..share };
    for i in 0..bytes / round {
        own.copy(i * round);
    }
    let rest = bytes % round;
    if rest > 0 {
        if first < rest {
            own.copy(bytes - rest);
        }
    }
}

/// As [`copy_share`], for a number of bytes that is known at run time.
#[device]
pub(super) fn copy_share_of(share: Share, bytes: Val<u32>) {
    for at in range(share.worker * 16, bytes).step_by(share.threads * 16) {
        share.copy(at);
    }
}
