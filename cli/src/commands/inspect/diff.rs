//! `bespoke inspect --diff`: compares the kernels of two plans by role.

use std::io::IsTerminal;
use std::path::Path;

use bespoke_inspect::diff::{Code, Diff, Side, once};
use bespoke_inspect::{Tools, text};
use miette::{IntoDiagnostic, miette};

use super::{Format, InspectArgs, Stage, TARGET, code, is_folder, plan_of, sass_tools, with_target};
use crate::console::{json, out};
use crate::progress::Progress;

/// Compares two subjects and prints the differences.
pub(super) fn execute(args: &InspectArgs, a: &str, b: &str) -> miette::Result<()> {
    if args.rows.len() > 1 {
        return Err(miette!("--diff compares steps of one number of rows, as with --rows 8"));
    }
    if let Some(target) = args.target
        && with_target(a)?.1.is_some()
        && with_target(b)?.1.is_some()
    {
        return Err(miette!("--target {target} has no effect: {a} and {b} both name a target"));
    }
    let stage = args.stage.map(|stage| match (stage, code(stage)) {
        (Stage::Stats, _) => Ok(None),
        (_, Some(code)) => Ok(Some(code)),
        _ => Err(miette!("--diff compares at the stages stats, ir, ptx and sass")),
    });
    let code = stage.transpose()?.flatten();
    let tools = if code == Some(Code::Sass) { sass_tools()? } else { Tools::find().into_diagnostic()? };
    let bar = tools.ptxas.is_some().then(|| Progress::delayed_spinner("assembling"));
    let side = |subject, context| side(args, subject, context, &tools, code);
    // A plan read from a folder determines the context of the other plan.
    let (a, b) = if is_folder(with_target(b)?.0) {
        let b = side(b, None)?;
        (side(a, Some(b.context))?, b)
    } else {
        let context = is_folder(with_target(a)?.0);
        let a = side(a, None)?;
        let context = context.then_some(a.context);
        (a, side(b, context)?)
    };
    drop(bar);
    let roles = once(a.kernels.iter().chain(&b.kernels).map(|kernel| kernel.role.as_str()));
    if let Some(role) = args.role.as_deref().filter(|role| !roles.contains(role)) {
        return Err(miette!("there is no role `{role}`; the roles are {}", roles.join(", ")));
    }
    let diff = Diff::of(&a, &b, args.role.as_deref(), code);
    match args.format {
        Format::Json => json(&diff),
        Format::Text => {
            out!("{}", text::diff(&diff, std::io::stdout().is_terminal()))?;
            Ok(())
        }
    }
}

/// One side of the comparison: `SHAPE`, `MODEL.gguf` or `DIR`, optionally followed by `@sm_80`.
fn side(
    args: &InspectArgs,
    subject: &str,
    context: Option<u32>,
    tools: &Tools,
    code: Option<Code>,
) -> miette::Result<Side> {
    let (name, target) = with_target(subject)?;
    let sass = code == Some(Code::Sass);
    let folder = Path::new(name);
    if is_folder(name) {
        if code == Some(Code::Ir) {
            return Err(miette!("{name}: a folder has PTX but no IR; compare with --stage ptx or sass"));
        }
        return Side::of_folder(folder, target.or(args.target), tools, sass).into_diagnostic();
    }
    let target = target.or(args.target).unwrap_or(TARGET);
    let plan = plan_of(args, name, (target, context), &args.rules.read()?)?;
    Side::of_plan(&plan, tools, sass).into_diagnostic()
}
