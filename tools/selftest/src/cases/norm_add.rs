//! Case of the norm that is added to the residual stream.

use bespoke_kernels::kernels::norm_add::NormAddShape;
use bespoke_kernels::spec::KernelSpec;

use crate::case::{Case, Close, Coordinates, Limit, Want};
use crate::inputs::{Noise, f32s};
use crate::reference;

const LIMIT: Limit = Limit { nmse: 1e-13, reason: "sums and roundings in f32" };

/// Case of a random vector, random weights and a random residual stream.
pub(crate) fn norm_add(s: &NormAddShape) -> Case {
    let spec = KernelSpec::NormAdd(s.clone());
    let mut noise = Noise::new(&spec.name());
    let cols = s.cols as usize;
    let x = noise.activations(cols);
    let weights = noise.uniform(cols, 0.5, 1.5);
    let before = noise.normal(cols, 1.0);
    let normed = reference::rms_norm(&x, &weights, s.eps);
    let add = |(&normed, &before): (&f64, &f32)| f64::from(before) + f64::from(s.scale) * normed;
    let want = normed.iter().zip(&before).map(add).collect();

    let mut case = Case::new("random x, weights and residual");
    let args = [case.input("x", f32s(&x)), case.input("w", f32s(&weights)), case.input("y", f32s(&before))];
    case.launch(spec, &args);
    case.expect(args[2], Coordinates::line("column"), Want::Close(Close::all(want, LIMIT)));
    case
}
