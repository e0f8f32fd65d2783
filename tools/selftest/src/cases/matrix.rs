//! Cases of kernels that read weight matrices.

use bespoke_kernels::kernels::embed::EmbedShape;
use bespoke_kernels::kernels::gemm::{ConvertShape, GemmShape, Tiling};
use bespoke_kernels::kernels::gemv::tokens::{InputLayout, NextInputs, PrepareShape};
use bespoke_kernels::kernels::gemv::{GemvShape, Input, Output, Schedule, Segment, TokenSchedule};
use bespoke_kernels::kernels::launching::CopyEngine;
use bespoke_kernels::kernels::state::WORDS;
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::WeightType;

use crate::case::{Case, Close, Coordinates, Element, Limit, Want};
use crate::cases::rows::{self, StepRow};
use crate::inputs::{Matrix, Noise, f32s, state_record, u32s};
use crate::reference::{self, Products};

/// Rounding has the step (largest magnitude of 256 activations)/32512, and its error the variance step²/12. The limit is
/// five times the resulting NMSE for a largest magnitude of seven times the root mean square.
const QUANTISED: Limit =
    Limit { nmse: 2e-8, reason: "activations are rounded to 16 bits of the largest in 256" };
/// Ten times [`QUANTISED`]: three standard deviations of a single output.
const FEW_QUANTISED: Limit = Limit { nmse: 2e-7, reason: "activations are rounded to 16 bits; few outputs" };
/// As [`QUANTISED`] with steps four times as large, for products that are added up as integers.
const EXACT: Limit =
    Limit { nmse: 3.2e-7, reason: "activations are rounded to 14 bits of the largest in 256" };
/// Ten times [`EXACT`].
const FEW_EXACT: Limit = Limit { nmse: 3.2e-6, reason: "activations are rounded to 14 bits; few outputs" };
/// Smallest number of outputs over which single errors average out.
const MANY: u32 = 128;
/// Three roundings to f16, of inputs, scales and weights, each with a variance of 2⁻²⁴/3 or less; the limit is five times the
/// resulting NMSE.
const HALVES: Limit = Limit { nmse: 3e-7, reason: "inputs and weights are rounded to f16" };
/// Ten times [`HALVES`]: three standard deviations of a single output.
const FEW_HALVES: Limit = Limit { nmse: 3e-6, reason: "inputs and weights are rounded to f16; few outputs" };
/// The errors of two products, few outputs of each token.
const NEXT: Limit = Limit { nmse: 3e-6, reason: "inputs and weights of two products are rounded to f16" };
/// The approximate reciprocal root has a relative error of 2⁻²².
const FACTORS: Limit = Limit { nmse: 1e-13, reason: "sums in f32, and an approximate root" };
const FLOATS: Limit = Limit { nmse: 1e-12, reason: "sums in f32" };

/// Cases of steps with rows of every kind, whose tokens include the first, the last, and one outside of the vocabulary, which
/// reads row 0. With one row, also a case of these tokens and of a middle one, in one sequence.
pub(crate) fn embed(s: &EmbedShape) -> Vec<Case> {
    let spec = KernelSpec::Embed(s.clone());
    let mut noise = Noise::new(&spec.name());
    let matrix = noise.matrix(s.layout());
    let mut planes = vec![0; s.layout().bytes as usize];
    matrix.repack_to(&mut planes);
    let known = [0, s.vocab - 1, s.vocab / 2, s.vocab];
    let mut cases = Vec::new();
    if s.tokens == 1 {
        let mut case = Case::new("first, last, middle and unknown token");
        let (w, sequence) = (case.input("w", planes.clone()), case.input("tokens", u32s(&known)));
        for (position, &token) in (0..).zip(&known) {
            let state = case.input("state", rows::records(&[StepRow::single(position, 1)]));
            let x = case.output(&format!("x of token {token}"), Element::F32, s.cols as usize);
            case.launch(spec.clone(), &[w, sequence, state, x]);
            let want = Want::Exactly(Element::F32, f32s(&embedded(s, &matrix, token)));
            case.expect(x, Coordinates::line("column"), want);
        }
        cases.push(case);
    }
    for turn in 0..rows::turns(s.tokens) {
        let step = rows::rows(s.tokens, turn);
        let mut tokens = noise.words(rows::token_count(s.tokens), s.vocab);
        step.iter().zip(known).for_each(|(row, token)| tokens[row.token()] = token);
        let mut want = Vec::new();
        for row in &step {
            match row.exists {
                true => want.extend(embedded(s, &matrix, tokens[row.token()])),
                false => want.extend(vec![0.0; s.cols as usize]),
            }
        }
        let mut case = Case::new(format!("rows of every kind, step {turn}"));
        let args = [
            case.input("w", planes.clone()),
            case.input("tokens", u32s(&tokens)),
            case.input("state", rows::records(&step)),
            case.output("x", Element::F32, want.len()),
        ];
        case.launch(spec.clone(), &args);
        let place = Coordinates::Axes(vec![("row", step.len()), ("column", s.cols as usize)]);
        case.expect(args[3], place, Want::Exactly(Element::F32, f32s(&want)));
        cases.push(case);
    }
    cases
}

