//! Case of the norm that is added to the residual stream.

use bespoke_kernels::kernels::norm_add::NormAddShape;
use bespoke_kernels::spec::KernelSpec;

use crate::case::{Case, Close, Coordinates, Limit, Want};
use crate::inputs::{Noise, f32s};
use crate::reference;

const LIMIT: Limit = Limit { nmse: 1e-13, reason: "sums and roundings in f32" };

/// Case of random rows, random weights and a random residual stream. Rows have different sizes.
pub(crate) fn norm_add(s: &NormAddShape) -> Case {
    let spec = KernelSpec::NormAdd(s.clone());
    let mut noise = Noise::new(&spec.name());
    let (rows, cols) = (s.tokens as usize, s.cols as usize);
    let mut x = noise.activations(cols);
    for row in 1..rows {
        let size = [0.01, 30.0, 1.0][row % 3];
        x.extend(noise.activations(cols).iter().map(|value| value * size));
    }
    let weights = noise.uniform(cols, 0.5, 1.5);
    let before = noise.normal(rows * cols, 1.0);
    let normed = x.chunks(cols).flat_map(|x| reference::rms_norm(x, &weights, s.eps));
    let add = |(normed, &before): (f64, &f32)| f64::from(before) + f64::from(s.scale) * normed;
    let want = normed.zip(&before).map(add).collect();

    let mut case = Case::new("random x, weights and residual");
    let args = [case.input("x", f32s(&x)), case.input("w", f32s(&weights)), case.input("y", f32s(&before))];
    case.launch(spec, &args);
    let place = Coordinates::Axes(vec![("row", rows), ("column", cols)]);
    case.expect(args[2], place, Want::Close(Close::all(want, LIMIT)));
    case
}
