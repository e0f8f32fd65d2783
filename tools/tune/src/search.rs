//! Search for faster choices: coordinate descent over a few values of each parameter.
//!
//! For each role in the order of a step, and each of its parameters, the search keeps the fastest value that is faster
//! than the present choice by more than the noise. The search always measures a whole step, because neighbouring
//! launches overlap and the time of a kernel alone is misleading.

use std::collections::HashSet;

use bespoke::engine::median;
use bespoke_kernels::kernels::launching::Trigger;
use bespoke_kernels::plan::tuning::{Knob, trigger_name};
use bespoke_kernels::plan::{LaunchRole, Plan, Rule, Tuning};
use bespoke_kernels::spec::KernelSpec;

/// Value of a tuning parameter ("knob").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Value of a numeric knob.
    Number(Knob, u32),
    /// When the next launch may start.
    Trigger(Trigger),
}

impl Setting {
    /// Name of the knob in files of tuning rules.
    pub fn knob(self) -> &'static str {
        match self {
            Setting::Number(knob, _) => knob.name(),
            Setting::Trigger(_) => "trigger",
        }
    }

    /// The value as written in files of tuning rules.
    pub fn value(self) -> String {
        match self {
            Setting::Number(_, value) => value.to_string(),
            Setting::Trigger(trigger) => trigger_name(trigger).to_owned(),
        }
    }

    fn apply(self, rule: &mut Rule) {
        match self {
            Setting::Trigger(trigger) => rule.trigger = Some(trigger),
            Setting::Number(knob, value) => {
                // The number of stages follows from their size and the room in shared memory.
                if !matches!(knob, Knob::Stages | Knob::InFlight) {
                    (rule.stages, rule.in_flight) = (None, None);
                }
                rule.set(knob, Some(value));
            }
        }
    }

    /// Value of this knob in a plan for a role, as text; several values if the role's matrices differ.
    pub fn present(self, plan: &Plan, role: LaunchRole) -> String {
        let mut values: Vec<String> = Vec::new();
        for launch in plan.launches.iter().filter(|launch| launch.label.role == role) {
            let spec = &plan.kernels[launch.kernel].spec;
            let value = match (self, spec) {
                (Setting::Number(knob, _), spec) => knob.of(spec).map(|value| Setting::Number(knob, value)),
                (Setting::Trigger(_), KernelSpec::Gemv(shape)) => {
                    Some(Setting::Trigger(shape.schedule.trigger))
                }
                (Setting::Trigger(_), _) => None,
            };
            if let Some(value) = value.map(Setting::value).filter(|value| !values.contains(value)) {
                values.push(value);
            }
        }
        values.join(", ")
    }
}

/// Values to try for each knob, in steps of `rows` rows. Values that a target or a model does not allow are skipped.
pub fn knobs(role: LaunchRole, rows: u32, quick: bool) -> Vec<Vec<Setting>> {
    let some = |knob: Knob, all: &[u32], few: &[u32]| -> Vec<Setting> {
        (if quick { few } else { all }).iter().map(|&value| Setting::Number(knob, value)).collect()
    };
    let attention_stages = || some(Knob::Stages, &[1, 2, 3, 4, 6], &[2, 3]);
    let triggers = || -> Vec<Setting> {
        let all = [Trigger::AtStart, Trigger::AfterWait, Trigger::AfterLoads, Trigger::Never];
        all.into_iter().filter(|&it| !quick || it != Trigger::Never).map(Setting::Trigger).collect()
    };
    match (role, rows) {
        (LaunchRole::Attention, 1) => vec![
            some(Knob::Splits, &[1, 2, 4, 8, 12, 16, 24, 32, 64], &[4, 8, 16, 32]),
            some(Knob::MinPages, &[1, 2, 4, 8], &[1, 2, 4]),
            attention_stages(),
        ],
        (LaunchRole::Attention, _) => vec![attention_stages()],
        (_, 1) => vec![
            some(Knob::Warps, &[4, 6, 8, 12, 16], &[4, 8, 16]),
            some(Knob::Groups, &[1, 2, 4], &[1, 2]),
            some(Knob::Resident, &[1, 2, 3], &[1, 2]),
            some(Knob::Stages, &[2, 3, 4, 5, 6, 8, 10, 12, 16, 24], &[2, 3, 4, 6]),
            some(Knob::InFlight, &[1, 2, 3, 4, 6], &[1, 2, 4]),
            triggers(),
        ],
        _ => vec![
            some(Knob::Warpgroups, &[0, 2], &[0, 2]),
            some(Knob::Blocks, &[1, 2], &[1, 2]),
            some(Knob::Warps, &[4, 6, 8, 12, 14, 16], &[4, 8, 12, 16]),
            some(Knob::Holds, &[0, 1], &[0, 1]),
            some(Knob::Slice, &[128, 256, 512, 1024, 2048, 4096], &[256, 512, 1024, 2048]),
            some(Knob::Parts, &[1, 2, 4, 8], &[1, 2, 4]),
            some(Knob::Groups, &[1, 2, 4, 8, 16], &[1, 2, 4, 8]),
            some(Knob::Buffers, &[1, 2, 3, 4, 6], &[2, 3]),
            some(Knob::Tiles, &[1, 2, 3, 4, 6, 8, 12, 16, 32], &[2, 4, 8, 16]),
            some(Knob::Stages, &[2, 4, 6, 8, 12, 16, 24, 32], &[4, 8, 16]),
            triggers(),
        ],
    }
}

