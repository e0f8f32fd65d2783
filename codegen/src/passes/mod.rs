//! Passes over the IR and the pipeline that [`optimize`] runs.
//!
//! A pass is a type that implements [`Pass`], in its own file. Passes take verified functions and leave verified
//! functions; debug builds verify after each pass that changes the function, and at the end. A pass may leave unreferenced values
//! and blocks behind, but no unreachable block in the layout.

mod address;
pub mod analysis;
mod bounds;
mod cleanup;
pub mod convergence;
mod dce;
mod divide;
mod edit;
mod fold;
mod gvn;
mod ifconvert;
mod licm;
mod narrow;
pub mod remarks;
mod unroll;
mod widen;

use crate::ir::verify::{VerifyError, verify};
use crate::ir::{Function, Op};

pub use address::Address;
pub use bounds::Bounds;
pub use cleanup::{Cleanup, Unreachable};
pub use dce::DeadCode;
pub use divide::Divide;
pub use fold::Fold;
pub use gvn::ValueNumbering;
pub use ifconvert::IfConvert;
pub use licm::InvariantMotion;
pub use narrow::Narrow;
pub use remarks::{Remark, Remarks};
pub use unroll::{Unroll, UnrollPartially};
pub use widen::Widen;

/// A transformation of a function that preserves its behaviour.
pub trait Pass: Sync {
    /// Name of the pass in reports and test files.
    fn name(&self) -> &'static str;

    /// Runs the pass and adds what it did to `remarks`; returns whether anything changed.
    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool;

    /// Adds a remark, with the reason, for each loop, access or instruction that the pass leaves unchanged. Called
    /// only on a function that the pass does not change any more.
    fn missed(&self, _function: &Function, _remarks: &mut Remarks) {}

    /// Runs the pass; returns whether anything changed.
    fn run(&self, function: &mut Function) -> bool {
        self.apply(function, &mut Remarks::default())
    }
}

/// Optimisation level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptLevel {
    /// Only passes that make the function well formed.
    None,
    /// The whole pipeline of passes.
    #[default]
    Default,
}

/// Result of one pass run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the pass.
    pub pass: &'static str,
    /// Number of instructions in the layout before the run.
    pub before: usize,
    /// Number of instructions in the layout after the run.
    pub after: usize,
    /// Whether the pass changed the function.
    pub changed: bool,
}

/// Results of all pass runs, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry per pass run.
    pub steps: Vec<Step>,
    /// What the passes did, in order. [`crate::opt_report::OptReport`] adds what they did not do.
    pub remarks: Vec<Remark>,
    /// Reports of the functions that the kernel calls, in their order.
    pub functions: Vec<Report>,
}

/// Every pass, in the order of one round of the pipeline.
pub const ROUND: &[&dyn Pass] = &[
    &Cleanup,
    &Fold,
    &ValueNumbering,
    &Bounds,
    &Narrow,
    &Address,
    &IfConvert,
    &InvariantMotion,
    &Unroll,
    &UnrollPartially,
    &DeadCode,
    &Widen,
];

/// The passes after the rounds. If one changes something, more rounds follow.
pub const LAST: &[&dyn Pass] = &[&Divide];

/// Maximum number of rounds, even if the last round still changes the function.
const MAX_ROUNDS: usize = 8;

/// Passes to run in rounds until a round makes no change, and passes to run after that.
#[derive(Clone)]
pub struct Pipeline {
    round: Vec<&'static dyn Pass>,
    last: Vec<&'static dyn Pass>,
}

impl Pipeline {
    /// The passes of an optimisation level.
    pub fn of(level: OptLevel) -> Pipeline {
        match level {
            OptLevel::None => Pipeline { round: Vec::new(), last: Vec::new() },
            OptLevel::Default => Pipeline { round: ROUND.to_vec(), last: LAST.to_vec() },
        }
    }

    /// These passes once, in this order.
    pub fn once(passes: impl IntoIterator<Item = &'static dyn Pass>) -> Pipeline {
        Pipeline { round: Vec::new(), last: passes.into_iter().collect() }
    }

    /// The pipeline without the pass called `name`, to measure the effect of that pass.
    #[must_use]
    pub fn without(mut self, name: &str) -> Pipeline {
        self.round.retain(|pass| pass.name() != name);
        self.last.retain(|pass| pass.name() != name);
        self
    }

    /// Runs the passes on the kernel and on each function that it calls, and removes functions that nothing calls any more.
    ///
    /// # Panics
    /// In debug builds, if a pass leaves a function that the verifier rejects.
    pub fn run(&self, function: &mut Function) -> Report {
        let functions =
            on_callees(function, |callee| Ok::<_, std::convert::Infallible>(self.run_alone(callee)))
                .unwrap_or_else(|never| match never {});
        let report = self.run_alone(function);
        Report { functions: remove_uncalled(function, functions), ..report }
    }

