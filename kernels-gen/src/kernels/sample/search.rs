//! Where a run of the highest-ranking tokens ends.

use bespoke_codegen::prelude::*;

use super::all::{Keys, Work};
use super::key::{self, TOKEN_BITS};
use super::scan::words_before;
use super::weight::{SCALE_BITS, Scale};

/// Bits that a pass decides at most.
const DIGIT_BITS: u32 = 10;
/// Values of a digit.
const BINS: u32 = 1 << DIGIT_BITS;

/// What adds up to a target.
#[derive(Clone, Copy)]
pub(super) enum Measure {
    /// Tokens.
    Count,
    /// Their weights.
    Weight(Scale),
}

/// What is searched for: the lowest ordering of the shortest run of the highest-ranking tokens that adds up to a target.
pub(super) struct Aim {
    /// What adds up.
    pub by: Measure,
    /// To how much: at least 1, at most all from `low` on.
    pub target: Val<u64>,
    /// The result is at or above the lowest ordering with this one's key.
    pub low: Val<u64>,
    /// The largest key there is.
    pub top: Val<u32>,
}

/// Sums by the value of a digit, in shared memory.
///
/// Shared memory adds 32-bit words by itself, 64-bit ones by trying again and again; so a weight is added in parts, each
/// narrow enough that no sum over all tokens overflows.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// Numbers of tokens, then parts of their weights, from the lowest on: [1 + parts, BINS].
    bins: Ptr<Shared, u32>,
    /// Parts of a weight.
    parts: u32,
    /// Bits of a part.
    width: u32,
    /// The CTA's.
    work: Work,
}

impl Search {
    /// Takes the shared memory to search among up to `count` tokens.
    #[device]
    pub fn new(count: u32, work: Work) -> Search {
        let width = 32 - count.next_power_of_two().trailing_zeros();
        let parts = (SCALE_BITS + 1).div_ceil(width);
        Search { bins: shared_array::<u32>((1 + parts) * BINS), parts, width, work }
    }

    /// The sum of all threads' shares.
    #[device]
    pub fn total(&self, share: Val<u64>) -> Val<u64> {
        barrier();
        self.work.scan(share).total
    }

    /// The lowest ordering of the run, or one between that and the next lower token's.
    ///
    /// Orderings are taken relative to `low` and looked at digit by digit, from the first that differs between `low` and
    /// `top`. A pass sums by the value of a digit, over the tokens that agree in the digits before, and finds the value at
    /// which the run ends. It is the last one if all tokens of that value belong to the run.
    #[device]
    pub fn run(&self, keys: &Keys, aim: &Aim) -> Val<u64> {
        let low = key::lowest_with(key::key_of(aim.low));
        let span = key::lowest_with(aim.top) + (1 << TOKEN_BITS) - low;
        let bits = 64 - span.leading_zeros();
        let mut shift = bits.max(DIGIT_BITS) - DIGIT_BITS;
        let mut width = val(DIGIT_BITS);
        let mut digits = val(0u64);
        let mut left = aim.target;
        loop {
            self.clear();
            barrier();
            keys.each(|key, ordering| self.add(ordering - low, (digits, shift, width), aim, key));
            barrier();
            let [digit, above, within, count] = self.cross(aim, left);
            digits = (digits << width) | digit;
            left -= above;
            if left == within || count == 1 || shift == 0 {
                break;
            }
            width = shift.min(DIGIT_BITS);
            shift -= width;
        }
        low + (digits << shift)
    }

