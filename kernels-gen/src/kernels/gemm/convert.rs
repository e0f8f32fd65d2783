//! Inputs of a product of many tokens as f16, in the order of fragments.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::shape::{GROUP, GemmShape};
use crate::kernels::gemv::{Input, Segment, UNIT, has_long_runs, load_eight, load_unit};
use crate::kernels::state;
use crate::weights::WeightType;

/// Compile-time parameters of [`convert()`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvertShape {
    /// Number of tokens: rows of the step.
    pub tokens: u32,
    /// Tokens of a block of the product: a multiple of 8.
    pub block_tokens: u32,
    /// Number of inputs of a token.
    pub cols: u32,
    /// Number of inputs of a token with padding, a multiple of 32.
    pub padded_cols: u32,
    /// ε of the RMSNorm of the inputs, if there is one.
    pub eps: Option<f32>,
    /// Whether the order is that of core matrices of 8 tokens by 16 bytes, for `wgmma`; otherwise that of fragments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub core_matrices: bool,
    /// Whether a matrix of the product has runs of four columns in its fragments.
    pub short_runs: bool,
    /// Whether a matrix of the product has runs of eight columns.
    pub long_runs: bool,
}

impl GemmShape {
    /// The launch that prepares the inputs.
    pub fn convert(&self) -> ConvertShape {
        let product = &self.product;
        let is_long = |segment: &Segment| has_long_runs(segment.ty);
        ConvertShape {
            tokens: product.tokens,
            block_tokens: self.block_tokens(),
            cols: product.cols,
            padded_cols: product.padded_cols().next_multiple_of(32),
            eps: match product.input {
                Input::Plain => None,
                Input::Normed { eps } => Some(eps),
            },
            core_matrices: self.tiling.warpgroups,
            short_runs: product.segments.iter().any(|segment| !is_long(segment)),
            long_runs: product.segments.iter().any(is_long),
        }
    }
}

/// The factor of a token that does not exist. Other factors are not negative.
pub(super) const MISSING: f32 = -1.0;

/// Threads of a CTA for tokens of at most [`FEW_COLUMNS`] inputs.
const THREADS: u32 = 256;

/// Threads of a CTA for tokens of more inputs.
const MAX_THREADS: u32 = 1024;

/// Maximum number of units of a thread that it holds in registers; otherwise the inputs are read twice.
const HELD_PASSES: u32 = 5;

/// Largest number of inputs of a token for [`THREADS`].
const FEW_COLUMNS: u32 = 4096;

/// Tokens of a CTA. Half of a warp has a token, and stores of both fill sectors of 32 bytes of core matrices.
const TOKENS: u32 = 2;

/// Lanes of a warp with the same token.
const LANES: u32 = WARP / TOKENS;

impl ConvertShape {
    /// Threads of a CTA. The number of threads determines the order of sums, so it must not depend on the number of
    /// tokens.
    pub fn threads(&self) -> u32 {
        if self.cols <= FEW_COLUMNS { THREADS } else { MAX_THREADS }
    }

    /// Whether the kernel itself waits for earlier launches: it loads what does not depend on them before. Devices with `wgmma`
    /// have programmatic launches.
    pub fn waits(&self) -> bool {
        self.core_matrices
    }

    /// Threads with the same token.
    fn token_threads(&self) -> u32 {
        self.threads() / TOKENS
    }

    /// Maximum number of units of a thread.
    fn passes(&self) -> u32 {
        (self.padded_cols / UNIT).div_ceil(self.token_threads())
    }

    /// Tokens with padding to whole blocks.
    fn padded_tokens(&self) -> u32 {
        self.tokens.next_multiple_of(self.block_tokens)
    }

    /// Static shared memory of a CTA in bytes: a number of each warp and token for the sum, if there is a norm, and the maximum.
    pub fn static_shared(&self) -> u32 {
        self.threads() / LANES * 4 * if self.eps.is_some() { 2 } else { 1 }
    }

    /// Number of CTAs.
    pub fn grid(&self) -> u32 {
        self.padded_tokens() / TOKENS
    }

    /// Number of chunks of 32 columns.
    pub(super) fn chunks(&self) -> u32 {
        self.padded_cols / 32
    }

    /// Bytes of a chunk of a block of tokens.
    pub(super) fn chunk_bytes(&self) -> u32 {
        self.block_tokens * 64
    }

