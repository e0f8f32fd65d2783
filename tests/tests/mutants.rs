//! Mutation tests of the shipped kernels: which mutants the emulator's checks find, and which give a wrong result.
//!
//! An operator changes one instruction of a kernel's PTX. With `--ignored`, every operator is applied to every kernel below
//! at two of its sites: the first and the middle one. Otherwise a part of these mutants is tried. Equivalent mutants are in
//! `operators/equal.rs` with the reason; no other survives. A survivor is listed with the line of the kernel's source.

mod hooked;
mod operators;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::{Activation, Output};
use bespoke_kernels::kernels::launching::CopyEngine;
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::WeightType;
use bespoke_selftest as selftest;
use expect_test::expect;
use hooked::{Hooked, Hooks};
use operators::equal::{Equal, KERNELS, LAUNCHES};
use operators::{Mutant, mutants};
use rayon::prelude::*;

/// Replaces the PTX of one kernel.
struct Replaced<'a> {
    original: &'a str,
    mutant: &'a str,
}

impl Hooks for Replaced<'static> {
    fn ptx<'t>(&self, ptx: &'t str) -> Cow<'t, str> {
        if ptx == self.original { Cow::Borrowed(self.mutant) } else { Cow::Borrowed(ptx) }
    }
}

/// The first small kernel of the selftest that `select` selects.
fn small(select: impl Fn(&KernelSpec) -> bool) -> KernelSpec {
    selftest::small().into_iter().find(select).expect("such a kernel")
}

