//! The input vector in shared memory: integers of 14 or 16 bits in the order of `mma` fragments, or f32.
//!
//! 256 inputs v are quantised to q = round(v / d) with d = max|v| / [`largest`], and q is split into two signed bytes:
//! q = 256·high + low. `mma.m16n8k32` multiplies both bytes of a chunk of 32 inputs with the same weights, as two columns of
//! its B operand. The other columns of B belong to other chunks.
//!
//! # Layout
//!
//! | offset | contents |
//! | --- | --- |
//! | 64·c | chunk c: 32 high bytes, then 32 low bytes; byte 8t + 4h + b of each is that of input 16h + 4t + b |
//! | [`GemvShape::input_scales`] + 4·g | f32 d of inputs 256·g to 256·g + 255 |
//! | [`GemvShape::chunk_sums`] + 4·c, if a segment's type has an offset per chunk | i32 Σq |
//! | [`GemvShape::half_sums`], if a segment's type has an offset per half chunk | i32 Σq of each 16 inputs |
//! | [`GemvShape::float_inputs`], if a segment has a float type | the inputs as f32 |

use bespoke_codegen::prelude::*;

use super::half_step::half_sum;
use super::shape::GemvShape;
use crate::weights::WeightType;

/// The input vector in shared memory; the module's documentation describes the layout.
pub(super) struct Inputs {
    /// The quantised chunks, 64 bytes per chunk.
    pub fragments: Ptr<Shared, u8>,
    /// Scale d of each [`SCALED`] columns.
    pub scales: Ptr<Shared, f32>,
    /// Sum Σq of each chunk, for segments of a type with offsets per chunk.
    pub sums: Ptr<Shared, i32>,
    /// Sum Σq of each half chunk, for segments of a type with offsets per half chunk.
    pub half_sums: Ptr<Shared, i32>,
    /// The inputs as f32, for segments of a float type.
    pub floats: Ptr<Shared, f32>,
    /// Sums of squares of the inputs, one per [`SCALED`] columns.
    pub squares: Ptr<Shared, f32>,
}

/// Largest magnitude of a quantised input: one whose high byte is at most 127; or, if sums of products are exact, one that
/// keeps them within 32 bits ([`WeightType::exact_groups`]) and is 64·127, as [`tokens`](super::tokens) needs it.
fn largest(exact: bool) -> f32 {
    if exact { 8128.0 } else { 32512.0 }
}

/// Number of columns with one scale: those of the units of a warp.
pub(crate) const SCALED: u32 = UNIT * WARP;

/// Number of consecutive inputs that a thread quantises together, called a unit.
pub(crate) const UNIT: u32 = 8;

/// Number of units that a thread loads at once: enough for the input of a down projection in one pass.
const UNITS_IN_FLIGHT: u32 = 8;

impl Inputs {
    /// The input vector of token `token` in dynamic shared memory.
    pub fn new(token: u32, s: &GemvShape) -> Inputs {
        let (shared, map) = (dynamic_shared::<u8>(), s.shared_map());
        let squares = shared.byte_add(map.squares).cast::<f32>();
        let base = shared.byte_add(map.inputs + token * s.input_stride());
        Inputs::at(base, squares.at(token * s.squares_groups()), s)
    }

    /// The input vector at `base`, with its sums of squares at `squares`.
    pub fn at(base: Ptr<Shared, u8>, squares: Ptr<Shared, f32>, s: &GemvShape) -> Inputs {
        Inputs {
            squares,
            fragments: base,
            scales: base.byte_add(s.input_scales()).cast(),
            sums: base.byte_add(s.chunk_sums()).cast(),
            half_sums: base.byte_add(s.half_sums()).cast(),
            floats: base.byte_add(s.float_inputs()).cast(),
        }
    }

    /// Scale of the inputs of block `index` of a tile.
    #[device]
    pub fn scale_of_block(&self, ty: WeightType, index: Val<u32>) -> Val<f32> {
        let blocks = SCALED / ty.block_cols();
        self.scales.at(if blocks == 1 { index } else { index / blocks }).load()
    }
}

/// Loads this thread's part of the norm's weights. The weights are constant, so the loads need not wait for the input.
pub(super) fn norm_weights(weights: Ptr<Global, f32>, s: &GemvShape) -> Vec<Vec<Val<f32>>> {
    let weights = Source::new(weights, s);
    (0..passes(s)).map(|pass| weights.load(pass, 0)).collect()
}

/// Number of units of eight inputs per thread, rounded up.
fn passes(s: &GemvShape) -> u32 {
    (s.padded_cols() / UNIT).div_ceil(s.consumers())
}

