//! The selftest on the emulator: every kind of kernel and weight type passes, and wrong results fail.

mod hooked;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use bespoke::device::{self, Device, GraphReport};
use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::probe::ProbeShape;
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::WeightType;
use bespoke_selftest::{self as selftest, Report};
use hooked::{Call, Hooked, Hooks, Operation, Verdict, emulator};

fn run(device: &dyn Device, specs: &[KernelSpec]) -> Report {
    assert!(!specs.is_empty(), "nothing to test");
    selftest::run(device, specs, &mut |_| {}).expect("the device has a target")
}

fn failures(report: &Report) -> Vec<String> {
    report
        .failures()
        .map(|row| {
            format!("{} ({}), {}: {}", row.kernel, row.what, row.output, row.failure.as_deref().unwrap_or(""))
        })
        .collect()
}

/// Runs the small kernels that `select` selects; all must pass.
fn check(select: impl Fn(&KernelSpec) -> bool) {
    let specs: Vec<KernelSpec> = selftest::small().into_iter().filter(select).collect();
    let report = run(&*emulator(), &specs);
    let failures = failures(&report);
    assert!(failures.is_empty(), "{}:\n{}", report.summary(), failures.join("\n"));
}

macro_rules! weight_types {
    ($($name:ident $ty:ident),* $(,)?) => { $(mod $name {
        use super::*;

        #[test]
        fn embed() {
            check(|spec| matches!(spec, KernelSpec::Embed(s) if s.ty == WeightType::$ty));
        }

        #[test]
        fn gemv() {
            check(|spec| match spec {
                KernelSpec::Gemv(s) => s.segments.len() == 1 && s.segments[0].ty == WeightType::$ty,
                _ => false,
            });
        }
    })* }
}

weight_types! {
    f32 F32, f16 F16, bf16 BF16, q4_0 Q4_0, q4_1 Q4_1, q5_0 Q5_0, q5_1 Q5_1, q8_0 Q8_0, q4_k Q4_K, q5_k Q5_K,
    q6_k Q6_K, q2_k Q2_K, q3_k Q3_K, iq4_nl IQ4_NL, iq4_xs IQ4_XS, mxfp4 MXFP4,
}

macro_rules! kinds {
    ($($name:ident $pattern:pat),* $(,)?) => { $(
        #[test]
        fn $name() {
            check(|spec| matches!(spec, $pattern));
        }
    )* }
}

kinds! {
    prepare KernelSpec::Prepare(_),
    gemm KernelSpec::Gemm(_),
    convert KernelSpec::Convert(_),
    norm_add KernelSpec::NormAdd(_),
    attention KernelSpec::Attention(_),
    attention_shares KernelSpec::AttentionShares(_),
    append KernelSpec::Append(_),
    attention_chunk KernelSpec::AttentionChunk(_),
    choose_greedy KernelSpec::ChooseGreedy(_),
    sample_keys KernelSpec::SampleKeys(_),
    choose_sampled KernelSpec::ChooseSampled(_),
    read_probe KernelSpec::ReadProbe(_),
    select_rows KernelSpec::SelectRows(_),
    mma_probe KernelSpec::MmaProbe(_),
}

#[test]
fn gemv_of_several_matrices() {
    check(|spec| matches!(spec, KernelSpec::Gemv(s) if s.segments.len() > 1));
}

#[test]
fn every_weight_type_and_kernel_is_among_the_small_ones() {
    let specs = selftest::small();
    for ty in WeightType::ALL {
        assert!(specs.iter().any(|spec| matches!(spec, KernelSpec::Embed(s) if s.ty == ty)), "{ty}");
        assert!(
            specs.iter().any(|spec| matches!(spec, KernelSpec::Gemv(s) if s.segments[0].ty == ty)),
            "{ty}"
        );
    }
    for shape in selftest::replay_shapes() {
        for spec in selftest::of_shape(&shape, Target::Sm90, KvType::F16).expect("a plan") {
            let kind = std::mem::discriminant(&spec);
            assert!(specs.iter().any(|small| std::mem::discriminant(small) == kind), "{}", spec.name());
        }
    }
}

/// Every kernel of a decode step has cases for each number of rows of an engine's steps.
#[test]
fn every_kernel_is_there_for_each_number_of_rows() {
    let mut found: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for spec in selftest::small() {
        let (kind, rows) = match &spec {
            KernelSpec::Embed(s) => ("embed", s.tokens),
            KernelSpec::SelectRows(s) => ("select_rows", s.tokens),
            KernelSpec::Gemv(s) => ("gemv", s.tokens),
            KernelSpec::NormAdd(s) => ("norm_add", s.tokens),
            KernelSpec::Attention(s) => ("attention", s.tokens),
            KernelSpec::ChooseGreedy(s) => ("choose_greedy", s.tokens),
            KernelSpec::SampleKeys(s) => ("sample_keys", s.tokens),
            KernelSpec::ChooseSampled(s) => ("choose_sampled", s.tokens),
            // Cases of products of several rows run their preparation; the others are not in decode steps.
            _ => continue,
        };
        found.entry(kind).or_default().insert(rows);
    }
    assert_eq!(found.len(), 8);
    for (kind, found) in found {
        for rows in [1, 2, 4, 8, 16, 32, 64] {
            assert!(found.contains(&rows), "{kind} of {rows} rows");
        }
    }
}