/// Embedding of a token. Values of every type are exact in f32, or rounded once by the addition of a minimum, and once by
/// the scale.
fn embedded(s: &EmbedShape, matrix: &Matrix, token: u32) -> Vec<f32> {
    let row = if token < s.vocab { token as usize } else { 0 };
    matrix.row(row).iter().map(|value| value * s.scale).collect()
}

/// Case of a stack of matrices times the vectors of some tokens, with or without normalisation, and of the kernel's
/// epilogue.
pub(crate) fn gemv(s: &GemvShape) -> Case {
    product(s, &KernelSpec::Gemv(s.clone()), &vec![true; s.tokens as usize], false)
}

/// Cases of such a product: with random inputs, and if the kernel finds the largest output, with inputs of zeros. Then all
/// outputs are equal, and the first one wins.
pub(super) fn gemv_cases(s: &GemvShape) -> Vec<Case> {
    let mut cases = vec![gemv(s)];
    if s.output == Output::Argmax && !s.bias {
        cases.push(product(s, &KernelSpec::Gemv(s.clone()), &vec![true; s.tokens as usize], true));
    }
    cases
}

/// Cases of a product of many tokens, likewise. In the first, all tokens exist, but of the last block only the first one. In
/// the second, the first tokens of each group of 16 exist, and none of the last block. With one block, all tokens of the block
/// count as not in the last one. The inputs of tokens that do not exist are NaN, and they have no outputs.
pub(crate) fn gemm(s: &GemmShape) -> Vec<Case> {
    let (tokens, block) = (s.product.tokens, s.block_tokens());
    let last = if tokens > block { (tokens - 1) / block * block } else { tokens };
    let of = |exists: &dyn Fn(u32) -> bool| {
        let exists: Vec<bool> = (0..tokens).map(exists).collect();
        product(&s.product, &KernelSpec::Gemm(s.clone()), &exists, false)
    };
    vec![of(&|token| token <= last), of(&|token| token % 16 < 1 + tokens / 4 && token < last)]
}