    /// Bytes of the inputs in one form.
    fn form_bytes(&self) -> u64 {
        u64::from(self.padded_tokens()) * u64::from(self.padded_cols) * 2
    }

    /// Offset of the inputs in the form that weights of a type need.
    pub(super) fn form_offset(&self, ty: WeightType) -> u64 {
        if has_long_runs(ty) && self.short_runs { self.form_bytes() } else { 0 }
    }

    /// Offset of the factors, f32 `[token]`.
    pub(super) fn factors(&self) -> u64 {
        self.form_bytes() * (u64::from(self.short_runs) + u64::from(self.long_runs))
    }

    /// Size of the output in bytes.
    pub fn bytes(&self) -> u64 {
        self.factors() + u64::from(self.padded_tokens()) * 4
    }
}

/// Writes the inputs x, multiplied by the norm's weights if there are any, as f16 times a power of two for each token.
///
/// `x` is f32 `[token][cols]`, `norm` f32 `[cols]`, `state` the records of the step's rows. `y` has
/// [`ConvertShape::bytes`] bytes, aligned to 16: for each form of the inputs `[block of tokens][chunk][group of 8
/// tokens][lane][8]` f16, then f32 `[token]`: the factor by which the token's products are multiplied, which undoes the
/// power of two and, with a norm, is divided by √(mean(x²) + ε). Lane 4g + t has the inputs of token g: of the form with
/// runs of four, columns 4t to 4t + 3 and 16 more; of that with runs of eight, columns 8t to 8t + 7.
///
/// The largest magnitude of a token becomes 2¹⁴ to 2¹⁵, so that inputs down to 2⁻²⁸ of it keep 11 bits. Tokens that do not
/// exist have zeros and the factor −1; blocks of tokens of which none exists are not written.
///
/// With [`ConvertShape::core_matrices`], a chunk of a block is `[4 parts of K][token][8]` f16: operand B of two products of a
/// warpgroup, in the columns' order that the lanes' weights have in operand A.
#[kernel(threads = s.threads())]
pub fn convert(
    x: Ptr<Global, f32>,
    #[present(s.eps.is_some())] norm: Option<Ptr<Global, f32>>,
    y: Ptr<Global, u8>,
    state: Ptr<Global, u32>,
    s: &ConvertShape,
) {
    if s.waits() {
        launch_dependents();
    }
    let token = block_index() * TOKENS + lane() / LANES;
    let first = block_index() * TOKENS / s.block_tokens * s.block_tokens;
    let is_used = state::exists(state, first);
    // Rows past the step's last one have no record.
    let existing = token.min(s.tokens - 1);
    let exists = (token < s.tokens) & state::exists(state, existing);
    // Records and weights do not depend on earlier launches.
    let weights = held_weights(norm, s);
    if s.waits() {
        wait_for_dependencies();
    }
    if is_used {
        // A row that does not exist is not read.
        let x = x.byte_add(mul_wide(select(exists, token, first), s.cols * 4));
        let row = Row { x, exists, norm };
        let units: Vec<Unit> = (0..s.passes()).map(|pass| Unit::load(&row, pass, s)).collect();
        let inputs = units.iter().flat_map(|unit| &unit.values);
        let squares = inputs.fold(val(0.0f32), |sum, &value| fma(value, value, sum));
        let units: Vec<Unit> = units.into_iter().map(|unit| unit.normalised(&weights, row.norm, s)).collect();
        let inputs = units.iter().flat_map(|unit| &unit.values);
        let largest = inputs.fold(val(0.0f32), |largest, value| largest.max(value.abs()));
        let largest = largest_of_token(largest, s);
        // 2^(14 − e) for a largest magnitude of 2^e to 2^(e + 1), and its inverse.
        let exponent = (largest.bitcast::<u32>() >> 23).max(15u32);
        let up = ((268u32 - exponent) << 23).bitcast::<f32>();
        let mut factor = ((exponent - 14) << 23).bitcast::<f32>();
        if let Some(eps) = s.eps {
            let mean = sum_of_token(squares, s) * (1.0 / s.cols as f32);
            factor *= (mean + eps).rsqrt_approx();
        }
        if first_unit() == 0 {
            let factor = select(exists, factor, MISSING);
            y.byte_add(s.factors()).cast::<f32>().at(token).store(factor);
        }
        for unit in units {
            store_rounded(unit, &row, up, (token, y), s);
        }
    }
}

