//! Norms, rotations and other kernels that work element by element.

use bespoke_kernels::kernels::kv_append::KvAppendShape;
use bespoke_kernels::kernels::residual_add::ResidualAddShape;
use bespoke_kernels::kernels::rms_norm::RmsNormShape;
use bespoke_kernels::kernels::rope::{RopeShape, frequencies};
use bespoke_kernels::kernels::swiglu::SwigluShape;
use bespoke_kernels::spec::KernelSpec;
use half::f16;

use crate::selftest::case::{Case, Close, Element, Limit, POISON, Place, Want};
use crate::selftest::inputs::{Noise, f16s, f32s, state_record};
use crate::selftest::reference::{self, Rotation};

const NORM: Limit = Limit { nmse: 1e-13, reason: "a sum in f32 and rsqrt.approx" };
const ROPE: Limit = Limit { nmse: 1e-12, reason: "sin.approx and cos.approx: 2^-20.5 absolute" };
const SWIGLU: Limit = Limit { nmse: 1e-12, reason: "ex2.approx of an argument rounded in f32" };

/// Rows of ordinary size, of a size at which ε counts, and in place.
pub(in crate::selftest) fn rms_norm(s: &RmsNormShape) -> Vec<Case> {
    let spec = KernelSpec::RmsNorm(s.clone());
    let (rows, cols) = (s.rows as usize, s.cols as usize);
    let place = || Place::Axes(vec![("row", rows), ("column", cols)]);
    let mut noise = Noise::new(&spec.name());
    let weights = noise.uniform(cols, 0.5, 1.5);
    let mut cases = Vec::new();
    for (what, size, in_place) in [
        ("x of size 1", 1.0, false),
        ("x so small that eps counts", 2.0 * s.eps.sqrt(), false),
        ("x of size 100, in place", 100.0, true),
    ] {
        let values = noise.normal(rows * cols, size);
        let mut case = Case::new(what);
        let x = case.input("x", f32s(&values));
        let w = case.input("w", f32s(&weights));
        let y = if in_place { x } else { case.output("y", Element::F32, rows * cols) };
        case.launch(spec.clone(), &[x, w, y]);
        case.expect(y, place(), Want::Close(Close::all(reference::rms_norm(&values, &weights, s), NORM)));
        cases.push(case);
    }
    cases
}

/// Positions near and far, with and without frequency factors.
pub(in crate::selftest) fn rope(s: &RopeShape) -> Vec<Case> {
    let spec = KernelSpec::Rope(s.clone());
    let mut noise = Noise::new(&spec.name());
    let with_factors = noise.uniform((s.rotated / 2) as usize, 1.0, 8.0);
    let mut cases = Vec::new();
    for (position, base, factors) in [
        (0, 1e4, &[][..]),
        (1, 1e4, &[]),
        (4095, 5e5, &with_factors),
        (131_071, 1e6, &[]),
        (1_048_575, 5e5, &with_factors),
    ] {
        let values = noise.normal((s.heads * s.head_dim) as usize, 1.0);
        let rotation = Rotation { base, factors, position };
        let with = if factors.is_empty() { "" } else { ", frequency factors" };
        let mut case = Case::new(format!("position {position}, base {base}{with}"));
        let x = case.input("x", f32s(&values));
        let table = case.input("table", f32s(&frequencies(base, s.rotated, factors)));
        let state = case.input("state", state_record(position, 1));
        case.launch(spec.clone(), &[x, table, state]);
        let place = Place::Axes(vec![("head", s.heads as usize), ("element", s.head_dim as usize)]);
        case.expect(x, place, Want::Close(Close::all(reference::rope(&values, s, &rotation), ROPE)));
        cases.push(case);
    }
    cases
}

/// The first, a middle and the last position of a cache whose other rows must stay as they are.
pub(in crate::selftest) fn kv_append(s: &KvAppendShape) -> Vec<Case> {
    const CONTEXT: usize = 7;
    let spec = KernelSpec::KvAppend(s.clone());
    let width = s.width as usize;
    let mut noise = Noise::new(&spec.name());
    // Halfway between two f16 (rounds to even), the largest, beyond it, subnormal, and too small.
    let special =
        [1.0 + 0.5 / 1024.0, 1.0 + 1.5 / 1024.0, 65504.0, -65520.0, 3e-6, -1e-8, -0.0, f32::INFINITY];
    let mut cases = Vec::new();
    for position in [0, 3, CONTEXT - 1] {
        let mut case = Case::new(format!("position {position} of {CONTEXT}"));
        let mut args = Vec::new();
        let mut expected = Vec::new();
        for name in ["k", "v"] {
            let mut values = noise.normal(width, 3.0);
            values.iter_mut().zip(special).for_each(|(value, special)| *value = special);
            args.push(case.input(name, f32s(&values)));
            let rounded: Vec<f16> = values.into_iter().map(f16::from_f32).collect();
            let mut cache = vec![POISON; CONTEXT * width * 2];
            cache[position * width * 2..][..width * 2].copy_from_slice(&f16s(&rounded));
            expected.push(cache);
        }
        for (name, cache) in ["keys", "values"].into_iter().zip(expected) {
            let buffer = case.output(name, Element::F16, CONTEXT * width);
            args.push(buffer);
            let place = Place::Axes(vec![("position", CONTEXT), ("element", width)]);
            case.expect(buffer, place, Want::Exactly(Element::F16, cache));
        }
        args.push(case.input("state", state_record(position as u32, 1)));
        case.launch(spec.clone(), &args);
        cases.push(case);
    }
    cases
}

/// Gates of ordinary size, and so large that e^−gate overflows or vanishes.
pub(in crate::selftest) fn swiglu(s: &SwigluShape) -> Case {
    let spec = KernelSpec::Swiglu(s.clone());
    let width = s.width as usize;
    let mut noise = Noise::new(&spec.name());
    let mut gate = noise.normal(width, 3.0);
    gate.iter_mut().zip([0.0, -100.0, 100.0, -80.0, 80.0]).for_each(|(gate, special)| *gate = special);
    let up = noise.normal(width, 1.0);
    let mut case = Case::new("random and extreme gates");
    let x = case.input("x", f32s(&[gate.as_slice(), &up].concat()));
    let y = case.output("y", Element::F32, width);
    case.launch(spec, &[x, y]);
    case.expect(y, Place::line("element"), Want::Close(Close::all(reference::swiglu(&gate, &up), SWIGLU)));
    case
}

/// Sums, bit for bit.
pub(in crate::selftest) fn residual_add(s: &ResidualAddShape) -> Case {
    let spec = KernelSpec::ResidualAdd(s.clone());
    let mut noise = Noise::new(&spec.name());
    let (a, b) = (noise.normal(s.width as usize, 1.0), noise.normal(s.width as usize, 10.0));
    let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let mut case = Case::new("random");
    let x = case.input("x", f32s(&a));
    let y = case.input("y", f32s(&b));
    case.launch(spec, &[x, y]);
    case.expect(x, Place::line("element"), Want::Exactly(Element::F32, f32s(&sums)));
    case
}