/// Case of a product by a kernel of either kind. `exists`: which tokens exist; in a product of few tokens all do. `zeros`:
/// whether all inputs are zeros.
fn product(s: &GemvShape, spec: &KernelSpec, exists: &[bool], zeros: bool) -> Case {
    let mut noise = Noise::new(&spec.name());
    let mut xs: Vec<Vec<f32>> = (0..s.tokens).map(|_| noise.activations(s.cols as usize)).collect();
    // Neighbours differ in magnitude, so that the factor of another token gives another result.
    for (x, factor) in xs.iter_mut().zip([1.0, 4.0, 0.5].into_iter().cycle()) {
        x.iter_mut().for_each(|x| *x *= factor);
    }
    // The last but one of more than a few tokens has only zeros.
    if let [_, _, _, .., x, _] = &mut xs[..] {
        x.fill(0.0);
    }
    // The largest magnitude of every third token is just below a power of two.
    xs.iter_mut().skip(1).step_by(3).filter_map(|x| x.get_mut(64)).for_each(|x| *x = 31.999);
    if zeros {
        xs.iter_mut().for_each(|x| x.fill(0.0));
    }
    for (x, _) in xs.iter_mut().zip(exists).filter(|(_, exists)| !**exists) {
        x.fill(f32::NAN);
    }
    let offsets = s.offsets();
    let mut stack = vec![0; offsets.bytes as usize];
    let mut put = |at: u64, values: &[f32]| {
        stack[at as usize..][..4 * values.len()].copy_from_slice(&f32s(values));
    };
    let bias = if s.bias { noise.normal(s.rows() as usize, 1.0) } else { Vec::new() };
    put(offsets.bias, &bias);
    let mut norm = Vec::new();
    if s.normed() {
        norm = noise.uniform(s.cols as usize, 0.5, 1.5);
        put(offsets.norm, &norm);
    }
    let input = |x: &Vec<f32>| match s.input {
        Input::Normed { eps } => reference::rms_norm(x, &norm, eps),
        Input::Plain => x.iter().map(|&value| f64::from(value)).collect(),
    };
    let before = noise.normal((s.tokens * s.outputs()) as usize, 1.0);

    let mut products: Vec<Vec<Products>> = xs.iter().map(|_| Vec::new()).collect();
    let mut parts = Vec::new();
    for (layout, &at) in s.layouts().into_iter().zip(&offsets.segments) {
        let matrix = noise.matrix(layout);
        matrix.repack_to(&mut stack[at as usize..]);
        for (products, x) in products.iter_mut().zip(&xs) {
            let of_rows = match s.next {
                // The next product needs all outputs.
                Some(_) => reference::products_of_all_rows,
                None => reference::products,
            };
            products.push(of_rows(&matrix, &input(x)));
        }
        parts.push((format!("segment {} ({})", parts.len(), matrix.ty()), matrix.rows()));
    }
    let rows = before.chunks(s.outputs() as usize);
    let limit = limit(s, spec);
    let wants = products.iter().zip(rows).zip(exists).map(|((products, before), &exists)| {
        let mut want = outputs(s, products, &bias, before, limit);
        if zeros {
            want.scale = Some(1.0);
        }
        if !exists {
            want.scale = None;
            want.values = match s.output {
                Output::Residual => want.at.iter().map(|&row| f64::from(before[row])).collect(),
                _ => vec![f64::NAN; want.at.len()],
            };
        }
        want
    });
    let wants: Vec<Close> = wants.collect();
    if s.is_gated() {
        parts.truncate(1);
    }

    let normed = if s.normed() { ", normalised" } else { "" };
    let existing = exists.iter().filter(|exists| **exists).count();
    let missing = if existing < exists.len() { format!(", {existing} tokens exist") } else { String::new() };
    let x = if zeros { "zeros as" } else { "random" };
    let mut case = Case::new(format!("{x} x{normed}{missing}"));
    let w = case.input("w", stack);
    let mut x = case.input("x", f32s(&xs.concat()));
    let y = s.stores_outputs().then(|| match s.output {
        Output::Residual => case.input("y", f32s(&before)),
        _ => case.output("y", Element::F32, before.len()),
    });
    if let KernelSpec::Gemm(gemm) = spec {
        let convert = gemm.convert();
        let prepared = case.output("x as f16", Element::U32, convert.bytes() as usize / 4);
        let record = |(position, exists)| {
            if exists { state_record(position, s.tokens) } else { vec![0; 4 * WORDS as usize] }
        };
        let records = (0..).zip(exists.iter().copied()).flat_map(record).collect();
        let state = case.input("state", records);
        let mut args = vec![x];
        args.extend(convert.eps.map(|_| case.input("norm", f32s(&norm))));
        args.extend([prepared, state]);
        case.launch(KernelSpec::Convert(convert), &args);
        case.may_change([prepared]);
        x = prepared;
        case.launch(spec.clone(), &[w, x, y.expect("products of prompts store outputs"), state]);
    } else if let Some(prepare) = s.prepare() {
        let prepared = case.output("prepared x", Element::U32, prepare.bytes() as usize / 4);
        let mut args = vec![x];
        args.extend(prepare.normed.then(|| case.input("norm", f32s(&norm))));
        args.push(prepared);
        case.launch(KernelSpec::Prepare(prepare), &args);
        case.may_change([prepared]);
        x = prepared;
    }
    if let KernelSpec::Gemv(_) = spec {
        let mut args = vec![w, x];
        args.extend(y);
        if s.output == Output::Argmax {
            args.extend(largest(s, &wants, &mut case));
        }
        if s.stores_factors {
            args.extend(stored_factors(s, &xs, &mut case));
        }
        if let Some(next) = s.next {
            let outputs: Vec<&[f64]> = wants.iter().map(|want| &want.values[..]).collect();
            launch_with_next(spec, &next, args, &outputs, &mut noise, &mut case);
        } else {
            case.launch(spec.clone(), &args);
        }
    }
    if let Some(y) = y {
        let place = match s.tokens {
            1 => Coordinates::Parts(parts),
            tokens => Coordinates::Axes(vec![("token", tokens as usize), ("row", s.outputs() as usize)]),
        };
        case.expect(y, place, Want::Close(of_all(wants, s)));
    }
    case
}

