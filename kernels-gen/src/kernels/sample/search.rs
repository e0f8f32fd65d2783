//! Search for the end of a prefix of the ranked tokens, by histograms of the digits of their orderings.

use bespoke_codegen::prelude::*;

use super::all::{Keys, Workspace};
use super::key::{self, TOKEN_BITS};
use super::scan::words_before;
use super::weight::{SCALE_BITS, Scale};

/// Largest number of bits of a digit; one pass finds one digit of the result.
const DIGIT_BITS: u32 = 10;
/// Number of values of a digit.
const BINS: u32 = 1 << DIGIT_BITS;

/// The quantity that is summed over a prefix of the ranked tokens.
#[derive(Clone, Copy)]
pub(super) enum Measure {
    /// Number of tokens.
    Count,
    /// Sum of the tokens' weights.
    Weight(Scale),
}

/// The prefix of the ranked tokens to find: the shortest one whose sum reaches `sum`.
pub(super) struct Target {
    /// The quantity that is summed.
    pub measure: Measure,
    /// The sum to reach: at least 1, at most the sum over all tokens from `low` on.
    pub sum: Val<u64>,
    /// Lower bound of the orderings in the prefix; its token bits are ignored.
    pub low: Val<u64>,
    /// The largest sort key of all tokens.
    pub top: Val<u32>,
}

/// Histogram of a digit of the orderings, in shared memory.
///
/// Shared memory has native atomic additions of 32-bit words; 64-bit ones are compare-and-swap loops. A weight is
/// therefore added in parts, each narrow enough that no sum over all tokens overflows.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// Number of tokens per bin, then each part of the sum of weights, lowest part first: u32 [1 + parts, BINS].
    bins: Ptr<Shared, u32>,
    /// Number of parts into which a weight is split.
    parts: u32,
    /// Number of bits per part of a weight.
    width: u32,
    /// Shared memory of the CTA.
    workspace: Workspace,
}

impl Search {
    /// Allocates the shared memory for a search among up to `count` tokens.
    #[device]
    pub fn new(count: u32, workspace: Workspace) -> Search {
        let width = 32 - count.next_power_of_two().trailing_zeros();
        let parts = (SCALE_BITS + 1).div_ceil(width);
        Search { bins: shared_array::<u32>((1 + parts) * BINS), parts, width, workspace }
    }

    /// Sum of `share` over all threads of the CTA. Executes a CTA barrier first.
    #[device]
    pub fn total(&self, share: Val<u64>) -> Val<u64> {
        barrier();
        self.workspace.scan(share).total
    }

