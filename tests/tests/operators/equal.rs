//! Mutants that compute the same.

/// The start of the kernel's name, operator, the start of the source line, and why.
pub type Equal = [&'static str; 4];

/// Of kernels.
pub const KERNELS: [Equal; 22] = [
    [
        "gemv, stacked",
        "wait only once",
        "gemv/ring.rs: producer.next.acquire(bytes);",
        "The first matrix goes into stages that nobody has used yet.",
    ],
    [
        "gemv, stacked",
        "mbarrier's wait behind accesses",
        "gemv/ring.rs: producer.next.acquire(bytes);",
        "As above.",
    ],
    [
        "gemv, stacked",
        "barrier behind accesses",
        "gemv/mod.rs: named_barrier(CONSUMER_BARRIER, s.consumers());",
        "The sums of squares that are loaded there were stored before the barrier ahead of this one.",
    ],
    [
        "gemv, stacked",
        "narrow a shuffle's mask",
        "gemv/mod.rs: let pair = sum + shuffle_xor(sum, 1);",
        "At a change of tiles, of which this matrix has one.",
    ],
    [
        "gemv, stacked",
        "store to the next word",
        "gemv/mod.rs: to.at(group + quarter * 8).store(",
        "As above.",
    ],
    ["gemv, stacked", "drop a store", "gemv/mod.rs: to.at(group + quarter * 8).store(", "As above."],
    [
        "gemv, stacked",
        "take the smaller",
        "gemv/mod.rs: let along = ",
        "With one CTA the start of this matrix comes out as 0 either way.",
    ],
    [
        "gemv Q8_0, residual",
        "swap operands",
        "gemv/ring.rs: let left = ",
        "Tiles have as many blocks as there are warps: what is left is never less than a stage.",
    ],
    [
        "gemv Q4_K, SwiGLU",
        "one more time",
        "gemv/ring.rs: while at < end {",
        "No run of tiles of 9 blocks ends with a whole stage of 4.",
    ],
    ["gemv Q4_K, SwiGLU", "one more time", "gemv/mod.rs: while streamed < end {", "As above."],
    [
        "gemv Q4_K, SwiGLU",
        "barrier behind accesses",
        "gemv/mod.rs: named_barrier(CONSUMER_BARRIER, s.consumers());",
        "As in the stacked one.",
    ],
    [
        "gemv Q6_K, argmax",
        "barrier behind accesses",
        "gemv/mod.rs: named_barrier(CONSUMER_BARRIER, s.consumers());",
        "As above.",
    ],
    [
        "gemv Q6_K, argmax",
        "wait only once",
        "gemv/ring.rs: producer.oldest.wait();",
        "It holds back copies, so that fewer are in flight; nothing is read behind it.",
    ],
    [
        "gemv Q6_K, argmax",
        "one more time",
        "argmax.rs: let take = ",
        "Of equal tokens either candidate will do.",
    ],
    [
        "attention, bulk",
        "barrier behind accesses",
        "attention/mod.rs: named_barrier(CONSUMER_BARRIER, CONSUMERS);",
        "Behind it each thread tells the warp that copies of its own stores only.",
    ],
    [
        "attention, bulk",
        "drop a warp barrier",
        "attention/mod.rs: warp_barrier(ALL_LANES);",
        "Every lane waits at the mbarrier that follows, and the shuffles behind that for each other.",
    ],
    ["attention, cp.async", "drop a warp barrier", "attention/mod.rs: warp_barrier(ALL_LANES);", "As above."],
    [
        "choose_greedy",
        "go the other way",
        "argmax.rs: if lane() == 0 {",
        "Every lane of the warp has the result, and stores the same.",
    ],
    [
        "choose_greedy",
        "shift further",
        "argmax.rs: if warp_index() == 0 {",
        "More warps choose, and only thread 0's choice is used.",
    ],
    [
        "sample_keys",
        "one more time",
        "sample/penalise.rs: loaded.push(",
        "In this round no token comes near the end of the vocabulary.",
    ],
    [
        "sample_keys",
        "compare the other way",
        "sample/penalise.rs: if lane() == 0 {",
        "Every lane of the warp has the result, and stores the same.",
    ],
    [
        "choose_sampled",
        "take the smaller",
        "codegen/src/dsl/reduce.rs: largest = largest.max(",
        "Of the smallest key: bins of a first guess become narrower, and the guess is only a bound.",
    ],
];

/// Of launches.
pub const LAUNCHES: [Equal; 4] = [
    [
        "embed_q80_v320_c256_t128",
        "drop the wait for launches",
        "embed.rs: ",
        "A graph's first launch has a full edge.",
    ],
    ["embed_q80_v320_c256_t128", "wait for launches behind accesses", "embed.rs: ", "As above."],
    [
        "choose_sampled_v320_t128",
        "wait for launches behind accesses",
        "sample/choose.rs: ",
        "The position, which only the launch itself writes, and the prompt's length.",
    ],
    [
        "gemv_q80r512",
        "start others before the wait",
        "gemv/mod.rs: s.schedule.trigger.wait();",
        "What its successor reads before the wait was written before the graph began.",
    ],
];