/// Adds the buffers of the factors of the norm of `xs`, and of the sums of squares of the next norm, and what is expected in them.
fn stored_factors(s: &GemvShape, xs: &[Vec<f32>], case: &mut Case) -> [usize; 2] {
    let Input::Normed { eps } = s.input else { panic!("only norms have factors") };
    let factor = |x: &Vec<f32>| {
        let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
        (squares / x.len() as f64 + f64::from(eps)).sqrt().recip()
    };
    let factors = case.output("factors", Element::F32, xs.len());
    let want = Close::all(xs.iter().map(factor).collect(), FACTORS);
    case.expect(factors, Coordinates::line("token"), Want::Close(want));
    let bytes = NextInputs::SQUARES_BYTES as usize * xs.len();
    let squares = case.input("next squares", vec![1; bytes]);
    case.expect(squares, Coordinates::line("word"), Want::Exactly(Element::U32, vec![0; bytes]));
    [factors, squares]
}

/// Adds the launch of a product that writes the inputs of the next one, with `args` and what it needs for them, and a product that
/// reads them. `outputs` are those of the first product, for each token.
fn launch_with_next(
    spec: &KernelSpec,
    next: &NextInputs,
    mut args: Vec<usize>,
    outputs: &[&[f64]],
    noise: &mut Noise,
    case: &mut Case,
) {
    let cols = outputs[0].len() as u32;
    let reader = GemvShape { received: true, ..reader(&next.layout, cols, next.normed) };
    let mut norm = Vec::new();
    let mut squares = None;
    if let Input::Normed { eps } = reader.input {
        norm = noise.uniform(cols as usize, 0.5, 1.5);
        // The factors of an earlier norm differ from those of this one, by up to 2^10.
        let factor = |(token, outputs): (i32, &&[f64])| {
            let squares: f64 = outputs.iter().map(|y| y * y).sum();
            let factor = (squares / outputs.len() as f64 + f64::from(eps)).sqrt().recip();
            (factor * f64::powi(2.0, 5 * (token % 5 - 2))) as f32
        };
        let factors: Vec<f32> = (0..).zip(outputs).map(factor).collect();
        let sums = case.input("next squares", vec![0; NextInputs::SQUARES_BYTES as usize * outputs.len()]);
        let factors = case.input("factors", f32s(&factors));
        args.extend([factors, case.input("next norm", f32s(&norm)), sums]);
        case.may_change([sums]);
        squares = Some(sums);
    }
    let inputs = case.output("next inputs", Element::U32, next.bytes() as usize / 4);
    args.push(inputs);
    case.launch(spec.clone(), &args);
    case.may_change([inputs]);

    let offsets = reader.offsets();
    let mut stack = vec![0; offsets.bytes as usize];
    stack[offsets.norm as usize..][..4 * norm.len()].copy_from_slice(&f32s(&norm));
    let mut wants: Vec<Vec<f64>> = vec![Vec::new(); outputs.len()];
    for (layout, &at) in reader.layouts().into_iter().zip(&offsets.segments) {
        let matrix = noise.matrix(layout);
        matrix.repack_to(&mut stack[at as usize..]);
        for (want, outputs) in wants.iter_mut().zip(outputs) {
            let x = match reader.input {
                Input::Normed { eps } => {
                    let outputs: Vec<f32> = outputs.iter().map(|&y| y as f32).collect();
                    reference::rms_norm(&outputs, &norm, eps)
                }
                Input::Plain => outputs.to_vec(),
            };
            want.extend(reference::products(&matrix, &x).values);
        }
    }
    let rows = reader.outputs();
    let values = wants.concat();
    let y = case.output("y of the next product", Element::F32, values.len());
    let mut args = vec![case.input("w of the next product", stack), inputs, y];
    args.extend(squares);
    case.launch(KernelSpec::Gemv(reader), &args);
    let place = Coordinates::Axes(vec![("token", outputs.len()), ("row", rows as usize)]);
    case.expect(y, place, Want::Close(Close::all(values, NEXT)));
}