fn subjects() -> Vec<(&'static str, KernelSpec)> {
    let gemv = |ty: WeightType, output: Output| {
        small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.segments[0].ty == ty && s.output == output))
    };
    // The rings of weights and of inputs wrap.
    let gemm = |warpgroups: bool, tokens: u32| {
        small(move |spec| {
            matches!(spec, KernelSpec::Gemm(s)
                if s.product.segments[0].ty == WeightType::Q4_K
                    && s.product.tokens == tokens
                    && s.tiling.warpgroups == warpgroups)
        })
    };
    let gemm_halved =
        small(|spec| matches!(spec, KernelSpec::Gemm(s) if s.tiling.halved > 0 && s.product.tokens == 128));
    let attention =
        |copy: CopyEngine| small(|spec| matches!(spec, KernelSpec::Attention(s) if s.copy == copy));
    vec![
        (
            "embed Q4_K",
            small(|spec| matches!(spec, KernelSpec::Embed(s) if s.ty == WeightType::Q4_K && s.vocab > 1)),
        ),
        (
            "gemv, stacked",
            // The ring buffer of this kernel wraps several times.
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.bias && s.segments.len() == 4)),
        ),
        ("gemv Q8_0, residual", gemv(WeightType::Q8_0, Output::Residual)),
        ("gemv Q4_K, SwiGLU", gemv(WeightType::Q4_K, Output::Glu(Activation::Silu))),
        ("gemv Q6_K, argmax", gemv(WeightType::Q6_K, Output::Argmax)),
        ("attention, bulk", attention(CopyEngine::Bulk)),
        ("attention, cp.async", attention(CopyEngine::Async)),
        (
            "gemv of 4 tokens",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.tokens == 4 && s.segments.len() == 2)),
        ),
        (
            "gemv of 16 tokens",
            // The rings of weights and of inputs wrap.
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.tokens == 16 && s.cols == 3584)),
        ),
        (
            "gemv of 8 tokens with held sums",
            // The rings of weights and of inputs wrap.
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.tokens == 8 && s.schedule.several.holds)),
        ),
        (
            "gemv by warpgroups",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.tokens == 40 && s.has_warpgroups())),
        ),
        (
            "gemv by warpgroups, three with two types",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.tokens == 50 && s.has_warpgroups())),
        ),
        (
            "gemv by warpgroups, gate and up",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.tokens == 44 && s.mixes_segments())),
        ),
        ("prepare", small(|spec| matches!(spec, KernelSpec::Prepare(s) if s.normed))),
        ("select_rows", small(|spec| matches!(spec, KernelSpec::SelectRows(s) if s.tokens == 4))),
        ("gemm with halved blocks of tokens", gemm_halved),
        (
            "gemv of 16 tokens, f16",
            small(
                |spec| matches!(spec, KernelSpec::Gemv(s) if s.is_f16() && s.tokens == 16 && s.cols == 3584),
            ),
        ),
        (
            "gemv by warpgroups, f16",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.is_f16() && s.tokens == 40)),
        ),
        (
            "gemv by warpgroups, three with two types of f16",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.is_f16() && s.tokens == 50)),
        ),
        (
            "gemv by warpgroups, clusters",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.cluster() > 1 && s.cols == 1792)),
        ),
        (
            "gemv of 8 tokens, f16, inputs of the next norm",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.tokens == 8 && s.next_is_normed())),
        ),
        (
            "gemv by warpgroups, clusters, inputs of the next norm",
            small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.tokens == 60 && s.next_is_normed())),
        ),
        (
            "prepare, f16 with mins",
            small(
                |spec| matches!(spec, KernelSpec::Prepare(s) if s.layout.forms.short_halves && s.layout.forms.mins),
            ),
        ),
        ("gemm, mma", gemm(false, 64)),
        ("gemm by warpgroups", gemm(true, 37)),
        ("convert", small(|spec| matches!(spec, KernelSpec::Convert(s) if s.eps.is_some()))),
        ("attention of rows", small(|spec| matches!(spec, KernelSpec::Attention(s) if s.tokens > 1))),
        (
            "attention, quantised output",
            // A CTA has all runs of its row.
            small(
                |spec| matches!(spec, KernelSpec::Attention(s) if s.output_layout.is_some() && s.run_blocks == 1),
            ),
        ),
        ("attention_shares", small(|spec| matches!(spec, KernelSpec::AttentionShares(s) if s.tokens == 70))),
        ("append", small(|spec| matches!(spec, KernelSpec::Append(s) if s.tokens > 8 && s.kv_heads > 1))),
        (
            "attention_chunk",
            small(
                |spec| matches!(spec, KernelSpec::AttentionChunk(s) if s.attention.tokens == 37 && s.row_groups == 2),
            ),
        ),
        (
            "attention_chunk by warpgroups",
            // The case whose rows attend to more pages than the ring has stages, so that stages are reused.
            small(
                |spec| matches!(spec, KernelSpec::AttentionChunk(s) if s.attention.tokens == 100 && s.warpgroups),
            ),
        ),
        ("choose_greedy", small(|spec| matches!(spec, KernelSpec::ChooseGreedy(s) if s.candidates == 132))),
        ("sample_keys", small(|spec| matches!(spec, KernelSpec::SampleKeys(s) if s.vocab == 1000))),
        ("choose_sampled", small(|spec| matches!(spec, KernelSpec::ChooseSampled(s) if s.vocab == 1000))),
    ]
}

fn ptx_of(spec: &KernelSpec) -> String {
    let made = emit::compile(slice::from_ref(spec), Target::Sm90).expect("it compiles");
    made.into_iter().next().expect("one kernel").compiled.ptx
}

/// How a mutant is found, if it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Check(&'static str),
    Result,
    /// Not found, because the mutant is equivalent to the original.
    Equal,
    Survives,
}

/// Starts of the messages of findings, one for each kind.
const FINDINGS: [&str; 16] = [
    "race",
    "not finite",
    "wrapped address",
    "invalid launch",
    "missing proxy fence",
    "copy in flight",
    "misused mbarrier",
    "deadlock",
    "barrier divergence",
    "wrong member mask",
    "shuffle from an inactive lane",
    "uninitialised",
    "out of bounds",
    "misaligned",
    "missing griddepcontrol.wait",
    "trap",
];

fn verdict(failure: Option<&str>) -> Verdict {
    let Some(failure) = failure else { return Verdict::Survives };
    let check = FINDINGS.into_iter().find(|kind| failure.contains(&format!("{kind} in kernel")));
    check.map_or(Verdict::Result, Verdict::Check)
}