    /// Finds a bound between the prefix and the other tokens: the lowest ordering in the prefix, or a lower value that
    /// is still above the ordering of the next token.
    ///
    /// A radix search over orderings relative to `low`, starting at the first digit in which `low` and `top` differ.
    /// Each pass builds a histogram of one digit over the tokens that agree in the higher digits, and finds the value
    /// at which the prefix ends. The search stops when all tokens with that value belong to the prefix.
    #[device]
    pub fn run(&self, keys: &Keys, target: &Target) -> Val<u64> {
        let low = key::lowest_with(key::key_of(target.low));
        let span = key::lowest_with(target.top) + (1 << TOKEN_BITS) - low;
        let bits = 64 - span.leading_zeros();
        let mut shift = bits.max(DIGIT_BITS) - DIGIT_BITS;
        let mut width = val(DIGIT_BITS);
        let mut digits = val(0u64);
        let mut left = target.sum;
        loop {
            self.clear();
            barrier();
            keys.each(|key, ordering| self.add(ordering - low, (digits, shift, width), target, key));
            barrier();
            let [digit, above, within, count] = self.crossing(target, left);
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

    /// Estimates the `count`-th largest of the `tops`: returns a key that at least `count` of them reach and few others
    /// do, or 0 if the histogram cannot tell. There are at least `count` tops; all keys are between `lowest` and `top`.
    ///
    /// One pass with a histogram of logits in bins of equal width, from the largest logit down to the smallest, or to
    /// 32 below the largest if that is higher.
    #[device]
    pub fn guess(&self, tops: &[Val<u32>], [top, lowest]: [Val<u32>; 2], count: Val<u32>) -> Val<u32> {
        let (workspace, per_thread) = (self.workspace, self.bins_per_thread());
        let largest = key::logit(top);
        let width = ((largest - key::logit(lowest)).min(32.0) * (1.0 / (BINS - 24) as f32)).max(1.0 / 1024.0);
        let per_logit = width.rcp();
        for i in 0..per_thread {
            self.bins.at(thread_index() + i * workspace.threads).store(0);
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
        let before = words_before(
            sums[per_thread as usize],
            workspace.scratch.cast::<u32>(),
            workspace.threads / WARP,
        );
        for i in 0..per_thread {
            let (below, with) = (before + sums[i as usize], before + sums[i as usize + 1]);
            if below < count && count <= with {
                workspace.mailbox.store((first + i).cast::<u64>());
            }
        }
        barrier();
        let bin = workspace.mailbox.load().cast::<u32>();
        // Three roundings give the bin's number an error of less than 2^-10 bins, so a margin of 1/16 bin is safe. The
        // rounding of the difference is monotonic in the logit.
        let least = key::key(largest - (bin.cast::<f32>() + 1.0625) * width).min(top);
        select(bin == BINS - 1, 0u32, least)
    }

    /// Bins per thread; thread 0 has the highest ones.
    fn bins_per_thread(&self) -> u32 {
        BINS.div_ceil(self.workspace.threads)
    }

    /// Sets all bins to zero.
    #[device]
    fn clear(&self) {
        for i in 0..(1 + self.parts) * self.bins_per_thread() {
            self.bins.at(thread_index() + i * self.workspace.threads).store(0);
        }
    }

    /// Adds a token to its bin of the histogram if `offset`, the token's ordering minus the lowest one, has the digits
    /// found so far. The offset of a lower ordering wraps around and never has these digits.
    #[device]
    fn add(
        &self,
        offset: Val<u64>,
        (digits, shift, width): (Val<u64>, Val<u32>, Val<u32>),
        target: &Target,
        key: Val<u32>,
    ) {
        if (offset >> (shift + width)) == digits {
            let bin = self.bins.at((offset >> shift).cast::<u32>() & ((val(1u32) << width) - 1));
            bin.atomic_add(1, Scope::Cta);
            if let Measure::Weight(scale) = target.measure {
                let weight = scale.weight(key);
                for part in 0..self.parts {
                    let bits = (weight >> (part * self.width)).cast::<u32>() & ((1 << self.width) - 1);
                    bin.at((1 + part) * BINS).atomic_add(bits, Scope::Cta);
                }
            }
        }
    }

    /// Sum of the measure over the tokens in bin `bin`.
    #[device]
    fn sum(&self, bin: Val<u32>, target: &Target) -> Val<u64> {
        if let Measure::Count = target.measure {
            return self.bins.at(bin).load().cast::<u64>();
        }
        let mut sum = val(0u64);
        for part in 0..self.parts {
            sum += self.bins.at(bin).at((1 + part) * BINS).load().cast::<u64>() << (part * self.width);
        }
        sum
    }

    /// Finds the bin at which the sum, from the highest bin down, reaches `left`. Returns the bin's index, the sum of
    /// the bins above it, the bin's own sum, and the bin's number of tokens.
    #[device]
    fn crossing(&self, target: &Target, left: Val<u64>) -> [Val<u64>; 4] {
        let (workspace, per_thread) = (self.workspace, self.bins_per_thread());
        let first = (BINS - 1) - thread_index() * per_thread;
        let mut sums = vec![val(0u64)];
        for i in 0..per_thread {
            let before = sums[i as usize];
            sums.push(before + self.sum(first - i, target));
        }
        let running = workspace.scan(sums[per_thread as usize]);
        if running.contains(left - 1) {
            for i in 0..per_thread {
                let above = running.before + sums[i as usize];
                let with = running.before + sums[i as usize + 1];
                if above < left && left <= with {
                    let bin = first - i;
                    let count = self.bins.at(bin).load();
                    let result = [bin.cast::<u64>(), above, with - above, count.cast::<u64>()];
                    for (i, value) in result.into_iter().enumerate() {
                        workspace.mailbox.at(i).store(value);
                    }
                }
            }
        }
        barrier();
        [0u32, 1, 2, 3].map(|i| workspace.mailbox.at(i).load())
    }
}