/// Case of prepared inputs: a product reads them.
pub(crate) fn prepare(s: &PrepareShape) -> Case {
    let product = reader(&s.layout, s.cols, s.normed);
    let schedule = Schedule { trigger: s.trigger, ..product.schedule };
    gemv(&GemvShape { schedule, ..product })
}

/// A product that reads prepared inputs, with matrices of types that need these forms of the inputs.
fn reader(layout: &InputLayout, cols: u32, normed: bool) -> GemvShape {
    use WeightType::{F16, F32, Q2_K, Q4_0, Q4_K, Q6_K, Q8_0};
    let forms = layout.forms;
    // Wide blocks pad the columns to an even number of granules.
    let wide = layout.granules.is_multiple_of(2) && cols.is_multiple_of(256);
    let plain = if wide { Q6_K } else { Q8_0 };
    let types = [
        (forms.chunks, plain),
        (forms.mins, Q4_K),
        (forms.sums, Q4_0),
        (forms.half_sums, Q2_K),
        (forms.floats, F32),
        (forms.short_halves, plain),
        (forms.long_halves, F16),
    ];
    let segments = types.into_iter().filter(|(needed, _)| *needed).map(|(_, ty)| Segment { ty, rows: 16 });
    let mut product = GemvShape {
        tokens: layout.tokens,
        input: if normed { Input::Normed { eps: 1e-5 } } else { Input::Plain },
        arithmetic: layout.arithmetic(),
        ..GemvShape::new(cols, segments.collect())
    };
    let slice = product.least_slice();
    product.schedule.several = TokenSchedule::sliced(slice, 1, 1);
    if layout.block_tokens > 0 {
        // Warpgroups multiply blocks of tokens.
        let blocks = layout.tokens.div_ceil(layout.block_tokens);
        let several = TokenSchedule { warpgroups: 1, blocks, slice: 256, ..product.schedule.several };
        let bulk = Schedule { warps: 4, copy: CopyEngine::Bulk, ..product.schedule };
        let ty = if forms.mins { Q4_K } else { Q6_K };
        product.segments = vec![Segment { ty, rows: 16 }];
        product.schedule = Schedule { several, ..bulk };
    }
    product
}

/// Case of inputs as f16: a product with matrices of types that need these forms of the inputs reads them.
pub(crate) fn convert(s: &ConvertShape) -> Vec<Case> {
    use WeightType::{F16, F32};
    let types = [(s.short_runs, F32), (s.long_runs, F16)];
    let segments = types.into_iter().filter(|(needed, _)| *needed).map(|(_, ty)| Segment { ty, rows: 16 });
    let product = GemvShape {
        tokens: s.tokens,
        input: s.eps.map_or(Input::Plain, |eps| Input::Normed { eps }),
        ..GemvShape::new(s.cols, segments.collect())
    };
    let tiling = Tiling {
        warps: [1, 1],
        warp_tiles: 2,
        warp_tokens: s.block_tokens,
        stages: [2, 2],
        stage_cols: 32,
        copy: CopyEngine::Async,
        warpgroups: false,
        halved: 0,
    };
    gemm(&GemmShape { product, tiling })
}

/// The expected outputs of all tokens. Their size is that of the largest outputs of a token.
fn of_all(wants: Vec<Close>, s: &GemvShape) -> Close {
    let mut all = Close::all(Vec::new(), wants[0].limit);
    for (want, first) in wants.into_iter().zip((0..).step_by(s.outputs() as usize)) {
        all.at.extend(want.at.iter().map(|row| first + row));
        all.values.extend(want.values);
        all.scale = if want.scale > all.scale { want.scale } else { all.scale };
    }
    all
}

