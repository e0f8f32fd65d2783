//! Mistakes made on purpose in the shipped kernels: what finds each, a check of the emulator or a wrong result.
//!
//! An operator makes one small change of one instruction of a kernel's PTX. Every operator is tried on every kernel
//! below, at the first place where it applies and at the one in the middle. Those that nothing finds are listed with
//! the line of the kernel's source. Of these, some compute the same:
//!
//! - `lane() == 0` before a store of a reduction's result: every lane of the warp has it, and stores the same.
//! - `warp_index() == 0` in `choose_greedy`: more warps choose, and only thread 0's choice is used.
//! - `b.token < a.token` between equal values: of equal tokens either candidate will do.
//!
//! The others have not been explained one by one.

mod hooked;
mod operators;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::slice;

use bespoke::selftest;
use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::kernels::gemv::Output;
use bespoke_kernels::kernels::launching::CopyEngine;
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::WeightType;
use expect_test::expect;
use hooked::{Hooked, Hooks};
use operators::{Mutant, mutants};

/// Replaces one kernel's text by another.
struct Replaced<'a> {
    original: &'a str,
    mutant: &'a str,
}

impl Hooks for Replaced<'static> {
    fn ptx<'t>(&self, ptx: &'t str) -> Cow<'t, str> {
        if ptx == self.original { Cow::Borrowed(self.mutant) } else { Cow::Borrowed(ptx) }
    }
}

/// The first small kernel of a kind.
fn small(keep: impl Fn(&KernelSpec) -> bool) -> KernelSpec {
    selftest::small().into_iter().find(keep).expect("such a kernel")
}

fn subjects() -> Vec<(&'static str, KernelSpec)> {
    let gemv = |ty: WeightType, output: Output| {
        small(|spec| matches!(spec, KernelSpec::Gemv(s) if s.segments[0].ty == ty && s.output == output))
    };
    let attention =
        |copy: CopyEngine| small(|spec| matches!(spec, KernelSpec::Attention(s) if s.copy == copy));
    vec![
        (
            "embed Q4_K",
            small(|spec| matches!(spec, KernelSpec::Embed(s) if s.ty == WeightType::Q4_K && s.vocab > 1)),
        ),
        (
            "gemv, stacked",
            small(
                |spec| matches!(spec, KernelSpec::Gemv(s) if s.bias && s.schedule.copy == CopyEngine::Bulk),
            ),
        ),
        ("gemv Q8_0, residual", gemv(WeightType::Q8_0, Output::Residual)),
        ("gemv Q4_K, SwiGLU", gemv(WeightType::Q4_K, Output::Swiglu)),
        ("gemv Q6_K, argmax", gemv(WeightType::Q6_K, Output::Argmax)),
        ("attention, bulk", attention(CopyEngine::Bulk)),
        ("attention, cp.async", attention(CopyEngine::Async)),
        ("choose_greedy", small(|spec| matches!(spec, KernelSpec::ChooseGreedy(s) if s.candidates == 132))),
        ("sample_keys", small(|spec| matches!(spec, KernelSpec::SampleKeys(s) if s.vocab == 1000))),
        ("choose_sampled", small(|spec| matches!(spec, KernelSpec::ChooseSampled(s) if s.vocab == 1000))),
    ]
}

fn ptx_of(spec: &KernelSpec) -> String {
    let made = emit::compile(slice::from_ref(spec), Target::Sm90).expect("it compiles");
    made.into_iter().next().expect("one kernel").compiled.ptx
}

/// What finds a mutant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Check(&'static str),
    Result,
    Survives,
}

/// How findings begin.
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
    "unawaited dependency",
    "trap",
];

fn verdict(failure: Option<&str>) -> Verdict {
    let Some(failure) = failure else { return Verdict::Survives };
    let check = FINDINGS.into_iter().find(|kind| failure.contains(&format!("{kind} in kernel")));
    check.map_or(Verdict::Result, Verdict::Check)
}