/// Loads the eight inputs of unit `unit` of the `cols` elements of `x`; elements past the end are zeros.
#[device]
pub(crate) fn load_unit(x: Ptr<Global, f32>, unit: Val<u32>, cols: u32) -> Vec<Val<f32>> {
    let mut values = vec![val(0.0f32); UNIT as usize];
    if cols % UNIT == 0 {
        if unit * UNIT < cols {
            values = load_eight(x.at(unit * UNIT));
        }
    } else {
        for (i, value) in values.iter_mut().enumerate() {
            let column = unit * UNIT + i as u32;
            if column < cols {
                *value = x.at(column).load();
            }
        }
    }
    values
}

/// Loads eight elements.
pub(crate) fn load_eight(at: Ptr<Global, f32>) -> Vec<Val<f32>> {
    [at.load_vector::<4>(), at.at(4).load_vector::<4>()].concat()
}

/// The thread's units of the inputs in device memory, or of the norm's weights: one for each pass.
pub(super) struct Source<'a> {
    x: Ptr<Global, f32>,
    /// Address of the thread's first unit.
    first: Ptr<Global, f32>,
    s: &'a GemvShape,
}

impl<'a> Source<'a> {
    /// The units of `x`, f32 `[tokens][cols]`. Called before the wait for the launches that write `x`, so that the address is
    /// computed while they run.
    pub fn new(x: Ptr<Global, f32>, s: &'a GemvShape) -> Source<'a> {
        Source { x, first: x.at(thread_index() * UNIT), s }
    }

    /// Loads the unit of pass `pass` of a token; elements past the end are zeros.
    fn load(&self, pass: u32, token: u32) -> Vec<Val<f32>> {
        let (before, step) = (token * self.s.cols, self.s.consumers() * UNIT);
        if (pass + 1) * step <= self.s.cols {
            // Every thread has a unit.
            load_eight(self.first.at(before + pass * step))
        } else {
            load_unit(self.x.at(before), unit_of_pass(pass, self.s), self.s.cols)
        }
    }
}

/// Index of the thread's unit in pass `pass`.
fn unit_of_pass(pass: u32, s: &GemvShape) -> Val<u32> {
    thread_index() + pass * s.consumers()
}

/// Writes x, multiplied by the norm's weights if there are any, to shared memory, and for a norm the sums of squares.
/// Called by the consumer warps after their wait; a barrier among them must follow.
#[device]
pub(super) fn fill(source: &Source<'_>, norm: &[Vec<Val<f32>>], inputs: &Inputs, s: &GemvShape) {
    let mut first = 0;
    while first < passes(s) {
        let last = passes(s).min(first + UNITS_IN_FLIGHT);
        let mut loaded = Vec::new();
        for pass in first..last {
            loaded.push(source.load(pass, 0));
        }
        for (pass, values) in (first..last).zip(loaded) {
            store_inputs(values, norm.get(pass as usize), unit_of_pass(pass, s), inputs, s);
        }
        first = last;
    }
}

/// As [`fill`], for several tokens. Loads of later units are issued while earlier ones are quantised.
pub(super) fn fill_tokens(source: &Source<'_>, norm: &[Vec<Val<f32>>], s: &GemvShape) {
    let of_token: Vec<Inputs> = (0..s.tokens).map(|token| Inputs::new(token, s)).collect();
    let all: Vec<(u32, u32)> =
        (0..passes(s)).flat_map(|pass| (0..s.tokens).map(move |token| (pass, token))).collect();
    let load = |at: &(u32, u32)| source.load(at.0, at.1);
    let mut loaded: Vec<_> = all.iter().take(UNITS_IN_FLIGHT as usize).map(load).collect();
    for (index, at) in all.iter().enumerate() {
        let norm = norm.get(at.0 as usize);
        let unit = unit_of_pass(at.0, s);
        store_inputs(std::mem::take(&mut loaded[index]), norm, unit, &of_token[at.1 as usize], s);
        if let Some(next) = all.get(loaded.len()) {
            loaded.push(load(next));
        }
    }
}

/// Writes unit `unit` of the inputs, multiplied by `norm` if there is one, to shared memory, and for a norm the sum of the
/// squares.
fn store_inputs(
    values: Vec<Val<f32>>,
    norm: Option<&Vec<Val<f32>>>,
    unit: Val<u32>,
    inputs: &Inputs,
    s: &GemvShape,
) {
    let mut values = values;
    if let Some(norm) = norm {
        store_squares(&values, unit, inputs, s);
        values = values.iter().zip(norm).map(|(&value, &n)| value * n).collect();
    }
    if s.quantised() {
        quantise(&values, unit, inputs, s);
    }
    store_floats(&values, unit, inputs, s);
}

/// Stores a unit of eight inputs as f32, if a segment has a float type.
#[device]
fn store_floats(values: &[Val<f32>], unit: Val<u32>, inputs: &Inputs, s: &GemvShape) {
    if s.floats() && unit * UNIT < s.padded_cols() {
        let to = inputs.floats.at(unit * UNIT);
        to.store_vector([values[0], values[1], values[2], values[3]]);
        to.at(4).store_vector([values[4], values[5], values[6], values[7]]);
    }
}

/// Stores the sum of squares of the units of a warp.
#[device]
fn store_squares(values: &[Val<f32>], unit: Val<u32>, inputs: &Inputs, s: &GemvShape) {
    let sum = sum_of_squares(values);
    let group = unit / WARP;
    if (lane() == 0) & (group < s.squares_groups()) {
        inputs.squares.at(group).store(sum);
    }
}

/// The sum of eight numbers as a balanced tree: neighbours are added first. Epilogues that write the inputs of the next product add the
/// rows of a tile in the same order (`tokens/next`).
pub(super) fn sum_of_eight(values: &[Val<f32>; 8]) -> Val<f32> {
    let four: [Val<f32>; 4] = std::array::from_fn(|i| values[2 * i] + values[2 * i + 1]);
    (four[0] + four[1]) + (four[2] + four[3])
}

/// The sum of squares of the units of a warp, which are 256 consecutive columns.
#[device]
pub(super) fn sum_of_squares(values: &[Val<f32>]) -> Val<f32> {
    let mut squares = val(0.0f32);
    for &value in values {
        squares = fma(value, value, squares);
    }
    warp_sum(squares)
}

/// Stores a unit of eight quantised inputs.
#[device]
fn quantise(values: &[Val<f32>], unit: Val<u32>, inputs: &Inputs, s: &GemvShape) {
    let quantised = QuantisedUnit::new(values, unit, s.is_exact(), s.has_offsets(), s.has_half_offsets());
    if unit * UNIT < s.padded_cols() {
        let words = quantised.words;
        let at = inputs.fragments.byte_add(unit * 16).cast::<u32>();
        at.store_vector([words[0], words[1], words[2], words[3]]);
        if lane() == 0 {
            inputs.scales.at(unit / WARP).store(quantised.scale);
        }
        let part = unit & 3;
        if let Some(sum) = quantised.sum {
            if part == 0 {
                inputs.sums.at(unit >> 2).store(sum);
            }
        }
        if let Some(sum) = quantised.half_sum {
            if (part & 1) == 0 {
                inputs.half_sums.at(unit >> 1).store(sum);
            }
        }
    }
}

/// The bits of the largest magnitude of a warp's units.
#[device]
fn largest_magnitude(values: &[Val<f32>]) -> Val<u32> {
    // The bits of magnitudes, as integers, are ordered like the numbers, with NaN above all; `max.f32` would drop a NaN.
    let magnitude = |value: Val<f32>| value.bitcast::<u32>() & 0x7FFF_FFFF;
    let mut bits = magnitude(values[0]);
    for &value in &values[1..] {
        bits = bits.max(magnitude(value));
    }
    redux_max(bits)
}

/// `limit` / `x`, for an x above 10⁻³⁰, from the reciprocal of x · 2⁻²⁴. That operand and its reciprocal are normal, so
/// `rcp.approx.ftz`, which flushes subnormal numbers, computes it; without `.ftz` it takes six more instructions.
fn scaled_reciprocal(limit: f32, x: Val<f32>) -> Val<f32> {
    const DOWN: f32 = 1.0 / (1 << 24) as f32;
    let reciprocal: Val<f32> =
        inline_ptx("rcp.approx.ftz.f32 {y}, {x};").input("x", x * DOWN).pure().output("y");
    reciprocal * (limit * DOWN)
}

/// A unit of eight inputs rounded to f16.
pub(super) struct F16Unit {
    /// The inputs times a power of two, two in a word: 0 and 2, 1 and 3 of each four, or neighbours.
    pub alternate: Vec<Val<u32>>,
    pub neighbours: Vec<Val<u32>>,
    /// The sums of the chunk's two halves, of the rounded inputs, as two f16: see [`half_sum`].
    pub sums: Option<Val<u32>>,
    /// The factor that undoes the power of two: that of the warp's inputs.
    pub scale: Val<f32>,
}

impl F16Unit {
    /// Rounds a unit of eight inputs. The largest magnitude of the warp's inputs becomes 2¹⁴ to 2¹⁵, so that inputs down to 2⁻²⁸ of
    /// it keep 11 bits. Inputs that are all below 2⁻⁶³ become smaller.
    ///
    /// So the scale is at least 2⁻⁷⁷. It multiplies sums of a step, which are multiples of 2⁻⁵⁶: f16 inputs are multiples of 2⁻²⁴, and
    /// weights with their factors multiples of 2⁻²⁴ too, or of 2⁻³² in `half_weights`. So the product is exact, even if it is
    /// subnormal, unless it overflows; one `fma` may multiply and add.
    #[device]
    pub fn new(values: &[Val<f32>], sums: bool) -> F16Unit {
        // 2^(14 − e) for a largest magnitude of 2^e to 2^(e + 1), and its inverse.
        let exponent = (largest_magnitude(values) >> 23).max(64u32);
        let up = ((268u32 - exponent) << 23).bitcast::<f32>();
        let scale = ((exponent - 14) << 23).bitcast::<f32>();
        let values: Vec<_> = values.iter().map(|&value| value * up).collect();
        let pair = |first: usize, second: usize| pack_rounded::<F16x2>(values[first], values[second]);
        let alternate = [0, 1, 4, 5].map(|first| pair(first, first + 2));
        let sums = sums.then(|| {
            let rounded = |at: usize| {
                let pair = alternate[at / 4 * 2 + at % 2].unpack();
                pair[at % 4 / 2].cast::<f32>()
            };
            let of_unit = sum_of_eight(&std::array::from_fn(rounded));
            let of_half = half_sum(of_unit + shuffle_xor(of_unit, 1));
            // The lanes of the chunk's first half have that of the second half from two lanes on.
            let second = shuffle_xor(of_half, 2);
            pack_rounded::<F16x2>(of_half, second).bitcast::<u32>()
        });
        F16Unit {
            alternate: alternate.map(|pair| pair.bitcast::<u32>()).to_vec(),
            neighbours: [0, 2, 4, 6].map(|first| pair(first, first + 1).bitcast::<u32>()).to_vec(),
            sums,
            scale,
        }
    }
}

/// A lane's part of a quantised chunk: a unit of eight inputs.
pub(super) struct QuantisedUnit {
    /// 16 bytes of columns of operand B: high bytes in the lanes of the first half of the chunk, and low bytes in the
    /// lanes of the second half. Two words belong to one lane of the operand.
    pub words: Vec<Val<u32>>,
    /// Scale d of the warp's inputs.
    pub scale: Val<f32>,
    /// Σq of the chunk.
    pub sum: Option<Val<i32>>,
    /// Σq of the half chunk.
    pub half_sum: Option<Val<i32>>,
}

impl QuantisedUnit {
    /// Quantises unit `unit` of eight inputs; the lanes of a warp have consecutive units. The lanes exchange maxima, and the
    /// four lanes whose units form a chunk sums and bytes. `exact` says whether sums of products will be exact, `sum` and `half_sum`
    /// which sums of inputs are needed.
    #[device]
    pub fn new(values: &[Val<f32>], unit: Val<u32>, exact: bool, sum: bool, half_sum: bool) -> QuantisedUnit {
        let limit = largest(exact);
        let largest = largest_magnitude(values).bitcast::<f32>();
        // q = 0 for inputs that are all zeros, or so small that the inverse would overflow.
        let inverse = select(largest > 1e-30, scaled_reciprocal(limit, largest), 0.0f32);
        // Adding 1.5·2²³ rounds to an integer in the low bits, ties to even. 128 more make the high byte that of q + 128: the low
        // byte is signed.
        let magic = 12_582_912.0f32 + 128.0;
        let shifted: Vec<Val<u32>> =
            values.iter().map(|&value| fma(value, inverse, magic).bitcast::<u32>()).collect();
        // The sum of `count` integers, from the sum of their words.
        let total =
            |words: Val<u32>, count: u32| (words - magic.to_bits().wrapping_mul(count)).bitcast::<i32>();
        let words_of_half = (sum || half_sum).then(|| {
            let of_unit = shifted[1..].iter().fold(shifted[0], |sum, &word| sum + word);
            of_unit + shuffle_xor(of_unit, 1)
        });
        let of_chunk = words_of_half.filter(|_| sum).map(|half| total(half + shuffle_xor(half, 2), 4 * UNIT));
        let of_half = words_of_half.filter(|_| half_sum).map(|half| total(half, 2 * UNIT));

        // Parts 0 and 1 are the first half of the chunk (h = 0), parts 2 and 3 the second. Parts with the same t exchange
        // words, so that lanes of the first half store the high bytes and lanes of the second half the low bytes, 16
        // consecutive bytes per lane.
        let is_second = (unit & 3) >= 2;
        let mut words = Vec::new();
        for four in shifted.chunks_exact(4) {
            let pairs = [0, 2].map(|first| permute_bytes(four[first], four[first + 1], 0x5410u32));
            let high = permute_bytes(pairs[0], pairs[1], 0x7531u32);
            // The low byte of q is that of q + 128 with the upper bit inverted.
            let low = permute_bytes(pairs[0], pairs[1], 0x6420u32) ^ 0x8080_8080;
            let received = shuffle_xor(select(is_second, high, low), 2);
            words.extend([select(is_second, received, high), select(is_second, low, received)]);
        }
        let scale = largest * (1.0 / limit);
        QuantisedUnit { words, scale, sum: of_chunk, half_sum: of_half }
    }
}
