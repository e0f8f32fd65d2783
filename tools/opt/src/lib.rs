//! Runs passes over the text form of a kernel: the library of `bespoke opt`.

use bespoke_codegen::ir::Function;
use bespoke_codegen::opt_report::OptReport;
use bespoke_codegen::passes::{BrokenPass, LAST, OptLevel, Pass, Pipeline, ROUND};
use bespoke_codegen::ptx::{self, Target, Unsupported};
use bespoke_codegen::{IrError, Kernel};

/// Why passes cannot run, or their result cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum OptError {
    /// The text is not a valid kernel.
    #[error(transparent)]
    Ir(#[from] IrError),
    /// There is no pass of that name.
    #[error("`{name}` is not a pass; the passes are {}", pass_names().join(", "))]
    UnknownPass {
        /// The unknown name.
        name: String,
    },
    /// A pass left an invalid kernel.
    #[error("{broken} (a bug of the pass)\nin {function}")]
    Broken {
        /// The pass and the violated rules.
        broken: BrokenPass,
        /// Text form of the kernel that the pass left.
        function: String,
    },
    /// The target does not support an instruction.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// A kernel after passes.
#[derive(Clone, Debug)]
pub struct Optimised {
    /// The kernel.
    pub function: Function,
    /// Optimisations applied and missed, with the reason.
    pub report: OptReport,
}

/// Names of all passes, in the order of a round.
pub fn pass_names() -> Vec<&'static str> {
    passes().map(Pass::name).collect()
}

/// Runs passes over the text form of a kernel: those called `names`, once each and in that order, or without names the
/// pipeline of `Kernel::compile`. The kernel is verified before the first pass and after each.
pub fn run(text: &str, names: Option<&[String]>) -> Result<Optimised, OptError> {
    let pipeline = match names {
        Some(names) => Pipeline::once(names.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?),
        None => Pipeline::of(OptLevel::Default),
    };
    let mut function = Kernel::parse(text)?.function().clone();
    let report = pipeline
        .run_verified(&mut function)
        .map_err(|broken| OptError::Broken { broken, function: function.to_string() })?;
    let report = OptReport::of(&function, &report);
    Ok(Optimised { function, report })
}

impl Optimised {
    /// PTX of the kernel.
    pub fn ptx(&self, target: Target) -> Result<String, OptError> {
        Ok(ptx::print(&self.function, target)?)
    }
}

fn passes() -> impl Iterator<Item = &'static dyn Pass> {
    ROUND.iter().chain(LAST).copied()
}

fn find(name: &str) -> Result<&'static dyn Pass, OptError> {
    let unknown = || OptError::UnknownPass { name: name.to_owned() };
    passes().find(|pass| pass.name() == name).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const KERNEL: &str = "bespoke-ir 1
kernel @k(x: global u32) threads 32 {
block0:
  v0 = param.global 0
  v1 = const.u32 2
  v2 = const.u32 3
  v3 = add.u32 v1, v2
  v4 = load.u32 v0
  v5 = div.u32 v4, v3
  store.u32 v0, v5
  return
}
";

    fn check(text: &str, names: Option<&[&str]>, expected: Expect) {
        let names: Option<Vec<String>> = names.map(|names| names.iter().map(|&name| name.into()).collect());
        let found = match run(text, names.as_deref()) {
            Ok(optimised) => format!("{}{}", optimised.function, optimised.report),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&found);
    }

    #[test]
    fn named_passes_run_once_in_order() {
        check(
            KERNEL,
            Some(&["fold"]),
            expect![[r#"
            bespoke-ir 1
            kernel @k(x: global u32) threads 32 {
            block0:
              v0 = param.global 0
              v1 = const.u32 2
              v2 = const.u32 3
              v3 = const.u32 5
              v4 = load.u32 v0
              v5 = div.u32 v4, v3
              store.u32 v0, v5
              return
            }
        "#]],
        );
        check(
            KERNEL,
            Some(&["fold", "dce", "divide"]),
            expect![[r#"
            bespoke-ir 1
            kernel @k(x: global u32) threads 32 {
            block0:
              v0 = param.global 0
              v3 = const.u32 5
              v4 = load.u32 v0
              v6 = const.u32 0
              v7 = const.u32 3435973837
              v8 = const.u32 2
              v9 = shr.u32 v4, v6
              v10 = mul_hi.u32 v9, v7
              v11 = shr.u32 v10, v8
              store.u32 v0, v11
              return
            }
            the kernel
              done   divide           computed the quotient by 5 by a product
        "#]],
        );
        check(
            KERNEL,
            Some(&[]),
            expect![[r#"
            bespoke-ir 1
            kernel @k(x: global u32) threads 32 {
            block0:
              v0 = param.global 0
              v1 = const.u32 2
              v2 = const.u32 3
              v3 = add.u32 v1, v2
              v4 = load.u32 v0
              v5 = div.u32 v4, v3
              store.u32 v0, v5
              return
            }
        "#]],
        );
    }

    #[test]
    fn without_names_the_whole_pipeline_runs() {
        let optimised = run(KERNEL, None).unwrap();
        let compiled = Kernel::parse(KERNEL).unwrap().compile(Target::Sm80).unwrap();
        assert_eq!(optimised.function.to_string(), compiled.function.to_string());
        assert_eq!(optimised.ptx(Target::Sm80).unwrap(), compiled.ptx);
    }

    #[test]
    fn errors() {
        check(
            KERNEL,
            Some(&["unrol"]),
            expect![
                "`unrol` is not a pass; the passes are cleanup, fold, gvn, bounds, narrow, address, ifconvert, licm, unroll, unroll_partially, dce, widen, divide"
            ],
        );
        check(&KERNEL.replace("v4 = load", "v4 = lode"), None, expect!["8:8: `lode` is not an operation"]);
        check(
            &KERNEL.replace("store.u32 v0, v5", "store.u32 v0, v0"),
            None,
            expect![[r#"
            invalid IR:
              block0: `store.u32 v0, v0`: v0 of type global is not of type u32"#]],
        );
        check(
            &KERNEL.replace("bespoke-ir 1", "bespoke-ir 9"),
            None,
            expect!["1:1: this text is `bespoke-ir 9`, and this parser reads `bespoke-ir 1`"],
        );
    }
}
