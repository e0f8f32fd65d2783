//! `bespoke inspect --diff`: two plans' kernels, role by role.

use std::io::IsTerminal;
use std::path::Path;

use miette::{IntoDiagnostic, miette};

use super::{
    Format, InspectArgs, Stage, TARGET, code, is_folder, plan_of, print_json, sass_tools, with_target,
};
use crate::cli::progress::Working;
use crate::inspect::Tools;
use crate::inspect::diff::{Change, Code, Diff, KernelDiff, Side};

/// Compares two subjects and prints what differs.
pub(super) fn execute(args: &InspectArgs, a: &str, b: &str) -> miette::Result<()> {
    let stage = args.stage.map(|stage| match (stage, code(stage)) {
        (Stage::Stats, _) => Ok(None),
        (_, Some(code)) => Ok(Some(code)),
        _ => Err(miette!("--diff compares at the stages stats, ir, ptx and sass")),
    });
    let code = stage.transpose()?.flatten();
    let tools = if code == Some(Code::Sass) { sass_tools()? } else { Tools::find().into_diagnostic()? };
    let bar = tools.ptxas.is_some().then(|| Working::new("assembling"));
    let side = |subject, context| side(args, subject, context, &tools, code);
    // A plan that is there already says for how many positions the other one is.
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
        return Err(miette!("there is no role `{role}`; there are {}", roles.join(", ")));
    }
    let diff = Diff::of(&a, &b, args.role.as_deref(), code);
    match args.format {
        Format::Json => print_json(&diff),
        Format::Text => {
            print!("{}", text(&diff, std::io::stdout().is_terminal()));
            Ok(())
        }
    }
}

/// `SHAPE`, `MODEL.gguf` or `DIR`, and `@sm_80` behind it.
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
            return Err(miette!("{name}: a folder holds PTX and no IR; compare at the stages ptx or sass"));
        }
        return Side::of_folder(folder, target, tools, sass).into_diagnostic();
    }
    let target = target.or(args.target).unwrap_or(TARGET);
    let plan = plan_of(args, name, (target, context), &args.rules.read()?)?;
    Side::of_plan(&plan, tools, sass).into_diagnostic()
}

/// The roles that differ, each with its values and lines; then the ones that do not.
fn text(diff: &Diff, color: bool) -> String {
    let paint =
        |code: &str, text: &str| if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() };
    let mut out =
        format!("{}\n{}\n", paint("31", &format!("--- {}", diff.a)), paint("32", &format!("+++ {}", diff.b)));
    for kernel in diff.kernels.iter().filter(|kernel| !kernel.is_equal()) {
        out.push_str(&format!("\n{}\n", paint("1", &kernel.role)));
        for (mark, code, name) in [("-", "31", &kernel.a), ("+", "32", &kernel.b)] {
            let name = name.as_deref().unwrap_or("(no such kernel)");
            out.push_str(&format!("  {}\n", paint(code, &format!("{mark} {name}"))));
        }
        for (constants, heading) in [(true, "constants"), (false, "figures")] {
            let list: Vec<&Change> = kernel.changes.iter().filter(|it| it.constant == constants).collect();
            let width = list.iter().map(|change| change.name.len()).max().unwrap_or(0);
            if !list.is_empty() {
                out.push_str(&format!("  {heading}\n"));
            }
            for change in list {
                let (a, b) = (value(change.a.as_deref()), value(change.b.as_deref()));
                out.push_str(&format!("    {:<width$}  {a} -> {b}{}\n", change.name, ratio(&a, &b)));
            }
        }
        lines(kernel, &mut out, paint);
    }
    let equal = diff.kernels.iter().filter(|kernel| kernel.is_equal());
    let equal = once(equal.map(|kernel| kernel.role.as_str()));
    if !equal.is_empty() {
        out.push_str(&format!("\nequal: {}\n", equal.join(", ")));
    }
    out
}

fn lines(kernel: &KernelDiff, out: &mut String, paint: impl Fn(&str, &str) -> String) {
    let Some(code) = &kernel.code else { return };
    out.push_str(&format!("  code: {} lines added, {} removed\n", code.added, code.removed));
    for hunk in &code.hunks {
        let count = |without: char| hunk.lines.iter().filter(|line| !line.starts_with(without)).count();
        let head = format!("@@ -{},{} +{},{} @@", hunk.a, count('+'), hunk.b, count('-'));
        out.push_str(&format!("{}\n", paint("36", &head)));
        for line in &hunk.lines {
            let line = match line.as_bytes().first() {
                Some(b'+') => paint("32", line),
                Some(b'-') => paint("31", line),
                _ => line.clone(),
            };
            out.push_str(&format!("{line}\n"));
        }
    }
}

/// Each name once, in order.
fn once<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.fold(Vec::new(), |mut seen, name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
        seen
    })
}

fn value(value: Option<&str>) -> String {
    value.unwrap_or("(none)").to_owned()
}

/// ` (x0.50)` between two numbers.
fn ratio(a: &str, b: &str) -> String {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) if a > 0.0 && b > 0.0 => format!("  (x{:.2})", b / a),
        _ => String::new(),
    }
}
