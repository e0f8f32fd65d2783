//! Tuning rules: parsing, limits, and their effect on plans.

use std::collections::HashSet;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::attention::AttentionShape;
use bespoke_kernels::kernels::gemv::{Arithmetic, GemvShape};
use bespoke_kernels::kernels::launching::Trigger;
use bespoke_kernels::plan::{BufferName, LaunchRole, Plan, PlanParams, Rule, Site, Tuning};
use bespoke_kernels::shape::{ModelShape, builtin};
use bespoke_kernels::spec::{KernelSpec, matrix_name};

fn shape() -> ModelShape {
    builtin().into_iter().find(|file| file.name == "llama-3.1-8b").unwrap().with_mix("q4_k_m").unwrap()
}

fn plan_for(target: Target, tuning: &Tuning) -> Result<Plan, String> {
    Plan::tuned(&shape(), target, PlanParams::single(256), tuning).map_err(|error| error.to_string())
}

fn plan(text: &str) -> Result<Plan, String> {
    let tuning = Tuning::parse(&format!("version = 1\n{text}")).map_err(|error| error.to_string())?;
    plan_for(Target::Sm90, &tuning)
}

/// The GEMV kernels of a role, without duplicates.
fn products(plan: &Plan, role: LaunchRole) -> Vec<GemvShape> {
    let mut found = Vec::new();
    for launch in plan.launches.iter().filter(|launch| launch.label.role == role) {
        match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemv(shape) if !found.contains(shape) => found.push(shape.clone()),
            _ => {}
        }
    }
    found
}

fn attention(plan: &Plan) -> AttentionShape {
    plan.kernels
        .iter()
        .find_map(|kernel| match &kernel.spec {
            KernelSpec::Attention(shape) => Some(shape.clone()),
            _ => None,
        })
        .unwrap()
}

#[test]
fn without_rules_the_cost_model_makes_every_choice() {
    let params = || PlanParams::single(256);
    for target in Target::ALL {
        let plan = Plan::new(&shape(), target, params()).unwrap();
        assert_eq!(plan_for(target, &Tuning::default()).unwrap(), plan);
    }
    assert_eq!(Tuning::parse("version = 1").unwrap(), Tuning::default());
}

#[test]
fn a_rule_sets_its_knobs_and_the_cost_model_adapts_the_others() {
    let untuned = plan("").unwrap();
    let tuned = plan("[[rule]]\nrole = 'ffn_gate_up'\nwarps = 16").unwrap();
    tuned.check().unwrap();
    for (before, after) in
        products(&untuned, LaunchRole::FfnGateUp).iter().zip(products(&tuned, LaunchRole::FfnGateUp))
    {
        assert_eq!((before.schedule.warps, after.schedule.warps), (8, 16));
        // Stages are twice as large, and the CTA still fits.
        assert!(after.stage_bytes() == 2 * before.stage_bytes());
        assert!(after.shared_bytes() <= Target::Sm90.shared_memory_per_block());
    }
    for role in LaunchRole::TUNABLE.into_iter().filter(|role| *role != LaunchRole::FfnGateUp) {
        assert_eq!(products(&untuned, role), products(&tuned, role), "{role}");
    }
    let deep = plan("[[rule]]\nrole = 'attn_output'\nwarps = 4\nin_flight = 9").unwrap();
    let schedule = &products(&deep, LaunchRole::AttnOutput)[0].schedule;
    // Two groups take stages in turn.
    assert_eq!((schedule.groups, schedule.in_flight, schedule.stages), (2, 9, 10));
    let three = plan("[[rule]]\nrole = 'attn_output'\ngroups = 3").unwrap();
    let schedule = &products(&three, LaunchRole::AttnOutput)[0].schedule;
    assert_eq!((schedule.groups, schedule.warps, schedule.stages), (3, 9, 6));
    let shallow = plan("[[rule]]\nrole = 'attn_output'\nstages = 1").unwrap();
    let schedule = &products(&shallow, LaunchRole::AttnOutput)[0].schedule;
    assert_eq!((schedule.in_flight, schedule.stages), (1, 1));
}