/// The inputs of the thread's token.
struct Row {
    x: Ptr<Global, f32>,
    /// Whether the token exists.
    exists: Val<bool>,
    norm: Option<Ptr<Global, f32>>,
}

/// Stores a unit's inputs times `up` as f16.
fn store_rounded(
    unit: Unit,
    row: &Row,
    up: Val<f32>,
    (token, y): (Val<u32>, Ptr<Global, u8>),
    s: &ConvertShape,
) {
    let unit = if s.passes() > HELD_PASSES {
        Unit::load(row, unit.pass, s).normalised(&[], row.norm, s)
    } else {
        unit
    };
    let round = |pair: &[Val<f32>]| pack_rounded::<F16x2>(pair[0] * up, pair[1] * up).bitcast();
    let words: Vec<Val<u32>> = unit.values.chunks(2).map(round).collect();
    if unit.is_whole(s) {
        store(&words, token, unit.index(s), y, s);
    } else {
        store_existing(&words, token, &unit, y, s);
    }
}

/// The norm's weights of the thread's units, if the thread holds its inputs and they are normalised.
fn held_weights(norm: Option<Ptr<Global, f32>>, s: &ConvertShape) -> Vec<Vec<Val<f32>>> {
    let Some(norm) = norm.filter(|_| s.passes() <= HELD_PASSES) else { return Vec::new() };
    let unit = |pass| Unit { pass, values: Vec::new() };
    (0..s.passes()).map(|pass| unit(pass).load_values(norm, s)).collect()
}

/// The thread's first unit.
fn first_unit() -> Val<u32> {
    warp_index() * LANES + lane() % LANES
}

/// Stores a unit if the token has it.
#[device]
fn store_existing(words: &[Val<u32>], token: Val<u32>, unit: &Unit, y: Ptr<Global, u8>, s: &ConvertShape) {
    if unit.index(s) < s.padded_cols / UNIT {
        store(words, token, unit.index(s), y, s);
    }
}

/// Eight inputs of the thread's token, or of norm weights: those of one pass over the inputs.
struct Unit {
    pass: u32,
    /// Zeros past the end of the inputs, and of a token that does not exist.
    values: Vec<Val<f32>>,
}

impl Unit {
    /// Loads the thread's unit of a pass.
    fn load(row: &Row, pass: u32, s: &ConvertShape) -> Unit {
        let unit = Unit { pass, values: Vec::new() };
        let values = unit.load_values(row.x, s);
        Unit { values: values.into_iter().map(|value| select(row.exists, value, 0.0f32)).collect(), ..unit }
    }

    /// Index of the unit.
    fn index(&self, s: &ConvertShape) -> Val<u32> {
        first_unit() + self.pass * s.token_threads()
    }

    /// Whether every thread has a unit of this pass.
    fn is_whole(&self, s: &ConvertShape) -> bool {
        (self.pass + 1) * s.token_threads() * UNIT <= s.cols
    }

    /// Loads the unit's part of a row. The loads are unconditional where a row is whole units, so that those of all passes are in
    /// flight at once.
    #[device]
    fn load_values(&self, row: Ptr<Global, f32>, s: &ConvertShape) -> Vec<Val<f32>> {
        let index = self.index(s);
        if self.is_whole(s) {
            return load_eight(row.at(index * UNIT));
        }
        if !s.cols.is_multiple_of(UNIT) {
            return load_unit(row, index, s.cols);
        }
        let last = s.cols / UNIT - 1;
        let exists = index <= last;
        let values = load_eight(row.at(index.min(last) * UNIT));
        values.into_iter().map(|value| select(exists, value, 0.0f32)).collect()
    }

    /// The unit's inputs multiplied by the norm's weights, if there are any: of `loaded`, by pass, or of device memory.
    fn normalised(self, loaded: &[Vec<Val<f32>>], norm: Option<Ptr<Global, f32>>, s: &ConvertShape) -> Unit {
        let Some(norm) = norm else { return self };
        let weights = loaded.get(self.pass as usize).cloned();
        let weights = weights.unwrap_or_else(|| self.load_values(norm, s));
        let values = self.values.iter().zip(weights).map(|(&value, weight)| value * weight).collect();
        Unit { values, ..self }
    }
}

