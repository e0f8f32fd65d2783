//! Tuning rules, up to the plan and the kernels of a model.
//!
//! Properties: rules that were read can be written and are then the same; the plan by accepted rules is consistent;
//! the kernels of the plan compile, and the emulator loads their PTX.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use bespoke_codegen::ptx::Target;
use bespoke_emulator::Module;
use bespoke_kernels::plan::{Plan, PlanParams, Tuning};
use bespoke_kernels::shape::{ModelShape, builtin};

/// The built-in shape of whose plans the rules are.
const SHAPE_NAME: &str = "smollm2-135m";

/// Kernels compiled for one input; the others of its plan are compiled for later inputs with the same rules.
const COMPILED: usize = 2;

static SHAPE: LazyLock<ModelShape> = LazyLock::new(|| {
    let file = builtin().into_iter().find(|file| file.name == SHAPE_NAME).expect("a built-in shape");
    file.with_mix(&file.mixes[0]).expect("a mix of the file")
});

/// Names of kernels that compiled.
static KNOWN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let tuning = match Tuning::parse(text) {
        Ok(tuning) => tuning,
        Err(error) => return drop(error.to_string()),
    };
    let written = tuning.to_toml("A comment.");
    assert_eq!(Tuning::parse(&written).expect("rules that were written"), tuning);
    for target in [Target::Sm80, Target::Sm90] {
        match Plan::tuned(&SHAPE, target, PlanParams::single(4096), &tuning) {
            Ok(plan) => {
                plan.check().expect("the plan is consistent");
                compile(&plan);
            }
            Err(error) => drop(error.to_string()),
        }
    }
}

fn compile(plan: &Plan) {
    let new = plan.kernels.iter().filter(|kernel| {
        let name = format!("{} {}", kernel.name, plan.target());
        KNOWN.lock().expect("no panic holds it").insert(name)
    });
    for kernel in new.take(COMPILED) {
        let recorded =
            kernel.spec.kernel(plan.target()).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
        let compiled =
            recorded.compile(plan.target()).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
        Module::load(&compiled.ptx).unwrap_or_else(|errors| panic!("{}: {errors:?}", kernel.name));
    }
}