/// Rules do not change the layout of weights, so that weights need not be uploaded again.
#[test]
fn no_rule_moves_a_weight() {
    let tuned = plan(
        "[[rule]]\nrole = 'ffn_down'\nwarps = 4\ngrid = 64\n[[rule]]\nrole = 'output'\ngrid = 512\n\
         [[rule]]\nrole = 'attention'\nsplits = 7",
    )
    .unwrap();
    tuned.check().unwrap();
    for (before, after) in plan("").unwrap().buffers.iter().zip(&tuned.buffers) {
        assert_eq!((&before.name, &before.kind), (&after.name, &after.kind));
        let scratch = ["attention_partial", "best_values", "best_tokens"].contains(&before.name.as_str());
        assert!(scratch || before.bytes == after.bytes, "{}", before.name);
    }
    assert_eq!(attention(&tuned).splits, 7);
    assert_eq!(tuned.buffers[tuned.buffer(BufferName::BestValues).unwrap()].bytes, 512 * 4);
}

#[test]
fn later_rules_override_and_selectors_restrict() {
    let text = "[[rule]]\nrole = 'ffn_down'\nwarps = 6\nstages = 3
        [[rule]]\nrole = 'ffn_down'\nshape = 'q6kr4096_c14336'\nwarps = 4
        [[rule]]\nrole = 'ffn_down'\ntarget = 'sm_80'\nstages = 2";
    for product in products(&plan(text).unwrap(), LaunchRole::FfnDown) {
        let warps = if matrix_name(&product) == "q6kr4096_c14336" { 4 } else { 6 };
        assert_eq!((product.schedule.warps, product.schedule.stages), (warps, 3));
    }
    let tuning = Tuning::parse(&format!("version = 1\n{text}")).unwrap();
    let gpu = Target::Sm80.into();
    let rule_of =
        |role| tuning.rule(&Site { gpu: &gpu, role, shape: None, rows: 1, arithmetic: Arithmetic::Integers });
    let rule = rule_of(LaunchRole::FfnDown);
    assert_eq!(rule.knobs(), [("warps", "6".to_owned()), ("stages", "2".to_owned())]);
    assert!(rule_of(LaunchRole::Output).knobs().is_empty());
}

/// A rule with a number of rows applies to steps of that number only, and one without to steps of one row.
#[test]
fn rules_of_several_rows_name_their_number() {
    let text = "[[rule]]\nrole = 'ffn_down'\nwarps = 4\ntrigger = 'after_loads'
        [[rule]]\nrole = 'ffn_down'\nrows = 16\nwarps = 12\nslice = 512\nparts = 1\ntiles = 1
        [[rule]]\nrole = 'ffn_gate_up'\nrows = 16\nwarpgroups = 2\nblocks = 2
        [[rule]]\nrole = 'attn_qkv'\nrows = 2\nwarps = 12\ngroups = 3\nstages = 3\nin_flight = 2
        [[rule]]\nrole = 'output'\nrows = 64\nwarpgroups = 0\nbuffers = 1
        [[rule]]\nrole = 'attention'\nrows = 16\nstages = 3";
    let tuning = Tuning::parse(&format!("version = 1\n{text}")).unwrap();
    let plan = |rows, tuning: &Tuning| {
        let params = PlanParams::single(256).with_slots(rows, 32 * rows).decode(rows);
        let plan = Plan::tuned(&shape(), Target::Sm90, params, tuning).unwrap();
        plan.check().unwrap();
        plan
    };
    let schedules = |rows, role| -> Vec<_> {
        products(&plan(rows, &tuning), role).into_iter().map(|product| product.schedule).collect()
    };
    for down in schedules(16, LaunchRole::FfnDown) {
        let several = down.several;
        assert_eq!((down.warps, several.slice, several.parts, several.tiles), (12, 512, 1, 1));
        assert_eq!(down.trigger, Trigger::AfterLoads);
    }
    assert!(schedules(1, LaunchRole::FfnDown).iter().all(|down| down.warps == 4));
    assert!(schedules(8, LaunchRole::FfnDown).iter().all(|down| down.warps != 4));
    let gate_up = schedules(16, LaunchRole::FfnGateUp)[0].several;
    assert_eq!((gate_up.warpgroups, gate_up.blocks), (2, 2));
    let qkv = schedules(2, LaunchRole::AttnQkv)[0];
    assert_eq!((qkv.warps, qkv.groups, qkv.stages, qkv.in_flight), (12, 3, 3, 2));
    let head = schedules(64, LaunchRole::Output)[0].several;
    assert_eq!((head.warpgroups, head.buffers), (0, 1));
    assert_eq!(attention(&plan(16, &tuning)).stages, 3);
    for rows in [4, 32] {
        let trigger =
            Tuning::parse("version = 1\n[[rule]]\nrole = 'ffn_down'\ntrigger = 'after_loads'").unwrap();
        assert_eq!(plan(rows, &tuning).kernels, plan(rows, &trigger).kernels, "{rows} rows");
    }
}