/// Largest error of a product's outputs.
fn limit(s: &GemvShape, spec: &KernelSpec) -> Limit {
    let quantised = s.segments.iter().any(|segment| segment.ty.is_quantised());
    let exact = s.segments.iter().any(|segment| matches!(segment.ty, WeightType::Q4_K | WeightType::Q5_K));
    let few = s.outputs() < MANY;
    let halves = s.is_f16() || matches!(spec, KernelSpec::Gemm(_));
    match spec {
        _ if halves && few => FEW_HALVES,
        _ if halves => HALVES,
        _ if !quantised => FLOATS,
        _ if exact && few => FEW_EXACT,
        _ if exact => EXACT,
        _ if few => FEW_QUANTISED,
        _ => QUANTISED,
    }
}

/// Expected outputs of the epilogue.
fn outputs(s: &GemvShape, products: &[Products], bias: &[f32], before: &[f32], limit: Limit) -> Close {
    let mut want = Close::all(Vec::new(), limit);
    let (mut energy, scale) = (0.0, f64::from(s.scale));
    // A capped output is no larger than its cap.
    let size = |energy: f64| s.softcap.map_or(energy, |cap| energy.min(f64::from(cap).powi(2)));
    if let Output::Glu(activation) = s.output {
        let (gate, up) = (&products[0], &products[1]);
        let bias_of = |row: usize| bias.get(row).map_or(0.0, |&bias| f64::from(bias));
        for (i, &row) in gate.rows.iter().enumerate() {
            want.at.push(row);
            let g = gate.values[i] + bias_of(row);
            let u = up.values[i] + bias_of(row + s.segments[0].rows as usize);
            want.values.push(finish(reference::activation(activation, g) * u, s));
            // The slope of either activation is about 1/2 around 0, and at most 1.13.
            energy += size((gate.energies[i] * u * u + g * g * up.energies[i] / 4.0) * scale * scale);
        }
    } else {
        let mut first = 0;
        for (segment, products) in s.segments.iter().zip(products) {
            for ((&row, &value), &terms) in products.rows.iter().zip(&products.values).zip(&products.energies)
            {
                let row = first + row;
                let bias = bias.get(row).map_or(0.0, |&bias| f64::from(bias));
                let before = if s.output == Output::Residual { f64::from(before[row]) } else { 0.0 };
                want.at.push(row);
                want.values.push(finish(value + bias, s) + before);
                energy += size((terms + bias * bias) * scale * scale) + before * before;
            }
            first += segment.rows as usize;
        }
    }
    // The size of the outputs if the signs of the terms are random: a row that happens to cancel has no larger
    // error than another.
    want.scale = Some((energy / want.at.len() as f64).sqrt());
    want
}

/// Applies the factor and the soft cap to a result.
fn finish(value: f64, s: &GemvShape) -> f64 {
    let value = value * f64::from(s.scale);
    s.softcap.map_or(value, |cap| f64::from(cap) * (value / f64::from(cap)).tanh())
}

/// Adds the buffers of each CTA's largest output and of its row; their content is compared if all outputs are computed.
fn largest(s: &GemvShape, tokens: &[Close], case: &mut Case) -> [usize; 2] {
    let grid = s.schedule.grid as usize * tokens.len();
    let values = case.output("values", Element::F32, grid);
    let rows = case.output("rows", Element::U32, grid);
    let (mut want, mut want_rows) = (Vec::new(), Vec::new());
    let outputs = &tokens[0];
    if outputs.at.len() == s.rows() as usize {
        for outputs in tokens {
            for cta in 0..s.schedule.grid {
                // Of equal outputs the first wins.
                let value = |row: u32| outputs.values[row as usize];
                let row = s.rows_of(cta).min_by(|&a, &b| value(b).total_cmp(&value(a)));
                let row = row.expect("every CTA has rows");
                want.push(outputs.values[row as usize]);
                want_rows.push(row);
            }
        }
        case.expect(rows, Coordinates::line("CTA"), Want::Exactly(Element::U32, u32s(&want_rows)));
    }
    // There is one value per CTA: few values, however many outputs there are.
    let limit = match outputs.limit.nmse {
        nmse if nmse == QUANTISED.nmse => FEW_QUANTISED,
        nmse if nmse == EXACT.nmse => FEW_EXACT,
        _ => outputs.limit,
    };
    let close = Close { scale: outputs.scale, ..Close::all(want, limit) };
    case.expect(values, Coordinates::line("CTA"), Want::Close(close));
    [values, rows]
}
