//! Inputs that each CTA prepares itself, without a launch of [`prepare`](super::prepare()).

use bespoke_codegen::prelude::*;

use super::inputs::store_unit;
use crate::kernels::gemv::inputs::{UNIT, load_unit, sum_of_squares};
use crate::kernels::gemv::operands::Operands;
use crate::kernels::gemv::shape::GemvShape;

/// Number of units of eight inputs that a thread loads at once.
const UNITS_IN_FLIGHT: usize = 8;

/// Loads the inputs of all tokens, and writes them to shared memory with the sums of squares. A barrier among the consumer
/// warps must follow.
#[device]
pub(super) fn fill(operands: &Operands, s: &GemvShape) {
    let (shared, map, layout) = (dynamic_shared::<u8>(), s.token_map(), s.input_layout());
    let passes = layout.units().div_ceil(s.consumers());
    let unit = |pass: u32| thread_index() + pass * s.consumers();
    let mut norm = Vec::new();
    if s.normed() {
        let weights = operands.w.byte_add(s.offsets().norm).cast();
        for pass in 0..passes {
            norm.push(load_unit(weights, unit(pass), s.cols));
        }
    }
    s.schedule.trigger.wait();
    let tokens = layout.padded_tokens();
    let all: Vec<(u32, u32)> = (0..passes * tokens).map(|i| (i / tokens, i % tokens)).collect();
    for some in all.chunks(UNITS_IN_FLIGHT) {
        let mut loaded = Vec::new();
        for &(pass, token) in some {
            loaded.push(if token < s.tokens {
                load_unit(operands.x.at(token * s.cols), unit(pass), s.cols)
            } else {
                vec![val(0.0f32); UNIT as usize]
            });
        }
        for (&(pass, token), values) in some.iter().zip(loaded) {
            let mut values = values;
            if s.normed() {
                let sum = sum_of_squares(&values);
                let group = unit(pass) / WARP;
                if (lane() == 0) & (group < layout.squares()) {
                    let squares = shared.byte_add(map.squares).cast::<f32>();
                    squares.at(group + token * layout.squares()).store(sum);
                }
                values = values.iter().zip(&norm[pass as usize]).map(|(&value, &n)| value * n).collect();
            }
            store_unit(&values, unit(pass), val(token), shared.byte_add(map.inputs), &layout);
        }
    }
}