/// Adds one setting for a role to `present`. Its rule applies only to the GPU and the number of rows of `plan`, and with several
/// rows only to the plan's arithmetic.
pub fn with(present: &Tuning, plan: &Plan, role: LaunchRole, setting: Setting) -> Tuning {
    let mut tuning = present.clone();
    let rows = plan.params.rows;
    let several = |arithmetic| (rows > 1).then_some((rows, arithmetic)).unzip();
    let on = (Some(plan.gpu.target), Some(plan.gpu.multiprocessors), several(plan.params.arithmetic));
    let selectors = |rule: &Rule| (rule.target, rule.multiprocessors, (rule.rows, rule.arithmetic));
    let found = tuning.rules.iter().position(|rule| rule.role == role && selectors(rule) == on);
    let index = found.unwrap_or_else(|| {
        let (target, multiprocessors, (rows, arithmetic)) = on;
        tuning.rules.push(Rule { target, multiprocessors, rows, arithmetic, ..Rule::empty(role) });
        tuning.rules.len() - 1
    });
    setting.apply(&mut tuning.rules[index]);
    tuning
}

/// Alternating measurement of two plans. Times are in milliseconds of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Median time of a step of the first plan, in milliseconds.
    pub before: f64,
    /// Median over the turns of the first plan's time minus the second plan's.
    pub gain: f64,
    /// Largest gain that chance explains.
    pub noise: f64,
}

impl Comparison {
    /// Compares paired times. The noise is three standard errors of the median, estimated from the median absolute
    /// deviation for a normal distribution, and at least a thousandth of the time.
    pub fn of(pairs: &[(f64, f64)]) -> Comparison {
        let before = median(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
        let gains: Vec<f64> = pairs.iter().map(|pair| pair.0 - pair.1).collect();
        let gain = median(&gains);
        let deviation = 1.4826 * median(&gains.iter().map(|other| (other - gain).abs()).collect::<Vec<_>>());
        // The standard error of the median of a normal sample is √(π/2) times that of its mean.
        let error = 1.2533 * deviation / (pairs.len().max(1) as f64).sqrt();
        Comparison { before, gain, noise: (3.0 * error).max(before / 1000.0) }
    }

    /// Whether the gain exceeds the noise.
    pub fn is_better(&self) -> bool {
        self.gain > self.noise
    }

    /// The gain as a fraction of the time.
    pub fn fraction(&self) -> f64 {
        self.gain / self.before
    }
}

/// Measures plans for the search.
pub trait Meter {
    /// Error of a measurement.
    type Error;

    /// Builds the plan by these rules; `None` if model, target or device do not allow the rules.
    fn plan(&mut self, tuning: &Tuning) -> Option<Plan>;

    /// Compares the times of two plans; `None` if the device refuses the plan `other`.
    fn compare(&mut self, present: &Plan, other: &Plan) -> Result<Option<Comparison>, Self::Error>;
}

/// A knob that the search changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Role of the launches whose knob changed.
    pub role: LaunchRole,
    /// Name of the knob.
    pub knob: &'static str,
    /// The value before.
    pub from: String,
    /// The new value.
    pub to: String,
    /// Comparison of the plans before and after the change.
    pub comparison: Comparison,
}

