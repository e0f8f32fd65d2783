//! All keys, in device memory.

use bespoke_codegen::prelude::*;

use super::key;
use super::scan::{Running, block_scan, lane64};

/// Shared memory that the threads of the CTA work in together.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// Threads of the CTA, a power of two from 64 to 1024.
    pub threads: u32,
    /// For running sums: an element a warp.
    pub scratch: Ptr<Shared, u64>,
    /// What one thread tells the others: [`Work::FOUND`] elements.
    pub found: Ptr<Shared, u64>,
}

impl Work {
    /// Elements of `found`: four for whoever has something to tell, and the random number.
    pub const FOUND: u32 = 5;
    /// Index of the random number, which stays.
    pub const RANDOM: u32 = 4;

    /// The running sum over the threads. The next one needs a barrier before it.
    #[device]
    pub fn scan(&self, own: Val<u64>) -> Running {
        block_scan(own, self.scratch, self.threads / WARP)
    }
}

/// Keys of the tokens 0 to `count` in device memory.
pub(super) struct Keys {
    /// u32 `[count]`.
    pub keys: Ptr<Global, u32>,
    /// How many.
    pub count: u32,
    /// The CTA's.
    pub work: Work,
}

impl Keys {
    /// The key of a token, and its ordering; no token's past the end.
    #[device]
    fn token(&self, token: Val<u32>) -> (Val<u32>, Val<u64>) {
        let inside = token < self.count;
        let key = select(inside, self.keys.at(select(inside, token, 0u32)).load(), 0u32);
        (key, key::ordering(key, token))
    }

    /// Loads that a thread has in flight.
    fn unroll(&self) -> u32 {
        self.count.div_ceil(self.work.threads).clamp(1, 6)
    }

    /// As [`Keys::token`], of `first` and, `stride` apart, as many as are loaded at a time.
    #[device]
    fn several(&self, first: Val<u32>, stride: u32) -> Vec<(Val<u32>, Val<u64>)> {
        let mut tokens = Vec::new();
        for turn in 0..self.unroll() {
            tokens.push(self.token(first + turn * stride));
        }
        tokens
    }

    /// How far [`Keys::several`] goes.
    fn reach(&self, stride: u32) -> u32 {
        self.unroll() * stride
    }

    /// Calls `visit` with the key and the ordering of every token, in one thread each, and with some of no token.
    #[device]
    pub fn each<F: Fn(Val<u32>, Val<u64>)>(&self, visit: F) {
        let threads = self.work.threads;
        let mut first = thread_index();
        while first < self.count {
            for (key, ordering) in self.several(first, threads) {
                visit(key, ordering);
            }
            first += self.reach(threads);
        }
    }

    /// The thread's share of the sum of `measure`.
    #[device]
    pub fn share<F: Fn(Val<u32>, Val<u64>) -> Val<u64>>(&self, measure: F) -> Val<u64> {
        let threads = self.work.threads;
        let mut sum = val(0u64);
        let mut first = thread_index();
        while first < self.count {
            for (key, ordering) in self.several(first, threads) {
                sum += measure(key, ordering);
            }
            first += self.reach(threads);
        }
        sum
    }

    /// The token at which the running sum of `measure`, in the order of tokens, first exceeds ⌊random·sum/2⁶⁴⌋; the sum is
    /// at least 1. Begins with a barrier behind the caller.
    ///
    /// Twice over: each warp sums a run of tokens; then all threads sum parts of the run that the point falls into.
    #[device]
    pub fn draw<F: Fn(Val<u32>, Val<u64>) -> Val<u64>>(&self, measure: F, random: Val<u64>) -> Val<u32> {
        let (work, warps) = (self.work, self.work.threads / WARP);
        let run = self.count.div_ceil(warps).next_multiple_of(WARP);
        let start = warp_index() * run;
        let mut sum = val(0u64);
        let mut first = start + lane();
        while first < start + run {
            for (turn, (key, ordering)) in self.several(first, WARP).into_iter().enumerate() {
                sum += select(first + turn as u32 * WARP < start + run, measure(key, ordering), 0u64);
            }
            first += self.reach(WARP);
        }
        barrier();
        let running = work.scan(sum);
        let point = mul_high(random, running.total);
        let warp_start = lane64(running.before, 0u32);
        let warp_end = lane64(running.before + running.own, WARP - 1);
        if lane() == 0 && warp_start <= point && point < warp_end {
            work.found.store(start.cast::<u64>());
            work.found.at(1).store(warp_start);
        }
        barrier();
        let (start, before) = (work.found.load().cast::<u32>(), work.found.at(1).load());
        // A token past the run's end belongs to the next one.
        let part = run.div_ceil(work.threads);
        let first = start + thread_index() * part;
        let mut sums = vec![val(0u64)];
        for i in 0..part {
            let token = first + i;
            let inside = token < start + run;
            let (key, ordering) = self.token(token);
            let last = sums[i as usize];
            sums.push(last + select(inside, measure(key, ordering), 0u64));
        }
        let running = work.scan(sums[part as usize]);
        let point = point - before;
        if running.holds(point) {
            let mut token = first;
            for &sum in &sums[1..part as usize] {
                token += select(running.before + sum <= point, 1u32, 0u32);
            }
            work.found.at(2).store(token.cast::<u64>());
        }
        barrier();
        work.found.at(2).load().cast::<u32>()
    }
}