/// Stores the four words of a unit of eight inputs in each form.
#[device]
fn store(words: &[Val<u32>], token: Val<u32>, unit: Val<u32>, y: Ptr<Global, u8>, s: &ConvertShape) {
    let (block, within) = (token / s.block_tokens, token % s.block_tokens);
    let (chunk, part) = (unit / 4, unit % 4);
    let of_block = y.byte_add(mul_wide(block, s.chunks() * s.chunk_bytes()));
    let of_chunk = of_block.byte_add(mul_wide(chunk, s.chunk_bytes()));
    if s.core_matrices {
        store_core_matrices(words, of_chunk.byte_add(within * 16), part, s);
        return;
    }
    let at = of_chunk.byte_add(within / GROUP * 512 + within % GROUP * 64);
    if s.short_runs {
        let at = at.byte_add((part & 1) * 32 + (part >> 1) * 8).cast::<u32>();
        at.store_vector([words[0], words[1]]);
        at.at(4).store_vector([words[2], words[3]]);
    }
    if s.long_runs {
        let offset = if s.short_runs { s.form_bytes() } else { 0 };
        let at = at.byte_add(offset).byte_add(part * 16).cast::<u32>();
        at.store_vector([words[0], words[1], words[2], words[3]]);
    }
}

/// Stores the four words of unit `part` of a chunk, whose token is at `at` of the chunk's first core matrices. A run of
/// four columns is in two core matrices, as its weights are in two registers of a fragment: the first two in the first.
#[device]
fn store_core_matrices(words: &[Val<u32>], at: Ptr<Global, u8>, part: Val<u32>, s: &ConvertShape) {
    let matrices = s.block_tokens * 16;
    if s.short_runs {
        let at = at.byte_add((part >> 1) * (2 * matrices) + (part & 1) * 8).cast::<u32>();
        at.store_vector([words[0], words[2]]);
        at.byte_add(matrices).store_vector([words[1], words[3]]);
    }
    if s.long_runs {
        let offset = if s.short_runs { s.form_bytes() } else { 0 };
        let at = at.byte_add(offset).byte_add(part * 4).cast::<u32>();
        for (index, &word) in (0u32..).zip(words) {
            at.byte_add(index * matrices).store(word);
        }
    }
}

/// The largest of the values of the threads with the same token.
#[device]
fn largest_of_token(value: Val<f32>, s: &ConvertShape) -> Val<f32> {
    reduce(value, |a, b| a.max(b), s)
}

/// The sum of the values of the threads with the same token, in the order of warps.
#[device]
fn sum_of_token(value: Val<f32>, s: &ConvertShape) -> Val<f32> {
    reduce(value, |a, b| a + b, s)
}

/// Combines the values of the lanes with the same token, then those of all warps.
#[device]
fn reduce(mut value: Val<f32>, combine: fn(Val<f32>, Val<f32>) -> Val<f32>, s: &ConvertShape) -> Val<f32> {
    for step in [8u32, 4, 2, 1] {
        value = combine(value, shuffle_xor(value, step));
    }
    let parts = shared_array::<f32>(s.threads() / LANES);
    let of_token = parts.at(lane() / LANES * (s.threads() / WARP));
    if lane() % LANES == 0 {
        of_token.at(warp_index()).store(value);
    }
    barrier();
    let mut all = of_token.load();
    for warp in 1..s.threads() / WARP {
        all = combine(all, of_token.at(warp).load());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prompt's tokens may be in any steps.
    #[test]
    fn the_order_of_sums_does_not_depend_on_the_step() {
        let threads = |tokens, block_tokens, cols| {
            let shape = ConvertShape {
                tokens,
                block_tokens,
                cols,
                padded_cols: cols,
                eps: Some(1e-5),
                core_matrices: true,
                short_runs: true,
                long_runs: false,
            };
            shape.threads()
        };
        for cols in [576, 4096, 14_336] {
            let found = [(64, 32), (128, 64), (256, 128), (512, 256), (2048, 256)]
                .map(|(tokens, block_tokens)| threads(tokens, block_tokens, cols));
            assert_eq!(found, [found[0]; 5], "{cols} columns");
        }
    }
}