/// Runs something with one kernel replaced. Texts are few and small: they live as long as the test.
fn with<T>(original: &str, mutant: &str, run: impl FnOnce(&Hooked<Replaced<'static>>) -> T) -> T {
    let keep = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    run(&Hooked::new(Replaced { original: keep(original), mutant: keep(mutant) }))
}

/// Tallies verdicts by operator.
#[derive(Default)]
struct Tally {
    rows: BTreeMap<&'static str, BTreeMap<Verdict, u32>>,
    survivors: Vec<String>,
}

impl Tally {
    fn add(&mut self, kernel: &str, mutant: &Mutant, failure: Option<&str>) {
        let verdict = verdict(failure);
        if verdict == Verdict::Survives {
            self.survivors.push(format!("{kernel}: {}: {}\n", mutant.operator, mutant.source));
        }
        *self.rows.entry(mutant.operator).or_default().entry(verdict).or_default() += 1;
    }

    fn table(&self) -> String {
        let mut text = format!("{:34} mutants  by check  by result  survive\n", "operator");
        let mut sums = [0; 4];
        for (operator, verdicts) in &self.rows {
            let count = |keep: fn(&Verdict) -> bool| -> u32 {
                verdicts.iter().filter(|(verdict, _)| keep(verdict)).map(|(_, count)| count).sum()
            };
            let row = [
                count(|_| true),
                count(|v| matches!(v, Verdict::Check(_))),
                count(|v| *v == Verdict::Result),
                count(|v| *v == Verdict::Survives),
            ];
            let [all, check, result, survives] = row;
            text += &format!("{operator:34} {all:7}  {check:8}  {result:9}  {survives:7}\n");
            sums = std::array::from_fn(|i| sums[i] + row[i]);
        }
        let [all, check, result, survives] = sums;
        text += &format!("{:34} {all:7}  {check:8}  {result:9}  {survives:7}\n", "all");
        text + "\nThose that survive:\n" + &self.survivors.concat()
    }
}

#[test]
fn mutants_of_kernels_are_found() {
    let mut tally = Tally::default();
    for (name, spec) in subjects() {
        let original = ptx_of(&spec);
        for mutant in mutants(&original, &operators::OPERATORS) {
            let report = with(&original, &mutant.text, |device| {
                selftest::run(device, slice::from_ref(&spec), &mut |_| ()).expect("a device")
            });
            let failure = report.failures().next().and_then(|row| row.failure.clone());
            tally.add(name, &mutant, failure.as_deref());
        }
    }
    expect![[r#"
        operator                           mutants  by check  by result  survive
        compare the other way                   18         9          6        3
        drop a barrier                          17        17          0        0
        drop a copy                             12        11          1        0
        drop a fence                             5         5          0        0
        drop a store                            20        16          4        0
        drop a warp barrier                     10         5          0        5
        drop an atomic operation                 3         1          2        0
        drop an mbarrier arrival                12         9          0        3
        expect fewer bytes                       3         3          0        0
        expect more bytes                        3         3          0        0
        go the other way                        19        13          4        2
        initialise for one more                 12        11          0        1
        load the next word                      20        10          9        1
        narrow a fence                           4         4          0        0
        narrow a shuffle's mask                 18        18          0        0
        narrow an atomic operation               2         2          0        0
        one more time                           20        10          6        4
        shift further                           20        13          5        2
        store to the next word                  20        19          1        0
        swap an mbarrier's parity               12        12          0        0
        swap operands                           15         7          6        2
        swap what is selected                   20         7         12        1
        take the smaller                        16         1         13        2
        wait only once                          12         8          0        4
        all                                    313       214         69       30

        Those that survive:
        gemv, stacked: drop a warp barrier: codegen/src/dsl/pipeline.rs: warp_barrier(ALL_LANES);
        gemv, stacked: drop a warp barrier: codegen/src/dsl/pipeline.rs: warp_barrier(ALL_LANES);
        gemv, stacked: drop an mbarrier arrival: codegen/src/dsl/pipeline.rs: barrier.arrive();
        gemv, stacked: drop an mbarrier arrival: codegen/src/dsl/pipeline.rs: barrier.arrive();
        gemv, stacked: wait only once: gemv/ring.rs: feeder.next.acquire(bytes);
        gemv, stacked: wait only once: gemv/ring.rs: feeder.next.acquire(bytes);
        gemv, stacked: initialise for one more: gemv/ring.rs: ring.init();
        gemv, stacked: compare the other way: gemv/mod.rs: if lane() == 0 {
        gemv, stacked: go the other way: codegen/src/dsl/pipeline.rs: if lane() == 0 {
        gemv, stacked: swap what is selected: codegen/src/dsl/pipeline.rs: if next.slot == stages {
        gemv, stacked: shift further: gemv/blocks.rs: ((words[i] >> 4) & 0x0F0F_0F0F) | ((bits >> r(i)) & 0x1010_1010)
        gemv Q8_0, residual: drop a warp barrier: codegen/src/dsl/pipeline.rs: warp_barrier(ALL_LANES);
        gemv Q8_0, residual: drop an mbarrier arrival: codegen/src/dsl/pipeline.rs: barrier.arrive();
        gemv Q8_0, residual: wait only once: gemv/ring.rs: feeder.next.acquire(bytes);
        gemv Q8_0, residual: swap operands: gemv/inputs.rs: sum += value - magic;
        gemv Q4_K, SwiGLU: one more time: gemv/ring.rs: while at < end {
        gemv Q4_K, SwiGLU: one more time: gemv/mod.rs: while first < end {
        gemv Q6_K, argmax: wait only once: gemv/ring.rs: feeder.oldest.wait();
        gemv Q6_K, argmax: one more time: argmax.rs: let take = b.value > a.value || (b.value == a.value && b.token < a.token);
        gemv Q6_K, argmax: swap operands: gemv/inputs.rs: sum += value - magic;
        attention, bulk: drop a warp barrier: attention/mod.rs: warp_barrier(ALL_LANES);
        attention, cp.async: drop a warp barrier: attention/mod.rs: warp_barrier(ALL_LANES);
        attention, cp.async: take the smaller: attention/join.rs: let largest = parts[1..].iter().fold(parts[0].largest, |largest, part| largest.max(part.largest));
        choose_greedy: compare the other way: argmax.rs: let take = b.value > a.value || (b.value == a.value && b.token < a.token);
        choose_greedy: go the other way: argmax.rs: if lane() == 0 {
        choose_greedy: shift further: argmax.rs: if warp_index() == 0 {
        sample_keys: one more time: sample/penalise.rs: loaded.push(logits.at(select(token < s.vocab, token, 0u32)).load());
        sample_keys: compare the other way: sample/penalise.rs: if lane() == 0 {
        choose_sampled: take the smaller: codegen/src/dsl/reduce.rs: largest = largest.max(shuffle_xor(largest, step));
        choose_sampled: load the next word: sample/search.rs: let count = self.bins.at(bin).load();
    "#]].assert_eq(&tally.table());
}

/// Mutants of what launches tell each other, in a model's whole step. Those that survive compute the same: the
/// embedding is a graph's first launch, whose edge is full, and what a launch reads before its wait was written before
/// the graph began.
#[test]
fn mutants_of_launches_are_found() {
    let mut tally = Tally::default();
    let shape = &selftest::replay_shapes()[0];
    for spec in selftest::of_shape(shape, Target::Sm90).expect("a plan") {
        let original = ptx_of(&spec);
        // Most let others start before their wait as it is.
        let starts = original.find("griddepcontrol.launch_dependents");
        let late = starts.is_none_or(|starts| original.find("griddepcontrol.wait") < Some(starts));
        let operators = if late { &operators::DEPENDENCIES[..] } else { &operators::DEPENDENCIES[..1] };
        for mutant in mutants(&original, operators) {
            let row = with(&original, &mutant.text, |device| selftest::replay_equals_eager(device, shape));
            tally.add(&spec.name(), &mutant, row.failure.as_deref());
        }
    }
    expect![[r#"
        operator                           mutants  by check  by result  survive
        drop the wait for launches              11        10          0        1
        start others before the wait             1         0          0        1
        all                                     12        10          0        2

        Those that survive:
        embed_q80_v320_c256_t128: drop the wait for launches: embed.rs: w: Ptr<Global, u8>,
        gemv_q80r512_c256b_e3727c5ac_g32_w8_d2_i2_s2_f2_m1_h116736_bw: start others before the wait: gemv/mod.rs: s.schedule.trigger.wait();
    "#]].assert_eq(&tally.table());
}
