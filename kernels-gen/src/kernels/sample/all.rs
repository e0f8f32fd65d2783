//! Passes over the sort keys of all tokens, in device memory.

use bespoke_codegen::prelude::*;

use super::key;
use super::scan::{PrefixSum, block_scan, lane64};

/// Shared memory of the CTA that chooses a token, and the number of its threads.
#[derive(Clone, Copy)]
pub(super) struct Workspace {
    /// Threads of the CTA, a power of two from 64 to 1024.
    pub threads: u32,
    /// Scratch of prefix sums, u64 `[warps]`.
    pub scratch: Ptr<Shared, u64>,
    /// Values that one thread passes to the others, u64 `[Workspace::MAILBOX]`.
    pub mailbox: Ptr<Shared, u64>,
}

impl Workspace {
    /// Length of `mailbox` in u64: four for the results of a search, and one for the random number.
    pub const MAILBOX: u32 = 5;
    /// Index in `mailbox` of the random number, which is written once per step.
    pub const RANDOM: u32 = 4;

    /// Sums of `own` over the preceding threads of the CTA (exclusive) and over all its threads. All threads must call
    /// it, and a barrier must precede the next call, which overwrites `scratch`.
    #[device]
    pub fn scan(&self, own: Val<u64>) -> PrefixSum {
        block_scan(own, self.scratch, self.threads / WARP)
    }
}

/// Sort keys of all tokens, in device memory.
pub(super) struct Keys {
    /// Sort keys, u32 `[count]`, indexed by token.
    pub keys: Ptr<Global, u32>,
    /// Number of tokens.
    pub count: u32,
    /// Shared memory of the CTA.
    pub workspace: Workspace,
}

impl Keys {
    /// Loads the sort key of token `token`; returns it with the token's ordering. Past the last token the key is 0.
    #[device]
    fn token(&self, token: Val<u32>) -> (Val<u32>, Val<u64>) {
        let inside = token < self.count;
        let key = select(inside, self.keys.at(select(inside, token, 0u32)).load(), 0u32);
        (key, key::ordering(key, token))
    }

    /// Number of loads that a thread has in flight.
    fn unroll(&self) -> u32 {
        self.count.div_ceil(self.workspace.threads).clamp(1, 6)
    }

    /// Loads keys and orderings, as [`Keys::token`] does, of [`Keys::unroll`] tokens: `first`, `first + stride`, ….
    #[device]
    fn batch(&self, first: Val<u32>, stride: u32) -> Vec<(Val<u32>, Val<u64>)> {
        let mut tokens = Vec::new();
        for i in 0..self.unroll() {
            tokens.push(self.token(first + i * stride));
        }
        tokens
    }

    /// Number of tokens from the start of a batch to the start of the same thread's next batch.
    fn batch_stride(&self, stride: u32) -> u32 {
        self.unroll() * stride
    }

    /// Calls `visit` with the key and the ordering of every token, each in one thread; past the last token, also with
    /// key 0.
    #[device]
    pub fn each<F: Fn(Val<u32>, Val<u64>)>(&self, visit: F) {
        let threads = self.workspace.threads;
        let mut first = thread_index();
        while first < self.count {
            for (key, ordering) in self.batch(first, threads) {
                visit(key, ordering);
            }
            first += self.batch_stride(threads);
        }
    }

    /// Sum of `measure` over the tokens that this thread visits. The sum of all threads' results is the sum over all
    /// tokens.
    #[device]
    pub fn share<F: Fn(Val<u32>, Val<u64>) -> Val<u64>>(&self, measure: F) -> Val<u64> {
        let threads = self.workspace.threads;
        let mut sum = val(0u64);
        let mut first = thread_index();
        while first < self.count {
            for (key, ordering) in self.batch(first, threads) {
                sum += measure(key, ordering);
            }
            first += self.batch_stride(threads);
        }
        sum
    }

    /// The token at which the running sum of `measure`, in the order of tokens, first exceeds ⌊random·sum/2⁶⁴⌋. The sum
    /// must be at least 1. Executes a CTA barrier before it writes to shared memory.
    ///
    /// In two passes: each warp sums a run of tokens; then all threads sum parts of the run that contains the point.
    #[device]
    pub fn draw<F: Fn(Val<u32>, Val<u64>) -> Val<u64>>(&self, measure: F, random: Val<u64>) -> Val<u32> {
        let (workspace, warps) = (self.workspace, self.workspace.threads / WARP);
        let run = self.count.div_ceil(warps).next_multiple_of(WARP);
        let start = warp_index() * run;
        let mut sum = val(0u64);
        let mut first = start + lane();
        while first < start + run {
            for (i, (key, ordering)) in self.batch(first, WARP).into_iter().enumerate() {
                sum += select(first + i as u32 * WARP < start + run, measure(key, ordering), 0u64);
            }
            first += self.batch_stride(WARP);
        }
        barrier();
        let running = workspace.scan(sum);
        let point = mul_high(random, running.total);
        let warp_start = lane64(running.before, 0u32);
        let warp_end = lane64(running.before + running.own, WARP - 1);
        if lane() == 0 && warp_start <= point && point < warp_end {
            workspace.mailbox.store(start.cast::<u64>());
            workspace.mailbox.at(1).store(warp_start);
        }
        barrier();
        let (start, before) = (workspace.mailbox.load().cast::<u32>(), workspace.mailbox.at(1).load());
        // Tokens past the end of the run belong to the next run.
        let part = run.div_ceil(workspace.threads);
        let first = start + thread_index() * part;
        let mut sums = vec![val(0u64)];
        for i in 0..part {
            let token = first + i;
            let inside = token < start + run;
            let (key, ordering) = self.token(token);
            let last = sums[i as usize];
            sums.push(last + select(inside, measure(key, ordering), 0u64));
        }
        let running = workspace.scan(sums[part as usize]);
        let point = point - before;
        if running.contains(point) {
            let mut token = first;
            for &sum in &sums[1..part as usize] {
                token += select(running.before + sum <= point, 1u32, 0u32);
            }
            workspace.mailbox.at(2).store(token.cast::<u64>());
        }
        barrier();
        workspace.mailbox.at(2).load().cast::<u32>()
    }
}
