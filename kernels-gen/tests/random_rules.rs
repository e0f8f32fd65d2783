//! Random tuning rules on the built-in shapes: the result is a plan whose kernels compile, or an error that names the
//! knob.

use std::collections::HashSet;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::kernels::launching::Trigger;
use bespoke_kernels::plan::{LaunchRole, Plan, PlanParams, Rule, Sampling, Tuning};
use bespoke_kernels::shape::{ModelShape, builtin};
use bespoke_kernels::spec::KernelSpec;

/// Number of rules for each target.
const RULES: usize = 160;

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.next() as usize % values.len()].clone()
    }

    /// A number from 1 to `max`, or rarely one that is out of range for every knob.
    fn number(&mut self, max: u64) -> Option<u32> {
        let out_of_range = self.next().is_multiple_of(32);
        Some(if out_of_range { self.one_of(&[0, 1 << 20]) } else { 1 + (self.next() % max) as u32 })
    }

    /// A rule for steps of `rows` rows with one to four knobs of a role, whose values are mostly possible.
    fn rule(&mut self, rows: u32) -> Rule {
        let mut rule = Rule::empty(self.one_of(&LaunchRole::TUNABLE));
        rule.rows = (rows > 1).then_some(rows);
        for _ in 0..1 + self.next() % 4 {
            match (rule.role, self.next() % 8) {
                (LaunchRole::Attention, _) if rows > 1 => rule.stages = self.number(8),
                (_, 3..7) if rows > 1 => self.set_of_rows(&mut rule),
                (LaunchRole::Attention, 0..3) => rule.splits = self.number(64),
                (LaunchRole::Attention, 3..5) => rule.min_pages = self.number(12),
                (LaunchRole::Attention, _) => rule.stages = self.number(8),
                (_, 0) => rule.grid = self.number(1100),
                (_, 1) => rule.warps = self.number(31),
                (_, 3) => rule.groups = self.number(4),
                (_, 4) => rule.stages = self.number(12),
                (_, 5) => rule.in_flight = self.number(12),
                (_, 6) => rule.resident = self.number(3),
                _ => {
                    rule.trigger = Some(self.one_of(&[
                        Trigger::Never,
                        Trigger::AtStart,
                        Trigger::AfterWait,
                        Trigger::AfterLoads,
                    ]))
                }
            }
        }
        rule
    }

    /// Sets a knob that only products of several rows have, mostly to a possible value.
    fn set_of_rows(&mut self, rule: &mut Rule) {
        match self.next() % 7 {
            0 => rule.slice = Some(self.one_of(&[128, 256, 512, 768, 1024, 1 << 20])),
            1 => rule.buffers = self.number(6),
            2 => rule.parts = Some(self.one_of(&[1, 2, 3, 4, 8])),
            3 => rule.tiles = self.number(24),
            4 => rule.warpgroups = Some(self.one_of(&[0, 2, 3, 1])),
            5 => rule.holds = Some(self.one_of(&[0, 1])),
            _ => rule.blocks = Some(self.one_of(&[1, 2])),
        }
    }
}

/// A CTA of several rows has two producer warps: 31 consumer warps would be 1,056 threads.
#[test]
fn warps_that_load_count_among_the_threads_of_a_cta() {
    let shape = builtin().iter().find_map(|file| file.shapes().unwrap().into_iter().next()).unwrap();
    let rule = Rule { rows: Some(8), warps: Some(31), ..Rule::empty(LaunchRole::FfnDown) };
    let params = PlanParams::single(1024).with_slots(8, 128).decode(8);
    let tuning = Tuning { rules: vec![rule], ..Tuning::default() };
    let error = Plan::tuned(&shape, Target::Sm90, params, &tuning).unwrap_err().to_string();
    assert!(
        error.ends_with("warps = 31: a CTA has at most 32 warps, of which 2 load: at most 30"),
        "{error}"
    );
}

/// Builds a plan for each random rule, and compiles every kernel that a rule changed.
#[test]
fn any_rule_gives_kernels_or_an_error_that_names_a_knob() {
    let shapes: Vec<ModelShape> = builtin().iter().flat_map(|file| file.shapes().unwrap()).collect();
    for target in [Target::Sm80, Target::Sm86, Target::Sm90] {
        let mut random = Random(u64::from(target.multiprocessors()));
        let mut names = HashSet::new();
        let mut changed: Vec<KernelSpec> = Vec::new();
        let mut refused = 0;
        for _ in 0..RULES {
            let mut shape = random.one_of(&shapes);
            // One layer is enough: the kernels of all layers are the same.
            shape.layers.truncate(1);
            shape.dimensions.layers = 1;
            let sampling = random.one_of(&[Sampling::Greedy, Sampling::Sampled]);
            let rows = random.one_of(&[1, 1, 2, 4, 8, 16, 32, 64]);
            // Steps of one row multiply integers.
            let arithmetic = if rows > 1 { random.one_of(&Arithmetic::ALL) } else { Arithmetic::Integers };
            let params = || {
                let params = PlanParams::single(1024).with_arithmetic(arithmetic).with_sampling(sampling);
                params.with_slots(rows, rows * 128).decode(rows)
            };
            let rule = random.rule(rows);
            let tuning = Tuning { rules: vec![rule.clone()], ..Tuning::default() };
            let what = format!("{} on {target}\n{}", shape.name, tuning.to_toml(""));
            let plan = match Plan::tuned(&shape, target, params(), &tuning) {
                Ok(plan) => plan,
                Err(error) => {
                    let error = error.to_string();
                    let names_a_knob = rule.knobs().iter().any(|(knob, value)| {
                        error.starts_with(&format!("tuning: {}", rule.role))
                            && error.contains(&format!(": {knob} = {value}: "))
                    });
                    assert!(names_a_knob, "{what}\n{error}");
                    refused += 1;
                    continue;
                }
            };
            plan.check().unwrap_or_else(|error| panic!("{what}\n{error}"));
            let untuned = Plan::new(&shape, target, params()).unwrap();
            let known: HashSet<&String> = untuned.kernels.iter().map(|kernel| &kernel.name).collect();
            for kernel in plan.kernels.iter().filter(|kernel| !known.contains(&kernel.name)) {
                if names.insert(kernel.name.clone()) {
                    changed.push(kernel.spec.clone());
                }
            }
        }
        // Both outcomes, plans and errors, are frequent.
        assert!(
            changed.len() > RULES / 8 && refused > RULES / 8,
            "{} kernels, {refused} refused",
            changed.len()
        );
        for made in emit::compile(&changed, target).unwrap() {
            // The shared memory that rules are checked against is what the kernel declares.
            if matches!(made.spec, KernelSpec::Gemv(_) | KernelSpec::Attention(_)) {
                let declared = made.compiled.report.static_shared;
                assert_eq!(made.spec.static_shared(), declared, "{}", made.spec.name());
            }
        }
    }
}