/// Calls `run` with a device on which the PTX `original` is replaced by `mutant`. The texts are leaked, which is
/// harmless because they are few.
fn with<T>(original: &str, mutant: &str, run: impl FnOnce(&Hooked<Replaced<'static>>) -> T) -> T {
    let leaked = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    run(&Hooked::new(Replaced { original: leaked(original), mutant: leaked(mutant) }))
}

/// Counts verdicts by operator.
struct Tally {
    known: &'static [Equal],
    rows: BTreeMap<&'static str, BTreeMap<Verdict, u32>>,
    survivors: Vec<String>,
    /// Indices of the known equivalent mutants that occurred.
    equal: BTreeSet<usize>,
}

impl Tally {
    fn new(known: &'static [Equal]) -> Tally {
        Tally { known, rows: BTreeMap::new(), survivors: Vec::new(), equal: BTreeSet::new() }
    }

    fn add(&mut self, kernel: &str, mutant: &Mutant, failure: Option<&str>) {
        let mut verdict = verdict(failure);
        let known = self.known.iter().position(|[name, operator, source, _]| {
            kernel.starts_with(name) && *operator == mutant.operator && mutant.source.starts_with(source)
        });
        if let (Verdict::Survives, Some(known)) = (&verdict, known) {
            verdict = Verdict::Equal;
            self.equal.insert(known);
        }
        if verdict == Verdict::Survives {
            self.survivors.push(format!("{kernel}: {}: {}\n", mutant.operator, mutant.source));
        }
        *self.rows.entry(mutant.operator).or_default().entry(verdict).or_default() += 1;
    }

    /// Fails if a mutant survives, or if fewer than `least` were tried.
    fn assert_found(&self, least: u32) {
        let tried: u32 = self.rows.values().flat_map(BTreeMap::values).sum();
        assert!(tried >= least, "only {tried} mutants");
        assert!(self.survivors.is_empty(), "survivors:\n{}", self.survivors.concat());
    }

    fn table(&self) -> String {
        let mut text = format!("{:34} mutants  by check  by result  equal  survive\n", "operator");
        let mut sums = [0; 5];
        for (operator, verdicts) in &self.rows {
            let count = |select: fn(&Verdict) -> bool| -> u32 {
                verdicts.iter().filter(|(verdict, _)| select(verdict)).map(|(_, count)| count).sum()
            };
            let row = [
                count(|_| true),
                count(|v| matches!(v, Verdict::Check(_))),
                count(|v| *v == Verdict::Result),
                count(|v| *v == Verdict::Equal),
                count(|v| *v == Verdict::Survives),
            ];
            let [all, check, result, equal, survives] = row;
            text += &format!("{operator:34} {all:7}  {check:8}  {result:9}  {equal:5}  {survives:7}\n");
            sums = std::array::from_fn(|i| sums[i] + row[i]);
        }
        let [all, check, result, equal, survives] = sums;
        text += &format!("{:34} {all:7}  {check:8}  {result:9}  {equal:5}  {survives:7}\n", "all");
        text += &format!("\nSurvivors:\n{}", self.survivors.concat());
        for (at, [kernel, operator, source, _]) in self.known.iter().enumerate() {
            if !self.equal.contains(&at) {
                text += &format!("No longer equivalent: {kernel}: {operator}: {source}\n");
            }
        }
        text
    }
}

/// Tries one of `step` mutants of each kernel.
fn mutants_of_kernels(step: usize) -> Tally {
    let mut tally = Tally::new(&KERNELS);
    for (name, spec) in subjects() {
        let original = ptx_of(&spec);
        let mutants = mutants(&original, &operators::OF_KERNELS);
        let mutants: Vec<&Mutant> = mutants.iter().step_by(step).collect();
        let failure = |text: &str| {
            let row = with(&original, text, |device| selftest::first_failure(device, &spec));
            row.expect("a device").and_then(|row| row.failure)
        };
        // Otherwise every mutant would be found.
        assert_eq!(failure(&original), None, "{name}: the kernel itself fails");
        let failures: Vec<Option<String>> = mutants.par_iter().map(|mutant| failure(&mutant.text)).collect();
        for (mutant, failure) in mutants.iter().zip(failures) {
            tally.add(name, mutant, failure.as_deref());
        }
    }
    tally
}

#[test]
fn some_mutants_of_kernels_are_found() {
    mutants_of_kernels(20).assert_found(40);
}

#[test]
#[ignore = "takes minutes"]
fn mutants_of_kernels_are_found() {
    expect![[r#"
        operator                           mutants  by check  by result  equal  survive
        compare lt as le                        66        38         11     17        0
        drop a barrier                          52        52          0      0        0
        drop a copy                             50        49          1      0        0
        drop a fence                            36        22          0     14        0
        drop a store                            69        43         26      0        0
        drop a warp barrier                      4         4          0      0        0
        drop a wgmma commit                     20         4          2     14        0
        drop a wgmma fence                      20         0         19      1        0
        drop an atomic operation                 6         1          5      0        0
        drop an mbarrier arrival                46        44          0      2        0
        expect fewer bytes                      40        40          0      0        0
        expect more bytes                       40        40          0      0        0
        expect one more arrival                 50        50          0      0        0
        flip an mbarrier's parity               50        48          2      0        0
        invert a branch                         68        45         15      8        0
        invert a comparison                     65        41         15      9        0
        load the next word                      70        33         36      1        0
        min instead of max                      43         7         30      6        0
        move a barrier before accesses           6         2          0      4        0
        move a barrier behind accesses          19        19          0      0        0
        move an mbarrier wait behind            40        28          2     10        0
        narrow a shuffle's mask                 46        46          0      0        0
        narrow an atomic operation               4         3          0      1        0
        shift by one more bit                   68        34         33      1        0
        store to the next word                  69        68          1      0        0
        swap operands                           63        34         28      1        0
        swap selected values                    67        33         34      0        0
        wait for one wgmma group less           20         3          2     15        0
        wait without a loop                     50        36          3     11        0
        all                                   1247       867        265    115        0

        Survivors:
    "#]]
    .assert_eq(&mutants_of_kernels(1).table());
}

/// Tries one of `step` mutants of the dependencies between launches, in a whole step of a model.
fn mutants_of_launches(step: usize) -> Tally {
    let mut tally = Tally::new(&LAUNCHES);
    let mut index = 0usize;
    let shape = &selftest::replay_shapes()[0];
    for spec in selftest::of_shape(shape, Target::Sm90, KvType::F16).expect("a plan") {
        let original = ptx_of(&spec);
        // Most kernels execute `griddepcontrol.launch_dependents` before `griddepcontrol.wait`.
        let starts = original.find("griddepcontrol.launch_dependents");
        let late = starts.is_none_or(|starts| original.find("griddepcontrol.wait") < Some(starts));
        let operators = if late { operators::OF_LAUNCHES } else { operators::OF_WAITS };
        for mutant in mutants(&original, &operators) {
            index += 1;
            if !index.is_multiple_of(step) {
                continue;
            }
            let row = with(&original, &mutant.text, |device| selftest::replay_equals_eager(device, shape));
            tally.add(&spec.name(), &mutant, row.failure.as_deref());
        }
    }
    tally
}

#[test]
fn some_mutants_of_launches_are_found() {
    mutants_of_launches(4).assert_found(4);
}

#[test]
#[ignore = "takes a minute"]
fn mutants_of_launches_are_found() {
    expect![[r#"
        operator                           mutants  by check  by result  equal  survive
        drop griddepcontrol.wait                12        11          0      1        0
        launch dependents before waiting         1         0          0      1        0
        move griddepcontrol.wait behind          4         2          0      2        0
        all                                     17        13          0      4        0

        Survivors:
    "#]]
    .assert_eq(&mutants_of_launches(1).table());
}