#[test]
fn replay_equals_eager() {
    let device = emulator();
    for shape in selftest::replay_shapes() {
        let row = selftest::replay_equals_eager(&*device, &shape);
        assert_eq!(row.failure, None, "{}", shape.name);
    }
}

/// A device that skips one graph replay, given by its number.
struct Forgetful {
    skipped: usize,
    replays: AtomicUsize,
}

impl Hooks for Forgetful {
    fn before(&self, call: Call<'_>) -> Verdict {
        if call.operation != Operation::Replay {
            return Verdict::Run;
        }
        let number = self.replays.fetch_add(1, Ordering::Relaxed);
        if number == self.skipped { Verdict::Skip } else { Verdict::Run }
    }
}

/// A device that loses a node when it captures a graph.
struct Lossy;

impl Hooks for Lossy {
    fn captured(&self, mut report: GraphReport) -> device::Result<GraphReport> {
        report.kernels.pop();
        Ok(report)
    }
}

#[test]
fn a_replay_that_differs_is_reported() {
    let shape = &selftest::replay_shapes()[0];
    let failure =
        |device: &dyn Device| selftest::replay_equals_eager(device, shape).failure.expect("a failure");
    let forgetful = |skipped| Hooked::new(Forgetful { skipped, replays: AtomicUsize::new(0) });
    let waiting = failure(&forgetful(5));
    assert!(waiting.starts_with("Replay: `logits after token 5` differs at byte "), "{waiting}");
    let steps = (0..).take_while(|&skipped| failure(&forgetful(skipped)).starts_with("Replay")).count();
    let queued = failure(&forgetful(steps));
    assert!(queued.starts_with("Queued: `") && queued.contains("` differs at byte "), "{queued}");
    let lossy = failure(&Hooked::new(Lossy));
    assert!(lossy.starts_with("the graph runs [\"embed_"), "{lossy}");
}

/// Kernels that are built in are tested in their built-in form; other kernels are compiled for the test.
#[test]
fn built_in_kernels_are_tested_as_built_in() {
    let built_in = KernelSpec::ReadProbe(ProbeShape::default());
    let made = KernelSpec::ReadProbe(ProbeShape { grid: 3, threads: 64 });
    for (specs, expected) in [
        (vec![built_in.clone()], "1 kernel, 1 of them built in"),
        (vec![made.clone()], "1 kernel, 0 of them built in"),
        (vec![built_in, made], "2 kernels, 1 of them built in"),
    ] {
        let report = run(&*emulator(), &specs);
        assert_eq!(report.origin(), expected);
        assert_eq!(failures(&report), Vec::<String>::new());
    }
}

/// Flips bits in downloads.
struct Flip {
    /// Size of the downloads to change, in bytes.
    bytes: usize,
    /// Index of the byte to change.
    at: usize,
    /// Bits to flip.
    bits: u8,
}

impl Hooks for Flip {
    fn downloaded(&self, out: &mut [u8]) {
        if out.len() == self.bytes {
            out[self.at] ^= self.bits;
        }
    }
}

/// Failures of the first small kernel that `select` selects, with bits of one output byte flipped.
fn failures_with(select: impl Fn(&KernelSpec) -> bool, bytes: usize, at: usize, bits: u8) -> Vec<String> {
    let spec = selftest::small().into_iter().find(select).expect("such a kernel");
    failures(&run(&Hooked::new(Flip { bytes, at, bits }), &[spec]))
}

#[test]
fn a_wrong_product_is_reported_with_its_segment_and_row() {
    let stack =
        |spec: &KernelSpec| matches!(spec, KernelSpec::Gemv(s) if s.segments.len() == 3 && s.rows() == 41);
    // A mantissa bit of row 3 of the third matrix, which starts at row 36: an error of at least a third.
    let failures = failures_with(stack, 41 * 4, 39 * 4 + 2, 0x40);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].starts_with("gemv_q80r33_q80r3_q50r5_c96b"), "{failures:?}");
    assert!(failures[0].contains("[39] (segment 2 (Q5_0), row 3)"), "{failures:?}");
}

#[test]
fn a_single_wrong_bit_of_an_exact_output_is_reported() {
    let embed =
        |spec: &KernelSpec| matches!(spec, KernelSpec::Embed(s) if s.ty == WeightType::F32 && s.cols == 1100);
    let failures = failures_with(embed, 1100 * 4, 1099 * 4, 1);
    assert!(
        failures[0].contains("1 of 1100 elements differ, the first at [1099] (column 1099)"),
        "{failures:?}"
    );
}