/// Result of the search.
#[derive(Debug)]
pub struct Found {
    /// Tuning rules that the search found.
    pub tuning: Tuning,
    /// The plan by these rules.
    pub plan: Plan,
    /// Changes in the order of the search.
    pub changes: Vec<Change>,
    /// Number of measured comparisons.
    pub measured: usize,
}

/// Parameters of the search.
pub struct Search<'a> {
    /// The start: the plan by `tuning`, of a step with any number of rows.
    pub start: &'a Plan,
    /// Rules found for steps with other numbers of rows, some of which apply to this step as well.
    pub tuning: &'a Tuning,
    /// Whether to try only few values of each knob.
    pub quick: bool,
    /// Largest number of rounds over all knobs; the search ends after a round without a change.
    pub passes: usize,
}

impl Search<'_> {
    /// Upper bound of the number of trials.
    pub fn trials(&self) -> usize {
        let rows = self.start.params.rows;
        let a_pass = LaunchRole::TUNABLE
            .iter()
            .flat_map(|&role| knobs(role, rows, self.quick))
            .map(|values| values.len());
        a_pass.sum::<usize>() * self.passes
    }

    /// Runs the search; calls `progress` with the number of completed trials.
    pub fn run<M: Meter>(&self, meter: &mut M, progress: &dyn Fn(usize)) -> Result<Found, M::Error> {
        let (tuning, plan) = (self.tuning.clone(), self.start.clone());
        let mut found = Found { tuning, plan, changes: Vec::new(), measured: 0 };
        let mut trials = 0;
        let mut compared = HashSet::new();
        for _ in 0..self.passes {
            let changes = found.changes.len();
            for role in LaunchRole::TUNABLE {
                for values in knobs(role, self.start.params.rows, self.quick) {
                    let mut best: Option<(Setting, Tuning, Plan, Comparison)> = None;
                    for setting in values {
                        trials += 1;
                        progress(trials);
                        let tuning = with(&found.tuning, self.start, role, setting);
                        let Some(plan) = meter.plan(&tuning) else { continue };
                        let pair = (names(&found.plan), names(&plan));
                        // Skips a comparison of two plans that were compared before.
                        if pair.0 == pair.1 || !compared.insert(pair) {
                            continue;
                        }
                        tracing::debug!("{role}: {} = {}", setting.knob(), setting.value());
                        let Some(comparison) = meter.compare(&found.plan, &plan)? else { continue };
                        tracing::debug!("{role}: {:+.2} %", comparison.fraction() * 100.0);
                        found.measured += 1;
                        let fastest = best.as_ref().is_none_or(|best| comparison.gain > best.3.gain);
                        if comparison.is_better() && fastest {
                            best = Some((setting, tuning, plan, comparison));
                        }
                    }
                    if let Some((setting, tuning, plan, comparison)) = best {
                        found.changes.push(Change {
                            role,
                            knob: setting.knob(),
                            from: setting.present(&found.plan, role),
                            to: setting.value(),
                            comparison,
                        });
                        (found.tuning, found.plan) = (tuning, plan);
                    }
                }
            }
            if found.changes.len() == changes {
                break;
            }
        }
        Ok(found)
    }
}

