//! Kernels that read weight matrices.

use bespoke_kernels::kernels::embed::EmbedShape;
use bespoke_kernels::kernels::gemv::GemvShape;
use bespoke_kernels::spec::KernelSpec;

use crate::selftest::case::{Case, Close, Element, Limit, Place, Rest, Want};
use crate::selftest::inputs::{Noise, f32s, state_record, u32s};
use crate::selftest::reference;

/// A rounding error has a variance of (largest of 32/32767)²/12; the limit is five times what comes of that.
const QUANTISED: Limit =
    Limit { nmse: 4e-9, reason: "activations are rounded to 16 bits of the largest in 32" };
/// Ten times as much is three standard deviations of a single output.
const FEW_QUANTISED: Limit = Limit { nmse: 4e-8, reason: "activations are rounded to 16 bits; few outputs" };
/// Outputs from which their errors average out.
const MANY: u32 = 64;
const FLOATS: Limit = Limit { nmse: 1e-12, reason: "sums in f32" };

/// The first, the last, and a middle token; and one that the vocabulary does not have, for which row 0 stands.
pub(in crate::selftest) fn embed(s: &EmbedShape) -> Case {
    let spec = KernelSpec::Embed(s.clone());
    let matrix = Noise::new(&spec.name()).matrix(s.layout());
    let mut planes = vec![0; s.layout().bytes as usize];
    matrix.repack_to(&mut planes);

    let tokens = [0, s.vocab - 1, s.vocab / 2, s.vocab];
    let mut case = Case::new("first, last, middle and unknown token");
    let w = case.input("w", planes);
    let sequence = case.input("tokens", u32s(&tokens));
    for (position, &token) in tokens.iter().enumerate() {
        let state = case.input("state", state_record(position as u32, 1));
        let x = case.output(&format!("x of token {token}"), Element::F32, s.cols as usize);
        case.launch(spec.clone(), &[w, sequence, state, x]);
        let row = if token < s.vocab { token as usize } else { 0 };
        // Every type's values are exact in f32, or rounded once where a minimum is added.
        let want = Want::Exactly(Element::F32, f32s(&matrix.row(row)));
        case.expect(x, Place::line("column"), want);
    }
    case
}

/// The stack of matrices times a vector.
pub(in crate::selftest) fn gemv(s: &GemvShape) -> Case {
    let spec = KernelSpec::Gemv(s.clone());
    let mut noise = Noise::new(&spec.name());
    let x = noise.activations(s.cols as usize);
    let (offsets, bytes) = s.offsets();
    let mut stack = vec![0; bytes as usize];
    let mut want = Close { scale: None, ..Close::all(Vec::new(), FLOATS) };
    let mut energy = 0.0;
    let mut parts = Vec::new();
    let mut first = 0;
    for (index, (segment, offsets)) in s.segments.iter().zip(&offsets).enumerate() {
        let matrix = noise.matrix(offsets.layout.clone());
        matrix.repack_to(&mut stack[offsets.weights as usize..]);
        let bias = match offsets.bias {
            Some(at) => {
                let bias = noise.normal(matrix.rows(), 1.0);
                stack[at as usize..][..4 * bias.len()].copy_from_slice(&f32s(&bias));
                bias
            }
            None => vec![0.0; matrix.rows()],
        };
        let products = reference::products(&matrix, &x);
        for ((row, value), terms) in products.rows.into_iter().zip(products.values).zip(products.energies) {
            let bias = f64::from(bias[row]);
            want.at.push(first + row);
            want.values.push(value + bias);
            energy += terms + bias * bias;
        }
        if segment.ty.is_quantised() {
            want.limit = if s.rows() < MANY { FEW_QUANTISED } else { QUANTISED };
        }
        parts.push((format!("segment {index} ({})", matrix.ty()), matrix.rows()));
        first += matrix.rows();
    }
    // What the outputs' size is when the signs of the terms are random: a row that happens to cancel has no larger
    // error than another.
    want.scale = Some((energy / want.at.len() as f64).sqrt());
    want.rest = Rest::Written;

    let mut case = Case::new("random x");
    let w = case.input("w", stack);
    let x = case.input("x", f32s(&x));
    let y = case.output("y", Element::F32, first);
    case.launch(spec, &[w, x, y]);
    case.expect(y, Place::Parts(parts), Want::Close(want));
    case
}
