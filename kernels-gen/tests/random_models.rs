//! Plans of random descriptions are consistent: their weights are all rows of all tensors, and their arguments are the
//! parameters of their kernels.

use std::collections::{BTreeMap, HashSet};

use bespoke_codegen::ptx::Target;
use bespoke_gguf::GgmlType;
use bespoke_kernels::kernels::activation::Activation;
use bespoke_kernels::kernels::attention::NormSpan;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::plan::{BufferKind, Part, PartForm, Plan, PlanParams, Sampling, StepKind};
use bespoke_kernels::shape::architecture::{ARCHITECTURES, Architecture};
use bespoke_kernels::shape::tensors::Form;
use bespoke_kernels::shape::{Blueprint, Dimensions, FeedForward, Mix, ModelShape};

/// Random models per target.
const MODELS: usize = 40;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(n)) as u32
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    /// An architecture whose facts are mixed from those of all rows.
    fn architecture(&mut self) -> Architecture {
        let mut row = || self.one_of(ARCHITECTURES);
        let (a, b, c, d, e) = (row(), row(), row(), row(), row());
        Architecture {
            rope: b.rope,
            norms: c.norms,
            qk_norm: d.qk_norm,
            activation: e.activation,
            fused_qkv: self.flag(),
            fused_gate_up: self.flag(),
            qkv_bias: self.flag(),
            window: self.flag().then_some(1 + self.below(100)),
            window_period: self.below(4),
            unrotated_period: self.flag().then_some(1 + self.below(3)),
            attention_softcap: self.flag().then_some(20.0),
            ..a
        }
    }

    fn shape(&mut self) -> ModelShape {
        let kv_heads = 1 + self.below(4);
        let head_dim = 16 * (1 + self.below(16));
        let dimensions = Dimensions {
            hidden: 32 * (1 + self.below(40)),
            layers: 1 + self.below(4),
            heads: kv_heads * (1 + self.below(9)),
            kv_heads,
            head_dim,
            rotated: if self.flag() { head_dim } else { head_dim / 2 },
            ffn: 32 * (1 + self.below(60)),
            vocab: 300 + self.below(1000),
            context: 4096,
            eps: 1e-6,
        };
        let mix = Mix::Pure(self.one_of(&[GgmlType::F16, GgmlType::Q8_0, GgmlType::Q4_1, GgmlType::Q5_K]));
        let (tied, rope_factors) = (self.flag(), self.flag());
        let blueprint = Blueprint { tied, rope_factors, ..Blueprint::new(self.architecture(), dimensions) };
        blueprint.shape("random", mix).unwrap()
    }
}

/// Rows (or elements) of each tensor that the plan uploads.
fn uploaded(plan: &Plan) -> BTreeMap<String, Vec<(u32, u32)>> {
    let mut rows: BTreeMap<String, Vec<(u32, u32)>> = BTreeMap::new();
    for buffer in &plan.buffers {
        let BufferKind::Weights { parts } = &buffer.kind else { continue };
        for Part { tensor, first_row, form, .. } in parts {
            let count = match form {
                PartForm::Matrix { rows, .. } => *rows,
                PartForm::Vector { elements } => *elements,
            };
            rows.entry(tensor.clone()).or_default().push((*first_row, first_row + count));
        }
    }
    rows
}

/// All rows of all tensors of the description are uploaded once, except RoPE's divisors.
fn check_weights(plan: &Plan) {
    let mut rows = uploaded(plan);
    for name in plan.shape.tensors().filter(|name| !name.to_string().starts_with("rope_")) {
        let form = name.tensor.form();
        let expected = *form.dims(&plan.shape.dimensions).last().unwrap();
        let mut found = rows.remove(&name.to_string()).unwrap_or_else(|| panic!("{name} is not uploaded"));
        found.sort_unstable();
        assert_eq!(
            u64::from(found.iter().fold(0, |end, range| {
                assert_eq!(range.0, end, "{name}: {found:?}");
                range.1
            })),
            expected,
            "{name}, a {}",
            if matches!(form, Form::Matrix(..)) { "matrix" } else { "vector" }
        );
    }
    assert!(rows.is_empty(), "no tensors of the description: {rows:?}");
}

#[test]
fn plans_of_random_models_are_consistent() {
    let (mut seen, mut kernels) = (HashSet::new(), HashSet::new());
    for target in Target::ALL {
        let mut random = Random(u64::from(target.multiprocessors()));
        for _ in 0..MODELS {
            let shape = random.shape();
            let sampling = random.one_of(&[Sampling::Greedy, Sampling::Sampled]);
            let (rows, arithmetic) = (random.one_of(&[1, 1, 2, 8, 64]), random.one_of(&Arithmetic::ALL));
            let params = PlanParams::single(200).with_arithmetic(arithmetic).with_sampling(sampling);
            let params = params.with_slots(rows, rows * 4);
            let params = match random.below(4) {
                0 if rows > 1 => params.verify(rows),
                1 => params.first_token(rows),
                _ => params.decode(rows),
            };
            // A first-token step has the last layer only.
            let is_whole = params.kind != StepKind::FirstToken;
            let plan = Plan::new(&shape, target, params).unwrap_or_else(|error| panic!("{error}: {shape:?}"));
            plan.check().unwrap_or_else(|error| panic!("{error}: {shape:?}"));
            if is_whole {
                check_weights(&plan);
            }
            for layer in &shape.layers {
                let FeedForward::Dense { activation, norms, .. } = &layer.feed_forward;
                let attention = &layer.attention;
                seen.insert(("window", attention.window.is_some()));
                seen.insert(("rope", attention.rope.is_some()));
                seen.insert(("norm before", norms.before.is_some()));
                seen.insert(("norm after", norms.after.is_some()));
                seen.insert(("gelu", *activation == Activation::Gelu));
                seen.insert(("wide norm", attention.qk_norm.is_some_and(|n| n.span == NormSpan::Projection)));
            }
            // The names and order of arguments, once for each kind of kernel.
            for launch in &plan.launches {
                let kernel = &plan.kernels[launch.kernel];
                let names: Vec<String> = launch.args.iter().map(|arg| arg.param.clone()).collect();
                if target == Target::Sm90 && kernels.insert((launch.label.role, names.clone())) {
                    let recorded = kernel.spec.record().unwrap();
                    let params: Vec<String> = recorded.params().iter().map(|p| p.name.clone()).collect();
                    assert_eq!(params, names, "{}", launch.label);
                }
            }
        }
    }
    assert_eq!(seen.len(), 12, "random models lack some feature: {seen:?}");
}