/// Kernel names of a step in launch order, which identify a plan of a model.
fn names(plan: &Plan) -> Vec<String> {
    plan.launches.iter().map(|launch| plan.kernels[launch.kernel].name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bespoke_codegen::ptx::Target;
    use bespoke_kernels::kernels::gemv::Schedule;
    use bespoke_kernels::plan::PlanParams;
    use bespoke_kernels::shape::builtin;

    use super::*;

    /// Times a plan by a formula, with a drift as of a device that gets warm.
    struct Fake {
        start: Plan,
        time: fn(&Plan) -> f64,
        jitter: f64,
        turns: usize,
    }

    impl Fake {
        fn new(time: fn(&Plan) -> f64, jitter: f64) -> Fake {
            Fake::of_rows(1, time, jitter)
        }

        /// Of a decode step with `rows` rows.
        fn of_rows(rows: u32, time: fn(&Plan) -> f64, jitter: f64) -> Fake {
            let shape = builtin()
                .into_iter()
                .find(|file| file.name == "llama-3.2-1b")
                .unwrap()
                .with_mix("q4_k_m")
                .unwrap();
            let params = PlanParams::single(64).with_slots(rows, 16 * rows).decode(rows);
            let start = Plan::new(&shape, Target::Sm90, params).unwrap();
            Fake { start, time, jitter, turns: 0 }
        }

        fn search(&mut self, passes: usize) -> Found {
            self.search_with(&Tuning::default(), passes)
        }

        fn search_with(&mut self, tuning: &Tuning, passes: usize) -> Found {
            let start = self.plan(tuning).unwrap();
            // Plans of several rows take longer.
            let quick = start.params.rows > 1;
            let search = Search { start: &start, tuning, quick, passes };
            let last = Cell::new(0);
            let found = search.run(self, &|done| last.set(done)).unwrap();
            assert!(last.get() <= search.trials() && found.measured <= last.get());
            found
        }
    }

    impl Meter for Fake {
        type Error = std::convert::Infallible;

        fn plan(&mut self, tuning: &Tuning) -> Option<Plan> {
            let Plan { shape, gpu, params, .. } = &self.start;
            Plan::tuned(shape, *gpu, params.clone(), tuning).ok()
        }

        fn compare(&mut self, present: &Plan, other: &Plan) -> Result<Option<Comparison>, Self::Error> {
            let pairs: Vec<_> = (0..7)
                .map(|turn| {
                    self.turns += 1;
                    let drift = self.turns as f64 / 100.0;
                    let jitter = self.jitter * [-1.0, 0.3, 0.9, -0.4, 0.6, -0.8, 0.1][turn];
                    ((self.time)(present) + drift, (self.time)(other) + drift + jitter)
                })
                .collect();
            Ok(Some(Comparison::of(&pairs)))
        }
    }

    fn schedule(plan: &Plan, role: LaunchRole) -> Schedule {
        let launch = plan.launches.iter().find(|launch| launch.label.role == role).unwrap();
        match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemv(shape) => shape.schedule,
            other => panic!("{role}: {other:?}"),
        }
    }

    fn splits(plan: &Plan) -> u32 {
        plan.kernels
            .iter()
            .find_map(|kernel| match &kernel.spec {
                KernelSpec::Attention(shape) => Some(shape.splits),
                _ => None,
            })
            .unwrap()
    }

    /// Time that is least with 12 warps in the down projection, 4 stages in flight in the head, and 8 splits.
    fn bowl(plan: &Plan) -> f64 {
        let off = |value: u32, best: u32| f64::from(value.abs_diff(best));
        10.0 + off(schedule(plan, LaunchRole::FfnDown).warps, 12)
            + off(schedule(plan, LaunchRole::Output).in_flight, 4)
            + off(splits(plan), 8) / 10.0
    }

    #[test]
    fn the_best_values_are_found_in_spite_of_drift() {
        let mut fake = Fake::new(bowl, 0.001);
        let found = fake.search(2);
        let changed: Vec<_> = found.changes.iter().map(|it| (it.role, it.knob, it.to.as_str())).collect();
        assert_eq!(
            changed,
            [
                (LaunchRole::Attention, "splits", "8"),
                (LaunchRole::FfnDown, "warps", "12"),
                (LaunchRole::Output, "in_flight", "4")
            ]
        );
        assert_eq!((bowl(&found.plan), found.changes[1].from.as_str()), (10.0, "16"));
        // The written rules give the measured plan.
        let text = found.tuning.to_toml("");
        assert_eq!(fake.plan(&Tuning::parse(&text).unwrap()).unwrap(), found.plan);
        assert!(
            found
                .tuning
                .rules
                .iter()
                .all(|rule| (rule.target, rule.multiprocessors) == (Some(Target::Sm90), Some(132))),
            "{text}"
        );
    }

    /// Rules for several rows name their number, and leave steps of one row as they are.
    #[test]
    fn steps_of_several_rows_have_rules_of_their_own() {
        // Warpgroups, whose slices and parts cannot be chosen, are slow.
        let time = |plan: &Plan| {
            let down = schedule(plan, LaunchRole::FfnDown);
            20.0 + f64::from(down.several.slice.abs_diff(512)) / 256.0
                + f64::from(down.several.parts.abs_diff(2))
                + 20.0 * f64::from(down.several.warpgroups)
        };
        for rows in [8, 16] {
            let mut fake = Fake::of_rows(rows, time, 0.0);
            let found = fake.search(1);
            let down = schedule(&found.plan, LaunchRole::FfnDown).several;
            assert_eq!((down.slice, down.parts), (512, 2), "{rows} rows");
            let text = found.tuning.to_toml("");
            assert!(text.contains(&format!("rows = {rows}\n")), "{text}");
            let tuning = Tuning::parse(&text).unwrap();
            assert_eq!(fake.plan(&tuning).unwrap(), found.plan);
            let mut one = Fake::new(time, 0.0);
            assert_eq!(one.plan(&tuning).unwrap(), one.start);
        }
    }

    /// Rules for one row that apply to several rows as well are part of the plan that the search starts from and of those it tries.
    #[test]
    fn rules_of_one_row_stay_while_several_rows_are_searched() {
        let text =
            "version = 1\n[[rule]]\nrole = 'attention'\nsplits = 4\n[[rule]]\nrole = 'output'\nwarps = 4";
        let tuning = Tuning::parse(text).unwrap();
        let time = |plan: &Plan| 20.0 - f64::from(schedule(plan, LaunchRole::FfnDown).several.parts);
        let mut fake = Fake::of_rows(8, time, 0.0);
        let found = fake.search_with(&tuning, 1);
        assert_eq!(found.tuning.rules[..2], tuning.rules);
        assert_eq!((splits(&found.plan), splits(&fake.start)), (4, 16));
        assert_eq!(fake.plan(&found.tuning).unwrap(), found.plan);
    }

    #[test]
    fn gains_within_the_noise_are_ignored() {
        let found = Fake::new(bowl, 50.0).search(2);
        assert_eq!((found.changes, found.tuning), (Vec::new(), Tuning::default()));
        let flat = Fake::new(|_| 1.0, 0.0).search(2);
        assert!(flat.changes.is_empty() && flat.measured > 0);
        // The second round would repeat the comparisons.
        assert_eq!(flat.measured, Fake::new(|_| 1.0, 0.0).search(1).measured);
    }

    /// A second round is needed if a knob's best value depends on another knob.
    #[test]
    fn knobs_that_depend_on_each_other_take_another_round() {
        let time = |plan: &Plan| {
            let [down, qkv] =
                [LaunchRole::FfnDown, LaunchRole::AttnQkv].map(|role| schedule(plan, role).warps);
            20.0 + f64::from(down) / 4.0 + if down == 8 { -f64::from(qkv) } else { f64::from(qkv) }
        };
        let last = |passes| schedule(&Fake::new(time, 0.0).search(passes).plan, LaunchRole::AttnQkv).warps;
        assert_eq!((last(1), last(2)), (4, 16));
    }

    #[test]
    fn attention_may_start_early_only_after_a_launch_that_waits() {
        for quick in [false, true] {
            let mut fake = Fake::new(bowl, 0.0);
            let allowed: Vec<_> = knobs(LaunchRole::AttnQkv, 1, quick)
                .concat()
                .into_iter()
                .filter(|setting| {
                    fake.plan(&with(&Tuning::default(), &fake.start.clone(), LaunchRole::AttnQkv, *setting))
                        .is_some()
                })
                .filter(|setting| setting.knob() == "trigger")
                .collect();
            assert!(!allowed.contains(&Setting::Trigger(Trigger::AtStart)), "{allowed:?}");
            assert!(allowed.contains(&Setting::Trigger(Trigger::AfterWait)), "{allowed:?}");
        }
    }

    #[test]
    fn comparisons_weigh_the_gain_against_its_spread() {
        let steady = Comparison::of(&[(10.0, 9.0), (11.0, 10.0), (12.0, 11.0)]);
        assert_eq!((steady.before, steady.gain), (11.0, 1.0));
        assert!(steady.is_better() && (steady.noise - 0.011).abs() < 1e-12);
        let wild = Comparison::of(&[(10.0, 9.0), (10.0, 12.0), (10.0, 7.0), (10.0, 10.5)]);
        assert!(!wild.is_better() && wild.gain > 0.0, "{wild:?}");
        assert!(!Comparison::of(&[]).is_better());
    }
}
