//! Case of the norm that is added to the residual stream.

use bespoke_kernels::kernels::norm_add::NormAddShape;
use bespoke_kernels::kernels::state::{Row, WORDS};
use bespoke_kernels::spec::KernelSpec;

use crate::case::{Case, Close, Coordinates, Limit, Want};
use crate::inputs::{Noise, f32s, u32s};
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
    // Every third row does not exist.
    let exists = |row: usize| !s.only_existing || row % 3 != 1;
    let normed = x.chunks(cols).enumerate().flat_map(|(row, x)| match exists(row) {
        true => reference::rms_norm(x, &weights, s.eps),
        false => vec![0.0; cols],
    });
    let add = |(normed, &before): (f64, &f32)| f64::from(before) + f64::from(s.scale) * normed;
    let want = normed.zip(&before).map(add).collect();

    let mut case = Case::new("random x, weights and residual");
    let mut args =
        vec![case.input("x", f32s(&x)), case.input("w", f32s(&weights)), case.input("y", f32s(&before))];
    if s.only_existing {
        let record = |row| if exists(row) { Row::default().words() } else { [0; WORDS as usize] };
        args.push(case.input("state", u32s(&(0..rows).flat_map(record).collect::<Vec<u32>>())));
    }
    case.launch(spec, &args);
    let place = Coordinates::Axes(vec![("row", rows), ("column", cols)]);
    case.expect(args[2], place, Want::Close(Close::all(want, LIMIT)));
    case
}
