//! Mutants that are equivalent to the original kernel, with the reasons.

/// Equivalent mutant: start of the kernel's name, operator, start of the source line, and reason.
pub type Equal = [&'static str; 4];

/// Equivalent mutants of kernels.
pub const KERNELS: [Equal; 48] = [
    [
        "gemv, stacked",
        "wait without a loop",
        "gemv/ring.rs: self.next.acquire(bytes);",
        "The first matrix is copied to unused stages.",
    ],
    ["gemv, stacked", "move an mbarrier wait behind", "gemv/ring.rs: self.next.acquire(bytes);", "As above."],
    [
        "gemv, stacked",
        "compare lt as le",
        "gemv/inputs.rs: if (lane() == 0) & (group < s.squares_groups()) {",
        "The word after the last of two sums of squares is padding, which is not read.",
    ],
    [
        "gemv, stacked",
        "move a barrier behind accesses",
        "gemv/mod.rs: named_barrier(CONSUMER_BARRIER, s.consumers());",
        "The sums of squares that are loaded here were stored before the previous barrier.",
    ],
    [
        "gemv, stacked",
        "min instead of max",
        "gemv/mod.rs: let along = ",
        "With one CTA the start of this matrix is 0 in both cases.",
    ],
    [
        "gemv Q8_0, residual",
        "swap operands",
        "gemv/ring.rs: let left = ",
        "A tile has as many units as there are warps: the rest is never less than a stage.",
    ],
    [
        "gemv Q8_0, residual",
        "compare lt as le",
        "gemv/inputs.rs: if unit * UNIT < cols {",
        "The input has one unit for each thread: no thread is past the end.",
    ],
    [
        "gemv Q4_K, SwiGLU",
        "compare lt as le",
        "gemv/ring.rs: while at < end {",
        "No run of tiles of 9 blocks ends with a whole stage of 4.",
    ],
    [
        "gemv Q4_K, SwiGLU",
        "invert a branch",
        "gemv/inputs.rs: if (lane() == 0) & (group < s.squares_groups()) {",
        "Every lane of the warp has the sum and stores the same value; behind the last sum is padding.",
    ],
    [
        "gemv Q4_K, SwiGLU",
        "move a barrier behind accesses",
        "gemv/mod.rs: named_barrier(CONSUMER_BARRIER, s.consumers());",
        "As in the stacked one.",
    ],
    [
        "gemv Q6_K, argmax",
        "move a barrier behind accesses",
        "gemv/mod.rs: named_barrier(CONSUMER_BARRIER, s.consumers());",
        "As above.",
    ],
    [
        "gemv Q6_K, argmax",
        "wait without a loop",
        "gemv/ring.rs: self.oldest.wait();",
        "The wait limits the copies in flight; no data is read after it.",
    ],
    [
        "gemv, stacked",
        "invert a branch",
        "gemv/inputs.rs: if part == 0 {",
        "The four lanes of a chunk have the same sum and store the same value.",
    ],
    [
        "gemv Q6_K, argmax",
        "invert a branch",
        "gemv/inputs.rs: if lane() == 0 {",
        "Every lane of the warp has the scale and stores the same value.",
    ],
    [
        "choose_greedy",
        "compare lt as le",
        "argmax.rs: let take = ",
        "The tokens are equal: either candidate is correct.",
    ],
    [
        "gemv Q6_K, argmax",
        "compare lt as le",
        "argmax.rs: let take = ",
        "The tokens are equal: either candidate is correct.",
    ],
    [
        "gemv Q6_K, argmax",
        "invert a comparison",
        "argmax.rs: let take = ",
        "The lanes whose candidates are equal have the same candidate, or a later step compares the two again.",
    ],
    [
        "attention, cp.async",
        "compare lt as le",
        "attention/combine.rs: if index < s.heads_per_block * s.head_dim {",
        "The number of elements is a multiple of the number of threads.",
    ],
    [
        "choose_greedy",
        "invert a branch",
        "argmax.rs: if lane() == 0 {",
        "Every lane of the warp has the result and stores the same value.",
    ],
    [
        "choose_greedy",
        "shift by one more bit",
        "argmax.rs: if warp_index() == 0 {",
        "More warps compute the choice; only thread 0's is used.",
    ],
    [
        "sample_keys",
        "compare lt as le",
        "sample/penalise.rs: loaded.push(",
        "In this iteration no token is near the end of the vocabulary.",
    ],
    [
        "sample_keys",
        "invert a branch",
        "sample/penalise.rs: if lane() == 0 {",
        "Every lane of the warp has the result and stores the same value.",
    ],
    [
        "choose_sampled",
        "min instead of max",
        "codegen/src/dsl/reduce.rs: largest = largest.max(",
        "The bins of the first guess become narrower; the guess is only a bound.",
    ],
    [
        "gemv of 4 tokens",
        "move a barrier behind accesses",
        "gemv/mod.rs: named_barrier(CONSUMER_BARRIER, s.consumers());",
        "As in the stacked one.",
    ],
    [
        "gemv of 16 tokens",
        "drop a warp barrier",
        "codegen/src/dsl/pipeline.rs: warp_barrier(ALL_LANES);",
        "A matrix product after the last load from the stage waits for all lanes.",
    ],
    [
        "gemv of 16 tokens",
        "drop a fence",
        "gemv/tokens/mod.rs: weights.init();",
        "The initialisation of the second ring has the same fence.",
    ],
    [
        "gemv of 16 tokens",
        "swap operands",
        "gemv/tokens/mod.rs: let mut stage = ",
        "With two groups, the remainder is that of the negative number.",
    ],
    [
        "gemv of 16 tokens",
        "swap operands",
        "gemv/tokens/mod.rs: let size = ",
        "At the end of a slice more bytes are copied, which no warp reads.",
    ],
    [
        "gemv by warpgroups",
        "drop a warp barrier",
        "codegen/src/dsl/pipeline.rs: warp_barrier(ALL_LANES);",
        "As with 16 tokens.",
    ],
    ["gemv by warpgroups", "drop a fence", "gemv/tokens/mod.rs: weights.init();", "As with 16 tokens."],
    [
        "gemv by warpgroups",
        "wait without a loop",
        "gemv/ring.rs: self.next.acquire(bytes);",
        "The first matrix is copied to unused stages.",
    ],
    [
        "gemv by warpgroups",
        "move an mbarrier wait behind",
        "gemv/ring.rs: self.next.acquire(bytes);",
        "As above.",
    ],
    [
        "gemv by warpgroups",
        "wait for one wgmma group less",
        "gemv/tokens/warpgroup.rs: wait_for_products(1);",
        "Each product has registers of its own in PTX; the wait is for ptxas, which then reuses them.",
    ],
    [
        "gemv by warpgroups",
        "swap operands",
        "gemv/tokens/warpgroup.rs: let count = ",
        "Rows of the next tiles are copied as well, which no warp reads.",
    ],
    [
        "prepare",
        "invert a comparison",
        "gemv/tokens/prepare.rs: if lane() == 0 {",
        "Every lane of the warp has the scale and stores the same value.",
    ],
    ["prepare", "invert a branch", "gemv/tokens/prepare.rs: if lane() == 0 {", "As above."],
    [
        "prepare",
        "invert a comparison",
        "gemv/tokens/inputs.rs: if part == 0 {",
        "The lanes of a chunk have the same sum and store the same value.",
    ],
    ["prepare", "invert a branch", "gemv/tokens/inputs.rs: if part == 0 {", "As above."],
    [
        "gemm",
        "drop a fence",
        "gemm/mod.rs: rings.weights.init();",
        "The initialisation of the second ring has the same fence.",
    ],
    [
        "gemm",
        "compare lt as le",
        "gemm/mod.rs: if (block_index_y() >= block.first)",
        "There is one block of rows, and no CTA behind it.",
    ],
    [
        "gemm",
        "wait without a loop",
        "gemm/mod.rs: weight_stage.acquire(",
        "The wait for a stage of inputs before it is longer: all products of the block in this stage are done.",
    ],
    ["gemm", "move an mbarrier wait behind", "gemm/mod.rs: weight_stage.acquire(", "As above."],
    [
        "gemm by warpgroups",
        "drop a wgmma commit",
        "gemm/warpgroup.rs: State::Complete(",
        "The operation becomes part of the next group; nothing waits for it alone.",
    ],
    [
        "gemm by warpgroups",
        "wait for one wgmma group less",
        "gemm/warpgroup.rs: wait_for_products(1);",
        "The next wait comes before a stage is released; in PTX each product has registers of its own.",
    ],
    [
        "gemm by warpgroups",
        "drop a warp barrier",
        "codegen/src/dsl/pipeline.rs: warp_barrier(ALL_LANES);",
        "A matrix product after the last load from the stage waits for all lanes.",
    ],
    [
        "halve",
        "compare lt as le",
        "gemm/halve.rs: let exists = (token < s.tokens)",
        "The row behind the last one does not exist either.",
    ],
    [
        "halve",
        "invert a comparison",
        "gemm/halve.rs: if lane() == 0 {",
        "Every lane of the warp has the result and stores the same value.",
    ],
    ["halve", "invert a branch", "gemm/halve.rs: if lane() == 0 {", "As above."],
];

/// Equivalent mutants of launch dependencies.
pub const LAUNCHES: [Equal; 4] = [
    [
        "embed_q80_v320_c256_t128",
        "drop griddepcontrol.wait",
        "embed.rs: ",
        "The first launch of a graph has a full edge.",
    ],
    ["embed_q80_v320_c256_t128", "move griddepcontrol.wait behind", "embed.rs: ", "As above."],
    [
        "choose_sampled_v320_t128",
        "move griddepcontrol.wait behind",
        "sample/choose.rs: ",
        "The moved accesses read the position, which only this launch writes, and the prompt's length.",
    ],
    [
        "gemv_q80r512",
        "launch dependents before waiting",
        "gemv/mod.rs: s.schedule.trigger.wait();",
        "The data that its successor reads before its wait was written before the graph started.",
    ],
];