    fn run_alone(&self, function: &mut Function) -> Report {
        let mut manager = PassManager {
            function,
            report: Report::default(),
            verifies: cfg!(debug_assertions),
            broken: None,
        };
        self.run_with(&mut manager);
        if let Some(broken) = manager.broken {
            panic!("{broken}\nin {}", manager.function);
        }
        manager.report
    }

    /// As [`Pipeline::run`], and verifies as debug builds do, also in release builds. After an error, the function is the one that the pass left.
    pub fn run_verified(&self, function: &mut Function) -> Result<Report, BrokenPass> {
        let functions = on_callees(function, |callee| self.run_alone_verified(callee))?;
        let report = self.run_alone_verified(function)?;
        Ok(Report { functions: remove_uncalled(function, functions), ..report })
    }

    fn run_alone_verified(&self, function: &mut Function) -> Result<Report, BrokenPass> {
        let mut manager = PassManager { function, report: Report::default(), verifies: true, broken: None };
        self.run_with(&mut manager);
        match manager.broken {
            Some(broken) => Err(broken),
            None => Ok(manager.report),
        }
    }

    fn run_with(&self, manager: &mut PassManager<'_>) {
        manager.run(&Unreachable);
        manager.run_rounds(&self.round);
        let changes = self.last.iter().filter(|&&pass| manager.run(pass)).count();
        if changes > 0 {
            manager.run_rounds(&self.round);
        }
        manager.verify("a pass that reported no change");
    }
}

/// Applies `change` to each function that a kernel calls; meanwhile [`Function::functions`] of that function has the
/// functions before it. Returns the results of `change` in order.
fn on_callees<T, E>(
    kernel: &mut Function,
    mut change: impl FnMut(&mut Function) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let mut results = Vec::new();
    for index in 0..kernel.functions.len() {
        let mut callee = kernel.functions[index].clone();
        callee.functions = kernel.functions[..index].to_vec();
        let outcome = change(&mut callee);
        callee.functions.clear();
        kernel.functions[index] = callee;
        results.push(outcome?);
    }
    Ok(results)
}

/// Removes the functions that nothing calls. Returns the reports of the others; `reports` has one of each function.
fn remove_uncalled(kernel: &mut Function, mut reports: Vec<Report>) -> Vec<Report> {
    for index in (0..kernel.functions.len()).rev() {
        let name = &kernel.functions[index].name;
        let is_call = |op| matches!(op, Op::Call(callee) if callee.signature().name == *name);
        let calls = |caller: &Function| {
            let mut insts = caller.layout.iter().flat_map(|&block| &caller.block(block).insts);
            insts.any(|&inst| is_call(caller.inst(inst).op))
        };
        let called = kernel.functions[index + 1..].iter().any(calls) || calls(kernel);
        if !called {
            kernel.functions.remove(index);
            reports.remove(index);
        }
    }
    reports
}

/// A pass that left a function that the verifier rejects: a bug of the pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenPass {
    /// Name of the pass.
    pub pass: &'static str,
    /// The violated rules.
    pub errors: Vec<VerifyError>,
}

impl std::error::Error for BrokenPass {}

impl std::fmt::Display for BrokenPass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after {}: ", self.pass)?;
        for (index, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// Optimises the function: rounds of passes until a round changes nothing, then the last passes.
///
/// # Panics
/// In debug builds, if a pass leaves a function that the verifier rejects.
pub fn optimize(function: &mut Function, level: OptLevel) -> Report {
    Pipeline::of(level).run(function)
}

struct PassManager<'a> {
    function: &'a mut Function,
    report: Report,
    /// Whether to verify the function after each pass that changes it.
    verifies: bool,
    /// The first pass that broke the function; no pass runs after it.
    broken: Option<BrokenPass>,
}

impl PassManager<'_> {
    /// Runs rounds of the passes until a round makes no change.
    fn run_rounds(&mut self, round: &[&dyn Pass]) {
        // Number of changes so far, and for each pass that number at its last run without a change: the pass need not
        // run again until the number grows.
        let mut changes = 0;
        let mut idle_at = vec![None; round.len()];
        for _ in 0..MAX_ROUNDS {
            let before = changes;
            for (&pass, idle_at) in round.iter().zip(&mut idle_at) {
                if *idle_at == Some(changes) {
                    continue;
                }
                if self.run(pass) {
                    changes += 1;
                } else {
                    *idle_at = Some(changes);
                }
            }
            if changes == before {
                break;
            }
        }
    }

    fn run(&mut self, pass: &dyn Pass) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let before = self.function.size();
        let mut remarks = Remarks::default();
        let changed = pass.apply(self.function, &mut remarks);
        let after = self.function.size();
        self.report.remarks.extend(remarks.of(pass.name()));
        self.report.steps.push(Step { pass: pass.name(), before, after, changed });
        if changed {
            self.verify(pass.name());
        }
        changed
    }

    /// Verifies the function that `pass` left, if nothing broke it before.
    fn verify(&mut self, pass: &'static str) {
        if self.verifies
            && self.broken.is_none()
            && let Err(errors) = verify(self.function)
        {
            self.broken = Some(BrokenPass { pass, errors });
        }
    }
}