#[test]
fn a_rule_for_one_arithmetic_does_not_apply_to_the_other() {
    let rule = |arithmetic: &str| {
        let rule =
            format!("[[rule]]\nrole = 'ffn_down'\nrows = 32\narithmetic = '{arithmetic}'\nwarpgroups = 0");
        Tuning::parse(&format!("version = 1\n{rule}")).unwrap()
    };
    let warpgroups = |arithmetic, tuning: &Tuning| -> HashSet<u32> {
        let params = PlanParams::single(256).with_slots(32, 1024).decode(32).with_arithmetic(arithmetic);
        let plan = Plan::tuned(&shape(), Target::Sm90, params, tuning).unwrap();
        let products = products(&plan, LaunchRole::FfnDown);
        products.iter().map(|product| product.schedule.several.warpgroups).collect()
    };
    assert_eq!(warpgroups(Arithmetic::F16, &rule("integers")), HashSet::from([3]));
    assert_eq!(warpgroups(Arithmetic::F16, &rule("f16")), HashSet::from([0]));
}

/// For four rows the cost model chooses 14 warps and three buffers in the down projection. Rules override these choices.
#[test]
fn rules_override_the_division_of_four_rows() {
    let down = |rule: &str| {
        let rule = format!("version = 1\n[[rule]]\nrows = 4\nrole = 'ffn_down'\n{rule}");
        let params = PlanParams::single(128).decode(4);
        let tuning = Tuning::parse(&rule).unwrap();
        let plan = Plan::tuned(&shape(), Target::Sm90, params, &tuning).unwrap();
        let down = products(&plan, LaunchRole::FfnDown)[0].schedule;
        [down.warps, down.groups, down.several.buffers]
    };
    assert_eq!(down("trigger = 'after_wait'"), [14, 14, 3]);
    assert_eq!(down("groups = 12"), [12, 12, 4]);
    assert_eq!(down("warps = 8\nbuffers = 2"), [8, 8, 2]);
}

/// The cost model holds the sums of the down projection of eight rows, and not those of the head; rules decide otherwise.
#[test]
fn rules_decide_which_sums_are_held() {
    let holds = |role: LaunchRole, rule: &str| {
        let params = PlanParams::single(128).decode(8);
        let tuning = Tuning::parse(&format!("version = 1\n{rule}")).unwrap();
        let plan = Plan::tuned(&shape(), Target::Sm90, params, &tuning).unwrap();
        products(&plan, role)[0].schedule.several.holds
    };
    let rule = |role: &str, value: u32| format!("[[rule]]\nrows = 8\nrole = '{role}'\nholds = {value}");
    assert!(holds(LaunchRole::FfnDown, ""));
    assert!(!holds(LaunchRole::FfnDown, &rule("ffn_down", 0)));
    assert!(!holds(LaunchRole::Output, ""));
    assert!(holds(LaunchRole::Output, &rule("output", 1)));
    assert!(holds(LaunchRole::FfnDown, &format!("{}\nslice = 512\nbuffers = 2", rule("ffn_down", 1))));
}

