//! Case of the selection of rows.

use bespoke_kernels::kernels::select_rows::SelectRowsShape;
use bespoke_kernels::spec::KernelSpec;

use super::rows;
use crate::case::{Case, Coordinates, Element, Want};
use crate::inputs::{Noise, f32s};

/// Rows of every kind, from sources in another order; the first and the last row of the prefill step are among them.
pub(super) fn select_rows(s: &SelectRowsShape) -> Case {
    let spec = KernelSpec::SelectRows(s.clone());
    let mut noise = Noise::new(&spec.name());
    let (cols, sources) = (s.cols as usize, 3 * s.tokens);
    let x = noise.normal(sources as usize * cols, 1.0);
    let mut step = rows::rows(s.tokens, 0);
    let mut want = Vec::new();
    for (row, index) in step.iter_mut().zip(0..) {
        row.record.source = sources - 1 - 3 * index;
        let first = row.record.source as usize * cols;
        match row.exists {
            true => want.extend(&x[first..first + cols]),
            false => want.extend(vec![0.0; cols]),
        }
    }
    let mut case = Case::new("rows of every kind");
    let args = [
        case.input("x", f32s(&x)),
        case.input("state", rows::records(&step)),
        case.output("y", Element::F32, want.len()),
    ];
    case.launch(spec, &args);
    let place = Coordinates::Axes(vec![("row", step.len()), ("column", cols)]);
    case.expect(args[2], place, Want::Exactly(Element::F32, f32s(&want)));
    case
}
