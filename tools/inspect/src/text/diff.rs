//! Differences between two plans as text.

use crate::diff::{Change, Diff, KernelDiff, once};

/// Lists the roles that differ, with values and lines of code; then the equal roles.
pub fn diff(diff: &Diff, color: bool) -> String {
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

fn value(value: Option<&str>) -> String {
    value.unwrap_or("(none)").to_owned()
}

/// Ratio of two numbers as ` (x0.50)`; empty if a value is not a positive number.
fn ratio(a: &str, b: &str) -> String {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) if a > 0.0 && b > 0.0 => format!("  (x{:.2})", b / a),
        _ => String::new(),
    }
}