/// Held sums need no barriers between slices: those at the start and around the outputs are left. Residuals are loaded before the
/// products; nothing else is loaded from global memory without a bulk copy.
#[test]
fn down_projections_of_eight_rows_have_few_barriers_and_early_residuals() {
    let ptx = |rule: &str| {
        let tuning = Tuning::parse(&format!("version = 1\n{rule}")).unwrap();
        let plan = Plan::tuned(&shape(), Target::Sm90, PlanParams::single(128).decode(8), &tuning).unwrap();
        let down = KernelSpec::Gemv(products(&plan, LaunchRole::FfnDown)[0].clone());
        down.kernel(Target::Sm90).unwrap().compile(Target::Sm90).unwrap().ptx
    };
    let barriers = |ptx: &str| ptx.matches("bar.sync ").count();
    let (held, added) = (ptx(""), ptx("[[rule]]\nrows = 8\nrole = 'ffn_down'\nholds = 0"));
    assert_eq!([barriers(&held), barriers(&added)], [3, 4]);
    for ptx in [held, added] {
        assert!(ptx.find("ld.global").unwrap() < ptx.find("mma.sync").unwrap());
    }
}

/// A kernel that does not wait has a full edge before it.
#[test]
fn a_kernel_that_never_waits_is_not_launched_early() {
    let tuned = plan("[[rule]]\nrole = 'attn_qkv'\ntrigger = 'never'").unwrap();
    for (index, launch) in tuned.launches.iter().enumerate() {
        let early = index > 0 && launch.label.role != LaunchRole::AttnQkv;
        assert_eq!(launch.programmatic, early, "{}", launch.label);
    }
    assert!(
        products(&tuned, LaunchRole::AttnQkv).iter().all(|shape| shape.schedule.trigger == Trigger::Never)
    );
}

#[test]
fn a_file_round_trips() {
    let rule = |role| Rule::empty(role);
    let tuning = Tuning {
        rules: vec![
            Rule {
                grid: Some(66),
                warps: Some(12),
                stages: Some(4),
                in_flight: Some(3),
                resident: Some(1),
                trigger: Some(Trigger::AfterWait),
                ..rule(LaunchRole::FfnGateUp)
            },
            Rule {
                target: Some(Target::Sm90),
                splits: Some(8),
                min_pages: Some(1),
                ..rule(LaunchRole::Attention)
            },
            Rule { shape: Some("q6kr4096_c14336".to_owned()), stages: Some(2), ..rule(LaunchRole::FfnDown) },
        ],
        ..Tuning::default()
    };
    let text = tuning.to_toml("measured on a device\n\nby bespoke");
    assert!(text.starts_with("# measured on a device\n#\n# by bespoke\nversion = 1\n"), "{text}");
    assert_eq!(Tuning::parse(&text).unwrap(), tuning);
}