    /// A key such that `count` or a few more of the `tops` are at or above it, or 0: `count` is at most as many as there
    /// are. All keys lie from `lowest` to `top`.
    ///
    /// One pass over bins of equal width in the logits, which reach from the largest down to the smallest or, if that is
    /// farther, 32 below.
    #[device]
    pub fn guess(&self, tops: &[Val<u32>], [top, lowest]: [Val<u32>; 2], count: Val<u32>) -> Val<u32> {
        let (work, per_thread) = (self.work, self.bins_per_thread());
        let largest = key::logit(top);
        let width = ((largest - key::logit(lowest)).min(32.0) * (1.0 / (BINS - 24) as f32)).max(1.0 / 1024.0);
        let per_logit = width.rcp();
        for i in 0..per_thread {
            self.bins.at(thread_index() + i * work.threads).store(0);
        }
        barrier();
        for &key in tops {
            if key > 0 {
                let bin = ((largest - key::logit(key)) * per_logit).cast::<u32>().min(BINS - 1);
                self.bins.at(bin).atomic_add(1, Scope::Cta);
            }
        }
        barrier();
        let first = thread_index() * per_thread;
        let mut sums = vec![val(0u32)];
        for i in 0..per_thread {
            let before = sums[i as usize];
            sums.push(before + self.bins.at(first + i).load());
        }
        let before = words_before(sums[per_thread as usize], work.scratch.cast::<u32>(), work.threads / WARP);
        for i in 0..per_thread {
            let (below, with) = (before + sums[i as usize], before + sums[i as usize + 1]);
            if below < count && count <= with {
                work.found.store((first + i).cast::<u64>());
            }
        }
        barrier();
        let bin = work.found.load().cast::<u32>();
        // A bin's number is a product of three roundings, off by less than 2^-10: a sixteenth of a bin covers that. The
        // difference is rounded in the order of the logits.
        let least = key::key(largest - (bin.cast::<f32>() + 1.0625) * width).min(top);
        select(bin == BINS - 1, 0u32, least)
    }

    /// Bins of a thread: thread 0 has the highest ones.
    fn bins_per_thread(&self) -> u32 {
        BINS.div_ceil(self.work.threads)
    }

    /// Sets all sums to zero.
    #[device]
    fn clear(&self) {
        for i in 0..(1 + self.parts) * self.bins_per_thread() {
            self.bins.at(thread_index() + i * self.work.threads).store(0);
        }
    }

    /// Adds a token, `offset` above the low end, to its bin, if it agrees in the digits before; what lies below the low
    /// end wraps round and agrees with nothing.
    #[device]
    fn add(
        &self,
        offset: Val<u64>,
        (digits, shift, width): (Val<u64>, Val<u32>, Val<u32>),
        aim: &Aim,
        key: Val<u32>,
    ) {
        if (offset >> (shift + width)) == digits {
            let bin = self.bins.at((offset >> shift).cast::<u32>() & ((val(1u32) << width) - 1));
            bin.atomic_add(1, Scope::Cta);
            if let Measure::Weight(scale) = aim.by {
                let weight = scale.weight(key);
                for part in 0..self.parts {
                    let bits = (weight >> (part * self.width)).cast::<u32>() & ((1 << self.width) - 1);
                    bin.at((1 + part) * BINS).atomic_add(bits, Scope::Cta);
                }
            }
        }
    }

    /// What a bin adds up to.
    #[device]
    fn sum(&self, bin: Val<u32>, aim: &Aim) -> Val<u64> {
        if let Measure::Count = aim.by {
            return self.bins.at(bin).load().cast::<u64>();
        }
        let mut sum = val(0u64);
        for part in 0..self.parts {
            sum += self.bins.at(bin).at((1 + part) * BINS).load().cast::<u64>() << (part * self.width);
        }
        sum
    }

    /// The bin at which the sum from the highest one on reaches `left`: its number, the sum before it, its own, and its
    /// number of tokens.
    #[device]
    fn cross(&self, aim: &Aim, left: Val<u64>) -> [Val<u64>; 4] {
        let (work, per_thread) = (self.work, self.bins_per_thread());
        let first = (BINS - 1) - thread_index() * per_thread;
        let mut sums = vec![val(0u64)];
        for i in 0..per_thread {
            let before = sums[i as usize];
            sums.push(before + self.sum(first - i, aim));
        }
        let running = work.scan(sums[per_thread as usize]);
        if running.holds(left - 1) {
            for i in 0..per_thread {
                let above = running.before + sums[i as usize];
                let with = running.before + sums[i as usize + 1];
                if above < left && left <= with {
                    let bin = first - i;
                    let count = self.bins.at(bin).load();
                    let told = [bin.cast::<u64>(), above, with - above, count.cast::<u64>()];
                    for (place, value) in told.into_iter().enumerate() {
                        work.found.at(place).store(value);
                    }
                }
            }
        }
        barrier();
        [0u32, 1, 2, 3].map(|place| work.found.at(place).load())
    }
}