#[test]
fn malformed_tunings_are_errors() {
    for (text, expected) in [
        ("", "missing field `version`"),
        ("version = 2\nlater = true", "version 2; this program reads version 1"),
        ("version = 1\nwarps = 4", "unknown field `warps`"),
        ("version = 1\n[[rule]]\nwarps = 4", "missing field `role`"),
        ("version = 1\n[[rule]]\nrole = 'ffn_up'", "unknown variant `ffn_up`"),
        ("version = 1\n[[rule]]\nrole = 'embed'", "embed cannot be tuned; attn_qkv, attention, "),
        ("version = 1\n[[rule]]\nrole = 'ffn_down'\nwarp = 4", "unknown field `warp`"),
        ("version = 1\n[[rule]]\nrole = 'ffn_down'\ndepth = 2", "unknown field `depth`"),
        ("version = 1\n[[rule]]\nrole = 'ffn_down'\nwarps = -4", "line 4"),
        ("version = 1\n[[rule]]\nrole = 'ffn_down'\ntarget = 'sm_70'", "unknown target `sm_70`"),
        ("version = 1\n[[rule]]\nrole = 'ffn_down'\nwarps = 0", "ffn_down: warps = 0: must be 1 to 31"),
        (
            "version = 1\n[[rule]]\nrole = 'attention'\nwarps = 8",
            "attention: warps = 8: the knobs of attention are splits, min_pages, stages",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'ffn_down'\nslice = 512",
            "ffn_down: slice = 512: the knobs of a matrix product are grid, warps, groups, stages, in_flight, resident, trigger",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'ffn_down'\nrows = 8\nresident = 2",
            "ffn_down with 8 rows: resident = 2: the knobs of a matrix product of several rows are grid, warps, groups, stages, \
             in_flight, slice, buffers, parts, tiles, holds, warpgroups, blocks, trigger",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'attention'\nrows = 8\nsplits = 4",
            "attention with 8 rows: splits = 4: the knobs of attention of one number of rows are stages",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'attention'\nrows = 1\nsplits = 4",
            "attention with 1 row: splits = 4: the knobs of attention of one number of rows are stages",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'ffn_down'\nrows = 3\nwarps = 8",
            "rows = 3: decode steps have 1, 2, 4, 8, 16, 32, 64 rows",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'ffn_down'\nrows = 1\narithmetic = 'f16'\nwarps = 8",
            "rows = 1, arithmetic = \"f16\": with f16, one sequence has steps of 2 rows; use rows = 2",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'ffn_down'\narithmetic = 'f16'\nwarps = 8",
            "ffn_down (f16): warps = 8: a rule for f16 needs `rows` (2 and more); without it only `trigger` applies",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'ffn_down'\nrows = 8\nwarpgroups = 4",
            "ffn_down with 8 rows: warpgroups = 4: must be 0 to 3",
        ),
        (
            "version = 1\n[[rule]]\nrole = 'output'\nsplits = 8",
            "output: splits = 8: the knobs of a matrix product are grid, warps, groups, stages, in_flight, resident, trigger",
        ),
    ] {
        let error = Tuning::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn violated_limits_are_named() {
    for (rule, expected) in [
        (
            "role = 'attn_output'\ngrid = 257",
            "attn_output (q4kr4096_c4096) on sm_90 with 132 multiprocessors: grid = 257: there are 256 tiles",
        ),
        ("role = 'output'\ngrid = 1025", "grid = 1025: the head has at most 1024 CTAs"),
        ("role = 'ffn_down'\nin_flight = 5\nstages = 4", "in_flight = 5: the ring has 4 stages"),
        ("role = 'ffn_down'\nstages = 40", "bytes of shared memory; the limit is 232448"),
        (
            "role = 'ffn_down'\nstages = 4\nresident = 4",
            "resident = 4: a multiprocessor has room for 3 CTAs of 96 threads and ",
        ),
        (
            "role = 'ffn_down'\ngroups = 2\nstages = 3",
            "groups = 2: groups must divide the number of stages, which is 3",
        ),
        (
            "role = 'attn_output'\nwarps = 31\nresident = 3\nstages = 1",
            "resident = 3: a multiprocessor has room for 1 CTAs of 1024 threads",
        ),
        (
            "role = 'attn_qkv'\ntrigger = 'at_start'",
            "trigger = at_start: attention reads the position before it waits",
        ),
        ("role = 'attention'\nstages = 7", "attention on sm_90 with 132 multiprocessors: stages = 7: "),
    ] {
        let error = plan(&format!("[[rule]]\n{rule}")).err().unwrap_or_else(|| panic!("{rule}: accepted"));
        assert!(error.starts_with("tuning: ") && error.contains(expected), "{rule}\n{error}");
    }
    for (knob, value) in [("slice", 300), ("parts", 3), ("tiles", 4000), ("buffers", 64), ("stages", 63)] {
        let text = format!("version = 1\n[[rule]]\nrole = 'ffn_down'\nrows = 16\n{knob} = {value}");
        let params = PlanParams::single(256).with_slots(16, 512).decode(16);
        let error = Plan::tuned(&shape(), Target::Sm90, params, &Tuning::parse(&text).unwrap()).unwrap_err();
        let expected = format!(
            " with 16 rows (integers) on sm_90 with 132 multiprocessors: {knob} = {value}: no division of a product of 16 rows has it"
        );
        assert!(error.to_string().contains(&expected), "{error}");
    }
    let tuning = Tuning::parse("version = 1\n[[rule]]\nrole = 'output'\ntrigger = 'at_start'").unwrap();
    let error = plan_for(Target::Sm80, &tuning).unwrap_err();
    assert!(
        error.ends_with("the target has no programmatic dependent launch; only never is possible"),
        "{error}"
    );
}
